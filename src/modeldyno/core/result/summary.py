"""Summary of a Result without samples, for documents with many Results: answers to common queries."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from modeldyno.core.metrics.constraints import Answer
from modeldyno.core.metrics.measurement import Distribution
from modeldyno.core.metrics.metric import Query
from modeldyno.errors import RequestError, RunFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from modeldyno.core.metrics.measurement import Measurement
    from modeldyno.core.metrics.metric import MetricRow

_SCOPES = {"", "driver 0"}
"""The whole model; of per-driver metrics, only the first driver."""


def answers_under_load(measurements: Sequence[Measurement]) -> Iterator[Answer]:
    """Answer what a point of a load curve keeps of what was measured."""
    return _answers(measurements, lambda row: row.under_load)


def trial_answers(measurements: Sequence[Measurement]) -> Iterator[Answer]:
    """Answer what a trial of a study keeps of what was measured."""
    return _answers(measurements, lambda row: row.trial)


def _answers(
    measurements: Sequence[Measurement], kept: Callable[[MetricRow], tuple[str, ...] | None]
) -> Iterator[Answer]:
    for measurement in measurements:
        statistics: Sequence[str | None] | None = kept(measurement.row)
        if statistics is not None and measurement.scope in _SCOPES:
            for statistic in statistics if isinstance(measurement.value, Distribution) else (None,):
                query = Query(metric=measurement.metric, statistic=statistic, scope=measurement.scope)
                yield Answer.to(query, measurements)


def goal_answers(measurements: Sequence[Measurement], queries: Iterable[Query]) -> Iterator[Answer]:
    """Answer the queries of a goal that were measured."""
    for query in queries:
        with suppress(RunFailed, RequestError):
            yield Answer.to(query, measurements)
