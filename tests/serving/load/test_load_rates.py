"""Rates of a load: one definition, wherever the window lies and however the answers end."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.support.simulated_load import in_lock_step, simulate

from modeldyno.base.job.load_spec import Arrivals, Load
from modeldyno.base.metrics.measurement import LITTLE_LAW, SATURATED, SHORT_LOAD, Interval, Measurement
from modeldyno.base.result.request_outcome import RequestOutcome
from modeldyno.serving.load.load_rates import rate_doubts, rates
from modeldyno.serving.load.request_log import COLUMNS, Records, empty_records, join_records
from modeldyno.serving.load.steady_window import SteadyWindow
from modeldyno.testing.service_model import Service, exponential, lognormal

if TYPE_CHECKING:
    from collections.abc import Iterator

SECOND = 1_000_000_000
TOKENS = 64


def cut(records: Records, begin: float, seconds: float, load: Load) -> SteadyWindow:
    """Cut a window that begins so many seconds after the first request was due."""
    first = int(records.due.min()) + int(begin * SECOND)
    return SteadyWindow(records=records, begin=first, end=first + int(seconds * SECOND), load=load)


def rates_of(window: SteadyWindow, why: str = "") -> dict[str, Measurement]:
    """Give the rates by name."""
    return {measurement.metric: measurement for measurement in rates(window, why)}


def value_and_interval(measurement: Measurement) -> tuple[float, Interval]:
    """Give a number with its interval."""
    assert isinstance(measurement.value, float)
    assert measurement.interval is not None
    return measurement.value, measurement.interval


def grid(step: int) -> Iterator[tuple[float, int, float, float]]:
    """Answer time, slots, seconds of the window and its begin: every so many of all."""
    times = (0.05, 0.2, 0.69, 2.0, 4.2, 10.0)
    points = [
        (takes, slots, seconds, begin)
        for takes in times
        for slots in (1, 3, 8, 64, 256)
        for seconds in (2.0, 3.0, 5.0, 10.0, 20.0, 60.0)
        for begin in takes * np.array([1.0, 1.013, 1.2, 1.5, 1.77, 1.98])
    ]
    yield from points[::step]


@pytest.mark.parametrize("step", [13, pytest.param(1, marks=pytest.mark.slow)])
def test_rates_of_answers_in_lock_step_are_right_or_withheld(step: int) -> None:
    """For 0.05 to 10 s an answer, 1 to 256 at once, 2 to 60 s, whatever the phase: within 1 %, or not told.

    Nothing is withheld of a window that holds two answers; after five, the interval is within 5 %.
    """
    for takes, slots, seconds, begin in grid(step):
        load = Load(concurrency=slots)
        records = in_lock_step(slots, takes, begin + seconds, jitter=0.001, tokens=TOKENS)
        window = cut(records, begin, seconds, load)
        measured = rates_of(window)
        doubts = {doubt.code for doubt in rate_doubts(window, "")}
        assert ("request_rate" in measured) is (not doubts)
        assert doubts <= {SHORT_LOAD}
        assert bool(doubts) is (seconds < 2 * takes * 1.003)
        if doubts:
            continue
        for name, truth in (("request_rate", slots / takes), ("token_rate", slots * TOKENS / takes)):
            value, interval = value_and_interval(measured[name])
            assert value == pytest.approx(truth, rel=0.01)
            assert seconds < 5 * takes or interval.half_width() < 0.05 * truth
        assert measured["in_flight"].value == pytest.approx(slots, rel=0.01)


def test_a_first_token_that_takes_long_does_not_bend_the_rate() -> None:
    """Where all wait for a prompt at once, no token arrives for seconds, and yet the rate is right.

    To count the pieces that arrive would be off by up to a fifth: 2.5 cycles hold 2 or 3 of such spells.
    """
    takes, slots, first = 4.2, 8, 2.0
    records = in_lock_step(slots, takes, 30.0, tokens=TOKENS)
    pieces = np.linspace(first, takes, TOKENS) * SECOND
    arrivals = np.sort(np.add.outer(records.due, pieces).ravel())
    worst, worst_by_pieces = 0.0, 0.0
    for begin in takes + takes * np.linspace(0, 1, 40):
        window = cut(records, begin, 2.5 * takes, Load(concurrency=slots))
        truth = slots * TOKENS / takes
        value, _ = value_and_interval(rates_of(window)["token_rate"])
        here = np.searchsorted(arrivals, [window.begin, window.end])
        worst = max(worst, abs(value / truth - 1))
        worst_by_pieces = max(worst_by_pieces, abs(float(here[1] - here[0]) / window.seconds / truth - 1))
    assert worst < 0.01
    assert worst_by_pieces > 0.15


@pytest.mark.parametrize("runs", [60, pytest.param(600, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("durations", "slots", "seconds"),
    [
        (exponential(1.0), 8, 20.0),
        (exponential(1.0), 64, 12.0),
        (lognormal(math.exp(-0.045), 0.3), 8, 5.5),
        (lognormal(math.exp(-0.045), 0.3), 8, 12.0),
        (lognormal(math.exp(-0.045), 0.3), 64, 20.0),
    ],
    ids=["exponential", "many exponential", "few answers", "some answers", "many answers"],
)
def test_intervals_of_rates_cover_the_truth(durations: Any, slots: int, seconds: float, runs: int) -> None:
    """Of answers that vary, begun together, nine intervals in ten and more hold the rate, without bias."""
    hits, values = 0, []
    for seed in range(runs):
        load = Load(concurrency=slots, duration=seconds + 9.0)
        records = simulate(Service(durations=durations, workers=slots), load, seed=seed).records
        measured = rates_of(cut(records, 3.0 + 0.37 * (seed % 7), seconds, load))
        if "request_rate" not in measured:
            continue
        value, interval = value_and_interval(measured["request_rate"])
        values.append(value / slots)
        hits += interval.low <= slots <= interval.high
    assert len(values) >= 0.95 * runs
    assert hits / len(values) >= 0.9 - 3.3 * math.sqrt(0.9 * 0.1 / len(values))
    error = float(np.std(values)) / math.sqrt(len(values))
    assert np.mean(values) == pytest.approx(1, abs=0.005 + 3.3 * error)


@pytest.mark.parametrize("jitter", [0.001, 0.01])
def test_an_interval_in_lock_step_has_the_cycle_as_its_unit(jitter: float) -> None:
    """Where all answers of a cycle share its luck, the interval after five of them is no wider than 5 %."""
    hits, widths = 0, []
    for seed in range(150):
        records = in_lock_step(8, 1.0, 8.5, jitter=jitter, seed=seed)
        value, interval = value_and_interval(
            rates_of(cut(records, 1.37, 5.4, Load(concurrency=8)))["request_rate"]
        )
        widths.append(interval.half_width() / value)
        hits += interval.low <= 8.0 <= interval.high
    assert hits >= 0.85 * 150
    assert np.quantile(widths, 0.95) < 0.05


def test_requests_that_were_never_answered_withhold_the_rate() -> None:
    """Half of the slots hang: by Little's law, what was answered does not explain what was in flight."""
    records = in_lock_step(8, 0.5, 20.0)
    outcome = records.outcome.copy()
    hung = (records.due > int(records.due.min()) + 9 * SECOND) & (records.message % 2 == 0)
    outcome[hung] = RequestOutcome.CANCELLED
    window = cut(replace(records, outcome=outcome), 2.0, 12.0, Load(concurrency=8))
    (doubt,) = rate_doubts(window, "")

    assert doubt.code == LITTLE_LAW
    assert "Little's law" in doubt.seen
    assert set(rates_of(window)) == {"in_flight"}


def test_a_single_request_that_hangs_withholds_nothing_of_a_thousand() -> None:
    """A long answer is one in which much of the time in flight is spent, not the longest of all."""
    quick, slow = in_lock_step(64, 0.05, 12.0), in_lock_step(1, 9.0, 8.0)
    window = cut(join_records([quick, slow]), 1.0, 8.0, Load(concurrency=64))

    assert not list(rate_doubts(window, ""))
    assert rates_of(window)["request_rate"].value == pytest.approx(64 / 0.05, rel=0.01)


def test_failed_requests_are_in_flight_and_in_no_rate() -> None:
    """They take their time, and are no answers; nor are they a contradiction."""
    records = in_lock_step(4, 0.1, 12.0)
    outcome = np.where(np.arange(len(records)) % 4 == 0, RequestOutcome.TIMEOUT, RequestOutcome.OK)
    window = cut(
        replace(records, outcome=outcome.astype("uint8")), 1.0, 10.0, Load(concurrency=4, within=0.2)
    )
    measured = rates_of(window)

    assert measured["request_rate"].value == pytest.approx(30, rel=0.01)
    assert measured["goodput"].value == pytest.approx(30, rel=0.01)
    assert measured["in_flight"].value == pytest.approx(4, rel=0.01)


def test_an_overload_counts_what_ended() -> None:
    """Each waits longer than the one before it, so that none in flight is like another."""
    load = Load(arrivals=Arrivals.CONSTANT, rate=150, duration=40.0)
    service = Service(durations=exponential(0.01))
    window = cut(simulate(service, load).records, 10.0, 20.0, load)

    assert rates_of(window, SATURATED)["request_rate"].value == pytest.approx(100, rel=0.05)
    assert not list(rate_doubts(window, SATURATED))


def test_a_window_in_which_nothing_was_asked_has_a_rate_of_nothing() -> None:
    """Neither an empty log nor requests that were never sent are in flight."""
    window = SteadyWindow(records=empty_records(), begin=0, end=SECOND, load=Load(concurrency=1))
    assert rates_of(window)["request_rate"].value == 0
    assert rates_of(window)["in_flight"].value == 0


def hanging(slots: int = 8, *, seconds: float = 20.0) -> Records:
    """Requests are answered after 8 ms and time out after 2 s in turn; the end cuts the last ones off."""
    rows: list[tuple[float, float, RequestOutcome]] = []
    for slot in range(slots):
        now, answered = 0.02 * slot, True
        while now < seconds:
            end = now + (0.008 if answered else 2.0)
            outcome = RequestOutcome.OK if answered else RequestOutcome.TIMEOUT
            if end > seconds:
                end, outcome = seconds + 1, RequestOutcome.CANCELLED
            rows.append((now, end, outcome))
            now, answered = end, not answered
    table = np.array([(begin * SECOND, end * SECOND) for begin, end, _ in rows], "int64")
    columns: dict[str, Any] = {name: np.zeros(len(rows), dtype) for name, dtype in COLUMNS.items()}
    columns |= {"due": table[:, 0], "sent": table[:, 0] + 1, "end": table[:, 1]}
    columns["outcome"] = np.array([outcome for _, _, outcome in rows], "uint8")
    return join_records([Records(**columns)])


def test_requests_that_hang_do_not_withhold_the_rate_of_those_that_are_answered() -> None:
    """The last ones that hang are cut off by the end of the load, and are no slow answers."""
    window = cut(hanging(), 2, 17.9, Load(concurrency=8))
    assert not [*rate_doubts(window, "")]
    assert rates_of(window)["request_rate"].value == pytest.approx(8 / 2.008, rel=0.1)
