"""Leaks of real calls are told, honest calls are not accused."""

from __future__ import annotations

import functools
import mmap
import os
import socket
import subprocess
import sys
import threading
import time
from array import array
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from modeldyno.base.system.process_tree import release_free_memory
from modeldyno.engine.probes.leak_watch import LeakWatch
from modeldyno.engine.probes.timing_loop import time_each_call

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

KEPT: list[Any] = []
_SHARED = Path("/dev/shm")


@pytest.fixture(autouse=True)
def release() -> Iterator[None]:
    """Release what leaked."""
    yield
    for each in KEPT:
        if isinstance(each, subprocess.Popen):
            each.kill()
            each.wait()
        elif isinstance(each, threading.Event):
            each.set()
        elif isinstance(each, Path):
            each.unlink()
        elif isinstance(each, int):
            os.close(each)
        else:
            with suppress(AttributeError, BufferError):
                each.close()
    KEPT.clear()


def seen(call: Callable[[], object], calls: int = 1000, draws: int = 40) -> str:
    """Return what is said after so many calls, drawn as the stop rule draws them."""
    release_free_memory()  # what leaks must not fill what earlier tests have freed
    draw = time_each_call((call,))
    watch = LeakWatch(draw=draw)
    draw_and_read = watch.watched(draw)
    for _ in range(draws):
        draw_and_read(calls // draws)
        watch.due = 0.0  # whatever a neighbour does, there are readings
    return "".join(doubt.seen for doubt in watch.doubts(calls // 4))


def wait_in_a_thread() -> None:
    KEPT.append(event := threading.Event())
    threading.Thread(target=event.wait, daemon=True).start()


def write_shared_memory() -> None:
    KEPT.append(path := _SHARED / f"leaked-{os.getpid()}-{len(KEPT)}")
    path.write_bytes(b"x" * 100)


def write_mapped_memory() -> None:
    KEPT.append(mapped := mmap.mmap(-1, 1 << 14))
    mapped.write(b"x" * (1 << 14))


def grow_memory_without_a_file() -> None:
    if not KEPT:
        KEPT.append(os.memfd_create("leaked"))
    os.write(KEPT[0], b"x" * 4096)


LEAKS: dict[str, tuple[Callable[[], object], int, str]] = {
    "list": (lambda: KEPT.append(bytearray(5000)), 1000, "2 Python allocations behind"),
    "objects": (lambda: KEPT.append([1.0]), 1000, "Python allocations behind"),
    "map": (lambda: KEPT.append(mmap.mmap(-1, 1 << 16)), 1000, "KiB of mapped memory"),
    "used map": (write_mapped_memory, 1000, "KiB of memory"),
    "memory without a file": (grow_memory_without_a_file, 1000, "KiB of memory"),
    "shared memory": (write_shared_memory, 1000, "1 temporary file behind"),
    "descriptors": (lambda: KEPT.append(os.open(os.devnull, 0)), 400, "1 open file or socket behind"),
    "sockets": (lambda: KEPT.append(socket.socket()), 400, "1 open file or socket behind"),
    "threads": (wait_in_a_thread, 100, "1 thread behind"),
    "processes": (lambda: KEPT.append(subprocess.Popen(["sleep", "60"])), 40, "1 process behind"),
    "few calls": (lambda: KEPT.append(os.open(os.devnull, 0)), 8, "1 open file or socket behind"),
}  # fmt: skip


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
@pytest.mark.parametrize("kind", LEAKS)
def test_a_leak_is_told_within_a_thousand_calls(kind: str) -> None:
    """With what a call leaves, and how much."""
    call, calls, expected = LEAKS[kind]
    assert expected in seen(call, calls, draws=min(40, calls))


_WRITES = """
import os, pathlib, sys, time
folder, parent = pathlib.Path(sys.argv[1]), int(sys.argv[2])
number = 0
while os.getppid() == parent:
    (folder / f"other-{os.getpid()}-{number}").touch()
    number += 1
    print(number, flush=True) if number == 1 else time.sleep(0.001)
"""


@pytest.mark.skipif(not _SHARED.exists(), reason="needs shared memory")
def test_files_that_another_process_makes_are_no_leak() -> None:
    """They come while nothing is called, too."""
    writes = [sys.executable, "-c", _WRITES, str(_SHARED), str(os.getpid())]
    with subprocess.Popen(writes, stdout=subprocess.PIPE) as other:
        try:
            assert other.stdout
            other.stdout.readline()
            assert seen(lambda: time.sleep(0.001), 400) == ""
        finally:
            other.kill()
            other.wait()
            for path in _SHARED.glob(f"other-{other.pid}-*"):
                path.unlink()


@functools.lru_cache(maxsize=300)
def remembered(number: int) -> list[int]:
    return [number] * 50


class Honest:
    """Calls that keep something for a while, or once and for all."""

    def __init__(self) -> None:
        self.number = 0
        self.cache: dict[int, bytes] = {}
        self.last: object = None
        self.ring = [b""] * 64
        self.random = np.random.default_rng(0)

    def nothing(self) -> None:
        """Return at once."""

    def cycles(self) -> None:
        """Make garbage that only the collector frees."""
        loop: list[object] = [[0] * 100]
        loop.append(loop)

    def bounded_cache(self) -> None:
        """Fill an lru_cache, which evicts."""
        self.number += 1
        remembered(self.number)

    def filled_cache(self) -> None:
        """Fill a cache in the warm-up."""
        self.number += 1
        if self.number < 200:
            self.cache[self.number] = bytes(2000)

    def keeps_the_last(self) -> None:
        """Keep the last answer, of varying size."""
        self.last = bytes(int(self.random.integers(100_000)))

    def ring_buffer(self) -> None:
        """Keep the last 64 answers."""
        self.number += 1
        self.ring[self.number % 64] = bytes(int(self.random.integers(20_000)))

    def fragments(self) -> None:
        """Allocate and free in odd sizes."""
        parts = [bytearray(int(size)) for size in self.random.integers(1, 5000, 20)]
        self.last = parts[3]

    def arrays(self) -> None:
        """Calculate."""
        x = self.random.random((60, 60))
        self.last = x @ x

    def closes_its_file(self) -> None:
        """Open and close."""
        os.close(os.open(os.devnull, 0))

    def ends_its_thread(self) -> None:
        """Start a thread and wait for it."""
        thread = threading.Thread(target=lambda: None)
        thread.start()
        thread.join()

    def lazy(self) -> None:
        """Load something late, once."""
        self.number += 1
        if self.number == 400:
            self.last = bytearray(b"x") * (4 << 20)

    def rare_garbage(self) -> None:
        """Let garbage of some size wait for the collector."""
        node: dict[str, object] = {"data": array("d", [0.0]) * 500}
        node["self"] = node

    def exceptions(self) -> None:
        """Raise and catch, which makes cycles of frames."""
        try:
            int("x")
        except ValueError as error:
            self.last = error

    def sleeps(self) -> None:
        """Wait for a moment."""
        time.sleep(0.0002)


HONEST = [name for name in vars(Honest) if not name.startswith("_")]


@pytest.mark.parametrize("repetitions", [1, pytest.param(15, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", HONEST)
def test_honest_calls_are_not_accused(name: str, repetitions: int) -> None:
    """14 kinds; in full 15 times each, so 210."""
    for _ in range(repetitions):
        assert seen(getattr(Honest(), name)) == ""
