"""Break down the time of a request: the server's own counters compared with what the client saw."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING

from modeldyno.base.metrics.doubt import Doubt
from modeldyno.base.metrics.measurement import (
    FEWEST_WINDOWS,
    Distribution,
    Measurement,
    observed_number,
    ratio_number,
)
from modeldyno.base.stats.units import SECONDS, format_quantity
from modeldyno.engine.interfaces.server_stats import ServedWindow

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from modeldyno.engine.interfaces.server_stats import CounterReading, ServerCounters

STAGES = {
    "queue_time": "queue",
    "compute_input_time": "compute_input",
    "compute_time": "compute",
    "compute_output_time": "compute_output",
}
"""Metric to the counter behind it, in the order in which a request passes them."""
PARTS = {"prefill_time": "prefill", "decode_time": "decode"}
"""Metric of a part of `compute_time` to the counter behind it."""
_FOREIGN = 0.05
"""Share of requests counted by the server beyond ours that means it served others, too."""
_BELOW = 0.02
"""Share of the service time by which the server's counters may exceed it."""


def measurements(windows: Sequence[ServedWindow]) -> Iterator[Measurement]:
    """Split the mean service time of a request into the server's stages and the rest.

    Args:
        windows: what was counted between one reading of the counters and the next, with answers in all of
            them. From their variation follow the intervals, unless there are too few.
    """
    all_windows = reduce(ServedWindow.joined, windows)
    account, service_time = all_windows.account, all_windows.service / all_windows.answers
    parts = _countable_windows(windows)
    if len(parts) < FEWEST_WINDOWS:
        parts = [all_windows]
    stage_means = _stage_means(account)
    requests = [part.account.requests for part in parts]
    for metric in stage_means:
        yield _mean(metric, [getattr(part.account, STAGES[metric]) for part in parts], requests)
    if stage_means:
        scale = (
            account.requests / all_windows.answers
        )  # of its requests, some may have been answered elsewhere
        outside = [part.service * scale - _stage_sum(part.account, stage_means) for part in parts]
        remaining = service_time - sum(stage_means.values())
        yield (
            _mean("network_time", outside, requests)
            if remaining > 0
            else observed_number("network_time", 0.0)
        )
    for metric, counter in PARTS.items():
        if account.requests and getattr(account, counter) is not None:
            yield _mean(metric, [getattr(part.account, counter) for part in parts], requests)
    yield from _formed_batch(parts)
    for size, count in sorted(account.batches.items()):
        yield observed_number("executions", count, scope=f"batch {size}")
    for name in account.models:
        yield from (replace(measurement, scope=name) for measurement in _composing_model(name, windows))


def generation_measurements(readings: Sequence[CounterReading]) -> Iterator[Measurement]:
    """Yield what a server of a language model reports about its cache, its queue and speculation.

    Args:
        readings: its counters over the steady window, in order.
    """
    account = readings[-1].counters.since(readings[0].counters)
    if account.preemptions is not None:
        yield observed_number("preempted_requests", account.preemptions)
    if account.drafted_tokens and account.accepted_tokens is not None:
        yield observed_number("accepted_token_share", account.accepted_tokens / account.drafted_tokens)
    for metric, gauge in _GAUGES.items():
        seen = [value for each in readings if (value := getattr(each.counters, gauge)) is not None]
        if seen:
            yield Measurement(metric=metric, value=Distribution.of(seen, stop="run ended"))


_GAUGES = {
    "kv_cache_usage": "cache_usage",
    "running_requests": "running",
    "waiting_requests": "waiting",
}
"""Metric to what a server says of the moment of a reading."""


def _composing_model(name: str, windows: Sequence[ServedWindow]) -> Iterator[Measurement]:
    """Yield the stages of a mean request to one of the models that answer together, and its batches."""
    own = [window.account.models[name] for window in windows]
    own_windows = [ServedWindow(account=each, answers=each.requests, service=0.0) for each in own]
    all_windows = reduce(ServedWindow.joined, own_windows)
    parts = _countable_windows(own_windows)
    if len(parts) < FEWEST_WINDOWS:
        parts = [all_windows]
    for metric in _stage_means(all_windows.account):
        amounts = [getattr(part.account, STAGES[metric]) for part in parts]
        yield _mean(metric, amounts, [part.account.requests for part in parts])
    yield from _formed_batch(parts)


def _formed_batch(parts: Sequence[ServedWindow]) -> Iterator[Measurement]:
    executions = [part.account.executions or 0 for part in parts]
    if all(executions) and all(part.account.samples is not None for part in parts):
        yield _mean("formed_batch", [part.account.samples or 0 for part in parts], executions)


def _mean(metric: str, amounts: Sequence[float], counts: Sequence[int]) -> Measurement:
    if len(amounts) == 1:
        return observed_number(metric, amounts[0] / counts[0])
    return ratio_number(metric, amounts, counts)


def _countable_windows(windows: Sequence[ServedWindow]) -> list[ServedWindow]:
    """Join each window in which nothing was answered with its neighbour; none if a counter ran backwards."""
    joined: list[ServedWindow] = []
    for window in windows:
        account = window.account
        if any((value or 0) < 0 for value in (account.requests, account.executions, *_stage_values(account))):
            return []
        if joined and not _is_countable(joined[-1]):
            joined[-1] = joined[-1].joined(window)
        else:
            joined.append(window)
    if len(joined) > 1 and not _is_countable(joined[-1]):
        last = joined.pop()
        joined[-1] = joined[-1].joined(last)
    return joined


def _is_countable(window: ServedWindow) -> bool:
    return bool(window.answers and window.account.requests)


def _stage_values(account: ServerCounters) -> list[float | None]:
    return [getattr(account, counter) for counter in STAGES.values()]


def _stage_sum(account: ServerCounters, metrics: Iterable[str]) -> float:
    return float(sum(getattr(account, STAGES[metric]) for metric in metrics))


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
