"""Break down the time of a request: the server's own counters compared with what the client saw."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.core.metrics.doubt import Doubt
from modeldyno.core.metrics.measurement import observed_number
from modeldyno.core.stats.units import SECONDS, format_quantity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modeldyno.core.load.server_stats import ServerCounters
    from modeldyno.core.metrics.measurement import Measurement

STAGES = {
    "queue_time": "queue",
    "compute_input_time": "compute_input",
    "compute_time": "compute",
    "compute_output_time": "compute_output",
}
"""Metric to the counter behind it, in the order in which a request passes them."""
_FOREIGN = 0.05
"""Share of requests counted by the server beyond ours that means it served others, too."""
_BELOW = 0.02
"""Share of the service time by which the server's counters may exceed it."""


def measurements(account: ServerCounters, service_time: float) -> Iterator[Measurement]:
    """Split the mean service time (seconds) of a request into the server's stages and the rest."""
    stage_means = _stage_means(account)
    for metric, seconds in stage_means.items():
        yield observed_number(metric, seconds)
    if stage_means:
        yield observed_number("network_time", max(0.0, service_time - sum(stage_means.values())))
    if account.executions and account.samples is not None:
        yield observed_number("formed_batch", account.samples / account.executions)
    for size, count in sorted(account.batches.items()):
        yield observed_number("executions", count, scope=f"batch {size}")


def doubts(account: ServerCounters, service_time: float, answered: int) -> Iterator[Doubt]:
    """Yield doubts if the server's counters contradict the client, which saw `answered` requests answered."""
    if answered and account.requests > (1 + _FOREIGN) * answered + 1:
        yield Doubt(
            code="foreign-requests",
            seen=f"the server answered {account.requests:,} requests, but only {answered:,} were ours",
            advice="keep other clients away from the server during the measurement",
        )
    total = sum(_stage_means(account).values())
    if total > (1 + _BELOW) * service_time:
        yield Doubt(
            code="account-differs",
            seen=f"the server accounts for {format_quantity(total, SECONDS, 3)} of a request "
            f"that took {format_quantity(service_time, SECONDS, 3)} in all",
            advice="take the server's stages as a hint only: its counters cover other requests or overlap",
        )


def _stage_means(account: ServerCounters) -> dict[str, float]:
    """Return the mean seconds per request of each stage that the server reports."""
    if not account.requests:
        return {}
    sums = {metric: getattr(account, counter) for metric, counter in STAGES.items()}
    return {metric: total / account.requests for metric, total in sums.items() if total is not None}
