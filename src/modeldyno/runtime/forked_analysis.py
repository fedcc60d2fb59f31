"""Analysis in a forked copy of this process, so that the memory it takes is never the model's.

A copy shares the loaded model with us and takes some milliseconds to make. It sends what it finds through a
pipe, as a child sends it to its parent, and is gone before the model is opened.
"""

from __future__ import annotations

import select
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from os import _exit, close, fork, kill, pipe, read, waitpid, write  # before a model changes them
from pathlib import Path

from modeldyno import codec
from modeldyno.core.metrics.doubt import Doubt
from modeldyno.core.result.result import Doubted, Ended, Event, Progressed
from modeldyno.environment.process_tree import end_with_parent, processor_time, tree

Watching = Callable[[Event], None]
Analysis = Callable[[Watching], Iterator[Event]]
"""Gives what it finds; whom it is given is told of its progress."""
Analyst = Callable[[Analysis, Watching, Callable[[], bool]], Iterator[Event]]
"""Carries an analysis out: here, or in a copy. The last asks whether to give up."""

_CHUNK = 1 << 16
_DEVICES = ("/dev/nvidia", "/dev/kfd", "/dev/dri")
"""What a process has open that uses an accelerator: its driver does not survive a fork."""
_STUCK = 5.0
"""Seconds without a word and without work after which a copy waits for a thread that it does not have."""
_POLL = 0.25


def here(analysis: Analysis, watch: Watching, interrupted: Callable[[], bool]) -> Iterator[Event]:
    """Analyse in this very process."""
    del interrupted
    yield from analysis(watch)


def in_copy(analysis: Analysis, watch: Watching, interrupted: Callable[[], bool]) -> Iterator[Event]:
    """Analyse in a forked copy of this process, or here where a copy would not work.

    What is found is given when the analysis is done; a copy that is stuck is ended, and its work done here.
    """
    found = _told_by_copy(analysis, watch, interrupted) if _can_fork() else None
    yield from here(analysis, watch, interrupted) if found is None else found


def _can_fork() -> bool:
    """Say whether a copy would work: it has neither our other threads nor what a device's driver holds."""
    return sys.platform.startswith("linux") and threading.active_count() == 1 and not _uses_device()


def _uses_device() -> bool:
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            if str(descriptor.readlink()).startswith(_DEVICES):
                return True
    return False


def _told_by_copy(analysis: Analysis, watch: Watching, interrupted: Callable[[], bool]) -> list[Event] | None:
    """Give what a copy finds, nothing once interrupted, None of a copy that is stuck."""
    ours, theirs = pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads: the copy makes do with one
        copy = fork()
    if not copy:
        _analyse_and_exit(analysis, theirs)
    close(theirs)
    try:
        return _heard(ours, copy, watch, interrupted)
    finally:
        close(ours)
        with suppress(ProcessLookupError):
            kill(copy, signal.SIGKILL)
        with suppress(ChildProcessError):
            waitpid(copy, 0)


def _analyse_and_exit(analysis: Analysis, descriptor: int) -> None:
    """Be the copy."""
    try:
        end_with_parent()
        _use_one_thread()

        def tell(event: Event) -> None:
            data = memoryview(codec.encode_event(event) + b"\n")
            while data:
                data = data[write(descriptor, data) :]

        for event in analysis(tell):
            tell(event)
        tell(Ended())
    finally:
        _exit(0)


def _use_one_thread() -> None:
    """Have PyTorch wait for no thread of a pool that only the original has."""
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(1)


def _heard(
    descriptor: int, copy: int, watch: Watching, interrupted: Callable[[], bool]
) -> list[Event] | None:
    found: list[Event] = []
    rest, silent, worked = b"", 0.0, 0.0
    while not interrupted():
        if not select.select([descriptor], [], [], _POLL)[0]:
            now = sum(map(processor_time, tree(copy)))
            silent, worked = (0.0 if now > worked else silent + _POLL), now
            if silent >= _STUCK:
                return None
            continue
        silent = 0.0
        data = read(descriptor, _CHUNK)
        if not data:
            return [*found, Doubted(doubt=_CRASHED)]
        *lines, rest = (rest + data).split(b"\n")
        for event in map(codec.decode_event, lines):
            if isinstance(event, Ended):
                return found
            if isinstance(event, Progressed):
                watch(event)
            else:
                found.append(event)
    return []


_CRASHED = Doubt(
    code="not-analysed",
    seen="the process that analysed the model crashed",
    advice="nothing, if only times and memory are wanted; else see `modeldyno inspect`",
)
