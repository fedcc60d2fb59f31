"""A machine with a worker whose time passes as it looks, pauses and measures: hours take milliseconds."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.registry import a_measurement

from modeldyno.base.metrics.doubt import Doubt
from modeldyno.profiling.run import JudgedResult
from modeldyno.registry import execute, outages
from modeldyno.registry import worker as worker_module
from modeldyno.registry.records.policy import DEFAULT
from modeldyno.registry.records.records import TaskState
from modeldyno.registry.register import Registration, register
from modeldyno.registry.worker import TaskDone, WorkerOptions, run_worker

if TYPE_CHECKING:
    from collections.abc import Sized
    from pathlib import Path

    from modeldyno.engine.environment.idle import IdleRule
    from modeldyno.engine.runtime.measured_region import Region
    from modeldyno.profiling.request import Request
    from modeldyno.registry.interface import Registry

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
    sentences: list[str] = field(default_factory=list)
    """What the worker told."""
    reason: str = ""
    """Why it ended, if something kept it from what was left."""

    def passes(self, seconds: float) -> bool:
        """Let time pass; return whether others used the processor meanwhile."""
        used, end = False, self.now + seconds
        while self.now < end:
            used |= self.is_used(self.now)
            self.now = min(end, self.now + 0.1)
            self.whenever(self.now)
        return used

    def look(self, _device: str, rule: IdleRule) -> str | None:
        """Stand for `busy_reason`."""
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
        is_used: Callable[[float], bool] = lambda _now: False,
        *,
        tasks: int = 6,
        patience: float = FOR_ALL,
        prepare: Callable[[Machine], None] = lambda _machine: None,
        **changes: Any,
    ) -> Machine:
        machine = Machine(is_used=is_used, **changes)
        monkeypatch.setattr(worker_module, "DEFERRALS", (0.0,))
        monkeypatch.setattr(worker_module, "monotonic", lambda: machine.now)
        monkeypatch.setattr(outages, "monotonic", lambda: machine.now)
        monkeypatch.setattr(worker_module, "pause", machine.pause)
        monkeypatch.setattr("modeldyno.engine.environment.idle.busy_reason", machine.look)
        monkeypatch.setattr(execute, "run_request", machine.measure)
        registry.put_policy(replace(DEFAULT, batch_sizes=tuple(range(1, tasks + 1))), "me")
        register(Registration(model=str(model), convert=False), registry)
        prepare(machine)
        machine.reason = run_worker(
            WorkerOptions(once=patience < FOR_ALL, patience=patience, poll=1.0),
            done=partial(end_after, machine, tasks),
            tell=machine.sentences.append,
        )
        return machine

    return work
