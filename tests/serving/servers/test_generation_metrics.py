"""Servers of language models report their work under names of their own."""

from __future__ import annotations

import pytest

from modeldyno.base.system.prometheus_samples import parse_samples
from modeldyno.engine.interfaces.server_stats import ServerCounters
from modeldyno.serving.servers.generation_metrics import SERVERS, read_counters, server_of

VLLM = """
vllm:request_success_total{finished_reason="stop",model_name="m"} 3
vllm:request_success_total{finished_reason="length",model_name="m"} 2
vllm:request_queue_time_seconds_sum{model_name="m"} 0.5
vllm:request_inference_time_seconds_sum{model_name="m"} 4.5
vllm:request_prefill_time_seconds_sum{model_name="m"} 0.5
vllm:request_decode_time_seconds_sum{model_name="m"} 4
vllm:num_preemptions_total{model_name="m"} 1
vllm:prefix_cache_queries_total{engine="0"} 640
vllm:prefix_cache_hits_total{engine="0"} 320
vllm:spec_decode_num_draft_tokens_total{engine="0"} 100
vllm:spec_decode_num_accepted_tokens_total{engine="0"} 60
vllm:kv_cache_usage_perc{engine="0"} 0.25
vllm:kv_cache_usage_perc{engine="1"} 0.75
vllm:num_requests_running{engine="0"} 4
vllm:num_requests_waiting{engine="0"} 2
"""
SGLANG = """
sglang:num_requests_total{model_name="m"} 5
sglang:queue_time_seconds_sum{model_name="m"} 0.5
sglang:e2e_request_latency_seconds_sum{model_name="m"} 5
sglang:per_stage_req_latency_seconds_sum{stage="prefill_forward"} 0.5
sglang:per_stage_req_latency_seconds_sum{stage="request_process"} 9
sglang:num_retracted_requests_total 1
sglang:prompt_tokens_total 640
sglang:cached_tokens_total{cache_source="device"} 300
sglang:cached_tokens_total{cache_source="host"} 20
sglang:token_usage 0.5
sglang:num_running_reqs 4
sglang:num_queue_reqs 2
"""
LLAMA = """
llamacpp:prompt_seconds_total 0.5
llamacpp:tokens_predicted_seconds_total 4
llamacpp:requests_processing 4
llamacpp:requests_deferred 2
llamacpp:prompt_tokens_total 320
llamacpp:prompt_tokens_cached_total 320
llamacpp:spec_decode_num_draft_tokens_total 100
llamacpp:spec_decode_num_accepted_tokens_total 60
"""
TGI = """
tgi_request_success 5
tgi_request_queue_duration_sum 0.5
tgi_request_inference_duration_sum 4.5
tgi_batch_current_size 4
tgi_queue_size 2
"""
EVERYTHING = ServerCounters(
    requests=5, queue=0.5, compute=4.5, prefill=0.5, decode=4.0, preemptions=1.0, prompt_tokens=640.0,
    cached_tokens=320.0, drafted_tokens=100.0, accepted_tokens=60.0,
    cache_usage=0.5, running=4.0, waiting=2.0,
)  # fmt: skip


@pytest.mark.parametrize(
    ("server", "text", "expected"),
    [
        ("vLLM", VLLM, EVERYTHING),
        (
            "SGLang",
            SGLANG,
            ServerCounters(
                requests=5, queue=0.5, compute=4.5, prefill=0.5, preemptions=1.0, prompt_tokens=640.0,
                cached_tokens=320.0, cache_usage=0.5, running=4.0, waiting=2.0,
            ),
        ),
        (
            "llama.cpp",
            LLAMA,
            ServerCounters(
                requests=0, compute=4.5, prefill=0.5, decode=4.0, running=4.0, waiting=2.0,
                prompt_tokens=640.0, cached_tokens=320.0, drafted_tokens=100.0, accepted_tokens=60.0,
            ),
        ),
        ("TGI", TGI, ServerCounters(requests=5, queue=0.5, compute=4.5, running=4.0, waiting=2.0)),
    ],
)  # fmt: skip
def test_a_server_is_known_by_its_metrics(server: str, text: str, expected: ServerCounters) -> None:
    """Its names give our counters, and what it does not report is not known."""
    samples = parse_samples(text)
    assert server_of(samples) == server
    assert read_counters(samples) == expected


def test_names_of_earlier_versions_are_read() -> None:
    """Where a later one is not there."""
    lines = (
        "vllm:gpu_prefix_cache_queries_total 10",
        "vllm:gpu_prefix_cache_hits_total 4",
        "vllm:gpu_cache_usage_perc 0.5",
    )
    counters = read_counters(parse_samples("\n".join(lines)))
    assert (counters.prompt_tokens, counters.cached_tokens, counters.cache_usage) == (10.0, 4.0, 0.5)


def test_prompts_without_what_is_cached_are_not_whole() -> None:
    """A version of llama.cpp that does not count cached tokens leaves it open how many prompts had."""
    counters = read_counters(parse_samples("llamacpp:prompt_tokens_total 320"))
    assert (counters.prompt_tokens, counters.cached_tokens) == (None, None)


def test_work_that_is_not_reported_is_not_known() -> None:
    """A wait alone says nothing of it."""
    counters = read_counters(parse_samples("sglang:queue_time_seconds_sum 0.5"))
    assert (counters.queue, counters.compute) == (0.5, None)


def test_metrics_of_others_are_none() -> None:
    """Their error names the servers that are known."""
    samples = parse_samples("python_gc_objects_collected_total 1")
    assert not server_of(samples)
    with pytest.raises(ValueError, match=", ".join(SERVERS)):
        read_counters(samples)
