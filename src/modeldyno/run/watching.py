"""The samplers that watch a run from outside, and what keeps its timed pass steady."""

from __future__ import annotations

import gc
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from modeldyno import plugins
from modeldyno.ports import CanCall, Session, Watch

if TYPE_CHECKING:
    from collections.abc import Iterator

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
    program = dict.fromkeys((root, os.getpid(), os.getppid()))
    for name in SAMPLERS:
        ours = (pid for sampler in found for pid in sampler.pids)
        found.append(plugins.sampler(name).start((*program, *ours)))
    return found


def beside(session: Session) -> list[Watch]:
    """Watch a server, now that it is there; one that is not ours cannot be watched."""
    if isinstance(session, CanCall) or session.pid is None:
        return []
    found = started(session.pid)
    mark(found, "idle")
    return found


def mark(samplers: list[Watch], stage: str) -> None:
    """Tell the samplers which stage begins."""
    for sampler in samplers:
        sampler.mark(stage)


def discard(samplers: list[Watch]) -> None:
    """End the samplers, and forget what they saw."""
    for sampler in samplers:
        for _ in sampler.stop():
            pass
