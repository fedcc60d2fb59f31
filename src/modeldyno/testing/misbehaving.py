"""Models that go wrong, each in one way: ``call:modeldyno.testing.misbehaving:segfault``."""

from __future__ import annotations

import ctypes
import os
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
    """Take 32 MiB after 32 MiB, until somebody steps in."""
    eaten = []
    while True:
        eaten.append(bytearray(b"x") * (32 << 20))


def hang() -> None:
    """Never return."""
    while True:
        time.sleep(3600)


def leave() -> None:
    """End the process without a word."""
    os._exit(3)


def raise_error() -> None:
    """Raise what a framework might."""
    raise ValueError("shapes (8, 128) and (64, 8) do not fit\nat layer 3")


def raise_memory_error() -> None:
    """Raise as torch does when a device is full."""
    raise RuntimeError("CUDA out of memory. Tried to allocate 20.00 GiB")


def leave_a_child_behind() -> float:
    """Start a process that would outlive this one."""
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
    return 0.0


def print_much() -> float:
    """Print a mebibyte of noise."""
    sys.stdout.write("noise " * 175_000)
    sys.stdout.flush()
    return 0.0


def return_nan() -> float:
    """Return what is not a number."""
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
    return 0.0
