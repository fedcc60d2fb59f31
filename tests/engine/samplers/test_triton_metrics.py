from __future__ import annotations

import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import TYPE_CHECKING

import pytest

from modeldyno.base.metrics.measurement import Distribution
from modeldyno.engine.samplers import device
from modeldyno.engine.samplers.device_sidecar import DeviceRecorder
from modeldyno.engine.samplers.triton_metrics import TritonDevices, read_triton_devices

if TYPE_CHECKING:
    from collections.abc import Iterator

METRICS = """\
# HELP nv_gpu_utilization GPU utilization rate [0.0 - 1.0)
# TYPE nv_gpu_utilization gauge
nv_gpu_utilization{gpu_uuid="GPU-1"} 0.66
nv_gpu_utilization{gpu_uuid="GPU-2"} 0
nv_gpu_memory_total_bytes{gpu_uuid="GPU-1"} 7981694976
nv_gpu_memory_used_bytes{gpu_uuid="GPU-1"} 7763132416
nv_gpu_power_usage{gpu_uuid="GPU-1"} 61.5
nv_energy_consumption{gpu_uuid="GPU-1"} 1234.5
nv_inference_count{model="m",version="1"} 9
"""


@pytest.fixture
def server() -> Iterator[str]:
    """A server that reports two GPUs, one of which tells little; give the URL of its metrics."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            text = METRICS.encode() if self.path == "/metrics" else b""
            self.send_response(200)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_words: object) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()


def test_a_triton_reports_its_gpus_in_base_units(server: str) -> None:
    """By UUID; what it does not report is left out."""
    assert read_triton_devices(f"{server}/metrics") == {
        "GPU-1": {
            "utilization": 0.66, "total": 7981694976.0, "used": 7763132416.0, "power": 61.5, "energy": 1234.5,
        },
        "GPU-2": {"utilization": 0.0},
    }  # fmt: skip


def test_a_server_without_gpus_or_none_at_all_reports_nothing(server: str) -> None:
    """Then nothing is watched."""
    assert read_triton_devices(f"{server}/other") == {}
    assert read_triton_devices("http://127.0.0.1:9/metrics") == {}
    assert device.watch_metrics("http://127.0.0.1:9/metrics").pids == ()


def test_what_it_reports_becomes_measurements_of_its_devices(server: str) -> None:
    """Total and used memory, and utilization, as of a device here."""
    source = TritonDevices(f"{server}/metrics")
    recorder = DeviceRecorder([source], os.getpid())
    for stage in ("load", "timed"):
        recorder.mark(stage)
        recorder.sample()
    source.close()
    record = recorder.report()
    values = {
        (m.metric, m.scope): m.value.statistic("mean") if isinstance(m.value, Distribution) else m.value
        for m in device.device_measurements(record["devices"], record["stages"])
        if not hasattr(m, "code")
    }
    assert values["device_total", "GPU-1"] == 7981694976
    assert values["device_used", "GPU-1"] == 7763132416
    assert values["gpu_utilization", "GPU-1"] == pytest.approx(0.66)
    assert values["gpu_utilization", "GPU-2"] == 0


def test_the_side_process_reads_the_server(server: str) -> None:
    """From its first mark to the end."""
    watch = device.watch_metrics(f"{server}/metrics")
    watch.mark("load")
    watch.mark("timed")
    assert ("device_total", "GPU-1") in {(m.metric, m.scope) for m in watch.stop() if not hasattr(m, "code")}
