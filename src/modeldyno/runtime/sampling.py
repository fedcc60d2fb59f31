"""Samplers that watch a run from outside, and what keeps its timed pass steady."""

from __future__ import annotations

import gc
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from modeldyno import plugins
from modeldyno.environment.process_tree import ancestors, release_free_memory
from modeldyno.interfaces.sampler import ReadsServerMetrics, Watch, WatchStage
from modeldyno.interfaces.session import CanCall, ReportsDevices, Session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SAMPLERS = ("device", "process")
"""Samplers that watch this process, or the server's process where a server runs the model."""


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
    """Start the samplers on a process, telling each which other processes belong to the profiler.

    Args:
        root: the process; its children are watched, too.
        period: fewest seconds between two samples; by default as each sampler finds good.
    """
    watches: list[Watch] = []
    program = dict.fromkeys((root, os.getpid(), *ancestors(2)))  # the reaper and the process that started it
    for name in SAMPLERS:
        ours = (pid for sampler in watches for pid in sampler.pids)
        watches.append(plugins.sampler(name).start((*program, *ours), period=period))
    return watches


def watch_server(session: Session) -> list[Watch]:
    """Start the samplers on a server's process; of one on another machine, on what it reports of its devices.

    A server of which neither is known is not watched.
    """
    if isinstance(session, CanCall):
        return []
    if session.pid is not None:
        watches = start_samplers(session.pid)
    else:
        sampler: object = plugins.sampler("device")
        url = session.device_metrics if isinstance(session, ReportsDevices) else ""
        watches = [sampler.watch_metrics(url)] if url and isinstance(sampler, ReadsServerMetrics) else []
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
        is_handed_over = (last is WatchStage.OURS) != (stage is WatchStage.OURS)
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
