"""Models that fail, each in one way: ``call:tests/support/faulty_models.py:segfault``."""

from __future__ import annotations

import asyncio
import builtins
import ctypes
import os
import resource
import signal
import subprocess
import sys
import time


def segfault() -> None:
    """Read the address 0."""
    ctypes.string_at(0)


def abort() -> None:
    """Abort, as a failed assertion in native code does."""
    os.abort()


def eat_memory() -> None:
    """Allocate 32 MiB repeatedly, until killed."""
    eaten = []
    while True:
        eaten.append(bytearray(b"x") * (32 << 20))


def fill_memory_without_mapping() -> None:
    """Write 16 MiB into a file without a disk, up to 4 GiB."""
    file = os.memfd_create("full")
    for _ in range(256):
        os.write(file, bytes(16 << 20))
        time.sleep(0.02)


def hang() -> None:
    """Never return."""
    while True:
        time.sleep(3600)


def stop_itself() -> None:
    """Stop the process by a signal, as Ctrl-Z does."""
    os.kill(os.getpid(), signal.SIGSTOP)


def leave() -> None:
    """End the process silently."""
    os._exit(3)


def raise_error() -> None:
    """Raise an error as a framework might."""
    raise ValueError("shapes (8, 128) and (64, 8) do not fit\nat layer 3")


def raise_memory_error() -> None:
    """Raise as torch does when a device is full."""
    raise RuntimeError("CUDA out of memory. Tried to allocate 20.00 GiB")


def raise_interrupt() -> None:
    """Raise KeyboardInterrupt, as Ctrl-C does."""
    raise KeyboardInterrupt


def raise_cancellation() -> None:
    """Raise what asyncio raises in a cancelled task; it is no Exception."""
    raise asyncio.CancelledError("given up")


def raise_end_of_generator() -> None:
    """Raise what closes a generator, such as those that yield events."""
    raise GeneratorExit


def spoil_os() -> float:
    """Replace functions of os by one that fails."""

    def fail(*_: object, **__: object) -> object:
        raise OSError("there is no system")

    for name in ("write", "read", "close", "getpid", "kill", "stat", "listdir", "_exit"):
        setattr(os, name, fail)
    return 1.0


def spoil_builtins() -> float:
    """Replace functions that all Python code needs by wrong ones."""
    builtins.isinstance = lambda *_: True
    builtins.len = lambda _: 0
    return 1.0


def leave_a_child_behind() -> float:
    """Start a process that would outlive this one."""
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
    time.sleep(0.01)
    return 0.0


def print_much() -> float:
    """Print a mebibyte of text."""
    sys.stdout.write("noise " * 175_000)
    sys.stdout.flush()
    return 0.0


def return_nan() -> float:
    """Return NaN."""
    time.sleep(0.002)
    return float("nan")


def sleep_briefly() -> float:
    """Take about 5 ms."""
    time.sleep(0.005)
    return 0.0


def return_nothing() -> None:
    """Do something and return nothing."""
    time.sleep(0.001)


def nan_for_negative(x: float) -> float:
    """Return NaN for some inputs only."""
    return float("nan") if x < 0 else 0.0


def fork_a_sleeper() -> float:
    """Fork a process that keeps every file of this one open."""
    if os.fork() == 0:
        time.sleep(3600)
        os._exit(0)
    return 0.0


def leave_a_session_behind() -> float:
    """Start a process that leaves the group of this one."""
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"], start_new_session=True)
    time.sleep(0.01)
    return 0.0


def orphan_a_session() -> float:
    """Leave a process that is in no tree or group of this one, and holds none of its files."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.closerange(0, 256)
            time.sleep(3600)
        os._exit(0)
    return 0.0


def orphan_a_session_and_crash() -> None:
    """Leave such a process, and crash before it can have been observed."""
    orphan_a_session()
    time.sleep(0.02)
    segfault()


def die_by_kill() -> None:
    """End as if another process had killed this one."""
    os.kill(os.getpid(), signal.SIGKILL)


def use_up_processor_time(soft: int = 3, hard: int = 3) -> None:
    """Spin up to a CPU time limit, at which the kernel kills; long beside the pause between two readings."""
    resource.setrlimit(resource.RLIMIT_CPU, (soft, hard))
    while True:
        pass


def use_up_processor_time_softly() -> None:
    """Spin up to a CPU time limit at which the kernel sends SIGXCPU."""
    use_up_processor_time(soft=1, hard=30)


def close_all_files() -> float:
    """Close every descriptor of the process."""
    os.closerange(0, 256)
    return 0.0


def become_another_program() -> None:
    """Replace this program by one that keeps running."""
    os.execv(sys.executable, [sys.executable, "-c", "import time; time.sleep(3600)"])


def return_twice() -> float:
    """Fork in one call, and return in both processes."""
    _CALLS.append(0)
    if len(_CALLS) == _FORK_AT_CALL:
        os.fork()
    time.sleep(0.001)
    return 0.0


_CALLS: list[int] = []
_FORK_AT_CALL = 20
