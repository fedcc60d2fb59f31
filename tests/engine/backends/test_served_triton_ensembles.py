"""Models of a repository that is there: read, changed by knobs, served with all that they are made of."""

from __future__ import annotations

import shutil
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pytest

from modeldyno.base import plugins
from modeldyno.base.errors import RequestError, UnknownName
from modeldyno.base.job.knob import KnobValue, configure
from modeldyno.base.job.model_ref import ModelRef
from modeldyno.base.metrics.measurement_plan import Plan
from modeldyno.profiling import request, resolve_model
from modeldyno.serving.backends import triton as triton_backend
from modeldyno.serving.backends import triton_ensembles, triton_remote
from modeldyno.serving.loadgen.single_request import send_once
from modeldyno.serving.servers import pbtxt, triton, triton_repository_reader
from modeldyno.testing.loaders import LoaderSuite

if TYPE_CHECKING:
    from modeldyno.models.interface import Model

TENSORS = """
input [ { name: "X" data_type: TYPE_FP32 dims: [ 2 ] } ]
output [ { name: "Y" data_type: TYPE_FP32 dims: [ 2 ] } ]
"""
PART = """backend: "python"
max_batch_size: 8
{tensors}
instance_group [ {{ count: 1 kind: KIND_CPU }} ]
dynamic_batching {{ max_queue_delay_microseconds: 100 }}
"""
ENSEMBLE = f"""# doubles, and then adds one
platform: "ensemble"
max_batch_size: 8
{TENSORS}
ensemble_scheduling {{
  step [
    {{ model_name: "double" model_version: -1
      input_map {{ key: "X" value: "X" }} output_map {{ key: "Y", value: "doubled" }} }},
    {{ model_name: "increment" model_version: -1
      input_map {{ key: "X" value: "doubled" }} output_map {{ key: "Y" value: "Y" }} }}
  ]
}}
"""
CODE = """
import triton_python_backend_utils as triton

class TritonPythonModel:
    def execute(self, requests):
        arrays = [triton.get_input_tensor_by_name(each, "X").as_numpy() for each in requests]
        return [triton.InferenceResponse([triton.Tensor("Y", {formula})]) for array in arrays]
"""


def repository(folder: Path) -> Path:
    """Make a repository of an ensemble, its two models, and one beside it."""
    for name, formula in {"double": "array * 2", "increment": "array + 1", "other": "array"}.items():
        (folder / name / "1").mkdir(parents=True)
        (folder / name / "config.pbtxt").write_text(PART.format(tensors=TENSORS))
        (folder / name / "1" / "model.py").write_text(CODE.format(formula=formula))
    (folder / "both" / "1").mkdir(parents=True)
    (folder / "both" / "config.pbtxt").write_text(ENSEMBLE)
    return folder


def nested(folder: Path) -> Path:
    """Make a repository whose ensemble `outer` runs the ensemble `both`, and then adds one again."""
    repository(folder)
    (folder / "outer" / "1").mkdir(parents=True)
    outer = ENSEMBLE.replace('model_name: "double"', 'model_name: "both"')
    (folder / "outer" / "config.pbtxt").write_text(outer)
    return folder


def loaded(folder: Path, name: str = "") -> Model:
    ref = ModelRef(scheme="repository", locator=f"{folder}#{name}" if name else str(folder))
    return plugins.loader("repository").load(ref, seed=0, trust=False)


def configured(folder: Path, settings: dict[str, KnobValue], name: str = "") -> dict[str, Any]:
    """Give the configurations that knobs lead to."""
    backend = plugins.backend("triton")
    config = configure(backend.knobs, settings)
    backend.check(config)
    return triton_ensembles.configurations(loaded(folder, name).value, config)


class TestRepository(LoaderSuite):
    scheme = "repository"
    forms = frozenset({"repository"})
    has_weights = False

    @pytest.fixture
    def ref(self, tmp_path: Path) -> ModelRef:
        """An ensemble."""
        return ModelRef(scheme="repository", locator=str(repository(tmp_path / "models")))

    @pytest.fixture
    def other(self, tmp_path: Path) -> ModelRef:
        """A single model."""
        return ModelRef(scheme="repository", locator=f"{repository(tmp_path / 'others')}#other")


def test_an_ensemble_within_an_ensemble_brings_the_models_of_both(tmp_path: Path) -> None:
    """And a knob of an inner model reaches it, whichever ensemble names it."""
    changed = configured(nested(tmp_path), {"composing.double.instances": "2"}, "outer")

    assert sorted(changed) == ["both", "double", "increment", "outer"]
    assert changed["double"]["instance_group"][0]["count"] == 2
    assert changed["increment"]["instance_group"][0]["count"] == 1


def test_an_ensemble_is_found_with_its_models(tmp_path: Path) -> None:
    """The only ensemble is meant where no model is named; its tensors and its parts are known."""
    model = loaded(repository(tmp_path))

    assert model.identity.name == "both"
    assert [(each.name, each.shape, each.dtype) for each in model.inputs] == [("X", ("batch", 2), "float32")]
    assert list(model.value.configs) == ["both", "double", "increment"]
    assert loaded(tmp_path, "other").identity.digest != model.identity.digest
    assert str(resolve_model.resolve_reference(f"{tmp_path}#other")) == f"repository:{tmp_path}#other"
    before = model.identity.digest
    (tmp_path / "double" / "1" / "model.py").write_text(CODE.format(formula="array * 3"))
    assert loaded(tmp_path).identity.digest != before


def test_knobs_change_what_they_name_and_nothing_else(tmp_path: Path) -> None:
    """Of a model that an ensemble is made of, by its name; of the model itself without one."""
    folder = repository(tmp_path)
    plain = configured(folder, {})
    configs = configured(
        folder,
        {
            "composing.double.instances": 3,
            "composing.double.queue_delay": 500,
            "composing.increment.dynamic_batching": "false",
            "composing.increment.config.instance_group.0.kind": "KIND_GPU",
            "config.ensemble_scheduling.step.0.model_version": "1",
        },
    )
    own = configured(folder, {"instances": 2, "max_batch": 4, "preferred_batch": "2,4"}, "other")["other"]

    assert plain == dict(loaded(folder).value.configs)
    assert configs["double"]["instance_group"] == [{"count": 3, "kind": "KIND_CPU"}]
    assert configs["double"]["dynamic_batching"] == {"max_queue_delay_microseconds": 500}
    assert "dynamic_batching" not in configs["increment"]
    assert configs["increment"]["instance_group"] == [{"count": 1, "kind": "KIND_GPU"}]
    assert configs["both"]["ensemble_scheduling"]["step"][0]["model_version"] == 1
    assert (own["instance_group"][0]["count"], own["max_batch_size"]) == (2, 4)
    assert own["dynamic_batching"] == {"max_queue_delay_microseconds": 100, "preferred_batch_size": [2, 4]}


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"instances": 2}, RequestError, "is an ensemble and has no instances of its own"),
        ({"composing.dubble.instances": 2}, UnknownName, "did you mean 'double'"),
        ({"composing.double.instancs": 2}, UnknownName, "did you mean 'instances'"),
        ({"composing.double.ports": "free"}, UnknownName, "no knob of the model 'double', 'ports'"),
        ({"composing.double.instances": 0}, RequestError, "from 1"),
        ({"composing.double.max_batch": 2, "composing.double.preferred_batch": "4"}, RequestError, "larger"),
    ],
)
def test_knobs_that_cannot_be(
    tmp_path: Path, settings: dict[str, KnobValue], error: type[Exception], message: str
) -> None:
    """They are refused in one sentence, most before a server is started."""
    with pytest.raises(error, match=message):
        configured(repository(tmp_path), settings)


def test_what_is_no_repository_is_told(tmp_path: Path) -> None:
    """A directory without models, a model that is not there, several of which none is named, no inputs."""
    with pytest.raises(RequestError, match="is not a model repository"):
        loaded(tmp_path)
    folder = repository(tmp_path)
    with pytest.raises(RequestError, match="has no model 'thrice' with a config"):
        loaded(folder, "thrice")
    (folder / "both" / "config.pbtxt").write_text("platform: @")
    with pytest.raises(RequestError, match=r"/config\.pbtxt' cannot be read: line 1 is not text protobuf"):
        loaded(folder, "both")
    (folder / "both" / "config.pbtxt").unlink()
    with pytest.raises(RequestError, match="has the models double, increment, other; choose one"):
        loaded(folder)
    (folder / "other" / "config.pbtxt").write_text('backend: "python"')
    with pytest.raises(RequestError, match="does not declare its inputs"):
        loaded(folder, "other")


def test_a_model_that_is_no_repository_has_no_parts(tmp_path: Path) -> None:
    """The knobs of parts are refused where there are none; called models must be there."""
    digits = Path(__file__).parents[3] / "examples" / "digits" / "digits.onnx"
    model = plugins.loader("onnx").load(ModelRef(scheme="onnx", locator=str(digits)), seed=0, trust=False)
    with pytest.raises(RequestError, match="models of a repository with composing models"):
        triton_ensembles.write_models(model, tmp_path, {"calls": "a"}, native=False)
    own = loaded(repository(tmp_path / "models"), "double").value
    assert list(own.with_called_models(["other"]).configs) == ["double", "other"]
    with pytest.raises(RequestError, match="has no model 'absent'"):
        own.with_called_models(["absent"])


@pytest.mark.parametrize(
    ("text", "config"),
    [
        ("", {}),
        ("a: 1 b: -2.5e1, c: true; d: WORD", {"a": 1, "b": -25.0, "c": True, "d": "WORD"}),
        ("a: 0x1F b: .5f c: 'x' \"y\"", {"a": 31, "b": 0.5, "c": "xy"}),
        (r'a: "q\"\n\101\x42\\"', {"a": 'q"\nAB\\'}),
        ("dims: 1 dims: [2, 3]", {"dims": [1, 2, 3]}),
        ("instance_group < count: 2 > instance_group { }", {"instance_group": [{"count": 2}, {}]}),
        (
            'parameters { key: "a" value: { string_value: "b" } }',
            {"parameters": {"a": {"string_value": "b"}}},
        ),
    ],
)
def test_the_text_of_a_configuration_is_read(text: str, config: dict[str, Any]) -> None:
    """Scalars, lists, messages and maps, however they are written."""
    assert pbtxt.parse_pbtxt(text) == config


@pytest.mark.parametrize("text", ["a: ", "a {", "{", "a: }", "a: [1", "1: 2", 'a: "x'])
def test_what_is_no_configuration_is_refused(text: str) -> None:
    """Nothing is guessed."""
    with pytest.raises(RequestError):
        pbtxt.parse_pbtxt(text)


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    """The writer and the reader agree."""
    for config in loaded(repository(tmp_path)).value.configs.values():
        assert pbtxt.parse_pbtxt(pbtxt.to_pbtxt(config)) == config


def test_entries_are_written_under_other_configurations(tmp_path: Path) -> None:
    """Files are links to the user's own, whose configuration stays as it is."""
    folder = repository(tmp_path / "models")
    ensemble = loaded(folder).value
    triton_repository_reader.write_repository(
        tmp_path / "made", ensemble, {**ensemble.configs, "double": {"name": "double"}}
    )

    assert sorted(path.name for path in (tmp_path / "made").iterdir()) == ["both", "double", "increment"]
    assert (tmp_path / "made" / "both" / "1").is_dir()
    file = Path("double") / "1" / "model.py"
    assert (tmp_path / "made" / file).samefile(folder / file)
    assert (tmp_path / "made" / "double" / "config.pbtxt").read_text() == 'name: "double"\n'
    assert "dynamic_batching" in (folder / "double" / "config.pbtxt").read_text()


def test_a_model_of_a_repository_is_copied_beside_its_configuration(tmp_path: Path) -> None:
    """Under the name of its directory with a suffix; the configuration that is there stays."""
    model = loaded(repository(tmp_path / "models"), "both")
    for name in ("both_3", "double_3"):
        entry = tmp_path / "out" / name
        entry.mkdir(parents=True)
        (entry / "config.pbtxt").write_text(f'name: "{name}"')
        plugins.backend("triton").deploy(model, f'name: "{name}"', entry)
        assert (entry / "config.pbtxt").read_text() == f'name: "{name}"'
    assert (tmp_path / "out" / "both_3" / "1").is_dir()
    copied = tmp_path / "out" / "double_3" / "1" / "model.py"
    original = tmp_path / "models" / "double" / "1" / "model.py"
    assert copied.read_text() == original.read_text()
    assert not copied.samefile(original)
    called = tmp_path / "out" / "other_default"  # a model that is only called by code
    plugins.backend("triton").deploy(model, "", called)
    assert (called / "1" / "model.py").is_file()
    with pytest.raises(RequestError, match="'elsewhere' is not named after a model of the repository"):
        plugins.backend("triton").deploy(model, "", tmp_path / "elsewhere")


def test_a_directory_that_may_be_either_of_two_models_is_refused(tmp_path: Path) -> None:
    """The model double_1, or the first configuration of double: a guess could be the wrong one."""
    folder = repository(tmp_path / "models")
    (folder / "double").rename(folder / "other_1")
    with pytest.raises(
        RequestError, match="'other_1' may be the model 'other_1' or a configuration of 'other'"
    ):
        plugins.backend("triton").deploy(loaded(folder, "other"), "", tmp_path / "other_1")


@pytest.mark.parametrize("backend_line", ['backend: "tensorrt"', 'platform: "tensorrt_plan"'])
def test_a_backend_that_the_server_lacks_is_told_before_it_is_started(
    tmp_path: Path, backend_line: str
) -> None:
    """Unless it lies beside the model."""
    folder = repository(tmp_path / "models")
    (folder / "double" / "config.pbtxt").write_text(
        PART.format(tensors=TENSORS).replace('backend: "python"', backend_line)
    )
    ensemble = loaded(folder, "double").value
    lacking = triton.TritonProgram(path="tritonserver", backends=tmp_path)
    with pytest.raises(RequestError, match="backend 'tensorrt', which tritonserver lacks; choose another"):
        triton_backend._need_backends(ensemble, lacking)
    (folder / "double" / "1" / "libtriton_tensorrt.so").write_bytes(b"")
    triton_backend._need_backends(ensemble, lacking)


DIGITS = Path(__file__).parents[3] / "examples" / "digits" / "digits.onnx"
ONNX_CONFIG = """platform: "onnxruntime_onnx"
default_model_filename: "net.onnx"
max_batch_size: 16
parameters { key: "intra_op_thread_count" value: { string_value: "2" } }
"""


def onnx_repository(folder: Path) -> Path:
    """Write a model without a configuration, and one whose configuration declares no tensors."""
    for name, version, file in (("bare", "1", "model.onnx"), ("named", "3", "net.onnx")):
        (folder / name / version).mkdir(parents=True)
        shutil.copy(DIGITS, folder / name / version / file)
    (folder / "named" / "config.pbtxt").write_text(ONNX_CONFIG)
    return folder


def test_a_configuration_is_completed_from_the_file(tmp_path: Path) -> None:
    """Backend, tensors and, where it says nothing, the batch that Triton would set."""
    pytest.importorskip("onnx")
    folder = onnx_repository(tmp_path)
    bare, named = (loaded(folder, name).value.config for name in ("bare", "named"))

    assert bare["backend"] == "onnxruntime"
    assert bare["max_batch_size"] == 4
    assert bare["input"] == [{"name": "image", "data_type": "TYPE_FP32", "dims": [1, 8, 8]}]
    assert bare["output"] == [{"name": "scores", "data_type": "TYPE_FP32", "dims": [10]}]
    assert (named["max_batch_size"], named["input"]) == (16, bare["input"])
    assert "backend" not in named
    assert loaded(folder, "bare").inputs[0].shape == ("batch", 1, 8, 8)


def test_our_runner_runs_what_the_server_lacks(tmp_path: Path) -> None:
    """In the Python backend, with the file and the threads of the configuration; and that is a doubt."""
    pytest.importorskip("onnx")
    model = loaded(onnx_repository(tmp_path / "models"), "named")
    (config,) = triton_ensembles.write_models(model, tmp_path / "made", {}, native=False)
    written = tmp_path / "made" / "named"

    assert config["backend"] == "python"
    assert config["parameters"] == {"file": {"string_value": "net.onnx"}, "threads": {"string_value": "2"}}
    assert not {"platform", "default_model_filename"} & config.keys()
    assert {path.name for path in (written / "3").iterdir()} == {"net.onnx", "model.py", "runner.py"}
    doubts = triton_ensembles.repository_doubts(model, [config])
    assert [doubt.code for doubt in doubts] == ["other-backend", "completed-config"]


def test_a_server_with_the_backend_runs_it_itself(tmp_path: Path) -> None:
    """Then only the completed configuration is a doubt; `runtime=python` asks for our runner."""
    pytest.importorskip("onnx")
    model = loaded(onnx_repository(tmp_path / "models"), "bare")
    native = triton_ensembles.write_models(model, tmp_path / "a", {}, native=True)
    overridden = triton_ensembles.write_models(model, tmp_path / "b", {"runtime": "python"}, native=True)

    assert [native[0]["backend"], overridden[0]["backend"]] == ["onnxruntime", "python"]
    assert [doubt.code for doubt in triton_ensembles.repository_doubts(model, native)] == ["completed-config"]


def test_a_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    """With its path."""
    pytest.importorskip("onnx")
    (tmp_path / "bare" / "1").mkdir(parents=True)
    (tmp_path / "bare" / "1" / "model.onnx").write_bytes(b"no")
    with pytest.raises(RequestError, match=r"model\.onnx is no ONNX file"):
        loaded(tmp_path, "bare")


@pytest.mark.engine
@pytest.mark.parametrize("name", ["bare", "named"])
def test_a_real_triton_runs_onnx_models_of_a_repository(tmp_path: Path, name: str) -> None:
    """Without a configuration, and without the backend; the answers are those of the file."""
    model = loaded(onnx_repository(tmp_path), name)
    backend = plugins.backend("triton")
    image = np.random.default_rng(0).random((2, 1, 8, 8), dtype="float32")
    direct = plugins.loader("onnx").load(ModelRef(scheme="onnx", locator=str(DIGITS)), seed=0, trust=False)
    with ExitStack() as stack:
        own, session = (
            cast("Any", stack.enter_context(backend.open(each, configure(backend.knobs, {}))))
            for each in (direct, model)
        )
        first, second = (
            each.arrays(send_once(each.target([{"image": image}])))["scores"] for each in (own, session)
        )
        assert "other-backend" in [doubt.code for doubt in session.doubts]

    assert np.allclose(first, second)


def counted(session: Any) -> int:
    """Give the requests of a server, which counts them a moment after it has answered."""
    deadline = time.monotonic() + 10
    while not (count := int(session.account().requests)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return count


class Control:
    """Answers like the admin interface of a Triton with an ensemble and another model."""

    def get(self, path: str) -> dict[str, Any]:
        """Answer with the statistics of all models, or with the instances of one."""
        if path.endswith("/config"):
            name = path.split("/")[3]
            groups = {
                "double": [{"count": 2, "kind": "KIND_CPU"}],
                "increment": [{"count": 1, "gpus": [0, 1]}],
            }
            return {"name": name, **({"instance_group": groups[name]} if name in groups else {})}
        assert path == "/v2/models/stats"
        queues = {"both": 0, "double": 10**9, "increment": 2 * 10**9, "other": 7 * 10**9}
        return {
            "model_stats": [
                {
                    "name": name,
                    "inference_stats": {
                        "success": {"count": 4},
                        "queue": {"ns": ns},
                        "compute_infer": {"ns": 5},
                    },
                }
                for name, ns in queues.items()
            ]
        }


def test_an_ensemble_has_the_statistics_of_each_of_its_models() -> None:
    """Its queue is the sum of theirs, which Triton does not add to it; that of a caller is its own."""
    control = cast("Any", Control())
    ensemble = {"name": "both", "platform": "ensemble"}
    parts = [{"name": "double"}, {"name": "increment"}]
    account = triton_remote.read_model_stats(control, [ensemble, *parts])

    assert account.requests == 4
    assert account.queue == pytest.approx(3.0)
    assert {name: each.queue for name, each in account.models.items()} == {"double": 1.0, "increment": 2.0}
    assert triton_remote.read_model_stats(control, [{"name": "other"}, *parts]).queue == pytest.approx(7.0)
    assert triton_remote.count_instances(control, [ensemble, *parts]) == {"": 4, "double": 2, "increment": 2}
    assert triton_remote.count_instances(control, [parts[0]]) == {"": 2}
    assert triton_remote.count_instances(control, [ensemble]) == {}


@pytest.mark.engine
def test_an_ensemble_is_served_with_the_knobs_of_its_models(tmp_path: Path) -> None:
    """A real Triton runs both models in a row, each with its instances; its account is the ensemble's."""
    made = request.Request(
        model=str(repository(tmp_path)),
        settings={"composing.double.instances": "2"},
        plan=Plan(),
    ).job()
    backend = plugins.backend(made.backend)
    with ExitStack() as stack:
        session: Any = stack.enter_context(backend.open(loaded(tmp_path), made.config))
        reply = send_once(session.target([{"X": np.ones((1, 2), "float32")}]))
        assert session.arrays(reply)["Y"].tolist() == [[3.0, 3.0]]
        assert counted(session) == 1
        assert [text.count("count: 2") for _, text in session.files] == [0, 1, 0]
        assert {name: each.requests for name, each in session.account().models.items()} == {
            "double": 1,
            "increment": 1,
        }
        assert session.instances == {"": 3, "double": 2, "increment": 1}


CALLING = """
import triton_python_backend_utils as triton

class TritonPythonModel:
    def execute(self, requests):
        return [triton.InferenceResponse([self.answer(request)]) for request in requests]

    def answer(self, request):
        value = triton.get_input_tensor_by_name(request, "X").as_numpy()
        for name in ("double", "increment"):
            call = triton.InferenceRequest(
                model_name=name, inputs=[triton.Tensor("X", value)], requested_output_names=["Y"]
            )
            value = triton.get_output_tensor_by_name(call.exec(), "Y").as_numpy()
        return triton.Tensor("Y", value)
"""


def calling(folder: Path) -> Path:
    """Make a repository of a model that calls two others in its code."""
    repository(folder)
    (folder / "caller" / "1").mkdir(parents=True)
    (folder / "caller" / "config.pbtxt").write_text(PART.format(tensors=TENSORS))
    (folder / "caller" / "1" / "model.py").write_text(CALLING)
    return folder


@pytest.mark.engine
def test_a_model_that_calls_others_by_code_is_served_with_their_knobs(tmp_path: Path) -> None:
    """A real Triton runs business logic and the two models that it calls, each with its instances."""
    calling(tmp_path)
    made = request.Request(
        model=f"{tmp_path}/#caller",
        settings={"calls": "double,increment", "composing.double.instances": "2"},
        plan=Plan(),
    ).job()
    backend = plugins.backend(made.backend)
    with ExitStack() as stack:
        session: Any = stack.enter_context(backend.open(loaded(tmp_path, "caller"), made.config))
        reply = send_once(session.target([{"X": np.ones((1, 2), "float32")}]))
        assert session.arrays(reply)["Y"].tolist() == [[3.0, 3.0]]
        several = [text for _, text in session.files if "count: 2" in text]
        assert ['name: "double"' in text for text in several] == [True]
