"""Several Jobs at the same time, of which one measures at a time."""

from __future__ import annotations

import os
import sys
import threading
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support.fake_comparisons import SimulatedRuns, a_side

from modeldyno.base.errors import RequestError
from modeldyno.base.metrics.measurement import Distribution
from modeldyno.base.metrics.measurement_plan import Plan
from modeldyno.base.result.result import Failure, FailureKind, Progressed, Result
from modeldyno.base.stats.schedule import ALTERNATING, INTERLEAVED
from modeldyno.engine.environment import machine
from modeldyno.engine.runtime import interleaved as module
from modeldyno.engine.runtime import turn_token
from modeldyno.engine.runtime.interleaved import InterleavedRunner, can_share
from modeldyno.engine.runtime.session import RunSession, open_run_session
from modeldyno.engine.runtime.turn_token import SLICE, TurnGranter, TurnWaiter
from modeldyno.profiling.request import Request
from modeldyno.testing.sample_results import a_failed_result, a_result

if TYPE_CHECKING:
    from modeldyno.base.job.job import Job
    from modeldyno.base.result.result import Event

PAUSE = 0.02
SLEEPY = """
import time
CALLS = 0
def network():
    global CALLS
    CALLS += 1
    with open({log!r}, "a") as file:
        file.write({name!r})
    time.sleep({pause})
    return 1.0
"""


def a_job(place: Path, name: str, text: str = SLEEPY, **plan: float) -> Job:
    """Return the Job of a callable that logs its name at each call."""
    source = place / f"{name}.py"
    source.write_text(text.format(log=str(place / "log"), name=name, pause=PAUSE))
    care = replace(Plan(min_time=0.5, max_time=1.0, precision=0.5), **plan)  # type: ignore[arg-type]
    return Request(
        model=f"call:{source}:network",
        settings={},
        probes=("latency",),
        plan=care,
        trust=True,
    ).job()


def run(*jobs: Job, watch: list[Event] | None = None) -> tuple[list[object], InterleavedRunner]:
    """Run jobs together; return what came of each."""
    events: list[Event] = [] if watch is None else watch
    with open_run_session() as bench:
        assert bench.together is not None
        results = replace(bench, watch=events.append).run_round([("side", job) for job in jobs])
        return list(results), bench.together


def open_files() -> int:
    """Count the open files of this process."""
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def turns_of(place: Path) -> list[str]:
    """Return the consecutive calls of each turn."""
    return ["".join(calls) for _, calls in groupby((place / "log").read_text())]


def test_two_models_measure_in_slices(tmp_path: Path) -> None:
    """Neither is called during the other's turn; each has many turns, and a watcher of its own."""
    events: list[Event] = []
    results, together = run(a_job(tmp_path, "a"), a_job(tmp_path, "b"), watch=events)

    assert together.order == INTERLEAVED
    assert all(
        isinstance(result, Result) and not result.failures and result.find("latency") for result in results
    )
    turns = turns_of(tmp_path)
    assert len(turns) >= 5
    timed = turns[:-2]  # the last turn of each has the calls that check outputs and leaks, too
    assert max(map(len, timed)) < 3 * SLICE / PAUSE  # none goes on while the other waits
    assert any(isinstance(event, Progressed) and event.stage.startswith("side: latency") for event in events)


@pytest.mark.slow  # as two do
def test_three_sides_share_as_well(tmp_path: Path) -> None:
    """The token goes round; the results come in the order of the jobs."""
    jobs = [a_job(tmp_path, name, min_time=0.4, max_time=0.9) for name in "abc"]
    results, _ = run(*jobs)

    assert [result.job.model for result in results if isinstance(result, Result)] == [
        job.model for job in jobs
    ]
    assert "".join(turn[0] for turn in turns_of(tmp_path)).startswith("abcabc")


@pytest.mark.slow
def test_one_that_dies_does_not_hold_the_other_up(tmp_path: Path) -> None:
    """The other side measures to its end; the dead one has its failure."""
    dying = SLEEPY.replace("return 1.0", "return 1.0 if CALLS < 30 else __import__('os')._exit(3)")
    results, _ = run(a_job(tmp_path, "a", dying), a_job(tmp_path, "b"))

    first, second = results
    assert isinstance(first, Result)
    assert isinstance(second, Result)
    assert first.failures[0].kind is FailureKind.EXIT
    assert not second.failures
    assert second.find("latency") is not None


def test_what_fails_at_once_is_not_waited_for(tmp_path: Path) -> None:
    """The sides after it are not started."""
    broken = "def network():\n    raise ValueError\n"
    results, _ = run(a_job(tmp_path, "a", broken), a_job(tmp_path, "b"))

    (only,) = results
    assert isinstance(only, Result)
    assert only.failures
    assert not (tmp_path / "log").exists()


def test_a_wrong_request_comes_back_as_its_error(tmp_path: Path) -> None:
    """The caller of a round decides what to do with the error."""
    job = a_job(tmp_path, "a")
    missing = replace(job, model=replace(job.model, locator=str(tmp_path / "gone.py") + ":network"))
    results, _ = run(missing, job)

    assert isinstance(results[0], RequestError)


@pytest.mark.slow
def test_what_the_other_does_takes_no_time(tmp_path: Path) -> None:
    """A side's time limits count only its own slices."""
    jobs = [a_job(tmp_path, name, max_time=1.2, min_time=1.2, precision=0.0001) for name in "ab"]
    results, _ = run(*jobs)

    for result in results:
        assert isinstance(result, Result)
        latency = result.find("latency")
        assert latency is not None
        assert isinstance(latency.value, Distribution)
        assert float(latency.value.samples().sum()) + latency.value.warmup_time > 0.9


def test_models_that_do_not_fit_beside_each_other_are_run_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rounds that follow are run sequentially, too, and the order says so."""
    calls: list[int] = []

    def too_large(jobs: list[Job], *_rest: object) -> list[Result]:
        calls.append(len(jobs))
        oom = Failure(where="load", kind=FailureKind.OOM, message="it took too much")
        return [replace(a_result(), failures=(oom,))]

    monkeypatch.setattr(module, "_run_interleaved", too_large)
    together = InterleavedRunner(interrupts=())
    bench = RunSession(execute=SimulatedRuns(), together=together)
    for _ in range(2):
        assert len(bench.run_round([("a", a_side("a")), ("b", a_side("b"))])) == 2
    assert calls == [2]
    assert together.order == ALTERNATING


def test_an_interruption_of_a_round_that_did_not_fit_begins_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The current run is the last, even if the sides would have been run sequentially."""
    interrupts: list[int] = []

    def too_large(*_rest: object) -> list[Result]:
        interrupts.append(2)
        oom = Failure(where="load", kind=FailureKind.OOM, message="it took too much")
        return [replace(a_result(), failures=(oom,))]

    monkeypatch.setattr(module, "_run_interleaved", too_large)
    bench = RunSession(
        execute=SimulatedRuns(),
        together=InterleavedRunner(interrupts=()),
        interrupted=lambda: len(interrupts),
    )
    assert bench.run_round([("a", a_side("a")), ("b", a_side("b"))]) == []


@pytest.mark.parametrize("names", ["ab", pytest.param("ba", marks=pytest.mark.slow)])
def test_one_that_hangs_costs_the_other_nothing(tmp_path: Path, names: str) -> None:
    """A side's timeout counts only the time in which it holds the token."""
    hanging = SLEEPY.replace("return 1.0", "time.sleep(999 * (CALLS > 40))\n    return 1.0")
    texts = {"a": SLEEPY, "b": hanging}
    results, _ = run(*(a_job(tmp_path, name, texts[name], timeout=5.0) for name in names))

    whole, hung = (results[names.index(name)] for name in "ab")
    assert isinstance(whole, Result)
    assert isinstance(hung, Result)
    assert [failure.kind for failure in hung.failures] == [FailureKind.TIMEOUT]
    assert not whole.failures
    assert whole.find("latency") is not None


def test_a_child_that_cannot_be_started_leaves_nothing_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the pipes of its granter nor its own stay open."""
    monkeypatch.setattr(sys, "executable", str(tmp_path / "gone"))
    before = open_files()
    with pytest.raises(FileNotFoundError):
        run(a_side("a"), a_side("b"))
    assert open_files() == before


def test_servers_and_devices_are_not_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two servers at once, or two models on a GPU, would measure each other."""
    monkeypatch.setattr(machine, "may_have_device", lambda: False)
    job = a_side("a")
    assert can_share(job)
    assert not can_share(replace(job, backend="triton"))
    assert not can_share(replace(job, config={**job.config, "device": "cuda:0"}))
    assert not can_share(replace(job, model=replace(job.model, scheme="object")))
    automatic = replace(job, config={**job.config, "device": "auto"})
    assert can_share(automatic)
    monkeypatch.setattr(machine, "may_have_device", lambda: True)
    assert not can_share(automatic)
    assert can_share(replace(job, config={**job.config, "device": "cpu"}))


def test_one_after_the_other_ends_at_a_failure() -> None:
    """An interruption ends the round, too: later sides are not started."""
    ran: list[str | None] = []

    def execute(job: Job, *, watch: object) -> Result:
        ran.append(job.name)
        return a_failed_result(job=job)

    operands = [("a", a_side("a")), ("b", a_side("b"))]
    RunSession(execute=execute).run_round(operands)
    assert ran == ["a"]
    assert len(RunSession(execute=SimulatedRuns(), interrupted=lambda: 1).run_round(operands)) == 1


def test_an_interruption_is_heard() -> None:
    """Progress says that the current run is the last, and how to end it."""
    events: list[Event] = []
    interrupts: list[int] = []
    bench = RunSession(execute=SimulatedRuns(), watch=events.append, interrupted=lambda: len(interrupts))
    report = bench.label_progress("round 1")
    report(Progressed(stage="latency"))
    interrupts.append(2)
    report(Progressed(stage="latency"))
    assert [event.stage for event in events if isinstance(event, Progressed)] == [
        "round 1: latency",
        "last run, Ctrl-C again stops now; round 1: latency",
    ]


def test_a_child_without_a_parent_goes_on() -> None:
    """When the grant pipe ends, there is no other process that could want a turn."""
    granter = TurnGranter.create()
    held = TurnWaiter(granted=granter.child_ends[0], request_end=granter.child_ends[1])
    os.close(granter.grants)
    held.begin()
    assert held.agreed("steady")
    for end in (*granter.child_ends, granter.asks):
        os.close(end)


def test_all_must_have_enough() -> None:
    """A side that has finished a phase goes on until the others have finished it."""
    granter = TurnGranter.create()
    marks: list[str] = []
    held = TurnWaiter(granted=granter.child_ends[0], request_end=granter.child_ends[1], mark=marks.append)
    grants: list[tuple[bool, int]] = []

    def parent() -> None:
        granter.wait()
        grants.extend(
            (granter.grant(finished_phase), granter.finished_phase) for finished_phase in (0, 0, 1, 2)
        )

    thread = threading.Thread(target=parent)
    thread.start()
    held.begin()
    warmed: list[int] = []
    draw = held.in_turns(lambda n: n, lambda: warmed.append(1))  # type: ignore[arg-type,return-value]

    def turn() -> None:
        held.since -= SLICE
        draw(1)

    before = held.clock()
    turn()
    assert held.clock() - before < SLICE
    assert not held.agreed("warm-up")
    turn()
    assert held.agreed("warm-up")
    assert not held.agreed("steady")
    turn()
    assert held.agreed("steady")
    os.close(granter.child_ends[1])
    granter.child_ends = granter.child_ends[:1]
    thread.join()
    assert grants == [(True, 0), (True, 1), (True, 2), (False, 255)]
    assert marks == ["waiting", "timed"] * 3
    assert warmed
    granter.close()


@pytest.mark.parametrize(("spinning", "waited"), [(0.0, 0.002), (0.05, 0.054), (9.0, 0.2)])
def test_threads_rest_before_the_other_has_its_turn(
    monkeypatch: pytest.MonkeyPatch, spinning: float, waited: float
) -> None:
    """Threads that spin for the next call are awaited, but not forever."""
    world = {"now": 0.0, "spent": 0.0}

    def sleep(seconds: float) -> None:
        world["spent"] += min(seconds, max(0.0, spinning - world["now"]))
        world["now"] += seconds

    monkeypatch.setattr(turn_token, "sleep", sleep)
    monkeypatch.setattr(turn_token, "perf_counter", lambda: world["now"])
    monkeypatch.setattr(turn_token, "process_time", lambda: world["spent"])
    turn_token._wait_until_idle()

    assert world["now"] == pytest.approx(waited, abs=0.0041)
