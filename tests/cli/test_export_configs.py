"""``--export-configs`` writes a model repository that another Triton can serve as it is."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.request import urlopen

import numpy as np
import pytest
from tests.engine.backends.test_served_triton_ensembles import CODE, calling, nested, repository

from modeldyno.base import plugins
from modeldyno.engine.interfaces.request_target import Endpoint
from modeldyno.serving.loadgen.single_request import send_once
from modeldyno.serving.servers import tcp_ports, triton
from modeldyno.serving.servers.server_process import Launch, http_ready, run_server

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    class Said(Protocol):
        code: int
        out: str
        err: str


MODEL = str(Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx")


@pytest.mark.engine
def test_another_triton_takes_what_was_written(modeldyno: Callable[..., Said], tmp_path: Path) -> None:
    """A fresh server that gets only the directory loads every entry, and all give the same answer."""
    outcome = modeldyno(
        "sweep", MODEL, "--backend", "triton", "--space", "instances=1,2", "--set", "queue_delay=500",
        "-c", "2", "--strategy", "grid", "--max-trials", "3", "--trial-time", "1s", "--min-time", "0.2s",
        "--export-configs", "out", "--json", "study.json",
    )  # fmt: skip
    assert outcome.code in {0, 5}, outcome.err
    assert "The model is beside each" in outcome.out
    entries = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert "digits_default" in entries
    assert json.loads((tmp_path / "study.json").read_text())

    image = {"image": np.random.default_rng(0).random((3, 1, 8, 8), dtype="float32")}
    with run_server(plain(tmp_path / "out", entries)) as server:
        answers = []
        for name in entries:
            endpoint = Endpoint(host=tcp_ports.LOOPBACK, port=server.ports["http"], model=name)
            client = plugins.client("kserve-http")
            answers.append(client.arrays(send_once(client.target([image], endpoint)))["scores"])
    assert answers[0].shape == (3, 10)
    for answer in answers[1:]:
        np.testing.assert_allclose(answer, answers[0], rtol=1e-5)


@pytest.mark.engine
def test_another_triton_takes_an_ensemble_that_was_written(
    modeldyno: Callable[..., Said], tmp_path: Path
) -> None:
    """Every configuration of an ensemble runs beside the others, each with models of its own.

    One instance, which its configuration says, is the default: there are two configurations.
    """
    repository(tmp_path / "models")
    outcome = sweep_composed(modeldyno, "models/#both")
    assert outcome.code in {0, 5}, outcome.err
    assert "The model is beside each" in outcome.out
    entries = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert len(entries) == 6
    written = sorted(name for name in entries if name.startswith("both_"))
    assert written == ["both_1", "both_default"]
    with run_server(plain(tmp_path / "out", entries)) as server:
        assert [ask(server.ports["http"], name) for name in written] == [3.0, 3.0]
        assert instances(server.ports["http"], "double_1") == 2


@pytest.mark.engine
def test_another_triton_takes_an_ensemble_within_an_ensemble(
    modeldyno: Callable[..., Said], tmp_path: Path
) -> None:
    """Knobs reach the models of the inner one, and each entry runs models of its own number."""
    nested(tmp_path / "models")
    outcome = sweep_composed(modeldyno, "models/#outer")
    assert outcome.code in {0, 5}, outcome.err
    entries = sorted(path.name for path in (tmp_path / "out").iterdir())
    written = sorted(name for name in entries if name.startswith("outer_"))
    assert written == ["outer_1", "outer_default"]
    assert {"both_1", "double_1", "increment_1"} < set(entries)
    with run_server(plain(tmp_path / "out", entries)) as server:
        assert [ask(server.ports["http"], name) for name in written] == [4.0, 4.0]
        assert instances(server.ports["http"], "double_1") == 2


@pytest.mark.engine
def test_another_triton_takes_a_model_that_calls_others_by_code(
    modeldyno: Callable[..., Said], tmp_path: Path
) -> None:
    """Each configuration is a repository, as code names the models that it calls."""
    calling(tmp_path / "models")
    outcome = sweep_composed(modeldyno, "models/#caller", "--set", "calls=double,increment")
    assert outcome.code in {0, 5}, outcome.err
    written = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert written == ["caller_1", "caller_2", "caller_default"]
    assert "tritonserver --model-repository=out/caller_" in outcome.out
    with run_server(plain(tmp_path / "out" / "caller_2", ["caller", "double", "increment"])) as server:
        assert ask(server.ports["http"], "caller") == 3.0
        assert instances(server.ports["http"], "double") == 2


@pytest.mark.engine
def test_what_was_promised_of_an_export_holds_where_it_is_served(
    modeldyno: Callable[..., Said], tmp_path: Path
) -> None:
    """An ensemble with a tensor called 308 holds the bound of its sweep where the page says to serve it."""
    ensemble_of_308(tmp_path / "models")
    bounds = ("--require", "latency.p50 <= 50ms")
    outcome = modeldyno(
        "sweep", "models/#ocr", "--backend", "triton", "--space", "composing.net.instances=1,2", "-c", "2",
        "--strategy", "grid", "--max-trials", "3", "--trial-time", "2s", *bounds, "--export-configs", "out",
    )  # fmt: skip
    assert outcome.code in {0, 5}, outcome.err
    assert "Triton can serve out as it is" in outcome.out
    entries = sorted(path.name for path in (tmp_path / "out").iterdir())
    best = next(name for name in entries if name.startswith("ocr_") and "default" not in name)

    with run_server(started_by_page(tmp_path / "out", entries)) as server:
        url = f"http://127.0.0.1:{server.ports['http']}#{best}"
        served = modeldyno("load", url, "-c", "2", "--max-time", "4s", *bounds)
    assert served.code == 0, served.out + served.err
    assert "held" in served.out


def ensemble_of_308(folder: Path) -> None:
    """Write the repository: ``pre`` halves in Python, ``net`` doubles in ONNX, ``ocr`` runs both."""
    onnx = pytest.importorskip("onnx")
    value, helper = onnx.helper.make_tensor_value_info, onnx.helper
    graph = helper.make_graph(
        [helper.make_node("Add", ["input.1", "input.1"], ["308"])],
        "net",
        [value("input.1", onnx.TensorProto.FLOAT, ["batch", 2])],
        [value("308", onnx.TensorProto.FLOAT, ["batch", 2])],
    )
    net = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    tensor = '{{ name: "{}" data_type: TYPE_FP32 dims: [ 2 ] }}'
    configs = {
        "pre": ("backend: 'python'", "X", "Y"),
        "net": ("backend: 'onnxruntime'", "input.1", "308"),
        "ocr": (
            """platform: 'ensemble' ensemble_scheduling { step [
            { model_name: 'pre' model_version: -1
              input_map { key: 'X', value: 'RAW' } output_map { key: 'Y', value: 'half' } },
            { model_name: 'net' model_version: -1
              input_map { key: 'input.1', value: 'half' } output_map { key: '308', value: 'TEXT' } } ] }""",
            "RAW",
            "TEXT",
        ),
    }
    for name, (head, source, target) in configs.items():
        (folder / name / "1").mkdir(parents=True)
        (folder / name / "config.pbtxt").write_text(
            f"{head} max_batch_size: 8 input {tensor.format(source)} output {tensor.format(target)}"
        )
    (folder / "pre" / "1" / "model.py").write_text(CODE.format(formula="array / 2"))
    (folder / "net" / "1" / "model.onnx").write_bytes(net.SerializeToString())


def started_by_page(repository: Path, entries: list[str]) -> Launch:
    """Return the start of the server by ``modeldyno engine run triton``."""
    launch, modeldyno = plain(repository, entries), str(Path(sys.executable).with_name("modeldyno"))

    def command(folder: Path, chosen: dict[str, int]) -> list[str]:
        _, *arguments = launch.command(folder, chosen)
        return [modeldyno, "engine", "run", "triton", "--", "tritonserver", *arguments]

    return replace(launch, command=command, environment={})


def sweep_composed(modeldyno: Callable[..., Said], model: str, *options: str) -> Said:
    """Sweep over the instances of one of its models, and export all."""
    return modeldyno(
        "sweep", model, *options, "--space", "composing.double.instances=1,2", "-c", "2", "--strategy",
        "grid", "--max-trials", "3", "--trial-time", "1s", "--min-time", "0.2s", "--maximize", "throughput",
        "--export-configs", "out",
    )  # fmt: skip


def ask(port: int, name: str) -> float:
    """Send a one to a model; give the first number of its answer."""
    client = plugins.client("kserve-http")
    endpoint = Endpoint(host=tcp_ports.LOOPBACK, port=port, model=name)
    payload = {"X": np.ones((1, 2), dtype="float32")}
    return float(client.arrays(send_once(client.target([payload], endpoint)))["Y"][0, 0])


def instances(port: int, name: str) -> int:
    """Ask a server how many instances of a model it runs."""
    with urlopen(f"http://{tcp_ports.LOOPBACK}:{port}/v2/models/{name}/config") as reply:
        return sum(group["count"] for group in json.load(reply)["instance_group"])


def plain(repository: Path, entries: list[str]) -> Launch:
    """Return the start of a tritonserver by a user: on a repository, with all of its models."""
    program = triton.find_tritonserver()

    def command(folder: Path, chosen: dict[str, int]) -> list[str]:
        return [
            program.path, f"--model-repository={repository}", f"--backend-directory={program.backends}",
            f"--backend-config=python,shm-region-prefix-name={folder.name}",
            *(f"--{part}-address={tcp_ports.LOOPBACK}" for part in ("http", "grpc", "metrics")),
            *(f"--{part}-port={chosen[part]}" for part in ("http", "grpc", "metrics")),
        ]  # fmt: skip

    return Launch(
        name="triton",
        command=command,
        ports=dict.fromkeys(("http", "grpc", "metrics"), 0),
        ready=lambda chosen: all(http_ready(chosen["http"], f"/v2/models/{name}/ready") for name in entries),
        environment=program.environment,
        grace=0.0,
    )
