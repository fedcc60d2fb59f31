"""Loads of answers that take seconds, as of a language model, are measured with defaults and with limits."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.support.simulated_load import in_lock_step
from tests.test_served_truth import Replay, Session

from modeldyno.base.job.load_spec import Load
from modeldyno.base.metrics.constraints import Constraint
from modeldyno.base.metrics.doubt import Doubt
from modeldyno.base.metrics.measurement import Distribution, Measurement
from modeldyno.base.metrics.measurement_plan import Plan
from modeldyno.base.result.result import Failure
from modeldyno.engine.interfaces.probe import ProbeContext
from modeldyno.serving.load.request_log import PieceTimes
from modeldyno.serving.probes import load as probe
from modeldyno.serving.probes import load_monitor
from modeldyno.testing.fakes import a_model

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modeldyno.serving.load.request_log import Records

DEFAULT = Plan(may_extend=True)
TOKENS = 64


def with_first_tokens(records: Records) -> Records:
    """Stream answers: half of what varies of the first token, after some 48 ms, is shared by a cohort."""
    noise = np.random.default_rng(3).exponential(0.003, (2, len(records)))
    cohorts = np.unique(records.due, return_inverse=True)[1]
    firsts = records.due + ((0.042 + noise[0, cohorts] + noise[1]) * 1e9).astype(np.int64)
    return replace(records, pieces=PieceTimes.of([*zip(firsts.tolist(), records.end.tolist(), strict=True)]))


def probed(
    monkeypatch: pytest.MonkeyPatch, takes: float, load: Load, plan: Plan, seconds: float = 400.0
) -> tuple[dict[str, Measurement], set[str], float]:
    """Run the probe in virtual time: its measurements, the codes of its doubts, and the seconds it took."""
    records = in_lock_step(load.slots or 1, takes, seconds, jitter=0.0005, tokens=TOKENS)
    replay = Replay(records=with_first_tokens(records) if plan.bounds else records)
    begun = replay.now

    @contextmanager
    def replayed(*_: object, **__: object) -> Iterator[Replay]:
        yield replay

    monkeypatch.setattr("modeldyno.serving.loadgen.driver_pool.run_load_drivers", replayed)
    monkeypatch.setattr(load_monitor, "perf_counter", lambda: replay.now * 1e-9)
    monkeypatch.setattr(load_monitor, "monotonic_ns", lambda: replay.now)
    events = list(probe.measure(ProbeContext(model=a_model(), session=Session(), load=load), plan))
    assert not [event for event in events if isinstance(event, Failure)]
    numbers = {each.metric: each for each in events if isinstance(each, Measurement) and not each.scope}
    codes = {each.code for each in events if isinstance(each, Doubt)}
    return numbers, codes, (replay.now - begun) * 1e-9


@pytest.mark.parametrize("slots", [1, 8, 256])
@pytest.mark.parametrize("takes", [0.05, 0.69, 4.2, 10.0])
def test_the_times_of_a_load_suit_its_answers_where_nobody_set_them(
    monkeypatch: pytest.MonkeyPatch, takes: float, slots: int
) -> None:
    """Of answers of any length, both rates are right, of five answers a slot and more, in a dozen at most."""
    numbers, doubts, seconds = probed(monkeypatch, takes, Load(concurrency=slots), DEFAULT)
    latency = numbers["latency"].value

    assert numbers["request_rate"].value == pytest.approx(slots / takes, rel=0.01)
    assert numbers["token_rate"].value == pytest.approx(slots * TOKENS / takes, rel=0.01)
    assert isinstance(latency, Distribution)
    assert len(latency) >= 5 * slots
    assert seconds <= max(20.0, 12 * takes) + 1
    assert not doubts & {"short-load", "little-law"}


@pytest.mark.parametrize(
    ("takes", "limit"),
    [
        (takes, limit)
        for takes in (0.2, 0.69, 1.5, 4.2)
        for limit in (1.5, 2.0, 3.0, 4.0, 5.0, 7.5, 10.0, 20.0)
        if limit > 2.2 * takes
    ],
)
def test_a_limit_that_was_set_holds_and_rates_are_right_or_withheld(
    monkeypatch: pytest.MonkeyPatch, takes: float, limit: float
) -> None:
    """Within 3 % of the truth, or not told, with the reason; the latencies are told all the same."""
    numbers, doubts, seconds = probed(monkeypatch, takes, Load(concurrency=4), Plan(max_time=limit))

    assert seconds <= limit + 0.2
    assert "latency" in numbers
    assert ("request_rate" in numbers) is not (doubts >= {"short-load"})
    if "request_rate" in numbers:
        assert numbers["request_rate"].value == pytest.approx(4 / takes, rel=0.03)
        assert numbers["token_rate"].value == pytest.approx(4 * TOKENS / takes, rel=0.03)


@pytest.mark.parametrize(("takes", "requests"), [(0.69, 8), (4.2, 40), (10.0, 56)])
def test_a_number_of_requests_is_measured_whatever_they_take(
    monkeypatch: pytest.MonkeyPatch, takes: float, requests: int
) -> None:
    """Those of a cohort stay together, so that the number is one that the slots divide."""
    numbers, doubts, _ = probed(monkeypatch, takes, Load(concurrency=8, requests=requests), DEFAULT)
    latency = numbers["latency"].value

    assert isinstance(latency, Distribution)
    assert len(latency) == requests
    assert latency.stop == "requests"
    assert "short-load" in doubts or numbers["request_rate"].value == pytest.approx(8 / takes, rel=0.01)


def test_a_duration_is_measured_whole_whatever_the_answers_take(monkeypatch: pytest.MonkeyPatch) -> None:
    """The warm-up of answers that take as long as the duration is no part of it."""
    numbers, _, seconds = probed(monkeypatch, 4.2, Load(concurrency=8, duration=9.0), Plan())

    assert seconds == pytest.approx(4.2 + 9.0, abs=0.5)
    assert numbers["request_rate"].value == pytest.approx(8 / 4.2, rel=0.01)


BOUND_AT = {"held": "100ms", "broken": "30ms"}


@pytest.mark.parametrize("verdict", ["held", "broken"])
@pytest.mark.parametrize("takes", [0.69, 4.2])
def test_a_bound_on_the_first_token_is_decided_where_nobody_set_a_time(
    monkeypatch: pytest.MonkeyPatch, takes: float, verdict: str
) -> None:
    """Answers in lock-step, with first tokens after some 50 ms: the load goes on until it can tell."""
    bound = Constraint.parse(f"time_to_first_token.p95 <= {BOUND_AT[verdict]}")
    plan = replace(DEFAULT, bounds=(bound,))
    numbers, _, seconds = probed(monkeypatch, takes, Load(concurrency=4), plan, seconds=700.0)

    assert bound.judge(tuple(numbers.values())).verdict == verdict
    assert seconds <= (12 * takes + 25 if verdict == "broken" else 170 * takes)


def test_a_load_does_not_go_on_for_a_bound_that_would_take_hours(monkeypatch: pytest.MonkeyPatch) -> None:
    """To see one of a thousand answers of ten seconds takes ten hours, so it ends after a dozen."""
    plan = replace(DEFAULT, bounds=(Constraint.parse("time_to_first_token.p99.9 <= 100s"),))
    _, _, seconds = probed(monkeypatch, 10.0, Load(concurrency=1), plan)

    assert seconds <= 121


def test_a_load_that_ended_with_a_bound_open_says_which(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time that was set holds, and the reason is the bound, though the median is known."""
    plan = Plan(max_time=30.0, bounds=(Constraint.parse("time_to_first_token.p95 <= 100ms"),))
    numbers, doubts, seconds = probed(monkeypatch, 0.69, Load(concurrency=4), plan)
    latency = numbers["latency"].value

    assert seconds <= 30.2
    assert "time-limit" in doubts
    assert isinstance(latency, Distribution)
    assert "time_to_first_token.p95 <= 100 ms is undecided" in latency.unmet
