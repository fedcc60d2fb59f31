"""The times of each answer to a request of a load, by metric: what is reported, and what a bound is for.

A column has a value for each request, in nanoseconds, and NaN where the answer has no such time: no first
token if it did not come in pieces, no time per token if it has one, or if the server counts none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.base.metrics.constraints import TIMES_OF_AN_ANSWER
from modeldyno.base.stats import statistics

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from modeldyno.serving.load.request_log import Column, Records

_NANO = 1e-9
_WHOLE = {
    "time_to_first_token": "latency", "first_token_service_time": "service_time",
    "time_to_first_output_token": "latency",
}  # fmt: skip
"""Time of the whole answer by that of its first piece."""


def answer_time(metric: str, records: Records) -> Column:
    """Return one of `TIMES_OF_AN_ANSWER` for each request."""
    return _TIMES[metric](records)


def keeps_bounds(bounds: Mapping[str, float], records: Records) -> Column:
    """Return for each request whether its answer keeps all bounds, in seconds by metric.

    An answer that came whole has its first token at its end. One that has no time per token keeps any.
    """
    keeps: Column = records.fine
    for metric, seconds in bounds.items():
        times = answer_time(metric, records)
        if metric in _WHOLE:
            times = statistics.load_numpy().fmin(times, answer_time(_WHOLE[metric], records))
        keeps = keeps & ~(times * _NANO > seconds)
    return keeps


def _first_piece(records: Records, since: Column) -> Column:
    """Return how long each answer's first piece took; NaN if none came.

    Whole numbers are subtracted: nanoseconds since 1970 have more digits than a float.
    """
    pieces = records.pieces
    return _none(records) if pieces is None else _where(pieces.counts > 0, pieces.first() - since)


def _first_output(records: Records) -> Column:
    """Return how long the first piece took that is no reasoning; NaN if none came."""
    pieces, places = records.pieces, records.reasoning
    if pieces is None:
        return _none(records)
    return _where(pieces.counts > places, pieces.at_place(places) - records.due)


def _per_output_token(records: Records) -> Column:
    """Return the time of a token after the first; tokens that all came at once have none."""
    pieces = records.pieces
    if pieces is None:
        return _none(records)
    timed = (records.tokens > 1) & (pieces.counts > 1)
    return _where(timed, (pieces.last() - pieces.first()) / (records.tokens - 1).clip(1))


def _per_token(records: Records) -> Column:
    return _where(records.tokens > 0, (records.end - records.due) / records.tokens.clip(1))


def _where(known: Column, times: Column) -> Column:
    np = statistics.load_numpy()
    column: Column = np.where(known, times, np.nan)
    return column


def _none(records: Records) -> Column:
    return _where(records.end < 0, records.end)


_TIMES: dict[str, Callable[[Records], Column]] = {
    "latency": lambda records: records.end - records.due,
    "service_time": lambda records: records.end - records.sent,
    "time_to_first_token": lambda records: _first_piece(records, records.due),
    "first_token_service_time": lambda records: _first_piece(records, records.sent),
    "time_to_first_output_token": _first_output,
    "time_per_output_token": _per_output_token,
    "normalized_latency": _per_token,
}
assert _TIMES.keys() == set(TIMES_OF_AN_ANSWER)
