"""Reads the metrics of servers of language models in Prometheus' text format: a table of their names.

Names are those of the servers' own documentation and sources. Where versions differ, the first name that a
server has counts. What a server does not report is None.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from modeldyno.base.system.prometheus_samples import sum_samples
from modeldyno.engine.interfaces.server_stats import ServerCounters

if TYPE_CHECKING:
    from modeldyno.base.system.prometheus_samples import Samples


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """The names of a server's metrics: of each of our counters one name or several, the first that exists."""

    prefix: str
    """What the names of its metrics begin with."""
    counters: Mapping[str, tuple[str, ...]]
    """Field of `ServerCounters` to names of counters, sums of histograms and gauges; `whole` is the time of
    requests from arrival to end, for a server that does not report its work; `new_tokens` are the tokens of
    prompts without those from a cache, for a server that does not count them together."""
    labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Field to the labels of the samples that count."""


SERVERS: dict[str, Names] = {
    "vLLM": Names(
        prefix="vllm:",
        counters={
            "requests": ("vllm:request_success_total",),
            "queue": ("vllm:request_queue_time_seconds_sum",),
            "compute": ("vllm:request_inference_time_seconds_sum",),
            "prefill": ("vllm:request_prefill_time_seconds_sum",),
            "decode": ("vllm:request_decode_time_seconds_sum",),
            "preemptions": ("vllm:num_preemptions_total",),
            "prompt_tokens": ("vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total"),
            "cached_tokens": ("vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total"),
            "drafted_tokens": ("vllm:spec_decode_num_draft_tokens_total",),
            "accepted_tokens": ("vllm:spec_decode_num_accepted_tokens_total",),
            "cache_usage": ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
            "running": ("vllm:num_requests_running",),
            "waiting": ("vllm:num_requests_waiting",),
        },
    ),
    "SGLang": Names(
        prefix="sglang:",
        counters={
            "requests": ("sglang:num_requests_total",),
            "queue": ("sglang:queue_time_seconds_sum",),
            "whole": ("sglang:e2e_request_latency_seconds_sum",),
            "prefill": ("sglang:per_stage_req_latency_seconds_sum",),
            "preemptions": ("sglang:num_retracted_requests_total",),
            "prompt_tokens": ("sglang:prompt_tokens_total",),
            "cached_tokens": ("sglang:cached_tokens_total",),
            "cache_usage": ("sglang:token_usage",),
            "running": ("sglang:num_running_reqs",),
            "waiting": ("sglang:num_queue_reqs",),
        },
        labels={"prefill": {"stage": "prefill_forward"}},
    ),
    "llama.cpp": Names(
        prefix="llamacpp:",
        counters={
            "prefill": ("llamacpp:prompt_seconds_total",),
            "decode": ("llamacpp:tokens_predicted_seconds_total",),
            "new_tokens": ("llamacpp:prompt_tokens_total",),
            "cached_tokens": ("llamacpp:prompt_tokens_cached_total",),
            "drafted_tokens": ("llamacpp:spec_decode_num_draft_tokens_total",),
            "accepted_tokens": ("llamacpp:spec_decode_num_accepted_tokens_total",),
            "cache_usage": ("llamacpp:kv_cache_usage_ratio",),
            "running": ("llamacpp:requests_processing",),
            "waiting": ("llamacpp:requests_deferred",),
        },
    ),
    "TGI": Names(
        prefix="tgi_",
        counters={
            "requests": ("tgi_request_success",),
            "queue": ("tgi_request_queue_duration_sum",),
            "compute": ("tgi_request_inference_duration_sum",),
            "running": ("tgi_batch_current_size",),
            "waiting": ("tgi_queue_size",),
        },
    ),
}
"""Server to the names of its metrics."""
_GAUGES = {"cache_usage"}
"""Fields of which several samples, such as those of data-parallel ranks, are averaged."""


def server_of(samples: Samples) -> str:
    """Return the name of the server that wrote these metrics; empty if it is none of the table."""
    return next(
        (name for name, names in SERVERS.items() if any(each.startswith(names.prefix) for each in samples)),
        "",
    )


def read_counters(samples: Samples) -> ServerCounters:
    """Return the counters of a server of the table.

    Where it reports prefill and decode but no sum, `compute` is their sum; where it reports neither, what
    the time of requests leaves of their wait. One that does not count requests has 0 at all times.

    Raises:
        ValueError: the metrics are of no server of the table (a phrase).
    """
    name = server_of(samples)
    if not name:
        raise ValueError(f"there are no metrics of {', '.join(SERVERS)}")
    names = SERVERS[name]
    values = {key: _value(samples, names, key) for key in names.counters}
    requests = int(values.pop("requests", None) or 0)
    whole, queue = values.pop("whole", None), values.get("queue")
    new, cached = values.pop("new_tokens", None), values.get("cached_tokens")
    if new is not None and cached is not None:
        values["prompt_tokens"] = new + cached
    prefill, decode = values.get("prefill"), values.get("decode")
    if values.get("compute") is None:
        if prefill is not None and decode is not None:
            values["compute"] = prefill + decode
        elif whole is not None and queue is not None:
            values["compute"] = whole - queue
    return ServerCounters(requests=requests, **values)  # type: ignore[arg-type]


def _value(samples: Samples, names: Names, key: str) -> float | None:
    labels = names.labels.get(key, {})
    for name in names.counters[key]:
        total = sum_samples(samples, name, **labels)
        if total is not None:
            return total / len(samples[name]) if key in _GAUGES else total
    return None
