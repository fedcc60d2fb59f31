"""A call that waits in a function that it calls, and one that computes."""

from __future__ import annotations

import time

from modeldyno.base.clock import process_time


def fetch() -> None:
    time.sleep(0.02)


def work() -> int:
    """Wait for 20 ms, in another function."""
    total = sum(range(1000))
    fetch()
    return total


def compute() -> int:
    """Be on a processor for 5 ms of processor time."""
    begin, total = process_time(), 0
    while process_time() - begin < 0.005:
        total += sum(range(100))
    return total
