"""Where the time of a request goes: the server's own account beside what the client saw."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.core.metrics.doubt import Doubt
from modeldyno.core.metrics.measurement import observed
from modeldyno.core.stats.units import SECONDS, format_quantity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modeldyno.core.load.server_stats import Account
    from modeldyno.core.metrics.measurement import Measurement

STAGES = {
    "queue_time": "queue",
    "compute_input_time": "compute_input",
    "compute_time": "compute",
    "compute_output_time": "compute_output",
}
"""Metric to the counter that it comes from, in the order in which a request passes them."""
_FOREIGN = 0.05
"""Share of the requests that the server counted beyond ours, above which others were served."""
_BELOW = 0.02
"""Share of the service time by which the server's account may exceed it."""


def measurements(account: Account, service_time: float) -> Iterator[Measurement]:
    """Divide the mean service time (seconds) of a request into the server's stages and the rest."""
    known = _means(account)
    for metric, seconds in known.items():
        yield observed(metric, seconds)
    if known:
        yield observed("network_time", max(0.0, service_time - sum(known.values())))
    if account.executions and account.samples is not None:
        yield observed("formed_batch", account.samples / account.executions)
    for size, count in sorted(account.batches.items()):
        yield observed("executions", count, scope=f"batch {size}")


def doubts(account: Account, service_time: float, answered: int) -> Iterator[Doubt]:
    """Doubt an account that contradicts what the client saw; `answered` are the requests it saw answered."""
    if answered and account.requests > (1 + _FOREIGN) * answered + 1:
        yield Doubt(
            code="foreign-requests",
            seen=f"the server answered {account.requests:,} requests, and {answered:,} of them were ours",
            advice="keep others away from the server while it is measured",
        )
    total = sum(_means(account).values())
    if total > (1 + _BELOW) * service_time:
        yield Doubt(
            code="account-differs",
            seen=f"the server accounts for {format_quantity(total, SECONDS, 3)} of a request, "
            f"which took {format_quantity(service_time, SECONDS, 3)} in all",
            advice="read the server's stages as a hint; its counters are of other requests or overlap",
        )


def _means(account: Account) -> dict[str, float]:
    """Give the mean of each stage that the server tells of, seconds of a request."""
    if not account.requests:
        return {}
    sums = {metric: getattr(account, counter) for metric, counter in STAGES.items()}
    return {metric: total / account.requests for metric, total in sums.items() if total is not None}
