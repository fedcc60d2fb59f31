"""A load second by second: what was answered, what failed, how long answers took; and the slowest answers."""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from typing import TYPE_CHECKING

from modeldyno.base.result.trace_data import LoadSecond, SlowAnswer
from modeldyno.base.stats.statistics import load_numpy
from modeldyno.serving.load.answer_times import answer_time

if TYPE_CHECKING:
    from collections.abc import Sequence

    from modeldyno.serving.load.request_log import Column, RecordParts, Records

_NANO = 1e-9
_MOST = 300
"""Rows that are kept: those of a longer load are as many seconds long as it takes."""
_QUANTILES = (0.5, 0.95, 0.99)
_SLOWEST = 10


def load_seconds(records: RecordParts) -> tuple[LoadSecond, ...]:
    """Sum up a log by the second in which requests ended, from the time at which the first was due.

    Percentiles are those of the answers of that second, by nearest rank: few answers make them rough. Tokens
    count by when their piece came, those of a piece being the answer's over its pieces.
    """
    np = load_numpy()
    if (span := _span(records)) is None:
        return ()
    begin, end = span
    width = max(1, -(-int((end - begin) * _NANO + 1) // _MOST))
    rows = int((end - begin) * _NANO // width) + 1
    answered: defaultdict[int, list[Column]] = defaultdict(list)
    first_tokens: defaultdict[int, list[Column]] = defaultdict(list)
    failed, tokens = np.zeros(rows, "int64"), np.zeros(rows)

    def place(times: Column) -> Column:
        places: Column = ((times - begin) * _NANO // width).astype("int64")
        return places

    for part in records.parts():
        fine = part.chosen(part.fine)
        failed += np.bincount(place(part.end[part.failed]), minlength=rows)
        _sort_into(answered, place(fine.end), (fine.end - fine.due) * _NANO)
        if fine.pieces is not None:
            share = fine.tokens.clip(0) / fine.pieces.counts.clip(1)
            weights = np.repeat(share, fine.pieces.counts)
            tokens += np.bincount(place(fine.pieces.times), weights, minlength=rows)
            first, timed = answer_time("time_to_first_token", fine) * _NANO, fine.pieces.counts > 0
            _sort_into(first_tokens, place(fine.pieces.first()[timed]), first[timed])
    return tuple(
        LoadSecond(
            at=float(row * width),
            length=float(width),
            answered=sum(times.size for times in answered[row]),
            failed=int(failed[row]),
            **dict(zip(("p50", "p95", "p99"), _quantiles(answered[row], _QUANTILES), strict=True)),
            tokens=float(tokens[row]),
            first_token=_quantiles(first_tokens[row], (0.5,))[0],
        )
        for row in range(rows)
    )


def _span(records: RecordParts) -> tuple[int, int] | None:
    """Return when the first request was due, and the last one ended; None if there are none."""
    spans = [(int(part.due.min()), int(part.end.max())) for part in records.parts() if len(part)]
    return (min(begin for begin, _ in spans), max(end for _, end in spans)) if spans else None


def _sort_into(rows: defaultdict[int, list[Column]], places: Column, values: Column) -> None:
    """Add values to the rows at their places."""
    for place in load_numpy().unique(places).tolist():
        rows[place].append(values[places == place])


def _quantiles(parts: Sequence[Column], fractions: Sequence[float]) -> list[float | None]:
    """Return quantiles by nearest rank; None of nothing."""
    if not parts:
        return [None] * len(fractions)
    values = load_numpy().sort(load_numpy().concatenate(parts))
    return [float(values[max(0, math.ceil(values.size * fraction) - 1)]) for fraction in fractions]


def slowest_answers(records: RecordParts) -> tuple[SlowAnswer, ...]:
    """Return the slowest streamed answers of a log, the slowest first; none if nothing was streamed."""
    span = _span(records)
    slowest: list[tuple[int, SlowAnswer]] = []
    for part in records.parts() if span else ():
        fine = part.chosen(part.fine)
        if fine.pieces is not None:
            timed = fine.chosen(fine.pieces.counts > 0)
            order = (timed.due - timed.end).argsort(kind="stable")[:_SLOWEST]
            slowest += _slow_answers(timed.at(order), span[0] if span else 0)
    return tuple(answer for _, answer in heapq.nlargest(_SLOWEST, slowest, key=lambda pair: pair[0]))


def _slow_answers(records: Records, begin: int) -> list[tuple[int, SlowAnswer]]:
    """Return answers with their latency in nanoseconds."""
    assert records.pieces is not None
    rows = zip(
        records.due.tolist(),
        records.sent.tolist(),
        records.pieces.first().tolist(),
        records.end.tolist(),
        records.tokens.tolist(),
        strict=True,
    )
    return [
        (
            end - due,
            SlowAnswer(
                at=(due - begin) * _NANO,
                lag=(sent - due) * _NANO,
                first_token=(first - sent) * _NANO,
                further=(end - first) * _NANO,
                tokens=tokens,
            ),
        )
        for due, sent, first, end, tokens in rows
    ]
