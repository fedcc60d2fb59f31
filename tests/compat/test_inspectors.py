"""Inspectors, as people know them, on the spine of this program."""

from __future__ import annotations

import itertools
import re
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import modeldyno
from modeldyno.base.errors import DeviceInUse, RequestError, RunFailed
from modeldyno.base.metrics.measurement import observed_number
from modeldyno.compat import (
    BaseModelInspector,
    Profiler,
    ServerInspector,
    TensorFlowInspector,
    TorchServeInspector,
    TritonInspector,
    inspectors,
    server_profiler,
)
from modeldyno.engine.environment.device_lock import device_lock
from modeldyno.engine.environment.idle import IdleRule
from modeldyno.engine.interfaces.request_target import Endpoint
from modeldyno.errors import UncertifiedWarning
from modeldyno.serving.servers import tcp_ports
from modeldyno.testing.sample_results import a_result
from modeldyno.testing.server import serve_in_subprocess

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from modeldyno.base.result.result import Result


class Sleeping(BaseModelInspector):
    """Takes two milliseconds for each request, whatever it is."""

    def infer(self, input_batch: Any) -> Any:
        """Wait, and return the batch."""
        time.sleep(0.002)
        return input_batch


class AsDocumented(BaseModelInspector):
    """Overrides every step, with the parameters that the source document shows."""

    def __init__(
        self, repeat_data: Any, batch_num: int = 1, batch_size: int = 1, asynchronous: Any = None
    ) -> None:
        """Pass four parameters on."""
        super().__init__(
            repeat_data=repeat_data, batch_num=batch_num, batch_size=batch_size, asynchronous=asynchronous
        )
        self.sent: list[Any] = []

    def data_preprocess(self) -> None:  # type: ignore[override]  # as people wrote it
        """Set the processed item."""
        self.processed_data = 2 * self.raw_data

    def make_request(self, input_batch: Any) -> Any:
        """Make a tuple of it."""
        return tuple(input_batch)

    def infer(self, input_batch: Any) -> Any:
        """Record what is sent."""
        self.sent.append(input_batch)
        time.sleep(0.001)


class Stumbling(BaseModelInspector):
    """Fails at every seventh request, whichever thread sends it."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        """Count from one."""
        super().__init__(*arguments, **options)
        self.numbers = itertools.count(1)

    def make_request(self, input_batch: list[Any]) -> None:
        """Return None."""

    def infer(self, input_batch: Any) -> Any:
        """Fail now and then."""
        assert input_batch == ["x"]
        number = next(self.numbers)
        time.sleep(0.001)
        if number % 7 == 1:
            raise RuntimeError("boom")
        return input_batch


class Failing(BaseModelInspector):
    """Never gets an answer."""

    count = 0

    def infer(self, input_batch: Any) -> Any:
        """Fail."""
        self.count += 1
        raise ConnectionRefusedError(f"nobody takes {input_batch}")


@pytest.fixture(scope="module")
def server() -> Iterator[int]:
    """Run a server; yield its port."""
    with serve_in_subprocess("--service", "constant:0.002") as running:
        yield running.port


def test_a_diagnosis_has_every_figure_under_its_unit() -> None:
    """A subclass that only defines `infer` gives latency, rates, stages and the agreement."""
    diagnosis = Profiler(
        {"name": "resnet", "engine": "custom"}, inspector=Sleeping("x", batch_num=300, sla=60, percentile=50)
    ).diagnose()
    assert (diagnosis["model"], diagnosis["engine"], diagnosis["batch_size"]) == ("resnet", "custom", 1)
    assert diagnosis.result.name == "resnet"  # by which it is found in the store
    assert (diagnosis.result["latency.p50.raw"] or 0) >= 0.002
    assert diagnosis["all_batch_throughput"] == pytest.approx(diagnosis["request_rate"])
    assert diagnosis["sla"]["held"] != "broken"  # a busy machine may leave it undecided
    assert diagnosis["sla"]["met"] == (diagnosis["sla"]["held"] == "held")
    assert diagnosis["sla"]["attainment"] > 0.5
    for stage in ("batch_formation", "preprocess", "inference", "postprocess"):
        assert diagnosis["stages"][stage]["mean"] >= 0, stage
    assert diagnosis["gpu"]["utilization"] is None
    assert "all batch throughput: " in str(diagnosis)
    assert "samples/s" in str(diagnosis)
    assert "average GPU utilization: unavailable" in str(diagnosis)


def test_a_percentile_of_few_requests_is_given_with_a_warning() -> None:
    """The plain quantile is there, and warns that it is not certified."""
    diagnosis = Profiler("m", inspector=Sleeping("x", batch_num=20)).diagnose()
    with pytest.warns(UncertifiedWarning, match="Measure more with batch_num"):
        assert diagnosis["latency"]["p99"] >= 0.002
    assert re.search(r"p99 latency: [\d.e-]+ s \(uncertified", str(diagnosis))
    assert "effective samples are missing" in str(diagnosis)
    assert diagnosis["sla"]["held"] == "undecided"


def test_samples_are_counted_by_the_size_of_the_batch() -> None:
    """Batches of eight give eight samples a request."""
    diagnosis = Profiler("m", inspector=Sleeping("x", batch_num=30)).diagnose(batch_size=8)
    assert diagnosis["all_batch_throughput"] == pytest.approx(8 * diagnosis["request_rate"])


def test_every_step_of_the_source_document_is_called() -> None:
    """A subclass may define `data_preprocess` without an argument."""
    inspector = AsDocumented(21, batch_num=20, batch_size=3)
    Profiler("m", inspector=inspector).diagnose()
    assert inspector.processed_data == 42
    assert set(inspector.sent) == {(42, 42, 42)}
    assert len(inspector.sent) >= 20


@pytest.mark.parametrize(("count", "asynchronous"), [(1, True), (11, False), (60, True)])
def test_exactly_so_many_batches_are_measured(count: int, asynchronous: bool) -> None:
    """Exactly the requested number of batches is measured."""
    diagnosis = Profiler("m", inspector=Sleeping("x", batch_num=count, asynchronous=asynchronous)).diagnose()
    assert diagnosis.result["requests@ok"] == count
    assert len(diagnosis.result.find("latency").value) == count  # type: ignore[union-attr, arg-type]


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_client_that_fails_now_and_then_is_measured(asynchronous: bool) -> None:
    """Failures count as requests, are in no latency, and their reason is in a doubt."""
    inspector = Stumbling("x", batch_num=70, asynchronous=asynchronous)
    diagnosis = Profiler("m", inspector=inspector).diagnose()
    result = diagnosis.result
    good, failed = result["requests@ok"] or 0, result["requests@client-error"] or 0
    assert (good + failed, len(diagnosis.result.find("latency").value)) == (70, good)  # type: ignore[union-attr, arg-type]
    assert 5 <= failed <= 15
    first, load = (doubt.seen for doubt in result.doubts if doubt.code == "failed-requests")
    assert "the first request failed: RuntimeError: boom" in first
    assert "(RuntimeError: boom)" in load
    assert not result.failures
    assert diagnosis["stages"]["postprocess"]["mean"] >= 0
    assert diagnosis["device"] == "unknown"
    assert diagnosis["sla"]["held"] != "held"
    assert diagnosis["sla"]["attainment"] == pytest.approx(good / 70)


@pytest.mark.slow
def test_an_agreement_is_of_all_requests() -> None:
    """If one request in seven fails, a p95 is broken, however fast the others are; a p50 may hold."""
    verdicts = {
        percentile: Profiler("m", inspector=Stumbling("x", batch_num=350, percentile=percentile)).diagnose()[
            "sla"
        ]["held"]
        for percentile in (95, 50)
    }
    assert verdicts[95] == "broken"
    assert verdicts[50] in {
        "held",
        "undecided",
    }  # undecided where a busy machine makes times depend on each other


def test_an_asynchronous_inspector_sends_many_at_once() -> None:
    """Batches overlap: ten that wait take the time of few."""
    diagnosis = Profiler("m", inspector=Sleeping("x", batch_num=10, asynchronous=True)).diagnose()
    assert (diagnosis.result["in_flight"] or 0) > 2


@pytest.mark.slow
def test_a_broken_agreement_is_told() -> None:
    """The percentile and the seconds of the agreement are really applied."""
    profiler = Profiler("m", inspector=Sleeping("x", batch_num=1500, sla=0.001, percentile=90))
    for _ in range(3):  # a neighbour may leave one of them undecided
        diagnosis = profiler.diagnose()
        if diagnosis["sla"]["held"] != "undecided":
            break
    assert diagnosis["sla"]["held"] == "broken"
    assert not diagnosis["sla"]["met"]
    assert diagnosis["sla"]["attainment"] == 0
    assert "p90" in diagnosis["latency"]


@pytest.mark.slow
def test_sizes_are_diagnosed_one_after_the_other() -> None:
    """Each size of the batch has its diagnosis."""
    diagnoses = Profiler("m", inspector=Sleeping("x", batch_num=20)).diagnose_all_batches([1, 4])
    assert [(size, each["batch_size"]) for size, each in diagnoses.items()] == [(1, 1), (4, 4)]


@pytest.mark.slow  # each order is read, and measured as above
def test_the_device_may_come_before_the_sizes() -> None:
    """As people know it."""
    profiler = Profiler("m", inspector=Sleeping("x", batch_num=20))
    for diagnoses in (
        profiler.diagnose_all_batches("cpu", [1, 4]),
        profiler.diagnose_all_batches([1, 4], "cpu"),
    ):
        assert [(size, each["batch_size"]) for size, each in diagnoses.items()] == [(1, 1), (4, 4)]
    for wrong in (("cpu", "cuda"), ([1], [4])):
        with pytest.raises(TypeError, match="takes batch sizes and a device"):
            profiler.diagnose_all_batches(*wrong)


ANY_LOAD = IdleRule(samples=0)


@pytest.fixture
def devices(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Take this machine for one with two GPUs."""
    monkeypatch.setattr("modeldyno.engine.environment.device_lock._folder", lambda: tmp_path)
    for module in ("compat.server_profiler", "registry.device_idleness"):
        monkeypatch.setattr(f"modeldyno.{module}.devices_here", lambda: ("cpu", "cuda:0", "cuda:1"))


@pytest.mark.usefixtures("devices")
class TestAutoDiagnose:
    def test_each_device_and_size_has_a_diagnosis_in_the_log(self, caplog: pytest.LogCaptureFixture) -> None:
        """By device, then by size."""
        caplog.set_level("INFO", "modeldyno")
        profiler = Profiler("m", inspector=Sleeping("x", batch_num=20))
        diagnoses = profiler.auto_diagnose(["cpu"], [1, 4], idle=ANY_LOAD)

        assert {device: [*sizes] for device, sizes in diagnoses.items()} == {"cpu": [1, 4]}
        assert diagnoses["cpu"][4]["device"] == "unknown"  # nobody knows where this client sends
        assert [text.partition("\n")[0] for text in caplog.messages] == ["batch size: 1", "batch size: 4"]

    def test_its_results_are_stored(self) -> None:
        """Each by its id."""
        diagnoses = Profiler("m", inspector=Sleeping("x", batch_num=20)).auto_diagnose(
            ["cpu"], [2], idle=ANY_LOAD
        )

        assert diagnoses["cpu"][2].result.id in {entry.id for entry in modeldyno.store.list(limit=5)}

    @pytest.mark.slow  # a server for each; tests beside it need one
    def test_each_device_has_its_server(self, server: int) -> None:
        """The inspector sends to that of the device."""
        inspector = TritonInspector(np.ones(4, np.float32), batch_num=20)
        urls = {"cpu": f"http://127.0.0.1:{server}", "gpu:1": f"http://localhost:{server}"}
        diagnoses = Profiler({"name": "echo"}, urls, inspector).auto_diagnose(batch_list=[2], idle=ANY_LOAD)

        assert {device: each[2]["device_id"] for device, each in diagnoses.items()} == {
            "cpu": "cpu", "cuda:1": "cpu",  # as the machine says, not as it was asked
        }  # fmt: skip
        assert "127.0.0.1" in str(diagnoses["cpu"][2].result.job.model)
        assert "localhost" in str(diagnoses["cuda:1"][2].result.job.model)

    def test_a_path_is_served_on_each_idle_device(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """With the server of its engine; a device in use is left out."""
        calls: list[dict[str, Any]] = []

        def load(**options: Any) -> Result:
            calls.append(options)
            result = a_result()
            rate = observed_number("request_rate", 500.0)
            return replace(result, measurements=(*result.measurements, rate))

        monkeypatch.setattr(server_profiler, "load", load)
        busy = {"cuda:0": "train (pid 7) uses cuda:0"}
        monkeypatch.setattr(
            "modeldyno.engine.environment.idle.busy_reason", lambda device, _rule: busy.get(device)
        )
        diagnoses = Profiler(
            {"name": "net", "engine": "ONNX", "path": "net.onnx"}, data=np.ones(4, np.float32)
        ).auto_diagnose(batch_list=[1, 8])

        assert [*diagnoses] == ["cpu", "cuda:1"]
        assert [(call["model"], call["backend"], call["device"], call["batch_size"]) for call in calls] == [
            ("net.onnx", "triton", device, size) for device in ("cpu", "cuda:1") for size in (1, 8)
        ]

    def test_nothing_idle_is_an_error_that_says_who(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """For each device."""
        monkeypatch.setattr(
            "modeldyno.engine.environment.idle.busy_reason",
            lambda _device, _rule: "others use 1.00 of 2 cores",
        )
        with pytest.raises(DeviceInUse, match=r"No device is idle: cpu: others use 1\.00 of 2 cores"):
            Profiler("m", inspector=Sleeping("x")).auto_diagnose(["cpu"])

    def test_a_device_that_is_measured_now_is_left_out(self) -> None:
        """Its lock is held."""
        with device_lock("cpu", "modeldyno profile"), pytest.raises(DeviceInUse, match="modeldyno profile"):
            Profiler("m", inspector=Sleeping("x")).auto_diagnose(["cpu"], idle=ANY_LOAD)

    def test_a_size_that_fails_is_left_out(self) -> None:
        """Unless all do."""

        class Small(Sleeping):
            def infer(self, input_batch: Any) -> Any:
                if len(input_batch) > 2:
                    raise RuntimeError("too large")
                return super().infer(input_batch)

        profiler = Profiler("m", inspector=Small("x", batch_num=20))
        assert [*profiler.auto_diagnose(["cpu"], [1, 4], idle=ANY_LOAD)["cpu"]] == [1]
        with pytest.raises(RunFailed, match=r"Nothing could be measured: cpu: .*too large"):
            profiler.auto_diagnose(["cpu"], [4], idle=ANY_LOAD)

    @pytest.mark.parametrize(
        ("options", "named", "message"),
        [
            ({}, None, "One server runs on one device; name it in available_devices="),
            ({}, ["cpu", "gpu:0"], "One server runs on one device"),
            ({}, ["banana"], "'banana' is no name of a device"),
            ({"server_name": {"cpu": "http://127.0.0.1:1"}}, ["gpu:0"], "no device with a server 'cuda:0'"),
        ],
    )
    def test_a_device_that_nobody_knows_is_refused(
        self, options: dict[str, Any], named: list[str] | None, message: str
    ) -> None:
        """Before anything is sent: the same server under two names would be no comparison."""
        profiler = Profiler({"name": "m"}, inspector=TritonInspector(np.ones(4, np.float32)), **options)
        with pytest.raises(RequestError, match=message):
            profiler.auto_diagnose(named)


@pytest.mark.usefixtures("devices")
def test_idle_devices_are_those_that_nobody_uses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither others, nor ModelDyno itself; by the rule that is given."""
    rules: set[IdleRule] = set()

    def busy_reason(device: str, rule: IdleRule) -> str | None:
        rules.add(rule)
        return "train uses it" if device == "cuda:0" else None

    monkeypatch.setattr("modeldyno.engine.environment.idle.busy_reason", busy_reason)
    assert modeldyno.registry.idle_devices() == ("cpu", "cuda:1")
    assert modeldyno.registry.idle_devices(
        never_on="gpu:1", idle_cpu="5%", idle_memory="1GiB", idle_for="2s"
    ) == ("cpu",)
    assert rules == {IdleRule(), IdleRule(cpu=0.05, memory=1 << 30, samples=2, period=1.0)}
    with device_lock("cpu", "modeldyno profile"):
        assert modeldyno.registry.idle_devices() == ("cuda:1",)


def test_what_an_inspector_raises_is_told() -> None:
    """If no request succeeds, the error has the reason of the first."""
    inspector = Failing("x", batch_num=500)
    with pytest.raises(RunFailed, match=r"ended as refused: ConnectionRefusedError: nobody takes"):
        Profiler("m", inspector=inspector).diagnose()
    assert inspector.count < 200


def test_a_model_that_is_not_ready_is_waited_for() -> None:
    """After the timeout, the wait ends with an error."""

    class Unready(Sleeping):
        def check_model_status(self) -> bool:
            return False

    began = time.monotonic()
    with pytest.raises(RunFailed, match=r"not ready within 0\.5 s"):
        Profiler("m", inspector=Unready("x")).diagnose(timeout=0.5)
    assert time.monotonic() - began >= 0.5


def test_wrong_words_are_refused() -> None:
    """A wrong inspector, engine or number is refused before anything is sent."""
    with pytest.raises(TypeError, match="must be a BaseModelInspector"):
        Profiler("m", inspector=object())  # type: ignore[arg-type]
    for engine in ("TVM", "CUSTOMIZED", "NONE"):
        with pytest.raises(
            RequestError, match=rf"no inspector for the engine '{engine.lower()}'; give inspector="
        ):
            Profiler({"engine": engine}, data=1)
    with pytest.raises(RequestError, match="'banana' is no name of a device"):
        Profiler("m", inspector=Sleeping("x")).diagnose(device="banana")
    for wrong in ({"batch_num": 0}, {"batch_size": 0}, {"sla": 0}, {"percentile": 100}):
        with pytest.raises(RequestError):
            Sleeping("x", **wrong)  # type: ignore[arg-type]
    with pytest.raises(RequestError, match="batch_size=0"):
        Sleeping("x").set_batch_size(0)


@pytest.mark.slow
def test_a_ready_made_inspector_sends_arrays_to_a_server(server: int) -> None:
    """The inspector of a protocol needs only the data and the endpoint."""
    item = np.ones(4, np.float32)
    place = Endpoint(host="127.0.0.1", port=server, model="echo", options={"binary": True})
    inspector = TritonInspector(item, endpoint=place, batch_num=50, batch_size=2)
    assert inspector()["y"].tolist() == [[1, 1, 1, 1], [1, 1, 1, 1]]
    diagnosis = Profiler({"name": "echo", "engine": "triton"}, inspector=inspector).diagnose()
    assert (diagnosis.result["latency.p50.raw"] or 0) >= 0.002
    assert diagnosis.result.job.backend == "remote"
    assert diagnosis["stages"]["preprocess"] is not None


def test_a_server_without_a_page_for_its_model_is_ready_when_it_answers(server: int) -> None:
    """A server that speaks TensorFlow's protocol and describes nothing is sent a request to find out."""
    place = Endpoint(host="127.0.0.1", port=server, model="echo")
    inspector = TensorFlowInspector(np.ones(4, np.float32), endpoint=place, batch_num=20)
    assert Profiler({"name": "echo"}, inspector=inspector).diagnose(timeout=1)["request_rate"] > 0
    inspector.endpoint = Endpoint(host="127.0.0.1", port=server, model="absent")
    assert not inspector.check_model_status()
    assert "404" in inspector.refused


@pytest.mark.slow
def test_a_mistyped_name_sends_few_requests() -> None:
    """If every request fails, the run ends early with the server's message."""
    with serve_in_subprocess() as running:
        place = Endpoint(host="127.0.0.1", port=running.port, model="absent")
        inspector = TorchServeInspector(np.ones(4, np.float32), endpoint=place, batch_num=100)
        with pytest.raises(RunFailed, match=r"none of \d\d requests succeeded.*404"):
            Profiler({"name": "absent"}, inspector=inspector, max_time=10).diagnose()


def test_a_model_that_a_server_lacks_is_named(server: int) -> None:
    """The timeout error names the model and its address."""
    inspector = TritonInspector(np.ones(4, np.float32))
    with pytest.raises(RunFailed, match=rf"'absent' at 127\.0\.0\.1:{server} was not ready .* answered 404"):
        Profiler({"name": "absent"}, f"http://127.0.0.1:{server}", inspector).diagnose(timeout=0.1)


def test_the_engine_chooses_the_inspector(server: int) -> None:
    """Without an inspector, the engine selects one, and the server's URL the endpoint."""
    profiler = Profiler(
        {"name": "echo", "engine": "Engine.ONNX"},
        server_name=f"http://127.0.0.1:{server}",
        data=np.ones(4, np.float32),
    )
    assert isinstance(profiler.inspector, TritonInspector)
    profiler.inspector.batch_num = 30
    assert profiler.diagnose()["request_rate"] > 0


def test_ports_are_those_of_the_table() -> None:
    """The conventional ports can be imported, and are used for an engine."""
    assert (tcp_ports.TFS_GRPC_PORT, tcp_ports.TFS_HTTP_PORT) == (8500, 8501)
    profiler = Profiler({"name": "m", "engine": "TFS"}, server_name="localhost", data=[1.0])
    assert isinstance(profiler.inspector, BaseModelInspector)
    place = profiler.inspector.endpoint  # type: ignore[attr-defined]
    assert (place.host, place.port, place.model) == ("localhost", 8501, "m")


def test_a_gpu_has_ports_of_its_own() -> None:
    """The conventional port follows the device of each diagnosis, unless the endpoint was set by hand."""
    profiler = Profiler({"name": "m", "engine": "ONNX"}, server_name="localhost", data=[1.0])
    inspector = profiler.inspector
    assert isinstance(inspector, ServerInspector)
    ports = []
    for device in ("cuda:1", "gpu:0", "cpu", "unknown"):
        profiler._choose_port(device)
        assert inspector.endpoint is not None
        ports.append(inspector.endpoint.port)
    by_hand = Endpoint(host="localhost", port=9, model="m")
    inspector.endpoint = by_hand
    profiler._choose_port("cuda:0")

    assert ports == [8010, 8010, 8001, 8001]
    assert inspector.endpoint == by_hand


def test_a_client_may_stand_in_place_of_a_server(server: int) -> None:
    """As in ModelCI's newer signature, ``Profiler(model_info, inspector)``: it sends to its own server."""
    place = Endpoint(host="127.0.0.1", port=server, model="echo")
    client = TritonInspector(np.ones(4, np.float32), endpoint=place, batch_num=20)
    profiler = Profiler({"name": "echo", "engine": "ONNX"}, client)

    assert profiler.inspector is client
    assert profiler.server_name is None
    assert profiler.diagnose(2).result["requests@ok"] == 20
    with pytest.raises(TypeError, match="inspector is str, but must be a BaseModelInspector"):
        Profiler({"name": "echo"}, "somewhere", "client")  # type: ignore[arg-type]


def test_a_diagnosis_may_name_another_server(server: int) -> None:
    """It is used from then on."""
    profiler = Profiler({"name": "echo", "engine": "ONNX"}, "http://127.0.0.1:9", data=np.ones(4, np.float32))
    profiler.inspector.batch_num = 20
    with pytest.raises(RunFailed, match=r"'echo' at 127\.0\.0\.1:9 was not ready"):
        profiler.diagnose(timeout=0.1)

    url = f"http://127.0.0.1:{server}"
    assert profiler.diagnose(server_name=url)["address"] == f"127.0.0.1:{server}"
    assert profiler.diagnose(1)["address"] == f"127.0.0.1:{server}"
    assert profiler.server_name == url


@pytest.mark.slow
def test_a_running_server_is_found_by_its_name(server: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its URL says where it is, and what the model is called there if nobody names one."""
    urls = {"mine": f"http://127.0.0.1:{server}#echo,protocol=kserve-http"}
    monkeypatch.setattr(server_profiler, "running_url", urls.get)
    for named in ({}, {"name": "echo"}):
        profiler = Profiler(
            {"engine": "ONNX", **named},
            server_name="mine",
            inspector=TritonInspector(np.ones(4, np.float32)),
        )
        profiler.inspector.batch_num = 20
        assert profiler.diagnose()["request_rate"] > 0


def test_a_model_that_a_named_server_does_not_have_is_refused(
    server: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by its URL: the model of another name is not measured in its place."""
    urls = {"mine": f"http://127.0.0.1:{server}#echo,protocol=kserve-http"}
    monkeypatch.setattr(server_profiler, "running_url", urls.get)
    profiler = Profiler(
        {"name": "nonexistent", "engine": "ONNX"},
        server_name="mine",
        inspector=TritonInspector(np.ones(4, np.float32)),
    )
    with pytest.raises(RunFailed, match=r"'nonexistent' at .* was not ready"):
        profiler.diagnose(timeout=0.5)


def test_without_a_server_the_model_is_served_for_the_diagnosis(
    server: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once for all sizes, on the device that was asked for; afterwards its server is stopped."""
    served: list[tuple[str, str, str]] = []
    stopped: list[str] = []

    class Served:
        url = f"http://127.0.0.1:{server}#echo"
        record = SimpleNamespace(ports={"http": server}, runs=True)

        def __enter__(self) -> None:
            self.record.runs = True

        def __exit__(self, *_error: object) -> None:
            self.record.runs = False
            stopped.append(self.url)

    def serve(path: str, *, backend: str, device: str) -> Served:
        served.append((path, backend, device))
        return Served()

    monkeypatch.setattr(server_profiler, "serve", serve)
    profiler = Profiler(
        {"name": "net", "engine": "ONNX", "path": "net.onnx"},
        inspector=TritonInspector(np.ones(4, np.float32), batch_num=20),
    )

    diagnoses = profiler.diagnose_all_batches("cuda:1", [1, 2])
    assert [each["init_latency"] >= 0 for each in diagnoses.values()] == [True, True]
    assert served == [("net.onnx", "triton", "cuda:1")]
    profiler.diagnose(1)
    assert served[1:] == [("net.onnx", "triton", "cpu")]
    assert len(stopped) == 2


def test_only_a_path_can_be_served_here() -> None:
    """Without one, or with a server, it is said what is missing."""
    profiler = Profiler({"name": "net", "engine": "ONNX"}, data=np.ones(4, np.float32))
    with pytest.raises(RequestError, match="give its path in model_info"):
        profiler.pre_deploy()


def test_what_a_server_takes_is_known_of_one_that_was_started_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """TorchServe does not tell; elsewhere the name is that of most handlers."""
    record = SimpleNamespace(inputs=("image=batchx1x8x8:float32",))
    monkeypatch.setattr(inspectors, "running_at", {8085: record}.get)
    here, there = (Endpoint(host=host, port=8085, model="m") for host in ("127.0.0.1", "10.0.0.7"))
    assert TorchServeInspector(endpoint=here).input_name() == "image"
    assert TorchServeInspector(endpoint=here).known_inputs() == record.inputs
    assert TorchServeInspector(endpoint=there).input_name() == "input"
