"""A worker beside others: it uses the time in which its device is idle, and takes turns. Time is virtual."""

from __future__ import annotations

import signal
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.registry import a_measurement

from modeldyno.core.metrics.doubt import Doubt
from modeldyno.core.registry.policy import DEFAULT
from modeldyno.core.registry.records import TaskState
from modeldyno.environment.device_lock import device_lock
from modeldyno.profiling.run import JudgedResult
from modeldyno.registry import execute
from modeldyno.registry import worker as worker_module
from modeldyno.registry.figures import current_figures
from modeldyno.registry.register import Registration, register
from modeldyno.registry.worker import TaskDone, WorkerOptions, run_worker

if TYPE_CHECKING:
    from collections.abc import Sized

    from modeldyno.environment.idle import IdleRule
    from modeldyno.interfaces.registry import Registry
    from modeldyno.profiling.request import Request
    from modeldyno.runtime.measured_region import Region

DISTURBED = Doubt(code="interference", seen="others used 1.3 cores", advice="wait")
LOADING, MEASURING = 0.5, 3.0
"""Seconds that a model takes."""
FOR_ALL = 3600.0
OTHERS = "others use 1.00 of 2 cores"


@dataclass(slots=True)
class Machine:
    """A machine whose time passes as the worker looks, pauses and measures."""

    is_used: Callable[[float], bool]
    """Whether others use its processor at a time."""
    now: float = 0.0
    paused: list[tuple[float, float]] = field(default_factory=list)
    done: list[tuple[float, TaskDone]] = field(default_factory=list)
    whenever: Callable[[float], None] = lambda _now: None
    """Called as time passes."""

    def passes(self, seconds: float) -> bool:
        """Let time pass; return whether others used the processor meanwhile."""
        used, end = False, self.now + seconds
        while self.now < end:
            used |= self.is_used(self.now)
            self.now = min(end, self.now + 0.1)
            self.whenever(self.now)
        return used

    def look(self, _device: str, rule: IdleRule) -> str | None:
        """Stand for `why_busy`."""
        return OTHERS if any(self.passes(rule.period) for _ in range(rule.samples)) else None

    def pause(self, seconds: float, interrupts: Sized) -> None:
        """Stand for the pauses of a worker."""
        if not interrupts:
            self.paused.append((self.now, self.now + seconds))
            self.passes(seconds)

    def measure(self, request: Request, *, guard: Region, **_: Any) -> JudgedResult:
        """Stand for `run_request`."""
        self.passes(LOADING)
        with guard():
            doubts = (DISTURBED,) if self.passes(MEASURING) else ()
            return JudgedResult(result=replace(a_measurement(request), doubts=doubts))

    def figures(self) -> list[float]:
        """Return the times at which figures were taken that nobody disturbed."""
        return [at for at, each in self.done if each.outcome.state is TaskState.DONE]


def end_after(machine: Machine, figures: int, one: TaskDone) -> None:
    """Note what was done, and stop the worker after so many figures."""
    machine.done.append((machine.now, one))
    if len(machine.figures()) == figures:
        signal.raise_signal(signal.SIGINT)


@pytest.fixture
def on(registry: Registry, model: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Machine]:
    """Give a function that lets a worker do some tasks on a machine, and returns it."""

    def work(
        is_used: Callable[[float], bool], *, tasks: int = 6, patience: float = FOR_ALL, **changes: Any
    ) -> Machine:
        machine = Machine(is_used=is_used, **changes)
        monkeypatch.setattr(worker_module, "DEFERRALS", (0.0,))
        monkeypatch.setattr(worker_module, "monotonic", lambda: machine.now)
        monkeypatch.setattr(worker_module, "_pause", machine.pause)
        monkeypatch.setattr("modeldyno.environment.idle.why_busy", machine.look)
        monkeypatch.setattr(execute, "run_request", machine.measure)
        registry.put_policy(replace(DEFAULT, batch_sizes=tuple(range(1, tasks + 1))), "me")
        register(Registration(model=str(model), convert=False), registry)
        run_worker(
            WorkerOptions(once=patience < FOR_ALL, patience=patience, poll=1.0),
            done=partial(end_after, machine, tasks),
        )
        return machine

    return work


def test_after_others_have_used_the_machine_the_first_figure_comes_within_ten_seconds(
    on: Callable[..., Machine], registry: Registry
) -> None:
    """Used for 100 s at first; nothing is put off, and no task loses its place."""
    machine = on(lambda now: now < 100)

    assert 100 < machine.figures()[0] < 110
    assert len(machine.figures()) == len(machine.done) == 6
    assert [each.task.label for _, each in machine.done] == [f"net/1 source: batch {n}" for n in range(1, 7)]
    assert not [event for event in registry.events(newest=1000) if event.kind == "task.deferred"]
    assert len(current_figures(registry, "net")) == 6


@pytest.mark.parametrize("span", [20.0, 60.0])
def test_of_the_time_in_which_a_machine_is_idle_nine_tenths_are_used(
    on: Callable[..., Machine], span: float
) -> None:
    """It is used every other 20 or 60 s."""
    machine = on(lambda now: now % (2 * span) < span, tasks=10)
    idle = sum(0.1 for step in range(round(machine.now * 10)) if (step / 10) % (2 * span) >= span)
    wasted = sum(min(end, machine.now) - begin for begin, end in machine.paused if begin % (2 * span) >= span)

    assert len(machine.figures()) == 10
    assert wasted < 0.1 * idle


def test_beside_a_loop_of_measurements_by_hand_all_is_done_in_turns(
    on: Callable[..., Machine], tmp_path: Path
) -> None:
    """A command has the device for 5 s, nobody for 0.5 s, then the next; each is held up by 10 s at most."""
    loop = Loop(tmp_path)
    machine = on(loop.is_used, tasks=20, whenever=loop.passes)

    assert len(machine.figures()) == 20
    assert loop.commands > 15
    assert max(loop.waits) < 10


@dataclass(slots=True)
class Loop:
    """Commands by hand, one after the other, each of which takes the lock of the processor and measures."""

    folder: Path
    commands: int = 0
    waits: list[float] = field(default_factory=list)
    lock: ExitStack | None = None
    begins: float = 0.0
    """When the next command asks for the lock."""
    ends: float = 0.0

    def is_used(self, _now: float) -> bool:
        """Return whether a command measures."""
        return self.lock is not None

    def passes(self, now: float) -> None:
        """End a command and begin the next one, when it is time."""
        if self.lock is not None and now >= self.ends:
            self.lock.close()
            self.lock, self.begins = None, now + 0.5
        elif self.lock is None and now >= self.begins:
            lock = ExitStack()
            if lock.enter_context(device_lock("cpu", "modeldyno profile", folder=self.folder)) is None:
                self.lock, self.ends = lock, now + 5.0
                self.waits.append(now - self.begins)
                self.commands += 1
            else:
                lock.close()


def test_a_worker_with_once_ends_when_the_machine_stays_in_use(
    on: Callable[..., Machine], registry: Registry
) -> None:
    """After a minute, with all of its tasks queued as before."""
    machine = on(lambda _now: True, patience=60.0)

    assert machine.done == []
    assert 60 < machine.now < 70
    assert {task.state for task in registry.tasks(model="net")} == {TaskState.QUEUED}
    assert {task.why for task in registry.tasks(model="net")} == {"", OTHERS}
