"""A load second by second."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from modeldyno.base.result.request_outcome import RequestOutcome
from modeldyno.base.result.trace_data import LoadSecond
from modeldyno.serving.load.load_seconds import load_seconds, slowest_answers
from modeldyno.serving.load.request_log import COLUMNS, PieceTimes, Records, empty_records, join_records

SECOND = 1_000_000_000


def a_log(*requests: tuple[float, float, RequestOutcome]) -> Records:
    """Requests by when they were due and ended, in seconds, and how they ended."""
    due, end, outcome = zip(*requests, strict=True)
    empty = empty_records()
    zeros = {name: np.zeros(len(requests), dtype) for name, dtype in COLUMNS.items()}
    zeros["due"] = (np.array(due) * SECOND).astype("int64") + 7 * SECOND
    zeros["end"] = (np.array(end) * SECOND).astype("int64") + 7 * SECOND
    zeros["outcome"] = np.array([int(one) for one in outcome], dtype="uint8")
    return join_records([Records(**zeros, pieces=empty.pieces)])


def test_answers_and_failures_are_told_by_the_second_in_which_they_ended() -> None:
    """With the percentiles of that second; a second in which nothing ended has none."""
    ok, late = RequestOutcome.OK, RequestOutcome.TIMEOUT

    rows = load_seconds(a_log((0.0, 0.1, ok), (0.1, 0.4, ok), (0.2, 0.9, late), (1.5, 2.5, ok)))

    assert [(row.at, row.answered, row.failed) for row in rows] == [(0.0, 2, 1), (1.0, 0, 0), (2.0, 1, 0)]
    assert rows[0].p50 == pytest.approx(0.1)
    assert rows[0].p99 == pytest.approx(0.3)
    assert rows[1] == LoadSecond(at=1.0, answered=0, failed=0)


def test_tokens_are_told_by_the_second_in_which_their_piece_came() -> None:
    """And first tokens by theirs; the slowest answers are kept with what they waited for."""
    ok = RequestOutcome.OK
    log = replace(
        a_log((0.0, 0.9, ok), (0.1, 2.5, ok), (0.2, 0.8, ok), (0.0, 0.5, RequestOutcome.SERVER_ERROR)),
        tokens=np.array([-1, 1, 2, 8], "int32"),  # in the order of their ends
        pieces=PieceTimes.of(
            [(), (), (7 * SECOND + SECOND // 2,), tuple(7 * SECOND + n * SECOND // 2 for n in (1, 3))]
        ),
    )
    log = replace(log, sent=log.due + SECOND // 20)

    rows, slowest = load_seconds(log), slowest_answers(log)

    assert [row.tokens for row in rows] == [2 + 4, 4, 0]
    assert [row.first_token for row in rows] == [pytest.approx(0.4), None, None]
    assert [(answer.tokens, round(answer.at, 3)) for answer in slowest] == [(8, 0.1), (2, 0.0)]
    first = slowest[0]
    assert (first.lag, first.first_token, first.further) == pytest.approx((0.05, 0.35, 2.0))
    assert slowest_answers(a_log((0.0, 0.9, ok))) == slowest_answers(empty_records()) == ()


def test_a_long_load_has_longer_rows() -> None:
    """Half an hour is three hundred rows of six seconds."""
    log = a_log(*((float(at), at + 0.5, RequestOutcome.OK) for at in range(1800)))

    rows = load_seconds(log)

    assert len(rows) == 300
    assert rows[0].length == 6.0
    assert sum(row.answered for row in rows) == 1800


def test_a_load_without_requests_has_no_rows() -> None:
    """Nothing ended."""
    assert load_seconds(empty_records()) == ()
