"""Rules for a model behind a server: where a request spends its time."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from modeldyno.base.metrics.measurement import CLIENT_LIMITED, SATURATED
from modeldyno.profiling.findings.finding import Case, Finding, Saving, format_seconds, part_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modeldyno.base.job.knob import KnobValue

_LATENCY = "latency"
_QUEUE, _MOST = 0.3, 0.5
"""Shares of a request that count as much, and as most of it."""
_BUSY = 0.8
"""Utilisation of the cores above which more instances would only share them."""
_LARGEST = 8


def client(case: Case) -> Iterator[Finding]:
    """Propose another driver process if the client sets the pace."""
    evidence, job = case.doubted(CLIENT_LIMITED), case.result.job
    if not evidence or job.load is None:
        return
    yield Finding(
        seen=evidence,
        why="what was measured is the client, and nothing is known of the server",
        job=replace(job, load=replace(job.load, drivers=job.load.drivers + 1)),
    )


def batching(case: Case) -> Iterator[Finding]:
    """Propose batching of waiting requests."""
    share = _share(case, "queue_time")
    if share < _QUEUE or CLIENT_LIMITED in _doubt_codes(case) or not _does_not_batch(case):
        return
    settings: dict[str, KnobValue] = (
        {"dynamic_batching": True} if case.has("dynamic_batching") else {"max_batch": _LARGEST}
    )
    job = case.trial(**settings)
    if job is None:
        return
    yield Finding(
        seen=f"a request waits {_time(case, 'queue_time')} in the queue, {share:.0%} of its time, and each "
        "is a call of its own",
        why="requests that wait anyway can share a call of the model; those that do not wait for others",
        saving=Saving(of=_LATENCY, low=None, high=share, basis="no request waits in the queue at best"),
        job=job,
    )


def instances(case: Case) -> Iterator[Finding]:
    """Propose another instance of the model if requests wait and cores are idle."""
    share, name = _share(case, "queue_time"), case.has("instances", "workers")
    busy = part_of(case.number("cpu_utilization"), float(case.cores))
    if share < _QUEUE or not name or not busy or CLIENT_LIMITED in _doubt_codes(case):
        return
    if busy > _BUSY and case.result.environment.on_cpu:
        return
    job = case.trial(**{name: int(case.setting(name) or 1) + 1})
    yield Finding(
        seen=f"a request waits {_time(case, 'queue_time')} in the queue, {share:.0%} of its time, while "
        f"{busy:.0%} of the cores are busy",
        why="one more copy works beside the others; it takes its own memory, and shares caches and bandwidth",
        saving=Saving(of=_LATENCY, low=None, high=share, basis="no request waits in the queue at best"),
        job=job,
    )


def protocol(case: Case) -> Iterator[Finding]:
    """Propose another protocol if the server's own time is a small part of a request."""
    share, current = _share(case, "network_time"), str(case.setting("protocol") or "")
    job = next(filter(None, (case.trial(protocol=name) for name in ("http-binary", "grpc"))), None)
    if share < _MOST or job is None or current == "grpc":
        return
    yield Finding(
        seen=f"{_time(case, 'network_time')} of a request, {share:.0%}, is network, protocol and client, "
        f"with {current}",
        why="tensors as JSON are written and read digit by digit; as bytes they are copied",
        saving=Saving(of=_LATENCY, low=None, high=share, basis="what the server's account leaves"),
        job=job,
    )


def saturated(case: Case) -> Iterator[Finding]:
    """Propose to search for the largest load that holds."""
    evidence = case.doubted(SATURATED)
    if not evidence:
        return
    yield Finding(
        seen=evidence,
        why="the queue grows as long as the load lasts, so that no latency is a property of the server",
        do="repeat the load with `find_load` and `require=latency.p99 <= 100ms`, with a bound of yours: the "
        "search goes on from its rate with the same requests",
    )


def _does_not_batch(case: Case) -> bool:
    """Return whether the server calls the model once per request, by its settings and counters."""
    batching = case.setting("dynamic_batching")
    largest = int(case.setting("max_batch") or 1)
    formed = case.number("formed_batch") or 0.0
    return (not batching if batching is not None else largest == 1) and formed < 2 * case.batch_size


def _doubt_codes(case: Case) -> set[str]:
    return {doubt.code for doubt in case.result.doubts}


def _share(case: Case, metric: str) -> float:
    return part_of(case.number(metric), case.number("service_time"))


def _time(case: Case, metric: str) -> str:
    return format_seconds(case.number(metric))
