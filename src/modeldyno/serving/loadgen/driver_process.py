"""Driver processes: started for a load, or started in advance for the next one.

Most of a driver's start-up time is Python's own, which needs no command. If one load follows another, as many
drivers as the last load had are started in advance; each serves one load and then exits.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING

from modeldyno.engine.interfaces.request_target import Reply
from modeldyno.serving.loadgen.record_frames import RecordBlock

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(slots=True, kw_only=True, eq=False)
class DriverProcess:
    """A driver process, and what it has sent so far."""

    process: subprocess.Popen[bytes]
    pipe: int
    log: IO[bytes]
    index: int = 0
    data: bytearray = field(default_factory=bytearray)
    latest: RecordBlock | None = None
    ready: bool = False
    over: bool = False
    """Whether it has sent everything."""
    answers: list[tuple[int, Reply]] = field(default_factory=list)
    faults: list[tuple[int, Reply]] = field(default_factory=list)

    def end(self) -> None:
        """Kill the process and release its resources."""
        self.process.kill()
        self.process.wait()
        assert self.process.stdin is not None
        with suppress(OSError):
            self.process.stdin.close()
        os.close(self.pipe)
        self.log.close()


@dataclass(slots=True)
class _Prestarted:
    """Drivers that were started in advance."""

    open: bool = False
    drivers: list[DriverProcess] = field(default_factory=list)


_PRESTARTED = _Prestarted()


@contextmanager
def prestarting_drivers() -> Iterator[None]:
    """Start drivers in advance for the next load during the block, as many as the last load had."""
    _PRESTARTED.open = True
    try:
        yield
    finally:
        _PRESTARTED.open = False
        _end_prestarted()


@contextmanager
def starting_ahead(count: int) -> Iterator[None]:
    """Start drivers for a load of the block while something else is done."""
    _PRESTARTED.drivers += [_launch() for _ in range(count - len(_PRESTARTED.drivers))]
    try:
        yield
    finally:
        if not _PRESTARTED.open:
            _end_prestarted()


def acquire_driver(index: int) -> DriverProcess:
    """Return a driver that has no command yet."""
    while _PRESTARTED.drivers:
        driver = _PRESTARTED.drivers.pop()
        if driver.process.poll() is None:
            driver.index = index
            return driver
        driver.end()
    driver = _launch()
    driver.index = index
    return driver


def prestart_drivers(count: int) -> None:
    """Start `count` drivers in advance, if another load may follow."""
    if _PRESTARTED.open:
        _end_prestarted()
        _PRESTARTED.drivers += [_launch() for _ in range(count)]


def _end_prestarted() -> None:
    while _PRESTARTED.drivers:
        _PRESTARTED.drivers.pop().end()


def _launch() -> DriverProcess:
    read_end, write_end = os.pipe()
    log = tempfile.TemporaryFile()  # noqa: SIM115 - closed by Hand.end
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", "modeldyno.serving.loadgen.driver_main", str(write_end)],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            pass_fds=(write_end,),
        )
    except OSError:
        os.close(read_end)
        log.close()
        raise
    finally:
        os.close(write_end)
    return DriverProcess(process=process, pipe=read_end, log=log)
