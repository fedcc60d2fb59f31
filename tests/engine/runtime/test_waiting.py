"""Where calls wait that are mostly on no processor."""

from __future__ import annotations

import inspect
import threading
import time

from modeldyno.base.clock import process_time
from modeldyno.engine.runtime.waiting import wait_times


def sleep_long() -> None:
    """Sleep in its second line for most of a call."""
    time.sleep(0.002)
    time.sleep(0.02)


def wait_for_a_lock() -> None:
    """Wait for a lock that nobody gives."""
    threading.Event().wait(0.02)


def compute() -> int:
    """Be on a processor for 5 ms of processor time."""
    begin, total = process_time(), 0
    while process_time() - begin < 0.005:
        total += sum(range(100))
    return total


def line_of(function: object, offset: int) -> str:
    """Return the line so many below the head of a function."""
    return f"test_waiting.py:{inspect.getsourcelines(function)[1] + offset}"  # type: ignore[arg-type]


def test_the_line_in_which_a_call_sleeps_comes_first() -> None:
    """With the time that a call spends in it, about 20 of its 22 ms."""
    first, *_ = wait_times(sleep_long)

    assert first.metric == "wait_time"
    assert first.scope == line_of(sleep_long, 3)
    assert isinstance(first.value, float)
    assert 0.012 < first.value < 0.2


def test_a_lock_is_waited_for_in_the_users_line() -> None:
    """Not in the library whose code runs there."""
    assert [m.scope for m in wait_times(wait_for_a_lock)] == [line_of(wait_for_a_lock, 2)]


def test_a_call_that_computes_or_is_over_at_once_does_not_wait() -> None:
    """It is called once, and nothing is sampled."""
    calls: list[int] = []

    def counted() -> None:
        calls.append(compute())

    assert list(wait_times(counted)) == []
    assert len(calls) == 1
    assert list(wait_times(lambda: time.sleep(0.0001))) == []
