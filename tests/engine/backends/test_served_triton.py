from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import onnxruntime
import pytest

from modeldyno.base import plugins
from modeldyno.base.errors import MissingExtra, RequestError, ServerFailed, UnknownName
from modeldyno.base.job.knob import KnobValue, configure
from modeldyno.base.job.model_ref import ModelRef
from modeldyno.engine.interfaces.request_target import Transport
from modeldyno.engine.interfaces.server_stats import ServerCounters
from modeldyno.engine.interfaces.session import RequestSession
from modeldyno.serving.backends import base, triton
from modeldyno.serving.backends.base import SessionWithStats
from modeldyno.serving.backends.triton import InProcessSession
from modeldyno.serving.loadgen.single_request import send_once
from modeldyno.serving.servers import triton as engine
from modeldyno.serving.servers.server_process import http_ready
from modeldyno.testing.backends import DeclaredSuite, ServingSuite

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from modeldyno.models.interface import Feed, Model

SHARED = Path("/dev/shm")
DIGITS = Path(__file__).parents[3] / "examples" / "digits" / "digits.onnx"


def digits() -> Model:
    """The classifier of the examples."""
    return plugins.loader("onnx").load(ModelRef(scheme="onnx", locator=str(DIGITS)), seed=0, trust=False)


def opened(settings: dict[str, KnobValue], model: Model | None = None) -> Any:
    """Open a session with these knobs."""
    backend = plugins.backend("triton")
    config = configure(backend.knobs, settings)
    backend.check(config)
    return backend.open(model or digits(), config)


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A tritonserver that infers nothing."""
    monkeypatch.setenv("MODELDYNO_ENGINES", str(tmp_path / "engines"))
    path = tmp_path / "bin" / "tritonserver"
    path.parent.mkdir()
    script = Path(__file__).parent / "fake_triton.py"
    path.write_text(f'#!/bin/sh\nexec {sys.executable} {script} "$@"\n')
    path.chmod(0o755)
    return str(path)


def test_a_triton_without_its_library_cannot_run_in_this_process(program: str) -> None:
    """The program alone does not do."""
    settings: dict[str, KnobValue] = {"launch": "in-process", "program": program}
    with pytest.raises(MissingExtra, match="no libtritonserver"), opened(settings):
        pass


def test_a_second_triton_in_a_process_is_refused(program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It could hang."""
    monkeypatch.setattr("modeldyno.serving.servers.triton_in_process._started", [program])
    settings: dict[str, KnobValue] = {"launch": "in-process", "program": program}
    with pytest.raises(RequestError, match="has run in this process before"), opened(settings):
        pass


class TestDeclared(DeclaredSuite):
    name = "triton"

    @pytest.fixture
    def model(self) -> Model:
        """The classifier of the examples."""
        return digits()


def test_a_session_of_a_server_of_ours(program: str) -> None:
    """The session sends by the protocol asked for, and reads the server's counters and version."""
    with opened({"program": program, "protocol": "grpc", "batch_size": 2}) as session:
        assert isinstance(session, SessionWithStats)
        assert session.server is not None
        assert session.has_statistics
        target = session.target([{"image": np.zeros((2, 1, 8, 8), "float32")}] * 3)
        assert (target.protocol, target.transport, len(target.messages)) == ("kserve-grpc", Transport.GRPC, 3)
        assert target.port == session.server.ports["grpc"]
        assert session.software == {"triton": "0.0.1"}
        assert session.account() == ServerCounters(
            requests=4,
            failures=1,
            samples=6,
            executions=3,
            queue=2.0,
            compute_input=1e-9,
            compute=0.5,
            compute_output=2.0,
            batches={2: 3},
        )
        assert session.instances == {"": 3}
        assert session.ended() == ""
        pid = session.pid
    assert not Path(f"/proc/{pid}").exists()


def test_the_files_that_triton_is_given(program: str) -> None:
    """Every shorthand stands in the configuration, and a path beside it."""
    settings: dict[str, KnobValue] = {
        "program": program,
        "instances": 2,
        "batch_size": 16,
        "queue_delay": 500,
        "preferred_batch": "4,8",
        "threads": 3,
        "config.dynamic_batching.priority_levels": 2,
        "config.instance_group.0.name": "here",
    }
    with opened(settings) as session:
        ((name, text),) = session.files
    assert name == "config.pbtxt"
    for line in (
        'backend: "python"', "max_batch_size: 16", "  count: 2", "  kind: KIND_CPU", '  name: "here"',
        "  preferred_batch_size: [4, 8]", "  max_queue_delay_microseconds: 500", "  priority_levels: 2",
        '    string_value: "model.onnx"', '    string_value: "3"', "  dims: [1, 8, 8]", "  dims: [10]",
    ):  # fmt: skip
        assert f"{line}\n" in text


def test_a_server_of_ours_has_further_models(program: str) -> None:
    """Another model has its own configuration and statistics, is there for the while, and replaces none."""
    with opened({"program": program}) as session:
        http = session.server.ports["http"]
        config = configure(plugins.backend("triton").knobs, {"instances": 3})
        for _ in range(2):  # again, as with other knobs
            with session.host(named("second"), config) as guest:
                assert "count: 3" in guest.files[0][1]
                assert guest.account().requests == 4
                assert guest.endpoint.model == "second"
                assert http_ready(http, "/v2/models/second/ready")
            assert not http_ready(http, "/v2/models/second/ready")
        with (
            pytest.raises(ServerFailed, match=r"does not load second: .*nonsense"),
            session.host(named("second"), {**config, "config.nonsense": "1"}),
        ):
            pass
        with (
            pytest.raises(RequestError, match="already has a model 'digits'"),
            session.host(digits(), config),
        ):
            pass
        assert http_ready(http, "/v2/models/digits/ready")


def named(name: str) -> Model:
    """The classifier of the examples under another name."""
    model = digits()
    return replace(model, identity=replace(model.identity, name=name))


def test_requests_are_traced_if_that_is_asked_for(program: str) -> None:
    """Each then bears an id; what the server has written of them is read."""
    feeds: list[Feed] = [{"image": np.zeros((1, 1, 8, 8), "float32")}]
    with opened({"program": program}) as session:
        assert session.trace is None
        assert not session.target(feeds).numbered
    with opened({"program": program, "request_trace": True}) as session:
        assert session.target(feeds).numbered
        assert isinstance(session, RequestSession)
        assert session.trace is not None
        session.trace.begin(3)
        session.trace.end()
        assert len(session.trace.read()) == 2


def test_a_triton_that_was_built_without_tracing_is_started_without(
    program: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It refuses the flag, and then the settings."""
    monkeypatch.setenv("FAKE_TRITON_TRACES", "no")
    with opened({"program": program, "request_trace": True}) as session, pytest.raises(OSError, match="400"):
        session.trace.begin(1)


def test_a_field_that_triton_has_not_is_told_in_its_own_words(program: str) -> None:
    """A server that does not start is an outcome, and the first line names the cause."""
    with pytest.raises(ServerFailed) as failed, opened({"program": program, "config.nonsense": 1}):
        pass
    assert 'has no field named "nonsense"' in str(failed.value).splitlines()[0]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"device": "gpu"}, "cpu, cuda or cuda:N, not 'gpu'"),
        ({"ports": "8000"}, "3 numbers"),
        ({"preferred_batch": "4,x"}, "sizes such as 4,8"),
        ({"preferred_batch": "4,16", "max_batch": 8}, "preferred_batch=16 is larger than max_batch=8"),
        ({"max_batch": 0, "queue_delay": 5}, "turns batching off"),
        ({"max_batch": 2, "batch_size": 4}, "larger than max_batch=2"),
        ({"server": "ftp://x"}, "not a server's address"),
        ({"server": "host:8000", "flags": "--x"}, "omit flags or server"),
        ({"launch": "in-process", "flags": "--x"}, "flags has no effect with launch=in-process"),
        ({"server": "host:8000", "request_trace": True}, "request_trace has no effect with server"),
        ({"compression": "gzip", "request_trace": True}, "no effect with compression"),
        ({"launch": "docker", "request_trace": True}, "no effect with launch=docker"),
        ({"config.max_batch_size": 2, "config.max_batch_size.x.y": 1}, "which has no fields"),
    ],
)
def test_knobs_that_cannot_be(settings: dict[str, KnobValue], message: str) -> None:
    """What cannot be is refused before anything is started."""
    backend = plugins.backend("triton")
    with pytest.raises(RequestError, match=message):
        backend.check(configure(backend.knobs, settings))


def test_a_misspelt_knob_is_no_field() -> None:
    """Only what stands below config. is taken as it is."""
    with pytest.raises(UnknownName, match="did you mean 'instances'"):
        configure(plugins.backend("triton").knobs, {"instancs": 2})


def test_what_is_not_here(program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that is not there, an engine that is not installed, a backend that it has not."""
    with pytest.raises(RequestError, match="no program '/no/triton'"), opened({"program": "/no/triton"}):
        pass
    with (
        pytest.raises(RequestError, match="no such backend"),
        opened({"program": program, "runtime": "onnxruntime"}),
    ):
        pass
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(engine, "_DEFAULT_DIRECTORY", Path("/no/such/place"))
    with pytest.raises(MissingExtra, match="modeldyno engine install triton"), opened({}):
        pass


def test_a_full_triton_uses_its_own_backend(program: str) -> None:
    """Where ONNX Runtime's backend is there, it runs the model, unless Python is asked for."""
    place = Path(program).parent.parent / "backends" / "onnxruntime"
    place.mkdir(parents=True)
    (place / "libtriton_onnxruntime.so").write_text("")
    tritonserver = engine.find_tritonserver(program)
    assert tritonserver.has("onnxruntime")
    assert not tritonserver.has("tensorrt")
    with opened({"program": program, "runtime": "python"}) as session:
        assert 'backend: "python"' in session.files[0][1]
    with pytest.raises(ServerFailed, match="AssertionError"), opened({"program": program}):
        pass  # the fake has Python's alone, and says so


def test_a_model_without_a_free_batch_has_no_batches(program: str, tmp_path: Path) -> None:
    """A model of one size runs as it is, and to gather requests for it is refused."""
    model = fixed(tmp_path)
    with opened({"program": program}, model) as session:
        assert "max_batch_size: 0" in session.files[0][1]
        assert "dims: [1, 4]" in session.files[0][1]
    with (
        pytest.raises(RequestError, match=r"cannot be batched.* x 1x4 -> y 1x4;"),
        opened({"program": program, "dynamic_batching": True}, model),
    ):
        pass


def fixed(folder: Path) -> Model:
    """A model of one size, with its weights in a file of their own."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    weight = numpy_helper.from_array(np.ones((4, 4), "float32"), "w")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4])],
        [weight],
    )
    path = folder / "fixed.onnx"
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(made, path, save_as_external_data=True, location="fixed.data", size_threshold=0)
    return plugins.loader("onnx").load(ModelRef(scheme="onnx", locator=str(path)), seed=0, trust=False)


def test_weights_go_with_the_file(tmp_path: Path) -> None:
    """A file of weights lies beside the model in the server, too, and takes no second place on the disk."""
    from modeldyno.serving.backends.model_files import deploy

    deployed = deploy(fixed(tmp_path), tmp_path / "made")
    assert not deployed.batched
    assert {path.name for path in (tmp_path / "made").iterdir()} == {"model.onnx", "fixed.data"}
    assert (tmp_path / "made" / "fixed.data").samefile(tmp_path / "fixed.data")


def test_the_command_line_of_a_container(tmp_path: Path) -> None:
    """Only the loopback is published, devices are asked for where one is wanted, and it removes itself."""
    made = engine.TritonContainer(image="image:1", label="mine", device="cuda:1")
    command = engine.container_command(
        made, tmp_path, "m", {"http": 1, "grpc": 2, "metrics": 3}, ["--log-verbose=1"]
    )
    assert command[:4] == ["docker", "run", "--rm", "--init"]
    assert "--publish=127.0.0.1:1:8000" in command
    assert "--gpus=device=1" in command
    assert "--shm-size=1g" in command
    assert command[command.index("--volume") + 1] == f"{tmp_path}:/models:ro"
    assert command[command.index("image:1") + 1] == "tritonserver"
    assert command[-1] == "--log-verbose=1"
    cpu = engine.TritonContainer(image="image:1", label="mine", device="cpu")
    cpu_words = engine.container_command(cpu, tmp_path, "m", {"http": 1, "grpc": 2, "metrics": 3})
    assert not any(word.startswith("--gpus") for word in cpu_words)


def test_a_container_has_the_options_of_the_user(tmp_path: Path) -> None:
    """They replace ours of the same name; on the network of the machine the server listens on our ports."""
    options = {"shm-size": ("2g",), "gpus": ("all",), "env": ("A=1", "B=2"), "network": ("host",)}
    made = engine.TritonContainer(image="image:1", label="mine", device="cuda:1", options=options)
    command = engine.container_command(made, tmp_path, "m", {"http": 1, "grpc": 2, "metrics": 3})
    before, after = command[: command.index("image:1")], command[command.index("image:1") :]

    assert [word for word in before if word.startswith(("--shm", "--gpus", "--env", "--network"))] == [
        "--shm-size=2g", "--gpus=all", "--env=A=1", "--env=B=2", "--network=host",
    ]  # fmt: skip
    assert not any(word.startswith("--publish") for word in before)
    assert {"--http-port=1", "--http-address=127.0.0.1"} <= set(after)
    with pytest.raises(RequestError, match="need launch=docker"), opened({"container.env.A": "1"}):
        pass


@pytest.mark.parametrize("container", engine.CONTAINERS)
def test_what_runs_containers_may_not_be_here(
    container: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Said before anything is started, with what to do."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with (
        pytest.raises(MissingExtra, match=f"{container} is not installed; install it"),
        opened({"launch": container}),
    ):
        pass


@pytest.mark.parametrize("container", engine.CONTAINERS)
def test_a_container_is_started_asked_about_and_ended(
    container: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a container engine that contains nothing: the words are ours, and our ports answer."""
    monkeypatch.setenv("MODELDYNO_ENGINES", str(tmp_path / "engines"))
    (tmp_path / "bin").mkdir()
    (tmp_path / "asked").mkdir()
    stand_in = tmp_path / "bin" / container
    stand_in.write_text(f'#!/bin/sh\nexec {sys.executable} {Path(__file__).parent / "fake_docker.py"} "$@"\n')
    stand_in.chmod(0o755)
    monkeypatch.setenv("PATH", f"{stand_in.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_DOCKER", str(tmp_path / "asked"))
    settings: dict[str, KnobValue] = {
        "launch": container, "image": "triton:mine", "runtime": "python", "instances": 2,
        "flags": "--log-verbose=1", "container.env.A": "1",
    }  # fmt: skip
    with opened(settings) as session:
        (record,) = (tmp_path / "asked").iterdir()
        pid, arguments = record.read_text().split("\n")
        assert session.pid == int(pid)
        assert session.account().requests == 4
        assert "--rm --init" in arguments
        assert " --env=A=1 " in arguments
        assert "triton:mine tritonserver --model-repository=/models" in arguments
        assert arguments.endswith("--log-verbose=1")
        assert "count: 2" in session.files[0][1]
    assert not Path(f"/proc/{pid}").exists()


@pytest.mark.engine
@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGKILL])
def test_a_real_container_is_measured_and_does_not_outlive_us(tmp_path: Path, signal_number: int) -> None:
    """It answers, its memory is seen, and it is gone a moment after who started it was interrupted or killed.

    MODELDYNO_TEST_IMAGE names what runs it and an image with a tritonserver and its Python backend, such as
    ``podman:localhost/triton``, in which Python has onnxruntime.
    """
    program, _, image = os.environ.get("MODELDYNO_TEST_IMAGE", "").partition(":")
    if not image:
        pytest.skip("MODELDYNO_TEST_IMAGE names no image")
    command = [
        sys.executable, "-m", "modeldyno", "load", str(DIGITS), "--backend", "triton", "--no-store",
        "--set", f"launch={program}", "--set", f"image={image}", "--set", "runtime=python",
        "--json", str(tmp_path / "result.json"),
    ]  # fmt: skip
    subprocess.run([*command, "--duration", "1s"], check=True, capture_output=True, timeout=120)
    result = json.loads((tmp_path / "result.json").read_text())
    memory = [m for m in result["measurements"] if m["metric"] == "process_memory"]

    def ours() -> str:
        command = [program, "ps", "--filter", "name=modeldyno-triton-", "--format", "{{.Names}}"]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout

    assert memory
    assert not ours()
    with subprocess.Popen([*command, "--duration", "60s"], stdout=subprocess.DEVNULL) as running:
        assert waited(lambda: bool(ours()), 60)
        running.send_signal(signal_number)
        assert waited(lambda: not ours(), 30)


def waited(done: Callable[[], bool], seconds: float) -> bool:
    """Ask again and again, for so long at most."""
    deadline = time.monotonic() + seconds
    while not (outcome := done()) and time.monotonic() < deadline:
        time.sleep(0.2)
    return outcome


class Remote(BaseHTTPRequestHandler):
    """A Triton that loads models on request, and has another's; `server.requests` is what it was asked."""

    def do_GET(self) -> None:
        """Tell its version."""
        self._answer(200, {"name": "triton", "version": "9.9"})

    def do_POST(self) -> None:
        """Load, unload, list."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        requests: list[tuple[str, Any]] = self.server.requests  # type: ignore[attr-defined]
        requests.append((self.path, body))
        if self.path.endswith("/index"):
            self._answer(200, [{"name": "other", "state": "READY"}, {"name": "cold", "state": "UNAVAILABLE"}])
        elif self.path.endswith("/load") and json.loads(body["parameters"]["config"])["backend"] != "python":
            self._answer(400, {"error": "unable to find backend library for backend 'onnxruntime'"})
        else:
            self._answer(200, {})

    def _answer(self, status: int, body: Any) -> None:
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@contextmanager
def remote() -> Iterator[tuple[str, list[tuple[str, Any]]]]:
    """A Triton elsewhere, and what it was asked."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Remote)
    server.daemon_threads = True
    server.requests = []  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", server.requests  # type: ignore[attr-defined]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_remote_triton_is_left_as_it_was_found() -> None:
    """The model is sent with its files, by the backend that the server has, and unloaded in the end."""
    model = digits()
    with remote() as (url, requests):
        with opened({"server": url, "instances": 3}, model) as session:
            assert session.pid is None
            assert session.software == {"triton": "9.9"}
            assert [doubt.code for doubt in session.doubts] == ["foreign-models"]
            assert "other" in session.doubts[0].seen
            assert "cold" not in session.doubts[0].seen
            name = session.endpoint.model
        assert name.startswith("modeldyno-digits-")
        paths = [path for path, _ in requests]
        load = f"/v2/repository/models/{name}/load"
        assert paths == ["/v2/repository/index", load, load, f"/v2/repository/models/{name}/unload"]
        parameters = requests[2][1]["parameters"]
        assert json.loads(parameters["config"])["instance_group"] == [{"count": 3, "kind": "KIND_CPU"}]
        assert base64.b64decode(parameters["file:1/model.onnx"]) == DIGITS.read_bytes()
        assert {"file:1/model.py", "file:1/runner.py"} <= set(parameters)


def test_a_remote_triton_that_loads_nothing() -> None:
    """Its words are told, with what it must be started with; nobody there is told as that."""
    with (
        remote() as (url, _),
        pytest.raises(RequestError, match=r"unable to find backend.*--model-control-mode=explicit"),
        opened({"server": url, "runtime": "onnxruntime"}),
    ):
        pass
    with pytest.raises(RequestError, match="No Triton answers"), opened({"server": "127.0.0.1:1"}):
        pass


@pytest.mark.engine
class TestReal(ServingSuite):
    name = "triton"

    @pytest.fixture
    def model(self) -> Model:
        """The classifier of the examples."""
        return digits()

    def feed(self, batch_size: int) -> Feed:
        """Give images."""
        return {"image": np.random.default_rng(0).random((batch_size, 1, 8, 8), dtype="float32")}


@pytest.mark.engine
class TestRealGrpc(TestReal):
    settings: ClassVar[dict[str, KnobValue]] = {"protocol": "grpc", "queue_delay": 2000, "instances": 2}


@pytest.mark.engine
def test_a_real_triton_runs_in_this_process(tmp_path: Path) -> None:
    """Its answers are those of ONNX Runtime, it counts them, and nothing of it is left."""
    image = np.random.default_rng(0).random((4, 1, 8, 8), dtype="float32")
    expected = onnxruntime.InferenceSession(DIGITS).run(None, {"image": image})[0]
    settings: dict[str, KnobValue] = {"launch": "in-process", "instances": 2}
    with opened(settings) as session, ThreadPoolExecutor(4) as pool:
        assert isinstance(session, InProcessSession)
        (call,) = session.calls([{"image": image}])
        answers = [answer.result()["scores"] for answer in [pool.submit(call) for _ in range(40)]]
        deadline = time.monotonic() + 5  # the server counts a request after its answer
        while session.account().requests < 40 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert session.account().requests == 40
        assert session.software == {"triton": "2.51.0"}
        (refused,) = session.calls([{"image": image[:, :, :4]}])
        with pytest.raises(RuntimeError, match="unexpected shape"):
            refused()
    assert all(np.allclose(answer, expected, atol=1e-5) for answer in answers)
    command = [
        sys.executable, "-m", "modeldyno", "load", str(DIGITS), "--backend", "triton", "--no-store",
        "--set", "launch=in-process", "--duration", "1s", "--json", str(tmp_path / "result.json"),
    ]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    result = json.loads((tmp_path / "result.json").read_text())
    assert {"queue_time", "compute_time"} <= {row["metric"] for row in result["measurements"]}
    broken = subprocess.run(
        [*command, "--set", "config.backend=no"], check=False, capture_output=True, text=True, timeout=120
    )
    assert broken.returncode == 4
    assert "unable to find backend library for backend 'no'" in " ".join(broken.stdout.split())


@pytest.mark.engine
@pytest.mark.parametrize("compression", ["gzip", "deflate"])
@pytest.mark.parametrize("protocol", ["http-binary", "http-json", "grpc"])
def test_compressed_requests_are_answered(protocol: str, compression: str) -> None:
    """Triton reads them, and answers over HTTP in the same compression."""
    with opened({"protocol": protocol, "compression": compression}) as session:
        reply = send_once(session.target([{"image": np.zeros((4, 1, 8, 8), "float32")}]))
        assert session.arrays(reply)["scores"].shape == (4, 10)
        assert (f"Content-Encoding: {compression}".lower() in reply.head.decode().lower()) == (
            protocol != "grpc"
        )


@pytest.mark.engine
@pytest.mark.parametrize("memory", ["system", "system-both"])
@pytest.mark.parametrize("protocol", ["http-binary", "http-json", "grpc"])
def test_tensors_lie_in_shared_memory(protocol: str, memory: str) -> None:
    """Triton answers as if they had been sent, each request its own, and the regions are gone afterwards."""
    images = [np.random.default_rng(seed).random((2, 1, 8, 8), dtype="float32") for seed in range(3)]
    feeds = [{"image": image} for image in images]
    with opened({"protocol": protocol}) as session:
        plain = [session.arrays(send_once(session.target(feeds), i))["scores"] for i in range(3)]
    before = {path.name for path in SHARED.iterdir()}
    with opened({"protocol": protocol, "shared_memory": memory}) as session:
        target = session.target(feeds)
        replies = [send_once(target, i) for i in range(3)]
        shared = [session.arrays(reply)["scores"] for reply in replies]
        if memory == "system-both":
            assert max(len(reply.body) for reply in replies) < shared[0].nbytes + 300
            assert all(shared[i].tobytes() not in reply.body for i, reply in enumerate(replies))
        assert max(map(len, target.messages)) < images[0].nbytes + 350
        assert {path.name for path in SHARED.iterdir()} > before

    assert np.allclose(plain, shared, rtol=1e-6)
    assert not np.array_equal(shared[0], shared[1])
    assert not {name for name in {path.name for path in SHARED.iterdir()} - before if name.startswith("psm_")}


@pytest.mark.engine
def test_two_models_of_one_triton_answer() -> None:
    """A second model is loaded by the server that has the first, and counted apart."""
    config = configure(plugins.backend("triton").knobs, {"protocol": "grpc", "max_batch": 4})
    with opened({}) as home, home.host(named("second"), config) as guest:
        for session in (home, guest, guest):
            reply = send_once(session.target([{"image": np.zeros((1, 1, 8, 8), "float32")}]))
            assert session.arrays(reply)["scores"].shape == (1, 10)
        end = time.monotonic() + 2
        while (counted := (home.account().requests, guest.account().requests)) != (1, 2):
            assert time.monotonic() < end, counted  # Triton counts a request after it has answered it


@pytest.mark.engine
def test_a_running_triton_loads_and_unloads() -> None:
    """A Triton that we start stands for one elsewhere: it loads the model, answers, and has it no more."""
    with opened({}) as home:
        url = f"http://127.0.0.1:{home.server.ports['http']}"
        with opened({"server": url, "grpc_port": home.server.ports["grpc"], "max_batch": 4}) as session:
            name = session.endpoint.model
            reply = send_once(session.target([{"image": np.zeros((1, 1, 8, 8), "float32")}]))
            assert session.arrays(reply)["scores"].shape == (1, 10)
            deadline = time.monotonic() + 5  # Triton counts a request after it has answered it
            while not session.account().requests and time.monotonic() < deadline:
                time.sleep(0.01)
            assert session.account().requests == 1
            assert [doubt.code for doubt in session.doubts] == ["foreign-models"]
            assert http_ready(home.server.ports["http"], f"/v2/models/{name}/ready")
        assert not http_ready(home.server.ports["http"], f"/v2/models/{name}/ready")
        assert http_ready(home.server.ports["http"], "/v2/models/digits/ready")


@pytest.mark.parametrize(
    ("knobs", "says"),
    [
        ({"env.2x": "1"}, "'2x' is no name of a variable"),
        ({"env.A": "1", "server": "http://h:8000"}, "omit it or server"),
        ({"env.A": "1", "launch": "in-process"}, "omit it or launch=in-process"),
    ],
)
def test_variables_are_of_a_server_that_is_started(knobs: dict[str, Any], says: str) -> None:
    """A name must be one, and a server that runs, or is within our process, has its own environment."""
    with pytest.raises(RequestError, match=says):
        triton.check(knobs)


def test_a_variable_of_the_server_is_added_to_ours() -> None:
    """Booleans as Triton reads them; what the server needs as it is cannot be set."""
    assert base.environment({"env.A": True, "env.B": 4, "device": "cpu"}, {"C": "c"}) == {
        "A": "true", "B": "4", "C": "c"
    }  # fmt: skip
    with pytest.raises(RequestError, match=r"sets C of the server itself; leave out env\.C"):
        base.environment({"env.C": "1"}, {"C": "c"})
