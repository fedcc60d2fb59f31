"""``@profiled`` and ``with profiled("name"):`` show where the time and memory of one's own code go.

Off until `profiled.enable()`, or under ``modeldyno run script.py``; a decorated function that is off only
checks a flag. The outcome is a Result like any other: `profiled.result()`.

Only the time in which the code runs is counted: a generator, a coroutine or an asynchronous generator is one
call, from its first step to its end, without the time in which it is suspended. So is a ``with`` block in one
that is decorated; in one that is not, the block does not notice the suspension, and counts it.
"""

from __future__ import annotations

import atexit
import inspect
import os
import sys
from contextvars import ContextVar
from enum import StrEnum
from functools import partial
from pathlib import Path
from threading import RLock
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, TypeVar, cast, overload

from modeldyno.core.trace.regions import RegionMemory, RegionTally, Schedule
from modeldyno.errors import RequestError
from modeldyno.regions.energy_reader import EnergyReader
from modeldyno.regions.frames import Frame, current_task
from modeldyno.regions.memory_meters import MEMORY, Meters, synchronise
from modeldyno.regions.wrappers import KINDS, wrap_function

if TYPE_CHECKING:
    from collections.abc import Callable

    from modeldyno.core.result.result import Result
    from modeldyno.regions.memory_meters import Memory
    from modeldyno.regions.operators import OperatorRecorder

F = TypeVar("F", bound="Callable[..., Any] | staticmethod[..., Any] | classmethod[Any, ..., Any]")

MOST_REGIONS = 1000
"""Distinct names; calls of further names are counted under OTHERS."""
OTHERS = "(other names)"


class AtExit(StrEnum):
    """What a recorder does when the program ends."""

    NOTHING = "nothing"
    REMIND = "remind"
    """Say that code is marked, if nobody has said whether to record it."""
    REPORT = "report"
    """Print what was recorded."""


class Profiled:
    """Marks regions and records their calls; use the instance `profiled`."""

    def __init__(
        self, clock: Callable[[], int] = perf_counter_ns, *, at_exit: AtExit = AtExit.NOTHING
    ) -> None:
        """Take nanoseconds from the given clock."""
        self.on = False
        """Whether calls that begin now are recorded."""
        self.at_exit = at_exit
        self._decided = False
        """Whether somebody has said to record or not to."""
        self._leaves = False
        """Whether `leave` is called when the program ends."""
        self._clock = clock
        self._current: ContextVar[Frame | None] = ContextVar("modeldyno_profiled", default=None)
        self._tallies: dict[str, RegionTally] = {}
        self._marks: dict[str, RegionMark] = {}
        self._lock = RLock()
        self._meters = Meters()
        self._operators: OperatorRecorder | None = None
        self._energy = EnergyReader()

    @overload
    def __call__(self, target: F, /) -> F: ...
    @overload
    def __call__(
        self,
        name: str | None = None,
        /,
        *,
        sync: bool = False,
        memory: bool | Memory = False,
        ops: bool | Schedule = False,
        energy: bool = False,
    ) -> RegionMark: ...
    def __call__(
        self,
        target: Any = None,
        /,
        *,
        sync: bool = False,
        memory: bool | Memory = False,
        ops: bool | Schedule = False,
        energy: bool = False,
    ) -> Any:
        """Mark a region: ``@profiled``, ``@profiled("name", sync=True)``, ``with profiled("name"):``.

        Args:
            target: the function to decorate, or the name of the region; by default that of the function.
            sync: wait for torch's devices before and after, so that their work is included in the time.
            memory: also measure allocations: ``"process"`` by the resident size; True, which is ``"python"``,
                by tracemalloc, which slows the whole program down from then on. With either, also by torch's
                allocator where CUDA is in use.
            ops: also record which operators torch runs, if it is loaded, of the first ten calls; a
                `modeldyno.Schedule` says of which others. Calls of this region within a recorded call of
                another are a part of that one.
            energy: also measure the energy that processors and cards draw meanwhile, by their counters.

        Raises:
            RequestError: the target cannot be decorated, or there is no such memory.
        """
        if not (sync or memory or ops or energy) and isinstance(target, str):
            return self._marks.get(target) or self._cached_mark(target)
        name = target if isinstance(target, str) else None
        mark = RegionMark(
            self, name, sync=sync, memory=_parse_memory(memory), ops=_parse_ops(ops), energy=energy
        )
        return mark if name is target else mark(target)

    def enable(self) -> None:
        """Record calls that begin from here on."""
        self.on = self._decided = True

    def disable(self) -> None:
        """Record no calls that begin from here on; what was recorded stays."""
        self.on, self._decided = False, True
        self._meters.close()

    def reset(self) -> None:
        """Discard what was recorded."""
        with self._lock:
            self._tallies = {}
            self._meters.slowed = None
            self._operators = None

    def result(self, name: str | None = None) -> Result:
        """Return the recorded calls as a Result: ``result["latency.p50@load"]`` is the latency of `load`.

        Args:
            name: name of the Result; by default that of the script.
        """
        from modeldyno.regions.summary import result_of  # noqa: PLC0415 - not needed while off

        with self._lock:
            return result_of(
                self._tallies,
                name=name,
                slowed=self._meters.slowed,
                operators={} if self._operators is None else self._operators.regions,
                energy_period=self._energy.longest_period(),
                new_recorder=Profiled,
            )

    def report(self) -> str:
        """Return the recorded calls as text of 80 columns."""
        from modeldyno.regions.summary import render_text  # noqa: PLC0415 - not needed while off

        return render_text(self.result())

    def leave(self, process: int) -> None:
        """Print what is due when the program ends, unless in a forked child of that process."""
        if os.getpid() != process:
            return
        if self.at_exit is AtExit.REPORT and self._tallies:
            sys.stderr.write(f"\n{self.report()}")
        if self.at_exit is AtExit.REMIND and not self._decided:
            sys.stderr.write(_REMINDER)

    # --- called by marks -------------------------------------------------------------------------

    def marked(self) -> None:
        """See to it that the program does not end in silence."""
        if not self._leaves and self.at_exit is not AtExit.NOTHING and not _is_own_process():
            self._leaves = True
            atexit.register(self.leave, os.getpid())

    def begin(self, mark: RegionMark, frame: Frame) -> None:
        """Begin or resume a call; the clock is read last."""
        if not mark.watched and not mark.sync:  # nearly all calls: as few steps as possible
            frame.enter(self._current)
            if frame.inner:
                frame.start(self._clock())
            else:
                frame.began = self._clock()
            return
        before = self._clock() if mark.watched else 0
        if mark.memory is not None:
            frame.levels = self._meters.begin(mark.memory)
        frame.enter(self._current)
        if mark.watched:
            if mark.ops is not None:
                frame.end_operators = self._operator_recorder().begin(frame.name, mark.ops)
            if mark.energy:
                frame.joules = self._energy.read()
            frame.exclude(self._clock() - before)
        if mark.sync:
            synchronise()
        frame.start(self._clock())

    def pause(self, mark: RegionMark, frame: Frame) -> None:
        """Suspend a call; the clock is read first."""
        if mark.sync:
            synchronise()
        frame.suspend(self._clock(), self._current)
        if mark.watched:
            self._end_watching(mark, frame)

    def end(self, mark: RegionMark, frame: Frame, *, block: bool = False) -> None:
        """End a call that was never suspended; the clock is read first.

        Blocks need not end in the order in which they began, if generators hold them open: a block that is
        not the innermost leaves the nesting as it is.
        """
        if mark.sync:
            synchronise()
        frame.stop(self._clock())
        current = self._current
        if not block or current.get() is frame:
            current.set(frame.parent)
        if mark.watched:
            self._end_watching(mark, frame)
        self.note(frame)

    def note(self, frame: Frame) -> None:
        """Count a finished call."""
        parent, spent = frame.parent, frame.spent
        if parent is not None:
            parent.nested_calls += 1
        with self._lock:
            tally = self._tallies.get(frame.name) or self._new_tally(frame.name)
            tally.add(spent, spent - frame.nested, frame.outermost, frame.nested_calls)
            if frame.drawn is not None:
                tally.metered += 1
                for device, joules in frame.drawn.items():
                    tally.drawn[device] = tally.drawn.get(device, 0.0) + joules
            if frame.sizes is not None:
                for place, sizes in frame.sizes.items():
                    tally.sizes.setdefault(place, RegionMemory()).add(
                        sizes.allocated, sizes.freed, sizes.peak
                    )

    def _cached_mark(self, name: str) -> RegionMark:
        """Create a mark and cache it, because a ``with`` block asks for it each time it is run."""
        mark = RegionMark(self, name)
        if len(self._marks) < MOST_REGIONS:
            self._marks[name] = mark
        return mark

    def _new_tally(self, name: str) -> RegionTally:
        return self._tallies.setdefault(name if len(self._tallies) < MOST_REGIONS else OTHERS, RegionTally())

    def _operator_recorder(self) -> OperatorRecorder:
        """Return what records operators, which is imported when it is first needed."""
        with self._lock:
            if self._operators is None:
                from modeldyno.regions.operators import OperatorRecorder  # noqa: PLC0415 - as above

                self._operators = OperatorRecorder()
            return self._operators

    def _end_watching(self, mark: RegionMark, frame: Frame) -> None:
        """End what is recorded beside the time; no call around this one has the time that it takes."""
        before = self._clock()
        if frame.joules is not None:
            frame.drawn = {} if frame.drawn is None else frame.drawn
            for device, joules in self._energy.since(frame.joules).items():
                frame.drawn[device] = frame.drawn.get(device, 0.0) + joules
            frame.joules = None
        if frame.end_operators is not None:
            frame.end_operators()
            frame.end_operators = None
        if frame.levels is not None and mark.memory is not None:
            frame.sizes = {} if frame.sizes is None else frame.sizes
            self._meters.end(mark.memory, frame.levels, frame.sizes)
            frame.levels = None
        frame.exclude(self._clock() - before)


class RegionMark:
    """Makes a region of a function or a ``with`` block; it may be used repeatedly."""

    __slots__ = ("_name", "_open", "_recorder", "energy", "memory", "ops", "sync", "watched")

    def __init__(
        self,
        recorder: Profiled,
        name: str | None,
        *,
        sync: bool = False,
        memory: Memory | None = None,
        ops: Schedule | None = None,
        energy: bool = False,
    ) -> None:
        """Create a mark; one without a name can only decorate."""
        recorder.marked()
        self._recorder = recorder
        self._name = name
        self._open: list[Frame] = []
        self.sync = sync
        self.memory = memory
        self.ops = ops
        self.energy = energy
        self.watched = memory is not None or ops is not None or energy
        """Whether more than the time is recorded."""

    def __call__(self, target: F, /) -> F:
        """Decorate a function, a method, a coroutine, a generator or an asynchronous generator.

        Raises:
            RequestError: the target is none of these.
        """
        if isinstance(target, staticmethod | classmethod):
            return type(target)(self(target.__func__))
        if not (inspect.isroutine(target) or isinstance(target, partial)):
            raise RequestError(
                f"profiled takes a function, or a name for a with block, not {_describe_target(target)}; "
                "for a class decorate its methods, for a module its forward."
            )
        make = next((make for is_one, make in KINDS if is_one(target)), wrap_function)
        return cast("F", make(self._recorder, self, self._name or _qualified_name(target), target))

    def __enter__(self) -> None:
        """Begin a block."""
        if self._recorder.on:
            if self._name is None:
                raise RequestError('A with block needs a name: with profiled("name").')
            frame = Frame(self._name)
            self._open.append(frame)
            self._recorder.begin(self, frame)

    def __exit__(self, *_: object) -> None:
        """End the block that was begun last by the same thread or task."""
        if self._open:
            owner = current_task()
            for frame in self._open[::-1]:
                if frame.owner == owner:
                    self._open.remove(frame)
                    self._recorder.end(self, frame, block=True)
                    return


# --- helpers -------------------------------------------------------------------------------------


def _qualified_name(function: Any) -> str:
    """Name a function by its module, unless that is the script, and its qualified name."""
    inner = function.func if isinstance(function, partial) else function
    place = getattr(inner, "__qualname__", type(inner).__qualname__).replace(".<locals>", "")
    module = getattr(inner, "__module__", None)
    return place if module in {None, "__main__", "builtins"} else f"{module}.{place}"


def _describe_target(target: Any) -> str:
    return (
        f"the class {target.__name__}" if inspect.isclass(target) else f"an object of {type(target).__name__}"
    )


def _parse_memory(given: bool | str) -> Memory | None:
    """Check how memory is to be measured.

    Raises:
        RequestError: there is no such way.
    """
    if given is True:
        return "python"
    if not given:
        return None
    for choice in MEMORY:
        if given == choice:
            return choice
    choices = ", ".join(f"'{choice}'" for choice in MEMORY)
    raise RequestError(
        f"Memory cannot be measured by '{given}'; give memory=True or one of {choices}. With any of them "
        "GPU memory is measured, too, by torch's allocator."
    )


def _is_own_process() -> bool:
    """Return whether this program is ModelDyno itself, which may load code that is marked."""
    main = sys.modules.get("__main__")
    module = getattr(getattr(main, "__spec__", None), "name", "") or ""
    return "modeldyno" in {module.partition(".")[0], Path(sys.argv[0] if sys.argv else "").name}


_REMINDER = (
    "modeldyno: code is marked with profiled, and nothing was recorded: run it by `modeldyno run SCRIPT`, or "
    "call profiled.enable() first; profiled.disable() says that it is meant to be off.\n"
)


def _parse_ops(given: bool | Schedule) -> Schedule | None:
    """Check of which calls the operators are recorded.

    Raises:
        RequestError: it is no schedule, or one that never records.
    """
    schedule = Schedule() if given is True else given
    if not schedule:
        return None
    if not isinstance(schedule, Schedule):
        raise RequestError(
            f"ops={given!r} is no schedule; give ops=True or ops=modeldyno.Schedule(active=3)."
        )
    if min(schedule.wait, schedule.warmup) < 0 or min(schedule.active, schedule.repeat) < 1:
        raise RequestError(
            f"{schedule} records nothing; active and repeat are 1 or more, the others 0 or more."
        )
    return schedule


profiled = Profiled(at_exit=AtExit.REMIND)
"""The recorder of this process."""


@overload
def check_time(target: F, /) -> F: ...
@overload
def check_time(
    name: str | None = None,
    /,
    *,
    sync: bool = False,
    memory: bool | Memory = False,
    ops: bool | Schedule = False,
    energy: bool = False,
) -> RegionMark: ...
def check_time(target: Any = None, /, **how: Any) -> Any:
    """Mark a region as `profiled` does, turn recording on, and print the tables when the program ends.

    ``@check_time``, ``@check_time("name", sync=True)``, ``with check_time("name"):``; the arguments are those
    of `profiled`, and so is the recorder: `profiled.result()` has what was recorded.
    """
    if profiled.at_exit is AtExit.REMIND and not _is_own_process():
        profiled.at_exit = AtExit.REPORT
        profiled.enable()
    return profiled(target, **how)
