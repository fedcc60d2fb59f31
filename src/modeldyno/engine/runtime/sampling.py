"""Samplers that watch a run from outside, and what keeps its timed pass steady."""

from __future__ import annotations

import gc
import os
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from modeldyno.base import plugins
from modeldyno.base.system.process_tree import ancestors, release_free_memory
from modeldyno.engine.interfaces.sampler import Watch
from modeldyno.engine.interfaces.session import ServedSession, Session
from modeldyno.models.load_stages import WatchStage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from modeldyno.base.metrics.doubt import Doubt
    from modeldyno.base.metrics.measurement import Measurement
    from modeldyno.engine.interfaces.sampler import Sampler


@dataclass(frozen=True, slots=True)
class _ForeignWatch:
    """A watch of another package's sampler, which is left out when it raises an error."""

    name: str
    watch: Watch

    @property
    def pids(self) -> Sequence[int]:
        return self._answer(lambda: tuple(self.watch.pids))

    def mark(self, stage: str) -> None:
        self._answer(lambda: (self.watch.mark(stage),))  # type: ignore[func-returns-value]

    def stop(self) -> Iterable[Measurement | Doubt]:
        return self._answer(lambda: tuple(self.watch.stop()))

    def _answer(self, question: Callable[[], tuple[Any, ...]]) -> tuple[Any, ...]:
        try:
            return question()
        except Exception as error:  # noqa: BLE001 - another's code, beside what is measured
            plugins.leave_out("sampler", self.name, error)
            return ()


@contextmanager
def steady_collector() -> Iterator[None]:
    """Keep the garbage collector on, as in a service, but exempt objects that exist already.

    What a service itself has frozen stays so: Python can only unfreeze all objects.
    """
    is_first = gc.get_freeze_count() == 0
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        if is_first:
            gc.unfreeze()


def start_samplers(root: int, *, period: float | None = None) -> list[Watch]:
    """Start every sampler on a process, telling each which other processes belong to the profiler.

    Args:
        root: the process; its children are watched, too.
        period: fewest seconds between two samples; by default as each sampler finds good.
    """
    watches: list[Watch] = []
    program = dict.fromkeys((root, os.getpid(), *ancestors(2)))  # the reaper and the process that started it

    def start(sampler: Sampler) -> Watch:
        ours = (pid for watch in watches for pid in watch.pids)
        return sampler.start((*program, *ours), period=period)

    for name, watch in plugins.answers("sampler", start):
        watches.append(watch if plugins.is_own("sampler", name) else _ForeignWatch(name, watch))
    return watches


def watch_server(session: Session) -> list[Watch]:
    """Start the samplers on a server's process; of one on another machine, on what it reports of its devices.

    A server of which neither is known is not watched.
    """
    if not isinstance(session, ServedSession):
        return []
    if session.pid is not None:
        watches = start_samplers(session.pid)
    else:
        url = session.device_metrics
        watch = plugins.sampler("device").watch_metrics(url) if url else None
        watches = [] if watch is None else [watch]
    stage_marker(watches)(WatchStage.IDLE)
    return watches


def stage_marker(samplers: list[Watch]) -> Callable[[WatchStage], None]:
    """Return a function that marks the beginning of a stage for all samplers, also those added later.

    Free memory is returned to the system where the memory changes hands. At the baseline and after the
    profiler's own work, because the model would otherwise grow unseen into what the imports or we have freed;
    before our work, so that memory freed by the model is not taken for memory reused by us.
    """
    last = WatchStage.IDLE

    def mark(stage: WatchStage) -> None:
        nonlocal last
        is_handed_over = (last is WatchStage.PROFILER) != (stage is WatchStage.PROFILER)
        if samplers and (is_handed_over or stage is WatchStage.BASELINE):
            release_free_memory()
        last = stage
        for sampler in samplers:
            sampler.mark(stage)

    return mark


def discard_samplers(samplers: list[Watch]) -> None:
    """Stop the samplers and discard their samples."""
    for sampler in samplers:
        for _ in sampler.stop():
            pass
