"""The seconds of a load that goes on, in virtual time."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from modeldyno.base.result.request_outcome import RequestOutcome
from modeldyno.serving.load.request_log import COLUMNS, PieceTimes, Records, empty_records
from modeldyno.serving.loadgen.running_load import LoadProgress, PieceArrivals
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


def arrived(begin: float, end: float, count: int, *first_times: float) -> LoadProgress:
    """Return what a driver reports of pieces that came from one time to another, and of answers in flight."""
    firsts = np.array(first_times) * SECOND
    arrivals = PieceArrivals(begin=at(begin), end=at(end), count=count, first_times=firsts.astype("int64"))
    return LoadProgress(records=empty_records(), in_flight=3, backlog=1, ended=False, arrivals=(arrivals,))


def answered(tokens: int, *pieces: float) -> LoadProgress:
    """Return what a driver reports of an answer that was due at the begin and ended with its last piece."""
    times = PieceTimes.of([[at(piece) for piece in pieces]])
    records = replace(taken((0.0, pieces[-1])).records, pieces=times, tokens=np.array([tokens], "int32"))
    return LoadProgress(records=records, in_flight=2, backlog=0, ended=False)


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


def test_pieces_count_in_the_second_in_which_they_came() -> None:
    """Those of answers in flight, too, and evenly over the time between two reports of a driver."""
    live = LiveSeconds()
    passed(live, 0.0, taken())
    passed(live, 0.9, arrived(0.0, 0.8, 80))

    seconds = passed(live, 2.3, arrived(0.8, 1.2, 40))

    assert [second.pieces for second in seconds] == pytest.approx([100, 20])
    assert [second.tokens for second in seconds] == [None, None], "no answer has said how many tokens it has"


def test_a_load_of_streams_begins_with_what_its_drivers_report_first() -> None:
    """Though none of its answers has ended: pieces of its first moment are in its first second."""
    live = LiveSeconds()
    passed(live, 0.1, arrived(0.0, 0.1, 8))

    (first,) = passed(live, 1.26, arrived(0.1, 1.0, 72))

    assert first.pieces == pytest.approx(80)


def test_a_piece_is_worth_what_pieces_of_answers_that_ended_were() -> None:
    """As the server counts their tokens: four pieces of ten tokens."""
    live = LiveSeconds()
    passed(live, 0.0, taken())
    passed(live, 0.9, arrived(0.0, 0.9, 20))
    passed(live, 0.95, answered(10, 0.1, 0.2, 0.3, 0.91))

    (second,) = passed(live, 1.3, taken())

    assert second.tokens == pytest.approx(50)
    assert second.time_per_token == pytest.approx(0.81 / 9)


def test_first_tokens_count_when_they_come_and_not_when_their_answers_end() -> None:
    """Median and 99th percentile, by nearest rank."""
    live = LiveSeconds()
    passed(live, 0.0, taken())

    (second,) = passed(live, 1.3, arrived(0.0, 0.9, 3, 0.2, 0.3, 0.7))

    assert (second.first_token, second.first_token_p99) == pytest.approx((0.3, 0.7))
    assert (second.answered, second.time_per_token) == (0, None)


def test_pieces_that_are_late_count_in_the_second_that_is_open() -> None:
    """As records do; and a request that is sent again takes its pieces back, but never below none."""
    live = LiveSeconds()
    passed(live, 0.0, taken())
    passed(live, 1.3, arrived(0.0, 0.9, 10))

    (late,) = passed(live, 2.3, arrived(0.5, 0.9, 4))
    (lost,) = passed(live, 3.3, arrived(2.0, 2.9, -6))

    assert (late.pieces, lost.pieces) == (4, 0)


def test_tokens_of_an_answer_that_came_whole_count_when_it_ended() -> None:
    """It has no pieces, and so neither a first token nor a time per token."""
    live = LiveSeconds()
    whole = taken((0.0, 0.5), (0.0, 0.6))
    counted = replace(whole, records=replace(whole.records, tokens=np.array([7, 5], "int32")))

    (second,) = passed(live, 1.3, counted)

    assert (second.tokens, second.pieces, second.first_token, second.time_per_token) == (12, None, None, None)


def test_a_load_without_tokens_says_nothing_of_them() -> None:
    """Its answers are one piece, which nobody counts."""
    live = LiveSeconds()
    plain = taken((0.0, 0.5))
    uncounted = replace(plain, records=replace(plain.records, tokens=np.array([-1], "int32")))

    (second,) = passed(live, 1.3, uncounted)

    assert (second.tokens, second.pieces, second.first_token, second.time_per_token) == (None,) * 4


def test_nothing_is_kept_of_seconds_that_are_over() -> None:
    """However long a load lasts, it holds a second or two."""
    live = LiveSeconds()
    for n in range(1, 200):
        list(live.add(arrived(n / 10 - 0.1, n / 10, 5, 0.1), at(n / 10)))

    kept = (live._times, live._pieces, live._failed, live._whole)
    assert all(len(held) <= 6 for held in kept)
