"""Operators of the calls of regions, by the profiler of the framework that is loaded.

Of one call its data flow is followed as well: the first that is kept. That slows it down, so that its
operators count only if no other call was kept.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from threading import Lock, get_ident
from typing import TYPE_CHECKING

from modeldyno.engine.trace.dataflow import DataFlow
from modeldyno.engine.trace.line_times import LineTimes
from modeldyno.engine.trace.op_events import WITHIN, Occurrence, WatchedCalls
from modeldyno.regions.line_sampler import LineSampler

if TYPE_CHECKING:
    from types import FrameType

    from modeldyno.engine.trace.regions import Schedule

MOST_EVENTS = 100_000
"""Events of a region from which on no further call is recorded."""
MOST_UNREAD = 20_000
"""Events that may be held in the form of the framework, which takes more memory."""
MOST_STEPS = 20_000
"""Steps of a call beyond which its data flow is not judged."""
_OURS = __name__.partition(".")[0]
_SUSPENDS = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


@dataclass(slots=True)
class RegionOperators:
    """The operators of the kept calls of a region."""

    calls: int = 0
    """All calls so far, recorded or not."""
    kept: int = 0
    occurrences: list[Occurrence] = field(default_factory=list)
    """Those of the calls that are kept and read."""
    unread: list[Callable[[], tuple[Occurrence, ...]]] = field(default_factory=list)
    """What reads the calls that were kept since; to read takes several times as long as to record."""
    largest: int = 0
    """Most events of a call that was read."""
    followed: bool = False
    """Whether the data flow of the only kept call was followed."""
    flow: DataFlow | None = None
    """What was followed; None where it is not known."""
    lines: LineTimes = field(default_factory=LineTimes)
    """Wall time of the kept calls by line."""
    files: dict[str, str] = field(default_factory=dict)
    """The path of each file by its name in lines."""
    whole: bool = False
    """Whether it is a script, of which only the data flow tells the operators."""

    @property
    def events(self) -> int:
        """Events of the kept calls, as many as one has at most for each that is not read."""
        return len(self.occurrences) + self.largest * len(self.unread)

    def add(
        self,
        read: Callable[[], tuple[Occurrence, ...]],
        sampler: LineSampler | None = None,
        *,
        followed: bool = False,
    ) -> None:
        """Add a call, in place of the only one so far if that one was followed."""
        if self.followed:
            self.occurrences, self.kept, self.lines = [], 0, LineTimes()
        self.followed = followed
        if sampler is not None:
            self.lines.add_all(sampler.times)
            self.files |= sampler.files
        self.kept += 1
        self.unread.append(read)
        if not self.largest or self.largest * len(self.unread) > MOST_UNREAD:
            self.read()

    def read(self) -> None:
        """Read the calls that were kept and not read."""
        unread, self.unread = self.unread, []
        for call, read in enumerate(unread, self.kept - len(unread)):
            occurrences, offset = read(), len(self.occurrences)
            self.largest = max(self.largest, len(occurrences))
            self.occurrences += (
                replace(one, call=call, parent=None if one.parent is None else one.parent + offset)
                for one in occurrences
            )

    def watched(self) -> WatchedCalls:
        """Return the kept calls; their times are those of the region."""
        self.read()
        return WatchedCalls(times=(0.0,) * self.kept, occurrences=tuple(self.occurrences))


class OperatorRecorder:
    """Records one call at a time: a call within a recorded one is a range of it."""

    def __init__(self) -> None:
        self.regions: dict[str, RegionOperators] = {}
        self._lock = Lock()
        self._busy = False
        self._script: int | None = None
        """The thread in which a whole script is followed, so that its regions are a part of that."""

    def begin(self, name: str, schedule: Schedule) -> Callable[[], None] | None:
        """Begin to record a call if it is its turn; return what ends it."""
        if "torch" not in sys.modules or self._script == get_ident():
            return None
        with self._lock:
            region = self.regions.setdefault(name, RegionOperators())
            call, inner = region.calls, self._busy
            region.calls += 1
            if not inner and (not schedule.records(call) or region.events >= MOST_EVENTS):
                return None
            self._busy = True
            followed = self._script is not None or region.kept or region.flow
            follows = not (inner or followed) and schedule.keeps(call)
        end = _start(name)
        end_flow = _follow() if follows and not _may_be_suspended(sys._getframe(1)) else None
        sampler = None if inner or not schedule.keeps(call) else LineSampler()

        def stop() -> None:
            if sampler is not None:
                sampler.stop()
            flow = None if end_flow is None else end_flow()
            read = end()
            if inner:
                return
            with self._lock:
                self._busy = False
                if schedule.keeps(call):
                    region.add(read, sampler, followed=end_flow is not None)
                    region.flow = region.flow or _in_region(name, flow)

        return stop

    def begin_script(self, name: str) -> Callable[[], None]:
        """Begin to follow a whole script: its first MOST_STEPS steps, and all of its time by line."""
        self._script = get_ident()
        region = self.regions[name] = RegionOperators(calls=1, whole=True)
        end_flow, sampler = _follow(partly=True), LineSampler()  # in this order: to follow imports torch

        def stop() -> None:
            sampler.stop()
            region.flow = _in_region(name, None if end_flow is None else end_flow())
            region.add(lambda: (), sampler)
            self._script = None

        return stop


def _start(name: str) -> Callable[[], Callable[[], tuple[Occurrence, ...]]]:
    from modeldyno.base import plugins  # not needed while no operators are recorded

    recorder = plugins.backend("torch").record_operators(name)
    assert recorder is not None
    return recorder


def _follow(*, partly: bool = False) -> Callable[[], DataFlow | None] | None:
    from modeldyno.base import plugins  # as above

    return plugins.backend("torch").follow_code(MOST_STEPS, partly=partly)


def _may_be_suspended(frame: FrameType | None) -> bool:
    """Whether the code that is recorded could be suspended, and leave what follows it to others."""
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == _OURS:
        frame = frame.f_back
    return frame is not None and bool(frame.f_code.co_flags & _SUSPENDS)


def _in_region(name: str, flow: DataFlow | None) -> DataFlow | None:
    """Return a flow whose steps are in the region, and in the modules that it calls."""
    if flow is None:
        return None
    scopes = (f"{name}{WITHIN}{step.scope}" if step.scope else name for step in flow.steps)
    steps = tuple(replace(step, scope=scope) for step, scope in zip(flow.steps, scopes, strict=True))
    return replace(flow, steps=steps)
