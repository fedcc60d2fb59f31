"""Run the static analysis in a fork of this process, so that its memory is not counted as the model's.

A fork shares the loaded model and takes a few milliseconds. It sends its events through a pipe, as a child
sends them to its parent, and has ended before the model is opened.
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

from modeldyno.base import codec
from modeldyno.base.metrics.doubt import Doubt
from modeldyno.base.result.result import Ended, Event, Progressed
from modeldyno.base.system.process_tree import cpu_seconds, end_with_parent, list_process_tree
from modeldyno.engine.runtime.exit_handlers import own_exit_handlers

Watching = Callable[[Event], None]
Analysis = Callable[[Watching], Iterator[Event]]
"""Yields events; its argument is called with progress."""
Analyst = Callable[[Analysis, Watching, Callable[[], bool]], Iterator[Event]]
"""Runs an analysis, here or in a fork. The last argument returns whether to give up."""

_READ_SIZE = 1 << 16
_DEVICES = ("/dev/nvidia", "/dev/kfd", "/dev/dri")
"""Device files of accelerators, whose drivers do not survive a fork."""
_STUCK_AFTER = 5.0
"""Seconds without output and CPU use after which a fork is taken to wait for a thread it does not have."""
_POLL = 0.25


def analyse_here(analysis: Analysis, watch: Watching, interrupted: Callable[[], bool]) -> Iterator[Event]:
    """Run the analysis in this process."""
    del interrupted
    yield from analysis(watch)


def analyse_isolated(analysis: Analysis, watch: Watching, interrupted: Callable[[], bool]) -> Iterator[Event]:
    """Run the analysis in a fork of this process, or here where a fork would not work.

    Events are yielded when the analysis is done; a stuck fork is killed, and the analysis repeated here.
    """
    events = _analyse_in_fork(analysis, watch, interrupted) if _can_fork() else None
    yield from analyse_here(analysis, watch, interrupted) if events is None else events


def _can_fork() -> bool:
    """Return whether a fork would work: it has neither our other threads nor the device driver's state."""
    return sys.platform.startswith("linux") and threading.active_count() == 1 and not _uses_device()


def _uses_device() -> bool:
    """Return whether a device is open, or, without /proc, may be."""
    try:
        descriptors = [*Path("/proc/self/fd").iterdir()]
    except OSError:
        return True
    for descriptor in descriptors:
        with suppress(OSError):
            if str(descriptor.readlink()).startswith(_DEVICES):
                return True
    return False


def _analyse_in_fork(
    analysis: Analysis, watch: Watching, interrupted: Callable[[], bool]
) -> list[Event] | None:
    """Return the events of a fork: empty if interrupted, None if it is stuck."""
    ours, theirs = pipe()
    with warnings.catch_warnings():
        for kind in (DeprecationWarning, RuntimeWarning):  # about threads, also JAX's: the fork uses one only
            warnings.simplefilter("ignore", kind)
        pid = fork()
    if not pid:
        _analyse_and_exit(analysis, theirs)
    close(theirs)
    try:
        return _receive_events(ours, pid, watch, interrupted)
    finally:
        close(ours)
        with suppress(ProcessLookupError):
            kill(pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            waitpid(pid, 0)


def _analyse_and_exit(analysis: Analysis, descriptor: int) -> None:
    """Run the analysis in the fork, send its events and exit."""
    try:
        end_with_parent()
        _use_one_thread()

        def send(event: Event) -> None:
            data = memoryview(codec.encode_event(event) + b"\n")
            while data:
                data = data[write(descriptor, data) :]

        with own_exit_handlers():
            for event in analysis(send):
                send(event)
        send(Ended())  # the original process ends this one at once
    finally:
        _exit(0)


def _use_one_thread() -> None:
    """Keep PyTorch from waiting for pool threads that exist only in the original process."""
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(1)


def _receive_events(
    descriptor: int, pid: int, watch: Watching, interrupted: Callable[[], bool]
) -> list[Event] | None:
    events: list[Event] = []
    rest, silence, cpu_time = b"", 0.0, 0.0
    while not interrupted():
        if not select.select([descriptor], [], [], _POLL)[0]:
            cpu_now = sum(map(cpu_seconds, list_process_tree(pid)))
            silence, cpu_time = (0.0 if cpu_now > cpu_time else silence + _POLL), cpu_now
            if silence >= _STUCK_AFTER:
                return None
            continue
        silence = 0.0
        data = read(descriptor, _READ_SIZE)
        if not data:
            return [*events, _ANALYSIS_CRASHED]
        *lines, rest = (rest + data).split(b"\n")
        for event in map(codec.decode_event, lines):
            if isinstance(event, Ended):
                return events
            if isinstance(event, Progressed):
                watch(event)
            else:
                events.append(event)
    return []


_ANALYSIS_CRASHED = Doubt(
    code="not-analysed",
    seen="the process that analysed the model crashed",
    advice="nothing, if you need only times and memory; otherwise run `modeldyno inspect`",
)
