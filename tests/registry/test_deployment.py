"""The deployment of an answer: Triton's folder, and KServe's InferenceService."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from tests.support.sample_registry import a_figure, a_target, a_variant, a_version

import modeldyno
from modeldyno.base import plugins
from modeldyno.base.errors import MissingExtra, RequestError, UnknownName
from modeldyno.base.identity import new_identity
from modeldyno.base.job.model_ref import ModelRef
from modeldyno.base.result.result import Artifact
from modeldyno.registry import weights
from modeldyno.registry.deployment import check_deployment, write_deployment
from modeldyno.registry.records.answer import AnswerState
from modeldyno.registry.records.policy import profile_task
from modeldyno.registry.records.records import FigureState, Measure
from modeldyno.serving.servers import triton
from modeldyno.serving.servers.server_process import Launch, http_ready, run_server
from modeldyno.testing.sample_results import a_result

if TYPE_CHECKING:
    from collections.abc import Callable

    from modeldyno.registry.interface import Registry

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"


@pytest.fixture
def measured(registry: Registry) -> Callable[..., None]:
    """Give a function that registers the digits with one fresh figure."""

    def measure(
        batch: int = 8,
        backend: str = "onnxruntime",
        artifacts: tuple[Artifact, ...] = (),
        state: FigureState = FigureState.FRESH,
        reference: str = "",
        **settings: Any,
    ) -> None:
        ref = ModelRef(scheme="onnx", locator=str(DIGITS))
        digest = plugins.loader("onnx").load(ref, seed=0, trust=False).identity.digest
        files = weights.keep([DIGITS], DIGITS.parent, weights.place(registry.weights))
        kept = {"reference": f"onnx:{DIGITS}", "digest": digest, "files": files, "entry": DIGITS.name}
        elsewhere = {"reference": reference, "digest": "", "trust": True}
        version, _ = registry.add_version(a_version("Digits", **(elsewhere if reference else kept)))
        variant = a_variant(version)
        registry.put_variant(variant, "me")
        registry.put_target(a_target())
        config = {"batch_size": batch, **settings}
        what = Measure(probes=("latency", "throughput"), settings=config)
        result = a_result(samples=[0.002] * 3000, artifacts=artifacts, doubts=(), **new_identity())
        result = replace(result, job=replace(result.job, backend=backend, config=config))
        with plugins.store() as store:
            store.put(result, headline="")
        task = profile_task(variant, what, a_target().id, priority=1)
        registry.put_figures(
            [a_figure(task, result=result.id, taken=result.created, software={}, state=state, why="")]
        )

    return measure


def answered(**options: Any) -> str:
    """Export the answer to Triton; return the configuration."""
    folder = Path(options.pop("output"))
    modeldyno.registry.answer("Digits", "latency.p50 <= 20ms", export="triton", output=folder, **options)
    return (folder / "Digits" / "config.pbtxt").read_text()


def test_a_batch_that_was_measured_is_gathered_by_triton(
    measured: Callable[..., None], tmp_path: Path
) -> None:
    measured(batch=8)

    text = answered(output=tmp_path / "out")

    assert text.startswith("# Digits/1 as source, batch 8 on here; modeldyno show ")
    assert 'name: "Digits"\nbackend: "onnxruntime"\nmax_batch_size: 8\n' in text
    assert "dynamic_batching {\n  preferred_batch_size: [8]\n}" in text
    assert "instance_group {\n  count: 1\n  kind: KIND_CPU\n}" in text
    assert (tmp_path / "out" / "Digits" / "1" / "model.onnx").read_bytes() == DIGITS.read_bytes()


def test_kserve_gets_as_many_replicas_as_the_answer_has(
    measured: Callable[..., None], tmp_path: Path
) -> None:
    measured(batch=1)

    answer = modeldyno.registry.answer(
        "Digits", demand="1000000/s", export="kserve", output=tmp_path / "out", storage="s3://bucket/models"
    )

    assert answer.best is not None
    service = yaml.safe_load((tmp_path / "out" / "inferenceservice.yaml").read_text())
    predictor = service["spec"]["predictor"]
    assert (service["apiVersion"], service["kind"]) == ("serving.kserve.io/v1beta1", "InferenceService")
    assert service["metadata"]["name"] == "digits"
    assert predictor["minReplicas"] == predictor["maxReplicas"] == answer.best.replicas
    assert answer.best.replicas is not None
    assert answer.best.replicas > 1
    assert predictor["model"]["storageUri"] == "s3://bucket/models"
    text = (tmp_path / "out" / "repository" / "Digits" / "config.pbtxt").read_text()
    assert "max_batch_size: 1\n" in text
    assert "dynamic_batching" not in text


def test_what_triton_was_measured_with_is_written_as_it_was(
    measured: Callable[..., None], tmp_path: Path
) -> None:
    text = 'name: "model-7"\nbackend: "onnxruntime"\nmax_batch_size: 16\ninstance_group { count: 3 }\n'
    artifact = Artifact(name="config.pbtxt", path="", digest="", text=text)
    measured(backend="triton", artifacts=(artifact,))

    written = answered(output=tmp_path / "out")

    assert written.partition("\n")[2] == text.replace("model-7", "Digits")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"state": FigureState.DOUBTFUL}, "Nothing is written: the answer is unknown"),
        ({"backend": "torchserve"}, "was measured on torchserve, whose figures say nothing of Triton"),
        ({"backend": "triton"}, "served as 0 models of a repository"),
        ({"spin": 1}, "measured with spin, which a configuration of Triton does not express"),
    ],
)
def test_what_is_no_deployment_is_refused_and_leaves_nothing(
    measured: Callable[..., None], tmp_path: Path, options: dict[str, Any], sentence: str
) -> None:
    measured(**options)

    with pytest.raises(RequestError, match=sentence):
        answered(output=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_form_that_triton_cannot_load_is_refused(measured: Callable[..., None], tmp_path: Path) -> None:
    script = tmp_path / "doubling.py"
    script.write_text("def doubled(x):\n    return 2 * x\n")
    measured(reference=f"call:{script}:doubled")

    with pytest.raises(RequestError, match="The backend 'triton' cannot serve call models"):
        answered(output=tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"export": None, "output": "x"}, "say where a deployment goes"),
        ({"export": "kserve"}, "give the one where the repository will be"),
        ({"export": "triton", "storage": "s3://x"}, "`storage` is for"),
        ({"export": "triton", "output": str(DIGITS.parent)}, "is there already"),
    ],
)
def test_words_that_do_not_fit_are_refused_before_anything_is_asked(
    options: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(RequestError, match=sentence):
        check_deployment(**{"output": None, "storage": None, **options})
    with pytest.raises(UnknownName, match="no format of a deployment 'docker'"):
        check_deployment("docker", None, None)


def test_without_an_answer_python_says_so_too(measured: Callable[..., None]) -> None:
    measured(state=FigureState.DOUBTFUL)

    assert modeldyno.registry.answer("Digits").state is AnswerState.UNKNOWN


@pytest.mark.parametrize("has", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_backend_that_the_triton_here_lacks_is_told(
    measured: Callable[..., None],
    registry: Registry,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    has: bool,
) -> None:
    """Where there is none at all, nothing is said of it."""
    measured()
    if has:
        (tmp_path / "onnxruntime").mkdir()
        (tmp_path / "onnxruntime" / "libtriton_onnxruntime.so").touch()
    program = triton.TritonProgram(path="tritonserver", backends=tmp_path)
    answer = modeldyno.registry.answer("Digits")

    def notes(folder: str) -> tuple[str, ...]:
        return write_deployment(registry, answer, export="triton", output=tmp_path / folder).notes[1:]

    monkeypatch.setattr(triton, "find_tritonserver", lambda: program)
    assert [note[:42] for note in notes("a")] == ["It needs Triton's backend 'onnxruntime', w"] * (not has)
    monkeypatch.setattr(triton, "find_tritonserver", none_here)
    assert notes("b") == ()


def none_here() -> triton.TritonProgram:
    """Find no Triton."""
    raise MissingExtra("Triton is not installed.")


@pytest.mark.engine
@pytest.mark.parametrize("measured_on", ["triton", "onnxruntime"])
def test_a_real_triton_loads_the_deployment_and_holds_under_load(
    measured: Callable[..., None], tmp_path: Path, measured_on: str
) -> None:
    """With the configuration that was measured on it, or that a batch in a process leads to."""
    program = triton.find_tritonserver()
    if measured_on != "triton" and not program.has(measured_on):
        pytest.skip(f"this Triton lacks the backend {measured_on}, as the deployment says")
    if measured_on == "triton":
        served = modeldyno.load(
            DIGITS, backend="triton", concurrency=2, requests=50, max_batch=4, queue_delay=500, store=False
        )
        config = {name: value for name, value in served.job.config.items() if name != "batch_size"}
        measured(backend="triton", artifacts=served.artifacts, **config)
    else:
        measured(batch=8)
    text = answered(output=tmp_path / "out")
    assert f"max_batch_size: {4 if measured_on == 'triton' else 8}" in text

    launch = Launch(
        name="triton",
        command=lambda _folder, ports: triton.tritonserver_command(
            program, tmp_path / "out", "Digits", ports
        ),
        ports={"http": 0, "grpc": 0, "metrics": 0},
        ready=lambda ports: http_ready(ports["http"], "/v2/models/Digits/ready"),
        environment=program.environment,
        grace=0.0,
    )
    with run_server(launch) as server:
        url = f"http://127.0.0.1:{server.ports['http']}#Digits"
        result = modeldyno.load(url, concurrency=8, requests=400, store=False)

    assert result.failure is None
    requests = {
        m.scope: m.value
        for m in result.measurements
        if m.metric == "requests" and isinstance(m.value, int | float)
    }
    assert requests.pop("ok") >= 400
    assert not any(requests.values())
