"""The processes that send: launched for a load, or waiting for the next one.

Most of what a driver takes to start is Python's own start, which needs no order. Whoever has one load after
the other keeps as many waiting as the last one had; each carries out one load, and ends with it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING

from modeldyno.core.load.request_target import Reply
from modeldyno.loadgen.record_frames import Block

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(slots=True, kw_only=True, eq=False)
class Hand:
    """A driver, and what was heard of it."""

    process: subprocess.Popen[bytes]
    pipe: int
    log: IO[bytes]
    index: int = 0
    data: bytearray = field(default_factory=bytearray)
    latest: Block | None = None
    ready: bool = False
    over: bool = False
    """Whether it has told all."""
    answers: list[tuple[int, Reply]] = field(default_factory=list)
    faults: list[tuple[int, Reply]] = field(default_factory=list)

    def end(self) -> None:
        """Leave nothing of it behind."""
        self.process.kill()
        self.process.wait()
        assert self.process.stdin is not None
        with suppress(OSError):
            self.process.stdin.close()
        os.close(self.pipe)
        self.log.close()


@dataclass(slots=True)
class _Bench:
    """Those that wait."""

    open: bool = False
    hands: list[Hand] = field(default_factory=list)


_BENCH = _Bench()


@contextmanager
def waiting() -> Iterator[None]:
    """While the block lasts, have drivers wait for the next load, as many as the last one had."""
    _BENCH.open = True
    try:
        yield
    finally:
        _BENCH.open = False
        _dismiss()


def hired(index: int) -> Hand:
    """Give a driver that has no order yet."""
    while _BENCH.hands:
        hand = _BENCH.hands.pop()
        if hand.process.poll() is None:
            hand.index = index
            return hand
        hand.end()
    hand = _launched()
    hand.index = index
    return hand


def succeeded(count: int) -> None:
    """Have so many wait for the next load, where there may be one."""
    if _BENCH.open:
        _dismiss()
        _BENCH.hands += [_launched() for _ in range(count)]


def _dismiss() -> None:
    while _BENCH.hands:
        _BENCH.hands.pop().end()


def _launched() -> Hand:
    read_end, write_end = os.pipe()
    log = tempfile.TemporaryFile()  # noqa: SIM115 - the hand closes it
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", "modeldyno.loadgen.driver_main", str(write_end)],
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
    return Hand(process=process, pipe=read_end, log=log)
