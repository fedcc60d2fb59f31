"""The samplers that watch a run from outside, and what keeps its timed pass steady."""

from __future__ import annotations

import gc
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from modeldyno import plugins
from modeldyno.environment.process_tree import ancestors, release_free_memory
from modeldyno.interfaces import CanCall, Session, Watch, WatchStage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SAMPLERS = ("device", "process")
"""What watches from outside: this process, or where a server runs the model, that."""


@contextmanager
def steady_collector() -> Iterator[None]:
    """Keep the garbage collector on, as in a service, but spare it what was loaded before."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def started(root: int) -> list[Watch]:
    """Start the samplers on a process; each is told which others are ours, and no load of the model."""
    found: list[Watch] = []
    program = dict.fromkeys((root, os.getpid(), *ancestors(2)))  # our parent is a keeper, whose parent asked
    for name in SAMPLERS:
        ours = (pid for sampler in found for pid in sampler.pids)
        found.append(plugins.sampler(name).start((*program, *ours)))
    return found


def beside(session: Session) -> list[Watch]:
    """Watch a server, now that it is there; one that is not ours cannot be watched."""
    if isinstance(session, CanCall) or session.pid is None:
        return []
    found = started(session.pid)
    marker(found)(WatchStage.IDLE)
    return found


def marker(samplers: list[Watch]) -> Callable[[WatchStage], None]:
    """Give a function that tells the samplers, and those added later, which stage begins.

    Free memory is given back to the system before and after work of ours: before it, so that what the model
    has freed is not taken for memory that our work saved, and after it, as the model would grow into what we
    have freed unseen.
    """
    last = WatchStage.IDLE

    def mark(stage: WatchStage) -> None:
        nonlocal last
        if samplers and (last is WatchStage.OURS) != (stage is WatchStage.OURS):
            release_free_memory()
        last = stage
        for sampler in samplers:
            sampler.mark(stage)

    return mark


def discard(samplers: list[Watch]) -> None:
    """End the samplers, and forget what they saw."""
    for sampler in samplers:
        for _ in sampler.stop():
            pass
