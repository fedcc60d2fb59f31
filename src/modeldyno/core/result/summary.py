"""Summary of a Result without samples, for documents with many Results: answers to common queries."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from modeldyno.core.metrics.constraints import Answer
from modeldyno.core.metrics.measurement import Distribution
from modeldyno.core.metrics.metric import Query
from modeldyno.errors import RequestError, RunFailed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from modeldyno.core.metrics.measurement import Measurement

UNDER_LOAD: dict[str, tuple[str, ...]] = {
    "request_rate": (), "throughput": (), "goodput": (), "token_rate": (), "error_rate": (), "client_cpu": (),
    "latency": ("mean", "p50", "p95", "p99"),
    "service_time": ("mean", "p50"),
    "send_lag": ("p99",),
    "queue_time": ("mean",),
    "compute_time": ("mean",),
    "time_to_first_token": ("p50", "p99"),
    "inter_token_latency": ("p50", "p99"),
}  # fmt: skip
"""Queries of a load: metric to its statistics if it is a distribution."""
ALONE: dict[str, tuple[str, ...]] = {
    **UNDER_LOAD,
    "latency": ("mean", "p50", "p90", "p95", "p99"),
    "batch_rate": (), "load_time": (), "first_call": (),
    "compute_input_time": ("mean",), "compute_output_time": ("mean",), "network_time": ("mean",),
    "process_memory": ("max",), "device_memory": ("max",), "gpu_utilization": ("mean",),
    "cpu_utilization": (), "power": (), "energy": (), "weight_bytes": (), "formed_batch": (),
}  # fmt: skip
"""Queries of a trial of a sweep."""
_SCOPES = {"", "driver 0"}
"""The whole model; of per-driver metrics, only the first driver."""


def summary_answers(
    measurements: Sequence[Measurement], asked: Mapping[str, Sequence[str]]
) -> Iterator[Answer]:
    """Answer the common queries that were measured."""
    for metric, statistics in asked.items():
        for found in (m for m in measurements if m.metric == metric and m.scope in _SCOPES):
            spread = isinstance(found.value, Distribution)
            for statistic in statistics if spread else (None,):
                yield Answer.to(Query(metric=metric, statistic=statistic, scope=found.scope), measurements)


def goal_answers(measurements: Sequence[Measurement], queries: Iterable[Query]) -> Iterator[Answer]:
    """Answer the queries of a goal that were measured."""
    for query in queries:
        with suppress(RunFailed, RequestError):
            yield Answer.to(query, measurements)
