"""The simulated server agrees with queueing theory, and the theory with itself.

Runs begin with an empty queue; the first requests are left out. Queues are correlated over thousands of
requests, so that even a million of them know the mean at 90 % load no better than to a percent.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support import queueing_theory as queueing
from tests.support.simulated_load import Served, simulate

from modeldyno.base.errors import RequestError, UnknownName
from modeldyno.base.job.load_spec import Arrivals, Load
from modeldyno.base.result.request_outcome import RequestOutcome
from modeldyno.base.stats import statistics
from modeldyno.serving.load.request_log import COLUMNS
from modeldyno.testing.service_model import (
    Durations,
    Service,
    Stall,
    constant,
    exponential,
    lognormal,
    moment_of,
    parse_durations,
    recorded_times,
    work_done_by,
)

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.queueing_theory import Sojourn

CALL = 0.010
REQUESTS = 400_000
SKIPPED = 10_000
LOADS = (0.5, 0.8, 0.9)
TAILS = (0.5, 0.95, 0.99)


def poisson(busy: float, workers: int = 1) -> Load:
    return Load(arrivals=Arrivals.POISSON, rate=busy * workers / CALL)


def sojourns(served: Served, skipped: int = SKIPPED) -> statistics.Samples:
    """Return times from due to end, in the order of the ends, without the first ones."""
    seconds: statistics.Samples = (served.records.end - served.records.due)[skipped:] * 1e-9
    return seconds


def assert_agrees(times: statistics.Samples, truth: Sojourn) -> None:
    """Mean and quantiles are within twice the half-width of their own 95 % intervals: 4 standard errors."""
    estimates = {"mean": (float(times.mean()), statistics.mean_interval(times), truth.mean)}
    for p in TAILS:
        interval = statistics.quantile_interval(times, p)
        estimates[f"p{100 * p:g}"] = (statistics.quantile(times, p), interval, truth.quantile(p))
    for name, (value, (low, high), true) in estimates.items():
        assert high - low < 0.35 * true, name
        assert abs(value - true) <= high - low, name


@pytest.mark.parametrize("busy", LOADS)
@pytest.mark.parametrize("workers", [1, 4])
def test_random_queues_agree_with_theory(workers: int, busy: float) -> None:
    """Simulated M/M/1 and M/M/4 have the response times of the theory."""
    service = Service(durations=exponential(CALL), workers=workers)
    served = simulate(service, poisson(busy, workers), requests=REQUESTS, seed=3)
    rate = busy * workers / CALL
    assert_agrees(sojourns(served), queueing.open_exponential(rate, CALL, workers))


@pytest.mark.parametrize("busy", LOADS)
def test_a_queue_for_a_constant_service_agrees_with_theory(busy: float) -> None:
    """Simulated M/D/1 has the response times of the theory."""
    times = sojourns(simulate(Service(durations=constant(CALL)), poisson(busy), requests=REQUESTS, seed=5))
    truth = queueing.open_constant(busy / CALL, CALL)
    rounded = np.round(times, 12)  # many are served at once, and take exactly one service time
    assert_agrees(rounded + 1e-9, truth)


@pytest.mark.slow
@pytest.mark.parametrize("busy", LOADS)
@pytest.mark.parametrize("workers", [1, 4])
def test_the_mean_of_many_runs_is_that_of_theory(workers: int, busy: float) -> None:
    """Over 100 runs of a million requests, mean and quantiles are within 4 standard errors and 0.5 %."""
    service = Service(durations=exponential(CALL), workers=workers)
    truth = queueing.open_exponential(busy * workers / CALL, CALL, workers)
    estimates = []
    for seed in range(100):
        times = sojourns(simulate(service, poisson(busy, workers), requests=1_000_000, seed=seed))
        estimates.append([float(times.mean()), *(statistics.quantile(times, p) for p in TAILS)])
    runs = np.array(estimates) / [truth.mean, *map(truth.quantile, TAILS)] - 1
    error = runs.std(axis=0, ddof=1) / 10
    print(f"M/M/{workers} at {busy:.0%}: off by {runs.mean(axis=0)}, standard errors {error}")
    assert (abs(runs.mean(axis=0)) <= 4 * error).all()
    assert (abs(runs.mean(axis=0)) < 0.005).all()


@pytest.mark.parametrize(
    "durations",
    [constant(CALL), exponential(CALL), lognormal(0.008, 0.5), recorded_times([0.001, 0.003, 0.02])],
)
def test_any_service_agrees_with_pollaczek_and_khinchine(durations: Durations) -> None:
    """The mean of M/G/1 at 70 % load follows from mean and deviation of the service time alone."""
    load = Load(arrivals=Arrivals.POISSON, rate=0.7 / durations.mean)
    times = sojourns(simulate(Service(durations=durations), load, requests=REQUESTS, seed=1))
    low, high = statistics.mean_interval(times)
    truth = queueing.mean_sojourn(0.7 / durations.mean, durations.mean, durations.deviation)
    assert abs(times.mean() - truth) <= high - low < 0.1 * truth


@pytest.mark.parametrize(("slots", "workers"), [(1, 1), (8, 1), (8, 3), (2, 4)])
def test_a_closed_loop_obeys_little(slots: int, workers: int) -> None:
    """The slots are never idle: rate x time = slots, and the time agrees with the theory."""
    served = simulate(
        Service(durations=exponential(CALL), workers=workers), Load(concurrency=slots), requests=50_000
    )
    times = sojourns(served, 1000)
    low, high = statistics.mean_interval(times)
    truth = queueing.closed_mean(slots, CALL, workers)
    assert abs(times.mean() - truth) <= high - low < 0.1 * truth
    length = (served.records.end[-1] - served.records.due[0]) * 1e-9
    assert sojourns(served, 0).sum() / length == pytest.approx(slots, rel=0.01)


def test_the_two_ways_of_simulating_agree() -> None:
    """The same queue, computed directly and event by event, gives the same records to the nanosecond."""
    stalls = (Stall(at=1.0, seconds=0.5), Stall(at=3.0, seconds=0.25))
    for workers in (1, 3):
        plain = Service(durations=exponential(CALL), workers=workers, stalls=stalls)
        evented = Service(durations=exponential(CALL), workers=workers, stalls=stalls, limit=10**9)
        first, second = (
            simulate(service, poisson(0.7, workers), requests=5000, seed=9) for service in (plain, evented)
        )
        for name in COLUMNS:
            assert abs(getattr(first.records, name) - getattr(second.records, name)).max() <= 1, name
        assert abs(first.start - second.start).max() <= 1


def test_nothing_gets_done_in_a_stall() -> None:
    """From the 2nd to the 4th second no request ends; those in progress go on afterwards, none is lost."""
    service = Service(durations=constant(CALL), stalls=(Stall(at=2.0, seconds=2.0),))
    served = simulate(service, Load(arrivals=Arrivals.CONSTANT, rate=50), requests=400)
    ended = (served.records.end - served.records.due.min()) * 1e-9
    assert not ((ended > 2.0 + 1e-6) & (ended < 4.0)).any()
    assert len(served.records) == 400
    assert float(sojourns(served, 0).max()) == pytest.approx(2.0 + CALL, abs=0.02)
    assert float(served.queue.max()) == pytest.approx(2.0, abs=0.03)


@given(
    st.lists(st.tuples(st.floats(0.1, 5), st.floats(0.1, 5)), max_size=3),
    st.floats(0, 50),
)
def test_work_and_its_moment_are_inverse(gaps: list[tuple[float, float]], work: float) -> None:
    """When some work is done despite stalls, exactly that much work is done."""
    stalls, at = [], 0.0
    for gap, seconds in gaps:
        at += gap
        stalls.append(Stall(at=at, seconds=seconds))
        at += seconds
    assert work_done_by(stalls, moment_of(stalls, work)) == pytest.approx(work, abs=1e-9)
    assert moment_of(stalls, work) >= work


def test_a_slot_limit_holds_requests_back_and_not_their_due_times() -> None:
    """At most four are in flight; a request that waits for a slot was due before it was sent."""
    load = Load(arrivals=Arrivals.POISSON, rate=300, concurrency=4)
    served = simulate(Service(durations=exponential(CALL), workers=4), load, requests=5000)
    free = simulate(
        Service(durations=exponential(CALL), workers=4),
        Load(arrivals=Arrivals.POISSON, rate=300),
        requests=5000,
    )
    moments = np.concatenate([served.records.sent, served.records.end])
    steps = np.concatenate([np.ones(5000), -np.ones(5000)])
    order = np.lexsort((steps, moments))
    assert np.cumsum(steps[order]).max() == 4
    assert (served.records.sent >= served.records.due).all()
    assert (served.records.sent > served.records.due).any()
    assert abs(served.records.end - free.records.end).max() <= 1


def test_a_batch_forms_when_it_is_full_or_has_waited() -> None:
    """Of three requests a millisecond apart, two share a call; the third goes alone after the delay."""
    service = Service(durations=constant(CALL), batch=2, delay=0.005, each=0.001, workers=2)
    served = simulate(service, Load(arrivals=Arrivals.CONSTANT, rate=1000), requests=3)
    first = served.records.due.min()
    assert served.batch.tolist() == [2, 2, 1]
    assert ((served.start - first) / 1e6).tolist() == [1.0, 1.0, 7.0]
    assert ((served.records.end - first) / 1e6).tolist() == [12.0, 12.0, 17.0]


def test_batches_raise_the_capacity() -> None:
    """A closed loop of 32 slots reaches the capacity of calls that are as full as they may be."""
    service = Service(durations=constant(CALL), batch=8, delay=0.05, each=0.001)
    served = simulate(service, Load(concurrency=32), requests=8000)
    length = (served.records.end[-1] - served.records.due[0]) * 1e-9
    assert service.capacity == pytest.approx(8 / 0.017)
    assert 8000 / length == pytest.approx(service.capacity, rel=0.01)


def test_beyond_its_limit_a_server_refuses() -> None:
    """Without a queue, a request is refused at once if and only if the worker is busy (Erlang's B)."""
    service = Service(durations=exponential(CALL), limit=0)
    served = simulate(service, poisson(1.0), requests=20_000)
    refused = served.records.outcome == RequestOutcome.REJECTED
    assert refused.mean() == pytest.approx(0.5, abs=0.02)
    assert (served.records.end[refused] == served.records.sent[refused]).all()
    assert (served.batch[refused] == 0).all()
    assert (served.queue[~refused] == 0).all()


@pytest.mark.parametrize("limit", [None, 10**9])
def test_a_client_gives_up_after_its_timeout(limit: int | None) -> None:
    """No request takes longer than the timeout; slower ones are timeouts without a first byte."""
    service = Service(durations=constant(1.0), limit=limit)
    load = Load(arrivals=Arrivals.CONSTANT, rate=2, timeout=1.6)
    served = simulate(service, load, requests=4)
    outcomes = [RequestOutcome(outcome).word for outcome in served.records.outcome]
    assert outcomes == ["ok", "ok", "timeout", "timeout"]
    assert sojourns(served, 0).tolist() == pytest.approx([1.0, 1.5, 1.6, 1.6])
    assert (served.records.first[~served.records.fine] == 0).all()


def test_a_timeout_frees_the_slot() -> None:
    """A closed loop whose server stalls for long sends the next request after the timeout."""
    service = Service(durations=constant(CALL), stalls=(Stall(at=0.0, seconds=10.0),), workers=100)
    served = simulate(service, Load(concurrency=1, timeout=1.0), requests=5)
    assert ((served.records.due - served.records.due.min()) * 1e-9).tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]


def test_arrivals_are_what_they_are_called() -> None:
    """Bursts are simultaneous, a ramp begins slowly, and a duration ends the arrivals."""
    service = Service(durations=constant(0.0))
    burst = Load(arrivals=Arrivals.BURST, rate=100, burst=5)
    due = simulate(service, burst, requests=20).records.due
    assert np.unique(due, return_counts=True)[1].tolist() == [5, 5, 5, 5]
    assert np.diff(np.unique(due)).tolist() == [50_000_000] * 3
    ramp = Load(arrivals=Arrivals.CONSTANT, rate=100, ramp=2.0, duration=4.0)
    due = simulate(service, ramp).records.due
    seconds = (due - due.min()) * 1e-9
    assert len(due) == 300
    assert (seconds < 1.0).sum() == 25
    assert (seconds < 2.0).sum() == 100
    assert seconds.max() < 4.0


def test_a_closed_loop_ends_with_its_duration() -> None:
    """No request is due after the duration, and slots start one after another during the ramp."""
    load = Load(concurrency=4, ramp=1.0, duration=2.0)
    records = simulate(Service(durations=constant(0.1), workers=4), load).records
    seconds = (records.due - records.due.min()) * 1e-9
    assert seconds.max() < 2.0
    assert (seconds < 0.24).sum() == 3
    assert len(records) == 20 + 18 + 15 + 13


@pytest.mark.parametrize(
    ("load", "word"),
    [
        (Load(concurrency=1), "number of requests"),
        (Load(arrivals=Arrivals.TRACE, trace="t", requests=1), "no rate"),
    ],
)
def test_what_cannot_be_simulated_is_refused(load: Load, word: str) -> None:
    """A load without an end or a rate is refused with a message."""
    with pytest.raises(RequestError, match=word):
        simulate(Service(durations=constant(0.1)), load)


@pytest.mark.parametrize("workers", [1, 2, 4, 16])
@pytest.mark.parametrize("busy", [0.1, 0.75, 0.99])
def test_the_theory_is_a_distribution(workers: int, busy: float) -> None:
    """The share of longer times falls from 1 to 0, and its area is the mean."""
    sojourn = queueing.open_exponential(busy * workers, 1.0, workers)
    times = np.linspace(0, 40 * sojourn.mean, 20_001)
    beyond = np.array([sojourn.beyond(t) for t in times])
    assert beyond[0] == pytest.approx(1.0)
    assert (np.diff(beyond) <= 1e-12).all()
    assert np.trapezoid(beyond, times) == pytest.approx(sojourn.mean, rel=1e-4)
    assert sojourn.beyond(sojourn.quantile(0.99)) == pytest.approx(0.01)


def test_the_theory_of_one_worker_is_the_textbook_s() -> None:
    """M/M/1 is exponential; M/D/1 begins with a jump at the service time and has half the waiting."""
    for busy in LOADS:
        sojourn = queueing.open_exponential(busy, 1.0)
        assert sojourn.mean == pytest.approx(1 / (1 - busy))
        assert sojourn.quantile(0.99) == pytest.approx(-math.log(0.01) / (1 - busy))
        level = queueing.open_constant(busy, 1.0)
        assert level.beyond(0.999) == 1.0
        assert level.beyond(1.0) == pytest.approx(busy)
        assert level.mean - 1 == pytest.approx((sojourn.mean - 1) / 2)
    assert queueing.erlang_c(2, 1.0) == pytest.approx(1 / 3)
    with pytest.raises(RequestError, match="never reach a steady state"):
        queueing.open_exponential(100, 0.01)


def test_distributions_are_read_from_text(tmp_path: Path) -> None:
    """Each has the declared mean and deviation, and malformed ones are refused with a message."""
    file = tmp_path / "times"
    file.write_text("0.001\n0.003\n")
    rng = np.random.default_rng(0)
    for text in ("constant:0.01", "exponential:0.01", "lognormal:0.01:0.3", f"recorded:{file}"):
        durations = parse_durations(text)
        drawn = durations.draw(rng, 200_000)
        assert drawn.mean() == pytest.approx(durations.mean, rel=0.01)
        assert drawn.std() == pytest.approx(durations.deviation, rel=0.01)
    with pytest.raises(UnknownName, match="exponential"):
        parse_durations("exponental:1")
    for wrong in ("exponential", "constant:x", "constant:-1", "lognormal:1"):
        with pytest.raises(RequestError, match="is not a distribution"):
            parse_durations(wrong)
