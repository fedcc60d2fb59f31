"""A worker beside others: it uses the time in which its device is idle, and takes turns. Time is virtual."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support.worker_machine import OTHERS, Machine, on

from modeldyno.engine.environment.device_lock import device_lock
from modeldyno.registry.figures import current_figures
from modeldyno.registry.records.records import TaskState

if TYPE_CHECKING:
    from collections.abc import Callable

    from modeldyno.engine.environment.idle import IdleRule
    from modeldyno.registry.interface import Registry

__all__ = ["on"]


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


def test_the_log_says_once_who_uses_the_machine_until_it_was_idle(
    on: Callable[..., Machine], monkeypatch: pytest.MonkeyPatch
) -> None:
    """How much they use and their process ids differ at each look; after it was idle it is news again."""
    numbers = iter(range(1000))

    def prepare(machine: Machine) -> None:
        def look(device: str, rule: IdleRule) -> str | None:
            used = machine.look(device, rule)
            return used and f"others use 0.{next(numbers):03} of 2 cores, mostly python (pid {next(numbers)})"

        monkeypatch.setattr("modeldyno.engine.environment.idle.busy_reason", look)

    machine = on(lambda now: now < 60 or 100 < now < 160, tasks=20, prepare=prepare)

    assert next(numbers) > 20
    assert machine.sentences == [
        "Waiting for cpu: others use 0.000 of 2 cores, mostly python (pid 1)",
        *machine.sentences[1:2],
    ]
    assert "Waiting for cpu: others use" in machine.sentences[1]
