"""Sums up the seconds of a load while it goes on, from the records that the stop rule reads anyway."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import TYPE_CHECKING

from modeldyno.base.result.trace_data import LiveSecond
from modeldyno.serving.load.answer_times import answer_time
from modeldyno.serving.load.steady_window import NANO

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from modeldyno.base.stats.statistics import Samples
    from modeldyno.serving.load.request_log import Records
    from modeldyno.serving.loadgen.running_load import LoadProgress, PieceArrivals

_LATE = 250_000_000
"""Nanoseconds for which records of a second that has passed may still arrive; drivers report ten times a
second."""
_LATENCY, _FIRST_TOKEN, _PER_TOKEN = "latency", "first token", "time per token"


class LiveSeconds:
    """The second of a load that goes on, and when the first one began."""

    def __init__(self) -> None:
        self._begin: int | None = None
        self._place = 0
        """Number of the second that is summed up."""
        self._times: defaultdict[tuple[str, int], list[Samples]] = defaultdict(list)
        """Seconds that something took, by what and by the number of the second in which it ended."""
        self._failed: defaultdict[int, int] = defaultdict(int)
        self._pieces: defaultdict[int, float] = defaultdict(float)
        self._whole: defaultdict[int, int] = defaultdict(int)
        """Tokens of answers that came whole."""
        self._streamed = self._counted = False
        """Whether any pieces have come, and whether any tokens were counted."""
        self._tokens_in_pieces = self._pieces_with_tokens = 0
        """Of all answers that have ended."""

    def add(self, taken: LoadProgress, now: int) -> Iterator[LiveSecond]:
        """Add what has arrived by `now`, and yield each second that is over.

        `now` is in nanoseconds of the monotonic clock. A record that arrives when its second is over counts
        in the next one.
        """
        records = taken.records
        if self._begin is None:
            reported = min((arrivals.begin for arrivals in taken.arrivals), default=now)
            self._begin = int(records.due.min()) if len(records) else reported
        if len(records):
            self._count(records, self._begin)
        for arrivals in taken.arrivals:
            self._count_pieces(arrivals, self._begin)
        while now >= self._begin + (self._place + 1) / NANO + _LATE:
            yield self._sum_up(taken.in_flight, taken.backlog)
            self._place += 1

    def _count(self, records: Records, begin: int) -> None:
        self._count_tokens(records)
        places = ((records.end - begin) * NANO).astype("int64").clip(min=self._place)
        paces = None if records.pieces is None else answer_time("time_per_output_token", records) * NANO
        for place in range(int(places.min()), int(places.max()) + 1):
            here = places == place
            fine = here & records.fine
            self._times[_LATENCY, place].append((records.end - records.due)[fine] * NANO)
            self._failed[place] += int((here & records.failed).sum())
            if paces is not None:
                self._times[_PER_TOKEN, place].append(paces[fine & (paces > 0)])
            elif self._counted:
                self._whole[place] += int(records.tokens[fine].clip(0).sum())

    def _count_tokens(self, records: Records) -> None:
        """Learn how many tokens a piece has."""
        counted = records.fine & (records.tokens > 0)
        self._counted = self._counted or bool(counted.any())
        if records.pieces is not None:
            self._tokens_in_pieces += int(records.tokens[counted].sum())
            self._pieces_with_tokens += int(records.pieces.counts[counted].sum())

    def _count_pieces(self, arrivals: PieceArrivals, begin: int) -> None:
        """Count pieces evenly over the time in which they came."""
        since, until = ((time - begin) * NANO for time in (arrivals.begin, arrivals.end))
        last = max(self._place, int(until))
        self._streamed = self._streamed or arrivals.count > 0
        self._times[_FIRST_TOKEN, last].append(arrivals.first_times * NANO)
        for place in range(max(self._place, int(since)), last):
            share = max(0.0, min(until, place + 1) - max(since, place)) / (until - since)
            self._pieces[place] += share * arrivals.count
            self._pieces[last] -= share * arrivals.count
        self._pieces[last] += arrivals.count

    def _sum_up(self, in_flight: int, waiting: int) -> LiveSecond:
        place = self._place
        times, firsts, paces = (
            self._times.pop((name, place), ()) for name in (_LATENCY, _FIRST_TOKEN, _PER_TOKEN)
        )
        p50, p99, worst = _quantiles(times, (0.5, 0.99, 1.0))
        first_token, first_token_p99 = _quantiles(firsts, (0.5, 0.99))
        pieces = max(0.0, self._pieces.pop(place, 0.0)) if self._streamed else None
        return LiveSecond(
            at=float(place),
            answered=sum(len(part) for part in times),
            failed=self._failed.pop(place, 0),
            p50=p50,
            p99=p99,
            worst=worst,
            in_flight=in_flight,
            waiting=waiting,
            pieces=pieces,
            tokens=self._tokens(pieces, self._whole.pop(place, 0)),
            first_token=first_token,
            first_token_p99=first_token_p99,
            time_per_token=_quantiles(paces, (0.5,))[0],
        )

    def _tokens(self, pieces: float | None, whole: int) -> float | None:
        """Return the tokens of pieces and of whole answers; None while nothing says how many there are."""
        if not self._counted:
            return None
        if pieces is None or not self._pieces_with_tokens:
            return float(whole)
        return whole + pieces * self._tokens_in_pieces / self._pieces_with_tokens


def _quantiles(parts: Sequence[Samples], fractions: Sequence[float]) -> list[float | None]:
    """Return quantiles by nearest rank; None of nothing."""
    import numpy as np  # slow to import

    times = np.sort(np.concatenate(parts)) if parts else np.empty(0)
    if not times.size:
        return [None] * len(fractions)
    return [float(times[max(0, math.ceil(times.size * fraction) - 1)]) for fraction in fractions]
