"""A load on its way, in virtual time: what is looked at, how often, and what is drawn."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from modeldyno.base.job.load_spec import Arrivals, Load
from modeldyno.base.metrics.constraints import Constraint
from modeldyno.base.metrics.doubt import Doubt
from modeldyno.base.metrics.measurement import Distribution, Measurement
from modeldyno.base.metrics.measurement_plan import Plan
from modeldyno.base.result.request_outcome import RequestOutcome
from modeldyno.base.result.result import Failure, Progressed, SecondPassed
from modeldyno.engine.interfaces.probe import ProbeContext
from modeldyno.engine.interfaces.request_target import Target, Transport
from modeldyno.engine.interfaces.server_stats import RequestStamps, ServerCounters
from modeldyno.engine.interfaces.session import RequestSession
from modeldyno.serving.load.request_log import COLUMNS, TURN_COLUMNS, Records, empty_records
from modeldyno.serving.loadgen.running_load import DriverUsage, LoadEnd, LoadProgress
from modeldyno.serving.probes import load as probe
from modeldyno.serving.probes import load_monitor
from modeldyno.testing.fakes import a_model

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from modeldyno.base.result.result import Event

SECOND = 1_000_000_000
BEGIN = 1000 * SECOND
OPEN = Arrivals.CONSTANT


@dataclass(slots=True, kw_only=True)
class World(RequestSession):
    """A server that takes 2 ms for each request, its driver, and the clock that waiting moves."""

    rate: int = 200
    takes: int = 2_000_000
    """Nanoseconds that a request takes."""
    now: int = BEGIN
    taken: int = 0
    unsent: int = 0
    silent: Any = ()
    """Seconds of the load in which the counters cannot be had."""
    read_times: list[int] = field(default_factory=list)
    hangs_after: int = sys.maxsize
    """Requests after which no further one is answered."""
    fails_after: int = sys.maxsize
    """Requests after which the others fail."""
    in_flight: int = 1
    """Requests on their way, whenever it is looked."""
    thinks: int = 0
    """Nanoseconds that a user thinks before each request."""
    grace: float = 0.0
    """Seconds for which requests in flight were waited for at the end."""
    pid: None = None
    pids: Sequence[int] = ()

    def take(self, wait: float) -> LoadProgress:
        """Let time pass."""
        self.now += int(wait * SECOND)
        first, self.taken = self.taken, self.done
        return LoadProgress(records=self.records(first), in_flight=self.in_flight, backlog=0, ended=False)

    @property
    def done(self) -> int:
        """Requests so far."""
        return min(self.hangs_after, max(0, (self.now - BEGIN - self.takes) * self.rate // SECOND))

    def records(self, first: int) -> Records:
        """Tell of what ended since."""
        due = BEGIN + np.arange(first, self.taken) * (SECOND // self.rate)
        columns: dict[str, Any] = {name: np.zeros(due.size, dtype) for name, dtype in COLUMNS.items()}
        noise = np.arange(first, self.taken) * 7919 % 1000 * 100
        columns |= {"due": due, "sent": due, "first": due, "end": due + self.takes - 50_000 + noise}
        failed = np.arange(first, self.taken) >= self.fails_after
        columns["outcome"] = np.where(failed, RequestOutcome.SERVER_ERROR, RequestOutcome.OK).astype("uint8")
        turns = np.zeros((due.size if self.thinks else 0, len(TURN_COLUMNS)), "int64")
        turns[:, :3] = 1, 2, self.thinks
        return Records(**columns, turns=turns)

    def usage(self) -> Sequence[DriverUsage]:
        """Keep a tenth of a core busy."""
        wall = (self.now - BEGIN) / SECOND
        return [DriverUsage(cpu=wall / 10, wall=wall, sent=self.taken, opened=1)]

    def stop(self, grace: float) -> LoadEnd:
        """Tell of no more."""
        self.grace = grace
        empty = empty_records()
        return LoadEnd(records=empty, replies=(), usages=(), unsent=self.unsent)

    def account(self) -> ServerCounters:
        """Tell what was done so far, unless the server is too busy to tell."""
        self.read_times.append(self.now)
        seconds = (self.now - BEGIN) / SECOND
        if any(low <= seconds < high for low, high in self.silent):
            raise OSError("it does not answer")
        return ServerCounters(requests=self.done, queue=0.0, compute=0.002 * self.done)

    def target(self, _feeds: object) -> Target:
        """Name no server."""
        return Target(protocol="", transport=Transport.HTTP, host="", port=0, messages=(b"1", b"2"))

    def sequence_target(self, feeds: object) -> Target:
        """Name no server, either."""
        return self.target(feeds)

    def arrays(self, _reply: object) -> dict[str, Any]:
        """Read nothing."""
        return {}


def probed(
    monkeypatch: pytest.MonkeyPatch,
    world: World,
    load: Load,
    plan: Plan | None = None,
    watch: Callable[[Event], None] = lambda _event: None,
) -> tuple[dict[str, Measurement], set[str]]:
    """Give what the probe finds, and the codes of its doubts."""
    events = run_probe(monkeypatch, world, load, plan, watch)
    numbers = {each.metric: each for each in events if isinstance(each, Measurement) and not each.scope}
    return numbers, {each.code for each in events if isinstance(each, Doubt)}


def run_probe(
    monkeypatch: pytest.MonkeyPatch,
    world: World,
    load: Load,
    plan: Plan | None = None,
    watch: Callable[[Event], None] = lambda _event: None,
) -> list[object]:
    """Give all that the probe yields."""

    @contextmanager
    def driving(*_: object, **__: object) -> Iterator[World]:
        yield world

    monkeypatch.setattr("modeldyno.serving.loadgen.driver_pool.run_load_drivers", driving)
    monkeypatch.setattr(load_monitor, "perf_counter", lambda: world.now / SECOND)
    monkeypatch.setattr(load_monitor, "monotonic_ns", lambda: world.now)
    subject = ProbeContext(model=a_model(), session=world, load=load, watch=watch)
    return list(probe.measure(subject, plan or Plan()))


def latency(measurements: dict[str, Measurement]) -> Distribution:
    """Give the latency."""
    value = measurements["latency"].value
    assert isinstance(value, Distribution)
    return value


@pytest.mark.parametrize("duration", [0.5, 0.7, 1.0, 3.0])
@pytest.mark.parametrize("rate", [20, 200, 2000])
def test_a_short_window_has_the_servers_account(
    monkeypatch: pytest.MonkeyPatch, rate: int, duration: float
) -> None:
    """From half a second on there is a look at the counters at both ends, of the same requests as ours."""
    world = World(rate=rate)
    measurements, doubts = probed(monkeypatch, world, Load(arrivals=OPEN, rate=rate, duration=duration))
    assert "no-account" not in doubts
    assert measurements["compute_time"].value == pytest.approx(0.002)
    assert len(latency(measurements)) >= 0.45 * rate * duration


def test_a_look_that_tells_nothing_is_replaced_by_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether the counters cannot be had where the window begins or where it ends; not for long."""
    load = Load(arrivals=OPEN, rate=200, duration=2.0)
    probed(monkeypatch, world := World(), load)
    first, last = ((when - BEGIN) / SECOND for when in (BEGIN, world.now))
    for silent, has_account in [
        ([(first, first + 1.0)], True),
        ([(last - 0.25, last + 1)], True),
        ([(first, last + 1)], False),
    ]:
        _, doubts = probed(monkeypatch, World(silent=silent), load)
        assert ("no-account" not in doubts) is has_account


def test_the_server_is_asked_seldom_once_a_load_is_old(monkeypatch: pytest.MonkeyPatch) -> None:
    """At each look while it is young, and then four times a second."""
    world = World()
    probed(monkeypatch, world, Load(arrivals=OPEN, rate=200, duration=20.0))
    gaps = np.diff(world.read_times) / SECOND
    assert gaps[:8].max() <= 0.11
    assert np.median(gaps[40:]) == pytest.approx(0.3, abs=0.01)  # the look after a quarter of a second


@pytest.mark.parametrize(
    "load", [Load(arrivals=OPEN, rate=500, requests=5000), Load(arrivals=OPEN, rate=500, duration=10.0)]
)
def test_of_a_long_load_the_rule_that_stops_it_sees_a_part(
    monkeypatch: pytest.MonkeyPatch, load: Load
) -> None:
    """One in five is drawn where a thousand is the most; all that were asked for are measured."""
    monkeypatch.setattr(load_monitor, "MOST", 1000)
    drawn: list[int] = []
    draw = load_monitor.LoadMonitor.draw

    def counted(self: load_monitor.LoadMonitor, n: int) -> Any:
        values = draw(self, n)
        drawn.append(len(values))
        return values

    monkeypatch.setattr(load_monitor.LoadMonitor, "draw", counted)
    measurements, doubts = probed(monkeypatch, World(rate=500), load)
    assert 1000 <= sum(drawn) < 1400
    assert 4900 <= len(latency(measurements)) <= 5400
    assert not doubts & {"sample-limit", "time-limit", "no-account"}


def test_all_requests_that_were_asked_for_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """However soon their median is precise, and however long they take if nobody set a limit."""
    left: list[float] = []

    def watch(event: Event) -> None:
        if isinstance(event, Progressed) and event.left is not None and event.stage.endswith("steady"):
            left.append(event.left)

    load = Load(arrivals=OPEN, rate=10, requests=1000)
    world = World(rate=10)
    measurements, doubts = probed(monkeypatch, world, load, Plan(may_extend=True), watch)
    assert len(latency(measurements)) == pytest.approx(1000, abs=5)
    assert latency(measurements).stop == "requests"
    assert not doubts & {"time-limit", "unstable"}
    assert max(left) == pytest.approx(100, abs=10)
    assert left[-1] < 1


def test_a_limit_that_was_set_ends_a_number_of_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where both are given."""
    load = Load(arrivals=OPEN, rate=10, requests=1000)
    world = World(rate=10)
    measurements, _ = probed(monkeypatch, world, load, Plan(max_time=30.0, may_extend=False))
    assert 100 < len(latency(measurements)) < 300


def test_a_duration_is_no_matter_of_the_plans_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """More requests than a plan would draw do not end a load whose length was asked for."""
    load = Load(arrivals=OPEN, rate=500, duration=4.0)
    measurements, _ = probed(monkeypatch, World(rate=500), load, Plan(max_runs=50))
    assert latency(measurements).stop == "duration"
    assert len(latency(measurements)) > 1800


def test_a_server_that_hangs_in_the_warm_up_is_a_failure_and_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing of what was asked for is measured: that is no rate of 0/s, nor reason to wait a minute."""
    world = World(hangs_after=12)
    events = run_probe(monkeypatch, world, Load(requests=100), Plan(max_time=5.0))
    (failure,) = (each for each in events if isinstance(each, Failure))

    assert failure.message == (
        "the load ended before a request of the steady window was answered; in the warm-up 12 were answered"
    )
    assert world.grace <= 1.0


def test_requests_in_flight_are_awaited_until_the_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A load stops sending so early that what it sent can end, and gives up soon after the limit."""
    world = World(rate=10, takes=800_000_000)
    probed(monkeypatch, world, Load(arrivals=OPEN, rate=10), Plan(max_time=5.0, precision=0.0001))
    sent = (world.now - BEGIN) / SECOND

    assert sent == pytest.approx(4.2, abs=0.15)
    assert world.grace == pytest.approx(1.0, abs=0.1)


def test_a_closed_loop_that_is_not_answered_any_more_is_not_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the limit its requests have waited for seconds, where others took milliseconds."""
    world = World(hangs_after=400)
    run_probe(monkeypatch, world, Load(), Plan(max_time=5.0, precision=0.0001))

    assert (world.now - BEGIN) / SECOND == pytest.approx(5.0, abs=0.15)
    assert world.grace == pytest.approx(0.0, abs=0.05)


def test_a_duration_waits_for_its_slow_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """They were asked for by their number of seconds, and no limit is near."""
    world = World(rate=10, takes=800_000_000)
    probed(monkeypatch, world, Load(arrivals=OPEN, rate=10, duration=4.0))

    assert world.grace >= 1.6


@dataclass(slots=True, kw_only=True)
class Tracing(World):
    """A world whose server stamps each request when half of it is done."""

    began: list[tuple[int, int]] = field(default_factory=list)
    """Times at which tracing began, with its step."""
    trace: Any = None
    stopped: int = 0
    broken: bool = False

    def __post_init__(self) -> None:
        """Trace itself."""
        self.trace = self

    def begin(self, step: int) -> None:
        """Begin, unless it is broken."""
        if self.broken:
            raise OSError("it cannot")
        self.began.append((self.now, step))

    def end(self) -> None:
        """End."""
        self.stopped = self.now

    def read(self) -> list[RequestStamps]:
        """Stamp every request."""
        records = self.records(0)
        return [RequestStamps(sent=int(sent), ends=(int(sent) + 1_000_000,) * 7) for sent in records.sent]


def test_requests_are_traced_while_the_load_is_steady(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither in the warm-up nor in the drain, and as many as the rate allows; a millisecond each way."""
    world = Tracing(rate=2000)
    events = run_probe(monkeypatch, world, Load(arrivals=OPEN, rate=2000, duration=4.0))
    ((begin, step),) = world.began
    numbers = [each for each in events if isinstance(each, Measurement)]
    stages = {each.scope: each.value for each in numbers if each.metric == "stage_time"}

    assert begin - BEGIN == pytest.approx(world.stopped - BEGIN - 4 * SECOND, abs=0.3 * SECOND)
    assert world.stopped == world.now
    assert step == 5
    assert stages["way to the server"] == pytest.approx(0.001)
    assert stages["way to the client"] == pytest.approx(0.001, rel=0.01)


def test_a_server_that_cannot_trace_is_measured_without(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its counters remain."""
    events = run_probe(
        monkeypatch, world := Tracing(broken=True), Load(arrivals=OPEN, rate=200, duration=2.0)
    )

    assert not world.began
    assert {"compute_time"} <= {getattr(each, "metric", "") for each in events}
    assert "stage_time" not in {getattr(each, "metric", "") for each in events}


def test_a_window_of_which_all_fails_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who asks for a duration gets no result without a latency that looks like one."""
    events = run_probe(monkeypatch, World(fails_after=12), Load(duration=2.0))

    (failure,) = (each for each in events if isinstance(each, Failure))
    assert "requests of the steady window succeeded" in failure.message


def test_what_was_never_sent_is_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was due when the load ended, and had not been sent, counts as such."""
    limited = Load(arrivals=OPEN, rate=200, concurrency=4, duration=2.0)
    plain, _ = probed(monkeypatch, World(), limited)
    behind, doubts = probed(monkeypatch, World(unsent=400), limited)
    assert "saturated" in doubts
    assert plain["offered_rate"].value == pytest.approx(200, rel=0.02)
    assert behind["offered_rate"].value == pytest.approx(400, rel=0.05)


def test_each_second_is_told_as_it_has_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the records that are read anyway, in words of the load; all of them count once."""
    events: list[Event] = []
    load = Load(arrivals=OPEN, rate=200, duration=4.0)
    probed(monkeypatch, World(), load, watch=events.append)
    seconds = [event.second for event in events if isinstance(event, SecondPassed)]

    assert [second.at for second in seconds] == [float(n) for n in range(len(seconds))]
    assert len(seconds) >= 4
    assert all(190 <= second.answered <= 200 for second in seconds)
    assert {event.load for event in events if isinstance(event, SecondPassed)} == {"200/s constant"}


def test_a_load_ends_once_a_bound_on_its_times_is_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    """After 72 answers of a second, one after the other, that all keep it: no time limit cut it short."""
    world = World(rate=1, takes=SECOND)
    plan = Plan(may_extend=True, bounds=(Constraint.parse("latency.p95 <= 2s"),))
    measurements, doubts = probed(monkeypatch, world, Load(), plan)
    assert latency(measurements).stop == "converged"
    assert "time-limit" not in doubts
    assert 72 <= len(latency(measurements)) <= 76


def test_a_server_that_nobody_asks_is_not_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """While all users think, or a trace pauses, no answer is missing: the load is not given up."""
    chats = Load(sequence=(5, 5), timeout=1.0, duration=20.0)
    pauses = Load(arrivals=OPEN, rate=200, timeout=1.0, duration=20.0)
    users = Load(timeout=1.0, duration=20.0)
    for load, in_flight, gives_up in (
        (chats, 0, False),
        (chats, 1, True),
        (pauses, 0, False),
        (pauses, 1, True),
        (users, 0, True),
    ):
        world = World(hangs_after=400, in_flight=in_flight)
        events = run_probe(monkeypatch, world, load)
        assert any("no request succeeded" in e.message for e in events if isinstance(e, Failure)) is gives_up
        assert ((world.now - BEGIN) / SECOND < 10) is gives_up


def test_a_load_lasts_for_rounds_of_thinking_and_answering(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twelve of them, where nobody set a time, as it does for twelve answers."""
    world = World(rate=10, thinks=4 * SECOND)
    plan = Plan(may_extend=True, precision=0.000001, max_time=5.0)
    measured, _ = probed(monkeypatch, world, Load(sequence=(5, 5)), plan)
    assert (world.now - BEGIN) / SECOND == pytest.approx(48, abs=1.0)
    assert "latency" in measured


def test_a_part_of_a_trace_that_was_asked_for_is_not_doubted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """But one that is as long as a trace is replayed at most without a word."""
    path = tmp_path / "trace.txt"
    path.write_text("0\n20\n")
    monkeypatch.setattr(probe, "_LONGEST_TRACE", 5.0)
    for duration, is_doubted in ((5.0, False), (None, True)):
        load = Load(arrivals=Arrivals.TRACE, trace=str(path), duration=duration)
        events = run_probe(monkeypatch, World(), load, Plan(may_extend=True))
        seen = [each.seen for each in events if isinstance(each, Doubt)]
        assert any("were replayed" in each for each in seen) is is_doubted
