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
from typing import TYPE_CHECKING, Any, TypeVar, cast, overload
from weakref import WeakSet

from modeldyno.base.clock import perf_counter_ns
from modeldyno.base.errors import RequestError
from modeldyno.engine.trace.regions import RegionMemory, RegionTally, Schedule
from modeldyno.regions.energy_reader import EnergyReader
from modeldyno.regions.frames import FrameWatch, new_frame
from modeldyno.regions.memory_meters import MEMORY, Meters, synchronise
from modeldyno.regions.wrappers import KINDS, wrap_function

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from modeldyno.base.result.result import Result
    from modeldyno.engine.trace.regions import CallTimes
    from modeldyno.regions.frames import Frame, Nesting
    from modeldyno.regions.memory_meters import Memory
    from modeldyno.regions.operators import OperatorRecorder

F = TypeVar("F", bound="Callable[..., Any] | staticmethod[..., Any] | classmethod[Any, ..., Any]")

MOST_REGIONS = 1000
"""Distinct names; calls of further names are counted under OTHERS."""
OTHERS = "(other names)"
_MOST_PENDING = 64
"""Calls that are counted together."""


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
        self.current: ContextVar[Nesting | None] = ContextVar("modeldyno_profiled", default=None)
        """The open calls."""
        self._tallies: dict[str, RegionTally] = {}
        self._pending: dict[str, list[CallTimes]] = {}
        """Calls that have ended and are in no tally yet."""
        self._counts = False
        """Whether they are being moved to their tally."""
        self._marks: dict[Any, RegionMark] = {}
        """Those with a name, by it, and by what else they record."""
        self._all_marks: WeakSet[RegionMark] = WeakSet()
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
    def __call__(  # keywords only for type checkers: Python fills in positional defaults twice as fast
        self,
        target: Any = None,
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
                `modeldyno.regions.Schedule` says of which others. Calls of this region within a recorded
                call of another are a part of that one.
            energy: also measure the energy that processors and cards draw meanwhile, by their counters.

        Raises:
            RequestError: the target cannot be decorated, or there is no such memory.
        """
        key = (target, sync, memory, ops, energy) if sync or memory or ops or energy else target
        try:  # a with block asks for its mark each time it is run
            return self._marks[key]
        except (KeyError, TypeError):
            pass
        name = target if isinstance(target, str) else None
        mark = RegionMark(
            self, name, sync=sync, memory=_parse_memory(memory), ops=_parse_ops(ops), energy=energy
        )
        if name is not None and len(self._marks) < MOST_REGIONS:
            self._marks[key] = mark
        return mark if name is target else mark(target)

    def enable(self) -> None:
        """Record calls that begin from here on."""
        self._switch(on=True)

    def disable(self) -> None:
        """Record no calls that begin from here on; what was recorded stays."""
        self._switch(on=False)
        self._meters.close()

    def _switch(self, *, on: bool) -> None:
        with self._lock:
            self.on, self._decided = on, True
            for mark in self._all_marks:
                mark.switch(on=on)

    def reset(self) -> None:
        """Discard what was recorded."""
        with self._lock:
            self._tallies, self._pending = {}, {}
            self._meters.slowed = None
            self._operators = None

    def result(self, name: str | None = None) -> Result:
        """Return the recorded calls as a Result: ``result["latency.p50@load"]`` is the latency of `load`.

        Args:
            name: name of the Result; by default that of the script.
        """
        from modeldyno.regions.summary import result_of  # not needed while off

        with self._lock:
            return result_of(
                self.tallies(),
                name=name,
                slowed=self._meters.slowed,
                operators={} if self._operators is None else self._operators.regions,
                energy_period=self._energy.longest_period(),
                new_recorder=Profiled,
            )

    def tallies(self) -> Mapping[str, RegionTally]:
        """Return what was recorded, by region."""
        with self._lock:
            for name in tuple(self._pending):
                self._count_pending(name)
            return self._tallies

    def report(self) -> str:
        """Return the recorded calls as text of 80 columns."""
        from modeldyno.regions.summary import render_text  # not needed while off

        return render_text(self.result())

    def leave(self, process: int) -> None:
        """Print what is due when the program ends, unless in a forked child of that process."""
        if os.getpid() != process:
            return
        if self.at_exit is AtExit.REPORT and self.tallies():
            sys.stderr.write(f"\n{self.report()}")
        if self.at_exit is AtExit.REMIND and not self._decided:
            sys.stderr.write(_REMINDER)

    def follow_script(self, name: str) -> Callable[[], None]:
        """Begin a region of everything that this thread runs from here on; return what ends it.

        Its lines and what its code could do without are recorded as with ``ops=True``; its operators are
        those of the first steps, by their names in the code. Its blocks of ``record_function`` are regions.
        """
        from modeldyno.regions.torch_marks import follow_record_function  # as above

        frame = self.begin(RegionMark(self, name), name)
        before = self._clock()
        stop = self._operator_recorder().begin_script(name)
        unfollow = follow_record_function(lambda block: self.begin(self(block), block), self.end)
        frame.began = None if frame.began is None else frame.began + self._clock() - before

        def end() -> None:
            unfollow()
            self.end(frame)
            stop()

        return end

    # --- called by marks -------------------------------------------------------------------------

    def marked(self, mark: RegionMark) -> None:
        """Switch a new mark with the others from now on, and see that the program does not end in silence."""
        with self._lock:
            self._all_marks.add(mark)
            mark.switch(on=self.on)
        if not self._leaves and self.at_exit is not AtExit.NOTHING and not _is_own_process():
            self._leaves = True
            atexit.register(self.leave, os.getpid())

    def begin(self, mark: RegionMark, name: str) -> Frame:
        """Begin a call; the clock is read last."""
        frame = new_frame(name, mark)
        if mark.timed_only:  # nearly all calls: as few steps as possible
            frame.enter(self.current)
            frame.began = self._clock()
        else:
            self.resume(frame)
        return frame

    def resume(self, frame: Frame) -> None:
        """Begin or resume a call; the clock is read last."""
        mark = frame.mark
        frame.enter(self.current)
        if mark.watched:
            self._begin_watching(frame, mark)
        if mark.sync:
            synchronise()
        frame.start(self._clock())

    def pause(self, frame: Frame) -> None:
        """Suspend a call; the clock is read first."""
        if frame.mark.sync:
            synchronise()
        frame.suspend(self._clock())
        if frame.watched is not None:
            self._end_watching(frame, frame.watched)

    def end(self, frame: Frame) -> None:
        """End a call, unless it is suspended, and count it; the clock is read first.

        Calls are counted together with others, as taking the lock takes longer than all the rest.
        """
        if frame.mark.sync and frame.began is not None:
            synchronise()
        frame.stop(self._clock())
        parent, nesting, spent = frame.parent, frame.nesting, frame.spent
        if nesting.top is frame:  # else a generator holds open a block that began later
            nesting.top = parent
        if frame.watched is not None:
            self._end_watching(frame, frame.watched)
        if parent is not None:
            parent.nested_calls += 1
        try:
            calls = self._pending[frame.name]
        except KeyError:
            calls = self._new_region(frame.name)
        calls.append((spent, spent - frame.nested, frame.outermost, frame.nested_calls))
        if len(calls) >= _MOST_PENDING or frame.watched is not None:
            before = self._clock()
            self._count_pending(frame.name, frame.watched)
            frame.exclude(self._clock() - before)

    def _new_region(self, name: str) -> list[CallTimes]:
        with self._lock:
            name = self._tallied(name)
            self._tallies.setdefault(name, RegionTally())
            return self._pending.setdefault(name, [])

    def _tallied(self, name: str) -> str:
        """Return the name under which calls are counted."""
        return name if name in self._tallies or len(self._tallies) < MOST_REGIONS else OTHERS

    def _count_pending(self, name: str, watched: FrameWatch | None = None) -> None:
        with self._lock:
            name = self._tallied(name)
            tally = self._tallies.get(name)
            if tally is None:  # discarded meanwhile
                return
            if watched is not None:
                _add_watched(tally, watched)
            if self._counts:  # a finaliser has made this call, in the midst of counting
                return
            self._counts = True
            try:
                calls = self._pending[name]
                batch = calls[:]
                del calls[: len(batch)]  # other threads may have appended to it
                tally.add(batch)
            finally:
                self._counts = False

    def _operator_recorder(self) -> OperatorRecorder:
        """Return what records operators, which is imported when it is first needed."""
        with self._lock:
            if self._operators is None:
                from modeldyno.regions.operators import OperatorRecorder  # as above

                self._operators = OperatorRecorder()
            return self._operators

    def _begin_watching(self, frame: Frame, mark: RegionMark) -> None:
        """Begin what is recorded beside the time; no call around this one has the time that it takes."""
        before = self._clock()
        watched = frame.watched = frame.watched or FrameWatch()
        if mark.ops is not None:
            watched.end_operators = self._operator_recorder().begin(frame.name, mark.ops)
        if mark.memory is not None:
            watched.levels = self._meters.begin(mark.memory)
        if mark.energy:
            watched.joules = self._energy.read()
        frame.exclude(self._clock() - before)

    def _end_watching(self, frame: Frame, watched: FrameWatch) -> None:
        """End it in the reverse order."""
        before = self._clock()
        if watched.joules is not None:
            watched.drawn = {} if watched.drawn is None else watched.drawn
            for device, joules in self._energy.since(watched.joules).items():
                watched.drawn[device] = watched.drawn.get(device, 0.0) + joules
            watched.joules = None
        if watched.levels is not None:
            self._meters.end(frame.mark.memory, watched.levels, watched.sizes)
            watched.levels = None
        if watched.end_operators is not None:
            watched.end_operators()
            watched.end_operators = None
        frame.exclude(self._clock() - before)


class RegionMark:
    """Makes a region of a function or a ``with`` block; it may be used repeatedly."""

    __slots__ = (
        "__weakref__",
        "_name",
        "_recorder",
        "energy",
        "memory",
        "ops",
        "sync",
        "timed_only",
        "watched",
    )

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
        self._recorder = recorder
        self._name = name
        self.sync = sync
        self.memory = memory
        self.ops = ops
        self.energy = energy
        self.watched = memory is not None or ops is not None or energy
        """Whether more than the time is recorded."""
        self.timed_only = not (sync or self.watched)
        recorder.marked(self)

    def switch(self, *, on: bool) -> None:
        """Record the blocks that begin from here on, or do not; one that is open is ended as it was begun."""
        self.__class__ = RegionMark if on else _OffMark

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
        if self._name is None:
            raise RequestError('A with block needs a name: with profiled("name").')
        self._recorder.begin(self, self._name)

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """End the block that was begun last by the same thread or task."""
        nesting = self._recorder.current.get()
        frame = None if nesting is None else nesting.top
        while frame is not None:
            if frame.mark is self and frame.began is not None:
                self._recorder.end(frame)
                return
            frame = frame.parent


class _OffMark(RegionMark):
    """A mark whose recorder is off.

    Its block calls no Python function: a bound method of an empty string takes any arguments, and returns an
    empty string, which lets an error pass.
    """

    __slots__ = ()
    __enter__ = "".format  # type: ignore[assignment]
    __exit__ = "".format  # type: ignore[assignment]


# --- helpers -------------------------------------------------------------------------------------


def _add_watched(tally: RegionTally, watched: FrameWatch) -> None:
    """Add what was recorded of a call beside its time."""
    if watched.drawn is not None:
        tally.metered += 1
        for device, joules in watched.drawn.items():
            tally.drawn[device] = tally.drawn.get(device, 0.0) + joules
    for place, sizes in watched.sizes.items():
        tally.sizes.setdefault(place, RegionMemory()).add(sizes.allocated, sizes.freed, sizes.peak)


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


def _parse_memory(setting: bool | str) -> Memory | None:
    """Check how memory is to be measured.

    Raises:
        RequestError: there is no such way.
    """
    if setting is True:
        return "python"
    if not setting:
        return None
    for choice in MEMORY:
        if setting == choice:
            return choice
    choices = ", ".join(f"'{choice}'" for choice in MEMORY)
    raise RequestError(
        f"Memory cannot be measured by '{setting}'; give memory=True or one of {choices}. With any of them "
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


def _parse_ops(option: bool | Schedule) -> Schedule | None:
    """Check of which calls the operators are recorded.

    Raises:
        RequestError: it is no schedule, or one that never records.
    """
    schedule = Schedule() if option is True else option
    if not schedule:
        return None
    if not isinstance(schedule, Schedule):
        raise RequestError(
            f"ops={option!r} is no schedule; give ops=True or ops=modeldyno.regions.Schedule(active=3)."
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
