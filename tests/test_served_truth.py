"""What is said of a load agrees with queueing theory: rule 20 of MEASURING.md, for served profiles.

The server is simulated; what is judged are its records, cut and measured as those of a real load are.
Bounds are nominal for long runs. Fewer runs than the slow tests make are allowed, beyond the bounds,
what the binomial error of so few explains: SLACK standard errors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.support import queueing_theory as queueing
from tests.support.simulated_load import simulate

from modeldyno.base.job.load_spec import Arrivals, Load
from modeldyno.base.metrics.doubt import Doubt
from modeldyno.base.metrics.measurement import CLIENT_LIMITED, SATURATED, Distribution, Measurement
from modeldyno.base.metrics.measurement_plan import Plan
from modeldyno.base.stats import statistics
from modeldyno.engine.interfaces.probe import ProbeContext
from modeldyno.engine.interfaces.request_target import Target, Transport
from modeldyno.engine.interfaces.session import RequestSession
from modeldyno.serving.load import load_analysis
from modeldyno.serving.load.request_log import Records, join_records
from modeldyno.serving.load.steady_window import SteadyWindow
from modeldyno.serving.loadgen.driver_pool import run_load_drivers
from modeldyno.serving.loadgen.running_load import DriverUsage, LoadEnd, LoadProgress
from modeldyno.serving.probes import load as probe
from modeldyno.serving.probes import load_monitor
from modeldyno.testing.fakes import a_model
from modeldyno.testing.server import serve_in_subprocess
from modeldyno.testing.service_model import Service, Stall, constant, exponential

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.queueing_theory import Sojourn

CALL = 0.010
SLACK = 3.3
RUNS, SLOW_RUNS = 60, 300
TAILS = {"p50": 0.5, "p95": 0.95, "p99": 0.99}


def a_window(service: Service, load: Load, seconds: float, seed: int) -> SteadyWindow:
    """The last so many seconds of arrivals to a server that began empty, drained afterwards."""
    records = simulate(service, load, seed=seed).records
    end = int(records.due.min()) + int((load.duration or 0.0) * 1e9)
    return SteadyWindow(records=records, begin=end - int(seconds * 1e9), end=end, load=load)


def queue(busy: float, workers: int, seconds: float, seed: int) -> SteadyWindow:
    """M/M/k, after a fifth of the time as warm-up."""
    rate = busy * workers / CALL
    load = Load(arrivals=Arrivals.POISSON, rate=rate, duration=1.2 * seconds)
    return a_window(Service(durations=exponential(CALL), workers=workers), load, seconds, seed)


def measured(window: SteadyWindow) -> dict[str, Measurement]:
    return {
        measurement.metric: measurement
        for measurement in load_analysis.measurements(window)
        if not measurement.scope
    }


def spread(measurement: Measurement) -> Distribution:
    assert isinstance(measurement.value, Distribution)
    return measurement.value


def truths(sojourn: Sojourn) -> dict[str, float]:
    return {"mean": sojourn.mean} | {name: sojourn.quantile(p) for name, p in TAILS.items()}


def slack(share: float, runs: int) -> float:
    return SLACK * math.sqrt(share * (1 - share) / runs)


LONG = [(1, 0.5, 100.0)]
"""Workers, how busy they are, seconds: more than a thousand independent requests in each."""
LONGER = [
    (1, 0.5, 200.0),
    (4, 0.5, 100.0),
    (1, 0.8, 1500.0),
    (4, 0.8, 400.0),
    (1, 0.9, 5000.0),
    (4, 0.9, 1300.0),
]


@pytest.mark.parametrize(
    ("workers", "busy", "seconds", "runs"),
    [
        *((*case, RUNS) for case in LONG),
        *(pytest.param(*case, SLOW_RUNS, marks=pytest.mark.slow) for case in LONGER),
    ],
)
def test_intervals_of_a_long_load_cover_the_truth(
    workers: int, busy: float, seconds: float, runs: int
) -> None:
    """The intervals of mean, p50, p95 and p99 cover those of M/M/k in 92 % of runs or more.

    What is so correlated is known a little less well than its effective size pretends: 94 % and more,
    as of single calls, is not reached by mean and median.
    """
    truth = truths(queueing.open_exponential(busy * workers / CALL, CALL, workers))
    hits = dict.fromkeys(truth, 0)
    for seed in range(runs):
        latency = spread(measured(queue(busy, workers, seconds, seed))["latency"])
        for name, value in truth.items():
            interval = latency.interval(name)
            assert interval is not None
            hits[name] += interval.low <= value <= interval.high
    covered = {name: count / runs for name, count in hits.items()}
    print(f"M/M/{workers} at {busy:.0%}, {seconds:g} s: {covered}")
    for name, share in covered.items():
        assert share >= 0.92 - slack(0.92, runs), name
    assert min(covered.values()) < 1.0 or runs < SLOW_RUNS


@pytest.mark.parametrize(("workers", "busy"), [(1, 0.5), (1, 0.9), (4, 0.9)])
def test_a_stable_queue_is_not_called_saturated(workers: int, busy: float) -> None:
    """At most 2 % of loads that the server can carry are called an overload."""
    runs = 60
    called = sum(load_analysis.void_reason(queue(busy, workers, 30.0, seed)) != "" for seed in range(runs))
    assert called / runs <= 0.02 + slack(0.02, runs)


@pytest.mark.parametrize(
    ("workers", "busy"), [(1, 1.3), (4, 1.1), pytest.param(4, 2.0, marks=pytest.mark.slow)]
)
def test_an_overload_is_called_saturated(workers: int, busy: float) -> None:
    """A load beyond the capacity has its doubt, and no percentile of its latency is a claim."""
    runs = 20
    called = 0
    for seed in range(runs):
        window = queue(busy, workers, 30.0, seed)
        called += load_analysis.void_reason(window) == SATURATED
        if load_analysis.void_reason(window):
            assert SATURATED in {doubt.code for doubt in load_analysis.doubts(window)}
            assert spread(measured(window)["latency"]).certified("p50") is None
    assert called / runs >= 0.95 - slack(0.95, runs)


def test_what_waits_for_a_slot_is_an_overload_too() -> None:
    """With a limit of requests on their way, the queue is the client's, and latency still counts it."""
    load = Load(arrivals=Arrivals.POISSON, rate=130, concurrency=8, duration=36.0)
    window = a_window(Service(durations=exponential(CALL)), load, 30.0, seed=0)
    assert load_analysis.void_reason(window) == SATURATED
    measurements = measured(window)
    assert spread(measurements["service_time"]).statistic("p99") < 0.5
    assert spread(measurements["latency"]).statistic("p50") > 2.0


def test_rates_are_those_of_the_server() -> None:
    """Below its capacity a server answers what is due, above it what it can; goodput is within its bound."""
    load = Load(arrivals=Arrivals.POISSON, rate=50, duration=240.0, within=0.02)
    measurements = measured(a_window(Service(durations=exponential(CALL)), load, 200.0, seed=1))
    truth = queueing.open_exponential(50, CALL)
    assert measurements["request_rate"].value == pytest.approx(50, rel=0.05)
    assert measurements["goodput"].value == pytest.approx(50 * (1 - truth.beyond(0.02)), rel=0.05)
    over = measured(queue(1.5, 4, 60.0, seed=1))
    assert over["request_rate"].value == pytest.approx(400, rel=0.05)
    assert over["offered_rate"].value == pytest.approx(600, rel=0.05)


@pytest.mark.parametrize("workers", [1, 4])
def test_what_is_in_flight_obeys_little(workers: int) -> None:
    """Requests on their way are the rate times the mean latency of the same requests."""
    measurements = measured(queue(0.7, workers, 300.0, seed=2))
    rate, latency = measurements["request_rate"].value, spread(measurements["latency"]).statistic("mean")
    assert isinstance(rate, float)
    assert measurements["in_flight"].value == pytest.approx(rate * latency, rel=0.02)


def test_a_closed_loop_is_what_theory_says() -> None:
    """Eight slots on two workers take four service times, and keep both busy."""
    load = Load(concurrency=8, duration=240.0)
    measurements = measured(a_window(Service(durations=exponential(CALL), workers=2), load, 200.0, seed=3))
    truth = queueing.closed_mean(8, CALL, 2)
    assert spread(measurements["latency"]).statistic("mean") == pytest.approx(truth, rel=0.03)
    assert measurements["request_rate"].value == pytest.approx(2 / CALL, rel=0.03)
    assert measurements["in_flight"].value == pytest.approx(8, rel=0.01)


def test_a_stall_shows_in_latency_and_not_in_service_time() -> None:
    """Of a server that stalls for 2 s, the latency tells at p99; the service time of most does not.

    Requests beyond the slots wait at the client, as they would at a server that does not accept them.
    """
    load = Load(arrivals=Arrivals.POISSON, rate=2000, concurrency=16, duration=12.0)
    service = Service(durations=constant(0.001), workers=4, stalls=(Stall(at=6.0, seconds=2.0),))
    measurements = measured(a_window(service, load, 10.0, seed=4))
    assert spread(measurements["latency"]).statistic("p99") > 1.0
    assert spread(measurements["service_time"]).statistic("p99") < 0.02


# -- the whole probe, in virtual time -----------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class Replay:
    """A load whose records are known beforehand, and the clock that looking at them moves."""

    records: Records
    now: int = 0
    pids: Sequence[int] = ()
    taken: int = field(default=0)

    def __post_init__(self) -> None:
        self.now = int(self.records.due.min())

    def take(self, wait: float) -> LoadProgress:
        """Let time pass."""
        self.now += int(wait * 1e9)
        end = int(np.searchsorted(self.records.end, self.now, side="right"))
        mask = np.zeros(len(self.records), bool)
        mask[self.taken : end] = True
        self.taken = end
        flying = int((self.records.sent <= self.now).sum()) - end
        return LoadProgress(records=self.records.chosen(mask), in_flight=flying, backlog=0, ended=False)

    def usage(self) -> Sequence[DriverUsage]:
        """Cost little."""
        wall = (self.now - int(self.records.due.min())) * 1e-9
        return [DriverUsage(cpu=0.1 * wall, wall=wall, sent=self.taken, opened=1)]

    def stop(self, _grace: float) -> LoadEnd:
        """Let what is on its way end."""
        mask = (self.records.due <= self.now) & (np.arange(len(self.records)) >= self.taken)
        return LoadEnd(records=self.records.chosen(mask), replies=(), usages=tuple(self.usage()))


class Session(RequestSession):
    """A server that nobody asks."""

    pid = None

    def target(self, _feeds: object) -> Target:
        """Name no server."""
        messages = (b"one", b"two")
        return Target(protocol="http", transport=Transport.HTTP, host="", port=0, messages=messages)

    def arrays(self, _reply: object) -> dict[str, Any]:
        """Read nothing."""
        return {}


def probed(
    monkeypatch: pytest.MonkeyPatch, service: Service, load: Load, plan: Plan, seed: int
) -> tuple[dict[str, Measurement], set[str]]:
    """What the probe finds in virtual time: measurements, and the codes of its doubts."""
    most = 2 * (plan.max_time + 5)
    replay = Replay(
        records=simulate(
            service, Load(arrivals=load.arrivals, rate=load.rate, duration=most), seed=seed
        ).records
    )

    @contextmanager
    def replayed(*_: object, **__: object) -> Iterator[Replay]:
        yield replay

    monkeypatch.setattr("modeldyno.serving.loadgen.driver_pool.run_load_drivers", replayed)
    monkeypatch.setattr(load_monitor, "perf_counter", lambda: replay.now * 1e-9)
    monkeypatch.setattr(load_monitor, "monotonic_ns", lambda: replay.now)
    yielded = list(probe.measure(ProbeContext(model=a_model(), session=Session(), load=load), plan))
    numbers = {each.metric: each for each in yielded if isinstance(each, Measurement) and not each.scope}
    return numbers, {each.code for each in yielded if isinstance(each, Doubt)}


QUICK, FULL = Plan(max_time=5.0), Plan(max_time=30.0)
PROBED = [(1, 0.5), (4, 0.5), (1, 0.8), (4, 0.8), (1, 0.9), (4, 0.9)]
FAST = 0.001


@pytest.mark.parametrize(
    ("workers", "busy", "plan", "runs"),
    [
        *((*case, QUICK, 20) for case in PROBED[:5:4]),
        *(pytest.param(*case, FULL, SLOW_RUNS, marks=pytest.mark.slow) for case in PROBED),
    ],
)
def test_the_probe_covers_the_truth_or_says_why_not(
    monkeypatch: pytest.MonkeyPatch, workers: int, busy: float, plan: Plan, runs: int
) -> None:
    """With its own warm-up and stop rule, its intervals cover M/M/k; a run that knows too little is doubted.

    Short runs of a busy queue hold fewer than a hundred independent requests: there the mean is covered
    in 85 %, and each of them says that it was stopped before it was precise.
    """
    truth = truths(queueing.open_exponential(busy * workers / FAST, FAST, workers))
    hits = dict.fromkeys(truth, 0)
    service = Service(durations=exponential(FAST), workers=workers)
    load = Load(arrivals=Arrivals.POISSON, rate=busy * workers / FAST)
    for seed in range(runs):
        measurements, doubts = probed(monkeypatch, service, load, plan, seed)
        latency = spread(measurements["latency"])
        assert not doubts & {SATURATED, CLIENT_LIMITED}
        assert latency.stop == "converged" or doubts & {"time-limit", "noise-floor", "drift"}
        for name, value in truth.items():
            interval = latency.interval(name)
            assert interval is not None
            hits[name] += interval.low <= value <= interval.high
    covered = {name: count / runs for name, count in hits.items()}
    print(f"probe, M/M/{workers} at {busy:.0%}, {plan.max_time:g} s: {covered}")
    least = 0.85 if plan is QUICK else 0.92
    for name, share in covered.items():
        assert share >= least - slack(least, runs), name


def test_the_probe_calls_an_overload_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """More than the server can do is no latency but a doubt."""
    load = Load(arrivals=Arrivals.POISSON, rate=1.3 / FAST)
    measurements, doubts = probed(monkeypatch, Service(durations=exponential(FAST)), load, QUICK, 0)
    assert SATURATED in doubts
    assert spread(measurements["latency"]).certified("p50") is None


# -- live ---------------------------------------------------------------------------------------------


def test_every_request_lies_around_what_the_server_saw() -> None:
    """Of each of 200 real requests we say no less than the server did; what we add is the way there and back.

    How little that is, a quiet machine tells: bench/served_truth.py.
    """
    count = 200
    with serve_in_subprocess("--service", "exponential:0.003", "--workers", "2") as server:
        messages = tuple(f"GET / HTTP/1.1\r\nHost: x\r\nX-Id: {n}\r\n\r\n".encode() for n in range(count))
        target = Target(
            protocol="http", transport=Transport.HTTP, host=server.host, port=server.port, messages=messages
        )
        load = Load(concurrency=4, requests=count)
        parts = []
        with run_load_drivers(target, load) as driven:
            while not (taken := driven.take(0.25)).ended:
                parts.append(taken.records)
            records = join_records([*parts, taken.records, driven.stop(60.0).records])
        truth = server.truth()
    assert sorted(records.message) == sorted(truth.id) == list(range(count))
    ours, theirs = np.argsort(records.message), np.argsort(truth.id)
    sent, end = records.sent[ours], records.end[ours]
    assert records.fine.all()
    assert (sent <= truth.arrival[theirs]).all()
    assert (truth.end[theirs] <= end).all()
    window = SteadyWindow(
        records=records, begin=int(records.due.min()), end=int(records.due.max()) + 1, load=load
    )
    service_time = spread(measured(window)["service_time"])
    inside, way = truth.end - truth.arrival, (end - sent) - (truth.end - truth.arrival)[theirs]
    assert service_time.statistic("mean") == pytest.approx((inside.mean() + way.mean()) * 1e-9)
    for name, p in TAILS.items():
        least = statistics.quantile(inside * 1e-9, p)
        assert least <= service_time.statistic(name) <= least + way.max() * 1e-9
