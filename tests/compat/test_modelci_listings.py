"""The listings of ModelCI's page on profiling run as they stand: only their lines of import are changed."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from modeldyno.base.errors import RequestError
from modeldyno.base.metrics.measurement import observed_number
from modeldyno.compat import BaseModelInspector, Diagnosis, Profiler, server_profiler
from modeldyno.testing.sample_results import a_result
from modeldyno.testing.server import serve_in_subprocess

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from modeldyno.base.result.result import Result


START = """
from modeldyno.compat import CVTorchClient
from modeldyno.compat import Profiler

# create a client
torch_client = CVTorchClient(test_data_item, batch_num, batch_size, asynchronous=False)

# init the profiler
profiler = Profiler(model_info=mode_info, server_name='name of your server', inspector=torch_client)

# start profiling model
diagnosis = profiler.diagnose()
"""
CUSTOM = """
from modeldyno.compat import BaseModelInspector

class YourClient(BaseModelInspector):
    def __init__(self, repeat_data, batch_num=1, batch_size=1, asynchronous=None):
        super().__init__(
            repeat_data=repeat_data, batch_num=batch_num, batch_size=batch_size, asynchronous=asynchronous
        )

    def data_preprocess(self):
        pass

    def make_request(self, input_batch):
        pass

    def infer(self, input_batch):
        pass
"""
PORTS = """
from modeldyno.serving.servers.tcp_ports import TFS_GRPC_PORT
"""


@pytest.fixture(scope="module")
def server() -> Iterator[int]:
    """Run a server that speaks TorchServe's protocol; yield its port."""
    with serve_in_subprocess("--service", "constant:0.002", "--model", "ResNet50") as running:
        yield running.port


@pytest.fixture
def diagnosis(server: int, monkeypatch: pytest.MonkeyPatch) -> Diagnosis:
    """What the first listing measures."""
    urls = {"name of your server": f"http://127.0.0.1:{server}#ResNet50"}
    monkeypatch.setattr(server_profiler, "running_url", urls.get)
    names: dict[str, Any] = {
        "test_data_item": np.ones(4, np.float32), "batch_num": 25, "batch_size": 4,
        "mode_info": SimpleNamespace(name="ResNet50", engine=SimpleNamespace(name="TORCHSCRIPT")),
    }  # fmt: skip
    exec(START, names)
    return names["diagnosis"]  # type: ignore[no-any-return]


def test_the_listing_that_starts_a_profiler_measures(diagnosis: Diagnosis) -> None:
    """Exactly its number of batches, of its size, on the server of that name."""
    assert (diagnosis["model"], diagnosis["engine"]) == ("ResNet50", "TORCHSCRIPT")
    assert diagnosis["batch_size"] == 4
    assert diagnosis.result["requests@ok"] == 25
    assert diagnosis["all_batch_throughput"] == pytest.approx(4 * diagnosis["request_rate"])
    assert diagnosis["stage_throughput"]["inference"] == pytest.approx(4 / dict(diagnosis["latency"])["mean"])


def test_the_device_is_what_the_machine_of_the_server_says(diagnosis: Diagnosis, server: int) -> None:
    """A server on this machine that is on no GPU computes on its processor; its process was watched."""
    assert (diagnosis["device_id"], diagnosis["address"]) == ("cpu", f"127.0.0.1:{server}")
    assert diagnosis["device"] == diagnosis.result.environment.hardware["processor"]
    assert (diagnosis.result["process_memory.max"] or 0) > 1e6
    assert f"tested device: {diagnosis['device']}" in str(diagnosis)


@pytest.mark.slow
def test_the_result_is_written_to_a_file(diagnosis: Diagnosis, tmp_path: Path) -> None:
    """All figures, as they are in the diagnosis."""
    diagnosis.dump_result(tmp_path / "result.json")
    written = json.loads((tmp_path / "result.json").read_text())
    assert written["latency"] == dict(diagnosis["latency"])
    assert written["gpu"]["memory_total"] is None
    assert [*written] == [*diagnosis]


def test_the_listing_of_a_client_of_ones_own_runs(caplog: pytest.LogCaptureFixture) -> None:
    """Its methods do nothing: the batch is sent as it is, and the result is in the log."""
    caplog.set_level(logging.INFO, "modeldyno")
    names: dict[str, Any] = {}
    exec(CUSTOM, names)
    client = names["YourClient"]([1.0], batch_num=20, batch_size=8)
    measured = Profiler(model_info={"name": "ResNet50"}, inspector=client).diagnose()

    assert measured.result["requests@ok"] == 20
    assert measured["device"] == "unknown"
    for line in (
        "batch size: 8",
        "tested device: unknown",
        "model: ResNet50",
        "total GPU memory: unavailable",
    ):
        assert line in caplog.text


def test_the_listing_of_ports_gives_the_table() -> None:
    """TensorFlow Serving's port for gRPC."""
    names: dict[str, Any] = {}
    exec(PORTS, names)
    assert names["TFS_GRPC_PORT"] == 8500


def test_what_make_request_sets_is_there_when_it_is_sent() -> None:
    """`make_request` may set `request` and return nothing: each batch finds its own, in every thread."""

    class Numbered(BaseModelInspector):
        sent: list[tuple[Any, Any]] = []

        def data_preprocess(self) -> None:  # type: ignore[override]  # as people wrote it
            self.processed_data = len(self._requests)

        def make_request(self, input_batch: list[Any]) -> None:
            self.request = f"request {input_batch[0]}"

        def infer(self, input_batch: Any) -> None:
            self.sent.append((self.request, input_batch))

    Profiler("m", inspector=Numbered("x", batch_num=40, batch_size=2, asynchronous=True)).diagnose()
    assert {(request, tuple(batch)) for request, batch in Numbered.sent} >= {
        ("request 0", (0, 0)), ("request 7", (7, 7)),
    }  # fmt: skip
    assert all(request == f"request {batch[0]}" for request, batch in Numbered.sent)


def test_without_data_random_values_of_the_declared_shapes_are_sent(
    server: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine chooses the client, and the server says what it takes; else data are asked for."""
    profiler = Profiler({"name": "ResNet50", "engine": "ONNX"}, server_name=f"http://127.0.0.1:{server}")
    with pytest.raises(RequestError, match=r"give data=\. Sizes are missing: x_dim1"):
        profiler.diagnose()
    calls: list[Any] = []
    rate = observed_number("request_rate", 500.0)
    result = replace(a_result(), measurements=(*a_result().measurements, rate))

    def load(**options: Any) -> Result:
        calls.append((options["inputs"], options["batch_size"]))
        return result

    monkeypatch.setattr(server_profiler, "load", load)
    assert profiler.diagnose(batch_size=2)["request_rate"] == 500
    assert calls == [((), 2)]


def test_the_gpus_of_the_server_are_summed() -> None:
    """Memory of all its devices, what of it is in use, and the mean utilization."""
    figures = {"device_total": 8e9, "device_used": 6e9, "device_memory": 5e9, "gpu_utilization": 0.5}
    measured = [
        observed_number(name, value, scope=f"cuda:{index}")
        for name, value in figures.items()
        for index in range(2)
    ]
    before = observed_number("device_used", 1e9, scope="cuda:0 baseline")
    result = replace(a_result(), measurements=(*a_result().measurements, *measured, before))
    assert server_profiler._measure_gpu(result) == {
        "memory_total": 16e9, "memory_used": 12e9, "memory_process": 10e9, "memory_share": 0.75,
        "utilization": 0.5,
    }  # fmt: skip
