"""Executing trials of a sweep: what stays open, what is fresh, and what Ctrl-C does."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from modeldyno.base import plugins
from modeldyno.base.errors import StaleStudy
from modeldyno.base.job.job import Job
from modeldyno.base.job.load_spec import Load
from modeldyno.base.job.model_ref import ModelRef
from modeldyno.base.metrics.measurement_plan import Plan
from modeldyno.base.result.result import Environment, Event, Progressed
from modeldyno.engine.runtime.child_process import subprocess_executor
from modeldyno.engine.runtime.interrupts import ForcedInterrupts, counted_interrupts
from modeldyno.engine.runtime.trial_executor import subprocess_executors
from modeldyno.engine.runtime.warm_worker import warm_executor

if TYPE_CHECKING:
    from modeldyno.base.result.result import Result
    from modeldyno.engine.runtime import trial_executor

QUICK = Plan(min_time=0.02, min_runs=5, max_time=2.0, precision=0.5)
LONG = Plan(min_time=30.0, max_time=60.0)
SOURCE = """
import os, pathlib, time
with open(pathlib.Path(__file__).parent / "loaded", "a") as file:
    file.write(f"{os.getpid()}\\n")

def answer():
    time.sleep(0.002)
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A callable whose module records each process that loads it."""
    path = tmp_path / "model.py"
    path.write_text(SOURCE)
    return path


def job(model: Path, slots: int = 1, **changes: Any) -> Job:
    settings: dict[str, Any] = {
        "model": ModelRef(scheme="call", locator=f"{model}:answer"),
        "backend": "python",
        "probes": ("latency",),
        "plan": QUICK,
        "load": Load(concurrency=slots),
    }
    return Job(**settings | changes)


def processes(model: Path) -> list[str]:
    """Return the processes that loaded the model, in order."""
    return (model.parent / "loaded").read_text().split()


def carried_out(room: trial_executor.TrialExecutor, job: Job, *, fresh: bool = False) -> Result:
    return room(job, fresh=fresh)(job, watch=lambda _event: None)


def test_in_a_process_each_trial_is_fresh(model: Path) -> None:
    """A backend without a server gets a new process for each trial."""
    with subprocess_executors(lambda: 0) as room:
        for fresh in (False, True):
            assert carried_out(room, job(model), fresh=fresh).failures == ()

    assert len(set(processes(model))) == 2


def test_a_server_is_kept_until_a_fresh_one_is_asked_for(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loads of one server share its start; a fresh trial has a start of its own."""
    monkeypatch.setattr(plugins, "serves", lambda _backend: True)
    with subprocess_executors(lambda: 0) as room:
        afresh = (False, False, True, True, False)
        results = [carried_out(room, job(model, n), fresh=fresh) for n, fresh in enumerate(afresh, 1)]

    starts = [result.find("load_time", scope="open") for result in results]
    assert all(result.failures == () for result in results)
    assert starts[0] == starts[1]
    assert starts[3] == starts[4]
    assert len({str(start) for start in starts}) == 3


@pytest.mark.slow
def test_a_server_within_the_process_has_a_process_for_each_start(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loads share it; a fresh trial has a process of its own."""
    monkeypatch.setattr(plugins, "serves", lambda _backend: True)
    monkeypatch.setattr(plugins.backend("python"), "serves_within", lambda _config: True, raising=False)
    with subprocess_executors(lambda: 0) as room:
        for slots, fresh in ((1, False), (2, False), (3, True)):
            carried_out(room, job(model, slots), fresh=fresh)

    assert len(set(processes(model))) == 2


@pytest.mark.slow
def test_a_server_is_gone_before_a_process_is_measured(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model in a process has the machine for itself."""
    served = {True}
    monkeypatch.setattr(plugins, "serves", lambda _backend: True in served)
    with subprocess_executors(lambda: 0) as room:
        carried_out(room, job(model))
        (kept,) = processes(model)
        served.clear()
        still_there: list[bool] = []
        first_job = job(model)
        room(first_job, fresh=False)(
            first_job, watch=lambda _event: still_there.append(Path(f"/proc/{kept}").exists())
        )

    assert set(still_there) == {False}


def test_the_first_interruption_lets_a_trial_finish(model: Path) -> None:
    """After one Ctrl-C the trial finishes, without a doubt; the second ends it at once."""
    with counted_interrupts() as interrupts, subprocess_executors(lambda: len(interrupts)) as room:

        def press(_event: Event) -> None:
            if not interrupts:
                signal.raise_signal(signal.SIGINT)

        first_job = job(model)
        finished = room(first_job, fresh=False)(first_job, watch=press)

        def press_again(event: Event) -> None:
            if isinstance(event, Progressed) and event.runs and len(interrupts) < 2:
                signal.raise_signal(signal.SIGINT)

        begun = time.monotonic()
        first_job = job(model, plan=LONG)
        ended = room(first_job, fresh=False)(first_job, watch=press_again)

    assert finished.doubts == () or "interrupted" not in {doubt.code for doubt in finished.doubts}
    assert finished.find("latency") is not None
    assert "interrupted" in {doubt.code for doubt in ended.doubts}
    assert ended.failures == ()
    assert time.monotonic() - begun < 25


@pytest.mark.parametrize(
    "executor", [warm_executor, pytest.param(subprocess_executor, marks=pytest.mark.slow)]
)
def test_what_the_watcher_raises_ends_the_child(model: Path, executor: Any) -> None:
    """An exception of the watcher ends the child at once, and the next one is fresh."""

    def stop(event: Event) -> None:
        if isinstance(event, Environment):
            raise StaleStudy("another machine")

    begun = time.monotonic()
    with executor() as execute:
        with pytest.raises(StaleStudy):
            execute(job(model, plan=LONG), watch=stop)
        assert time.monotonic() - begun < 25
        assert execute(job(model), watch=lambda _event: None).failures == ()


def test_interruptions_are_passed_on_from_the_second() -> None:
    """The first does not count; from the second on all do."""
    assert [len(ForcedInterrupts(lambda count=count: count)) for count in range(4)] == [0, 0, 2, 3]  # type: ignore[misc]
    assert len(ForcedInterrupts(lambda: True)) == 0
