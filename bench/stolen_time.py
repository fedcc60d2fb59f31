"""What the hypervisor takes away, so that a bench can wait until it gives the machine back.

A lent machine may give its cores freely for a minute and hold half of them back for the next; a peer that is
measured in the one and ours in the other are not compared.
"""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

LIMIT = 0.03
"""The share of the machine's time that may be taken away from a figure."""


def stolen_seconds() -> float:
    """Return the CPU-seconds taken away since the start of the machine; 0 where the system does not tell."""
    try:
        fields = Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()
    except FileNotFoundError:
        return 0.0
    return int(fields[8]) / os.sysconf("SC_CLK_TCK")


def share(before: float, seconds: float) -> float:
    """Return the share of the cores' time that went since ``before``, ``seconds`` ago."""
    return (stolen_seconds() - before) / (seconds * (os.cpu_count() or 1))


def settle(patience: float = 120.0) -> bool:
    """Wait until all cores are given when asked for, at most ``patience`` seconds; say whether they are."""
    end = time.monotonic() + patience
    while True:
        before, begin = stolen_seconds(), time.monotonic()
        with ThreadPoolExecutor() as pool:
            list(pool.map(_spin, [0.5] * (os.cpu_count() or 1)))
        if share(before, time.monotonic() - begin) <= LIMIT:
            return True
        if time.monotonic() > end:
            return False
        time.sleep(3)


def _spin(seconds: float) -> None:
    """Ask for a core: compressing lets other threads run."""
    import zlib  # only here

    block, end = os.urandom(1 << 18), time.monotonic() + seconds
    while time.monotonic() < end:
        zlib.compress(block, 1)
