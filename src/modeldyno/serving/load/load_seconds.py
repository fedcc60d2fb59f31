"""A load second by second: what was answered, what failed, and how long answers took."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import TYPE_CHECKING

from modeldyno.base.result.trace_data import LoadSecond
from modeldyno.base.stats.statistics import load_numpy

if TYPE_CHECKING:
    from modeldyno.serving.load.request_log import Column, RecordParts

_NANO = 1e-9
_MOST = 300
"""Rows that are kept: those of a longer load are as many seconds long as it takes."""
_QUANTILES = (0.5, 0.95, 0.99)


def load_seconds(records: RecordParts) -> tuple[LoadSecond, ...]:
    """Sum up a log by the second in which requests ended, from the time at which the first was due.

    Percentiles are those of the answers of that second, by nearest rank: few answers make them rough.
    """
    np = load_numpy()
    ends = [(int(part.due.min()), int(part.end.max())) for part in records.parts() if len(part)]
    if not ends:
        return ()
    begin, end = min(first for first, _ in ends), max(last for _, last in ends)
    width = max(1, -(-int((end - begin) * _NANO + 1) // _MOST))
    answered: defaultdict[int, list[Column]] = defaultdict(list)
    failed: defaultdict[int, int] = defaultdict(int)
    for part in records.parts():
        places = ((part.end - begin) * _NANO // width).astype("int64")
        latency = (part.end - part.due) * _NANO
        for place in np.unique(places):
            here = places == place
            answered[int(place)].append(latency[here & part.fine])
            failed[int(place)] += int((here & ~part.fine).sum())
    rows = []
    for place in range(max(answered) + 1):
        times = np.sort(np.concatenate([*answered.get(place, []), np.empty(0)]))
        ranks = [max(0, math.ceil(times.size * quantile) - 1) for quantile in _QUANTILES]
        p50, p95, p99 = (float(times[rank]) if times.size else None for rank in ranks)
        rows.append(
            LoadSecond(
                at=float(place * width),
                length=float(width),
                answered=int(times.size),
                failed=failed[place],
                p50=p50,
                p95=p95,
                p99=p99,
            )
        )
    return tuple(rows)
