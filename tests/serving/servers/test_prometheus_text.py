from __future__ import annotations

import pytest

from modeldyno.base.system.prometheus_samples import parse_samples, sum_samples
from modeldyno.engine.interfaces.server_stats import ServerCounters
from modeldyno.serving.servers import prometheus_text

TEXT = r"""
# HELP a_total of something
# TYPE a_total counter
a_total{gpu_uuid="GPU-1, {x}",name="with \"quotes\" and \\"} 3 1700000000
a_total{gpu_uuid="GPU-2",name="b",} 4.5
plain 1e3
broken{a="b" 3
nan NaN
not a line
wrong{a="b"} word
"""


def test_samples_are_read_with_their_labels() -> None:
    """Labels may hold commas, braces and escapes; times are passed over, and so is what is no sample."""
    samples = parse_samples(TEXT)
    assert set(samples) == {"a_total", "plain", "nan"}
    assert samples["plain"] == {frozenset(): 1000.0}
    assert samples["a_total"][frozenset({("gpu_uuid", "GPU-1, {x}"), ("name", 'with "quotes" and \\')})] == 3


def test_a_total_is_over_what_has_the_labels() -> None:
    """A sum is over all samples with the labels; what is not told, or is no number, is None."""
    samples = parse_samples(TEXT)
    assert sum_samples(samples, "a_total") == 7.5
    assert sum_samples(samples, "a_total", gpu_uuid="GPU-2") == 4.5
    assert sum_samples(samples, "a_total", gpu_uuid="GPU-3") is None
    assert sum_samples(samples, "nan") is None
    assert sum_samples(samples, "absent") is None


def test_torchserve() -> None:
    """Requests and their wait are told, and the whole of their time."""
    samples = parse_samples(
        'ts_inference_requests_total{model_name="m",model_version="default",hostname="h",} 5.0\n'
        'ts_inference_requests_total{model_name="other",hostname="h",} 50.0\n'
        'ts_inference_latency_microseconds{model_name="m",hostname="h",} 57736.788\n'
        'ts_queue_latency_microseconds{model_name="m",hostname="h",} 4468.342\n'
    )
    counted, whole = prometheus_text.torchserve_counters(samples, "m")
    assert counted.requests == 5
    assert counted.queue == pytest.approx(0.004468342)
    assert whole == pytest.approx(0.057736788)
    assert prometheus_text.torchserve_counters({}, "m") == (ServerCounters(requests=0, queue=0.0), 0.0)


def test_mlserver() -> None:
    """Over HTTP the whole of a request is told, over gRPC what it spent with the model."""
    model = (
        'model_infer_request_success_total{model="m",version="None"} 5.0\n'
        'model_infer_request_failure_total{model="m",version="None"} 1.0\n'
        'model_infer_request_duration_sum{model="m",version="None"} 0.25\n'
    )
    http = (
        'rest_server_request_duration_seconds_sum{app_name="mlserver",method="POST",'
        'path="/v2/models/{model_name}/infer",status_code="200"} 0.75\n'
    )
    expected = ServerCounters(requests=5, failures=1)
    assert prometheus_text.mlserver_counters(parse_samples(model + http), "m") == (expected, 0.25, 0.75)
    assert prometheus_text.mlserver_counters(parse_samples(model), "m") == (expected, 0.25, 0.25)
    assert prometheus_text.mlserver_counters({}, "m") == (ServerCounters(requests=0), 0.0, 0.0)
