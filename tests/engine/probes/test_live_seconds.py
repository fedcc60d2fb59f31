"""The seconds of a load that goes on, in virtual time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from modeldyno.base.result.request_outcome import RequestOutcome
from modeldyno.serving.load.request_log import COLUMNS, Records, empty_records
from modeldyno.serving.loadgen.running_load import LoadProgress
from modeldyno.serving.probes.live_seconds import LiveSeconds

if TYPE_CHECKING:
    from collections.abc import Iterable

    from modeldyno.base.result.trace_data import LiveSecond

SECOND = 1_000_000_000
BEGIN = 500 * SECOND


def taken(*requests: tuple[float, float], failed: Iterable[int] = ()) -> LoadProgress:
    """Return what a driver reports: when requests were due and ended, in seconds of the load."""
    due, end = (BEGIN + np.array([times[n] for times in requests]) * SECOND for n in (0, 1))
    columns: dict[str, Any] = {name: np.zeros(len(requests), dtype) for name, dtype in COLUMNS.items()}
    columns |= {"due": due.astype("int64"), "end": end.astype("int64")}
    columns["outcome"][list(failed)] = RequestOutcome.TIMEOUT
    records = Records(**columns) if requests else empty_records()
    return LoadProgress(records=records, in_flight=3, backlog=1, ended=False)


def at(seconds: float) -> int:
    """Return a time of the monotonic clock."""
    return BEGIN + int(seconds * SECOND)


def passed(live: LiveSeconds, now: float, progress: LoadProgress) -> list[LiveSecond]:
    """Return the seconds that are over by now."""
    return list(live.add(progress, at(now)))


def test_a_second_is_told_when_its_last_records_have_arrived() -> None:
    """A quarter of a second after it has passed, as drivers report ten times a second."""
    live = LiveSeconds()

    assert passed(live, 0.6, taken((0.0, 0.5))) == []
    assert passed(live, 1.1, taken((0.2, 0.9), (0.3, 1.05))) == []
    (first,) = passed(live, 1.3, taken())
    assert (first.at, first.answered) == (0.0, 2)
    (second,) = passed(live, 2.3, taken())
    assert (second.at, second.answered) == (1.0, 1)


def test_latency_counts_from_the_due_time() -> None:
    """Of the answers of that second; the slowest is named beside the percentiles."""
    live = LiveSeconds()
    quick = [(0.0, 0.001 * (n + 1)) for n in range(199)]

    (second,) = passed(live, 1.4, taken(*quick, (0.0, 0.9)))

    assert second.p50 is not None
    assert second.p99 is not None
    assert second.worst is not None
    assert [round(value, 4) for value in (second.p50, second.p99, second.worst)] == [0.1, 0.198, 0.9]
    assert (second.in_flight, second.waiting) == (3, 1)


def test_failures_are_counted_and_are_in_no_latency() -> None:
    """Neither in the percentiles nor in the answers."""
    live = LiveSeconds()

    (second,) = passed(live, 1.4, taken((0.0, 0.1), (0.0, 0.8), failed=[1]))

    assert (second.answered, second.failed) == (1, 1)
    assert second.worst is not None
    assert round(second.worst, 4) == 0.1


def test_a_server_that_hangs_shows_empty_seconds() -> None:
    """Each second is told, though nothing ends in it."""
    live = LiveSeconds()
    passed(live, 0.1, taken((0.0, 0.05)))

    seconds = passed(live, 3.3, taken())

    assert [(second.answered, second.p50, second.worst) for second in seconds[1:]] == [(0, None, None)] * 2


def test_a_record_that_is_late_counts_in_the_second_that_is_open() -> None:
    """No answer is lost, and no second is told twice."""
    live = LiveSeconds()
    passed(live, 1.3, taken((0.0, 0.1)))

    (second,) = passed(live, 2.3, taken((0.0, 0.95), (1.0, 1.5)))

    assert (second.at, second.answered) == (1.0, 2)


def test_a_load_whose_server_never_answers_begins_when_it_is_first_looked_at() -> None:
    """There is no request that was due first."""
    live = LiveSeconds()

    assert passed(live, 0.0, taken()) == []
    (second,) = passed(live, 1.3, taken())
    assert (second.at, second.answered, second.in_flight) == (0.0, 0, 3)
