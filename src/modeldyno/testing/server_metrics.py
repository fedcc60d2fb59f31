"""The ground-truth server's metrics in Prometheus' text format, named as servers of language models do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.serving.servers.generation_metrics import SERVERS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from modeldyno.testing.server_queue import Ledger, Workers
    from modeldyno.testing.server_text import Generation

_NANO = 1e-9


def write_metrics(server: str, ledger: Ledger, workers: Workers, generation: Generation) -> bytes:
    """Write what was done so far as a server of the table does, as far as it reports it."""
    sums = ledger.nanoseconds
    values: dict[str, float] = {
        "requests": ledger.count,
        "queue": sums["queue"] * _NANO,
        "compute": sums["compute_infer"] * _NANO,
        "prefill": sums["prefill"] * _NANO,
        "decode": sums["decode"] * _NANO,
        "whole": sums["success"] * _NANO,
        "preemptions": 0,
        "running": workers.service.workers - workers.free,
        "waiting": len(workers.waiting),
        "cache_usage": 1 - workers.free / workers.service.workers,
    }
    if generation.prefixes is not None:
        values |= {name: generation.counted[name] for name in ("prompt_tokens", "cached_tokens")}
    names = SERVERS[server]
    return "".join(
        f"{names.counters[key][0]}{_labels(names.labels.get(key, {}))} {value}\n"
        for key, value in values.items()
        if key in names.counters
    ).encode()


def _labels(labels: Mapping[str, str]) -> str:
    return "{" + ",".join(f'{name}="{value}"' for name, value in labels.items()) + "}" if labels else ""
