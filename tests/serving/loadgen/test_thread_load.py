from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import numpy as np

from modeldyno.base.job.load_spec import Arrivals, Load
from modeldyno.base.result.request_outcome import RequestOutcome
from modeldyno.serving.load.request_log import Records, join_records
from modeldyno.serving.loadgen.thread_load import run_threads

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from modeldyno.serving.loadgen.running_load import LoadEnd


def driven(calls: Sequence[Callable[[], object]], load: Load) -> tuple[Records, LoadEnd]:
    with run_threads(calls, load) as crowd:
        parts = []
        for _ in range(1000):
            taken = crowd.take(0.05)
            parts.append(taken.records)
            if taken.ended:
                break
        ending = crowd.stop(5.0)
    return join_records([*parts, ending.records]), ending


def test_callables_are_called_in_turn_by_so_many_threads() -> None:
    """Three threads, never more at once, and each call in its turn."""
    at_once: list[int] = []
    inside = threading.Semaphore(3)

    def call() -> None:
        assert inside.acquire(blocking=False)
        at_once.append(1)
        time.sleep(0.002)
        inside.release()

    records, ending = driven([call, call, lambda: None], Load(concurrency=3, requests=60))
    assert len(records) == 60
    assert set(records.outcome) == {RequestOutcome.OK}
    assert np.bincount(records.message).tolist() == [20, 20, 20]
    assert (records.sent >= records.due).all()
    assert ending.usages[0].sent == 60
    assert ending.failure == ""


def test_a_closed_loop_is_due_as_its_thread_becomes_free() -> None:
    """As over the network."""
    records, _ = driven([lambda: None], Load(requests=20))
    assert (records.due[1:] == records.end[:-1]).all()


def test_a_thread_whose_calls_fail_again_and_again_pauses() -> None:
    """A call that fails in no time is not made hundreds of thousands of times a second."""

    def call() -> None:
        raise RuntimeError

    with run_threads([call], Load(concurrency=2)) as crowd:
        time.sleep(0.5)
        sent = crowd.stop(1.0).usages[0].sent
    assert 2 * 4 <= sent < 100


def test_what_a_call_raises_has_its_outcome() -> None:
    """And the first one is kept, for the user wants to read it."""

    def raising(error: Exception) -> Callable[[], object]:
        def call() -> None:
            raise error

        return call

    errors = [ValueError("odd"), TimeoutError(), ConnectionRefusedError(), ConnectionResetError()]
    records, ending = driven([raising(error) for error in errors], Load(requests=8))
    assert [RequestOutcome(outcome) for outcome in records.outcome[:4]] == [
        RequestOutcome.CLIENT_ERROR,
        RequestOutcome.TIMEOUT,
        RequestOutcome.REFUSED,
        RequestOutcome.RESET,
    ]
    assert ending.failure == "ValueError: odd"


def test_a_call_that_took_too_long_is_timed_out() -> None:
    """It cannot be interrupted, but it is in no latency."""
    records, _ = driven([lambda: time.sleep(0.05)], Load(requests=2, timeout=0.01))
    assert set(records.outcome) == {RequestOutcome.TIMEOUT}


def test_an_open_loop_counts_from_when_a_call_was_due() -> None:
    """One thread, calls of 20 ms each 5 ms: the line grows, and so does the latency."""
    load = Load(arrivals=Arrivals.CONSTANT, rate=200.0, concurrency=1, requests=40)
    with run_threads([lambda: time.sleep(0.02)], load) as crowd:
        taken = crowd.take(0.3)
        assert taken.backlog > 10
        assert taken.in_flight <= 1
        ended = crowd.take(20.0)
    assert ended.ended
    records = join_records([taken.records, ended.records])
    assert len(records) == 40
    assert (np.diff(np.sort(records.due)) == 5_000_000).all()
    assert (records.end - records.due)[-1] > 0.3e9


def test_an_open_loop_waits_until_a_call_is_due() -> None:
    """Nothing is called early."""
    records, _ = driven([lambda: None], Load(arrivals=Arrivals.POISSON, rate=500.0, requests=50))
    assert len(records) == 50
    assert (records.sent >= records.due).all()


def test_what_does_not_come_back_is_cancelled() -> None:
    """And nobody waits for it."""
    go_on = threading.Event()
    with run_threads([go_on.wait], Load(concurrency=2)) as crowd:
        crowd.take(0.1)
        ending = crowd.stop(0.05)
        go_on.set()
    assert [RequestOutcome(outcome) for outcome in ending.records.outcome] == [RequestOutcome.CANCELLED] * 2
