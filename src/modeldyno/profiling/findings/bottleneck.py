"""Classify what limits a model, as far as measured: the limit, its share of the time, and the evidence."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from modeldyno.base.metrics.measurement import CLIENT_LIMITED
from modeldyno.profiling.findings.finding import Case, format_seconds, part_of

_STAGES = {
    "queue_time": "queue",
    "compute_input_time": "input",
    "compute_time": "compute",
    "compute_output_time": "output",
    "network_time": "network",
}
_FOREIGN_CORES = 0.25
"""Cores kept busy by others from which on they are the limit, not only a doubt."""
_IDLE = 0.5
"""Cores that a model uses below which it waits, if it gave up the core by itself."""
_BY_ITSELF = 4
"""Voluntary context switches for each involuntary one: whom others keep from its core is preempted."""
_IDLE_DEVICE = 0.5
"""Utilisation of a device below which its host is the limit."""


class Limit(StrEnum):
    """What can limit a model."""

    COMPUTE = "compute"
    """Arithmetic."""
    MEMORY = "memory"
    """Memory bandwidth."""
    OVERHEAD = "overhead"
    """Neither: starting operators, waiting, kernels far from both roofs."""
    WAITING = "waiting"
    """Sleep, a lock, or an answer from elsewhere: the model runs on no core."""
    HOST = "host"
    """The host that feeds a device."""
    DISK = "disk"
    NEIGHBOURS = "neighbours"
    """Other processes on the same cores."""
    QUEUE = "queue"
    INPUT = "input"
    """The server's work before it calls the model."""
    OUTPUT = "output"
    NETWORK = "network"
    """Including protocol and client."""
    CLIENT = "client"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bottleneck:
    """The limit and the evidence for it."""

    limit: Limit
    share: float | None
    """Share of the time; None if only a symptom was seen."""
    seen: str


def bottleneck(case: Case) -> Bottleneck | None:
    """Classify the bottleneck; None if the measurements do not show it."""
    if case.result.failures:
        return None
    return _served_bottleneck(case) if case.served else _local_bottleneck(case)


def _served_bottleneck(case: Case) -> Bottleneck | None:
    if evidence := case.doubted(CLIENT_LIMITED):
        return Bottleneck(limit=Limit.CLIENT, share=None, seen=evidence)
    total = case.number("service_time")
    stages = {name: time for name in _STAGES if (time := case.number(name))}
    if not total or not stages:
        return None
    longest = max(stages, key=stages.__getitem__)
    share = min(1.0, part_of(stages[longest], total))
    return Bottleneck(
        limit=Limit(_STAGES[longest]),
        share=share,
        seen=f"{format_seconds(stages[longest])} of the {format_seconds(total)} of a request, by the "
        "server's own account",
    )


def _local_bottleneck(case: Case) -> Bottleneck | None:
    if case.result.environment.on_cpu and not case.doubted("paging") and (waiting := _waiting(case)):
        return waiting
    for code, limit in (
        ("paging", Limit.DISK),
        ("interference", Limit.NEIGHBOURS),
        ("steal", Limit.NEIGHBOURS),
    ):
        taken = case.number("foreign_cpu") if code == "interference" else None
        if (evidence := case.doubted(code)) and (taken is None or taken >= _FOREIGN_CORES):
            return Bottleneck(limit=limit, share=None, seen=evidence)
    if not case.result.environment.on_cpu and (host := _host_bottleneck(case)):
        return host
    place, latency = case.place, case.latency
    if place is None or latency is None:
        return None
    limit = {"compute": Limit.COMPUTE, "memory": Limit.MEMORY}.get(place.bound, Limit.OVERHEAD)
    share = min(1.0, place.share)
    return Bottleneck(
        limit=limit,
        share=1 - share if limit is Limit.OVERHEAD else share,
        seen=f"a call takes {format_seconds(latency)}, and arithmetic or memory alone would take "
        f"{format_seconds(case.bound_seconds)} at the peaks of this machine",
    )


def _waiting(case: Case) -> Bottleneck | None:
    """Return that the model waits, if it is on no core for most of the time and was not kept from one."""
    used, by_itself = case.number("cpu_utilization"), case.number("context_switches")
    if used is None or used >= _IDLE or not by_itself:
        return None
    if by_itself < _BY_ITSELF * (case.number("preemptions") or 0.0):
        return None
    return Bottleneck(
        limit=Limit.WAITING,
        share=1 - used,
        seen=f"calls used {used:.2f} cores, and gave up the core by themselves {by_itself:,.0f} times: they "
        f"sleep, or wait for a lock, a disk or an answer{_waiting_line(case)}",
    )


def _waiting_line(case: Case) -> str:
    """Name the line of the user's code in which calls are for the longest time, if it was seen."""
    lines = {
        m.scope: m.value
        for m in case.result.measurements
        if m.metric == "wait_time" and isinstance(m.value, int | float)
    }
    line = max(lines, key=lines.__getitem__, default="")
    return f"; {format_seconds(lines[line])} of each in {line}" if line else ""


def _host_bottleneck(case: Case) -> Bottleneck | None:
    """Return a host limit if the device is mostly idle; utilisation says no more."""
    scopes = [m.scope for m in case.result.measurements if m.metric == "gpu_utilization"]
    busy = max((case.number("gpu_utilization", scope) or 0.0 for scope in scopes), default=None)
    if busy is None or busy >= _IDLE_DEVICE:
        return None
    return Bottleneck(limit=Limit.HOST, share=1 - busy, seen=f"the device was busy in {busy:.0%} of the time")
