"""``@profiled`` and ``with profiled("name"):``: where the time and the memory of one's own code go.

Off until `profiled.enable()`, or under ``modeldyno run script.py``; a decorated function that is off costs a
look at a flag. What was seen is a Result like any other: `profiled.result()`.

Only the time in which the code runs is counted: a generator, a coroutine or an asynchronous generator is one
call, from its first step to its end, without the time in which it is suspended. So is a ``with`` block in one
that is decorated; in one that is not, nobody tells the block of the suspension, and it counts on.
"""

from __future__ import annotations

import inspect
from contextvars import ContextVar
from functools import partial
from threading import RLock
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, TypeVar, cast, overload

from modeldyno.core.trace.regions import Sizes, Tally
from modeldyno.errors import RequestError
from modeldyno.regions.frames import Frame, running
from modeldyno.regions.memory_meters import MEMORY, Meters, synchronise
from modeldyno.regions.wrappers import KINDS, function

if TYPE_CHECKING:
    from collections.abc import Callable

    from modeldyno.core.result.result import Result
    from modeldyno.regions.memory_meters import Memory

F = TypeVar("F", bound="Callable[..., Any] | staticmethod[..., Any] | classmethod[Any, ..., Any]")

MOST_REGIONS = 1000
"""Names that are told apart; what comes later goes under OTHERS."""
OTHERS = "(other names)"


class Profiled:
    """Marks regions and records their calls; `profiled` is the one that is used."""

    def __init__(self, clock: Callable[[], int] = perf_counter_ns) -> None:
        """Take nanoseconds from a clock."""
        self.on = False
        """Whether calls are recorded that begin now."""
        self._clock = clock
        self._current: ContextVar[Frame | None] = ContextVar("modeldyno_profiled", default=None)
        self._tallies: dict[str, Tally] = {}
        self._marks: dict[str, Mark] = {}
        self._lock = RLock()
        self._meters = Meters()

    @overload
    def __call__(self, target: F, /) -> F: ...
    @overload
    def __call__(
        self, name: str | None = None, /, *, sync: bool = False, memory: bool | Memory = False
    ) -> Mark: ...
    def __call__(self, target: Any = None, /, *, sync: bool = False, memory: bool | Memory = False) -> Any:
        """Mark a region: ``@profiled``, ``@profiled("name", sync=True)``, ``with profiled("name"):``.

        Args:
            target: the function to decorate, or the name of the region; by default that of the function.
            sync: wait for torch's devices before and after, so that what they do is in the time.
            memory: also watch what is allocated and freed: ``"process"`` by the resident size; True, which
                is ``"python"``, by tracemalloc, which slows the whole program down from there on. With
                either, by torch's allocator too where CUDA is in use.

        Raises:
            RequestError: it is nothing that can be decorated, or no such memory.
        """
        if isinstance(target, str) and not sync and not memory:
            return self._marks.get(target) or self._marked(target)
        if target is None or isinstance(target, str):
            return Mark(self, target, sync=sync, memory=_memory(memory))
        return Mark(self, None, sync=sync, memory=_memory(memory))(target)

    def enable(self) -> None:
        """Record calls that begin from here on."""
        self.on = True

    def disable(self) -> None:
        """Record no call that begins from here on; what was seen stays."""
        self.on = False
        self._meters.close()

    def reset(self) -> None:
        """Forget what was seen."""
        with self._lock:
            self._tallies = {}
            self._meters.slowed = None

    def result(self, name: str | None = None) -> Result:
        """Give what was seen as a Result: ``result["latency.p50@load"]`` is seconds of one call of `load`.

        Args:
            name: what to call the whole; by default the name of the script.
        """
        from modeldyno.regions.summary import result_of  # noqa: PLC0415 - what is off never needs it

        with self._lock:
            return result_of(self._tallies, name=name, slowed=self._meters.slowed)

    def report(self) -> str:
        """Give what was seen as text of 80 columns."""
        from modeldyno.regions.summary import text  # noqa: PLC0415 - what is off never needs it

        return text(self.result())

    # --- called by marks -------------------------------------------------------------------------

    def begin(self, mark: Mark, frame: Frame) -> None:
        """Let a call begin, or go on; the clock is read last."""
        before = self._clock() if mark.memory is not None else 0
        if mark.memory is not None:
            frame.levels = self._meters.begin(mark.memory)
        frame.enter(self._current)
        if mark.memory is not None:
            frame.leave_out(self._clock() - before)
        if mark.sync:
            synchronise()
        frame.start(self._clock())

    def pause(self, mark: Mark, frame: Frame) -> None:
        """Let a call hand over; the clock is read first."""
        if mark.sync:
            synchronise()
        frame.suspend(self._clock(), self._current)
        self._measure(mark, frame)

    def end(self, mark: Mark, frame: Frame, *, block: bool = False) -> None:
        """Let a call end that never handed over; the clock is read first.

        Blocks need not end in the order in which they began, where generators hold them open: one that is
        not the innermost leaves the others as they are.
        """
        if mark.sync:
            synchronise()
        frame.stop(self._clock())
        if not block or self._current.get() is frame:
            self._current.set(frame.parent)
        self._measure(mark, frame)
        self.note(frame)

    def note(self, frame: Frame) -> None:
        """Count a call that is over."""
        if frame.parent is not None:
            frame.parent.nested_calls += 1
        with self._lock:
            tally = self._tallies.get(frame.name) or self._new(frame.name)
            tally.add(frame.spent, frame.spent - frame.nested, frame.outermost, frame.nested_calls)
            if frame.sizes is not None:
                for place, sizes in frame.sizes.items():
                    tally.sizes.setdefault(place, Sizes()).add(sizes.allocated, sizes.freed, sizes.peak)

    def _marked(self, name: str) -> Mark:
        """Make a mark, and keep it for the next time: a ``with`` block asks each time that it is run."""
        mark = Mark(self, name)
        if len(self._marks) < MOST_REGIONS:
            self._marks[name] = mark
        return mark

    def _new(self, name: str) -> Tally:
        return self._tallies.setdefault(name if len(self._tallies) < MOST_REGIONS else OTHERS, Tally())

    def _measure(self, mark: Mark, frame: Frame) -> None:
        if frame.levels is None or mark.memory is None:
            return
        before = self._clock()
        frame.sizes = {} if frame.sizes is None else frame.sizes
        self._meters.end(mark.memory, frame.levels, frame.sizes)
        frame.levels = None
        frame.leave_out(self._clock() - before)


class Mark:
    """What makes a region of a function, or of a ``with`` block; it may be used again and again."""

    __slots__ = ("_name", "_open", "_recorder", "memory", "sync")

    def __init__(
        self, recorder: Profiled, name: str | None, *, sync: bool = False, memory: Memory | None = None
    ) -> None:
        """Make it; one without a name can only decorate."""
        self._recorder = recorder
        self._name = name
        self._open: list[Frame] = []
        self.sync = sync
        self.memory = memory

    def __call__(self, target: F, /) -> F:
        """Decorate a function, a method, a coroutine, a generator or an asynchronous generator.

        Raises:
            RequestError: it is none of these.
        """
        if isinstance(target, staticmethod | classmethod):
            return type(target)(self(target.__func__))
        if not (inspect.isroutine(target) or isinstance(target, partial)):
            raise RequestError(
                f"profiled takes a function, or a name for a with block, not {_shown(target)}; "
                "of a class decorate the methods, of a module its forward."
            )
        make = next((make for is_one, make in KINDS if is_one(target)), function)
        return cast("F", make(self._recorder, self, self._name or _name(target), target))

    def __enter__(self) -> None:
        """Begin a block."""
        if self._recorder.on:
            if self._name is None:
                raise RequestError('A with block needs a name: with profiled("name").')
            frame = Frame(self._name)
            self._open.append(frame)
            self._recorder.begin(self, frame)

    def __exit__(self, *_: object) -> None:
        """End the block that was begun last, by the same thread or task."""
        if self._open:
            owner = running()
            for frame in self._open[::-1]:
                if frame.owner == owner:
                    self._open.remove(frame)
                    self._recorder.end(self, frame, block=True)
                    return


# --- small things --------------------------------------------------------------------------------


def _name(function: Any) -> str:
    """Name a function by its module, unless that is the script, and its place in it."""
    inner = function.func if isinstance(function, partial) else function
    place = getattr(inner, "__qualname__", type(inner).__qualname__).replace(".<locals>", "")
    module = getattr(inner, "__module__", None)
    return place if module in {None, "__main__", "builtins"} else f"{module}.{place}"


def _shown(target: Any) -> str:
    return (
        f"the class {target.__name__}" if inspect.isclass(target) else f"an object of {type(target).__name__}"
    )


def _memory(given: bool | str) -> Memory | None:
    """Read who is asked of memory.

    Raises:
        RequestError: there is no such one.
    """
    if given is True:
        return "python"
    if not given:
        return None
    for known in MEMORY:
        if given == known:
            return known
    choices = ", ".join(f"'{known}'" for known in MEMORY)
    raise RequestError(
        f"Memory cannot be watched by '{given}'; give memory=True or one of {choices}. With any of them "
        "that of a GPU is watched, too, by torch's allocator."
    )


profiled = Profiled()
"""Marks regions, and says what was seen of them."""
