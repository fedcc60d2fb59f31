"""A registered name stands for its version in every command, with the inputs that it was registered with."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

import modeldyno
from modeldyno.base.errors import RequestError, StoreError, UnknownName
from modeldyno.base.job.input_spec import BATCH, InputSpec
from modeldyno.base.job.version_name import SOURCE
from modeldyno.base.metrics.measurement_plan import Plan
from modeldyno.base.yaml_file import parse_yaml_text
from modeldyno.comparison.baseline import measure_checkout, possible_names
from modeldyno.comparison.history import trend_of
from modeldyno.conversion.request import ConversionRequest
from modeldyno.engine.runtime.session import RunSession
from modeldyno.exchange.views.job_text import job_text
from modeldyno.profiling.request import Request
from modeldyno.profiling.resolve_model import names_model, resolve_model, resolve_reference
from modeldyno.profiling.views.rerun_command import rerun_command_line
from modeldyno.registry import execute, weights
from modeldyno.registry.changes import change_alias
from modeldyno.registry.records.records import Measure
from modeldyno.registry.register import Registration, read_registration, register
from modeldyno.sweeps.build import build_study
from modeldyno.sweeps.views.sweep_command import sweep_command
from modeldyno.testing.sample_results import a_result

if TYPE_CHECKING:
    from modeldyno.registry.interface import Registry
    from modeldyno.registry.records.records import Version

DIGITS = Path(__file__).parents[2] / "examples" / "digits"
IMAGES = InputSpec(name="image", shape=(BATCH, 1, 8, 8))


@pytest.fixture
def digits(registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Version:
    """The digit classifier, whose file is gone since it was registered."""
    monkeypatch.chdir(tmp_path)
    path = shutil.copy(DIGITS / "digits.onnx", tmp_path / "first.onnx")
    version = register(Registration(model=str(path), name="digits", inputs=("image=batchx1x8x8",)), registry)
    Path(path).unlink()
    return version.version


@pytest.mark.parametrize("word", ["digits", "digits/1", "digits@champion", "digits/1 source"])
def test_it_is_the_file_that_was_kept(digits: Version, registry: Registry, word: str) -> None:
    change_alias(registry, "digits/1", "champion")
    model = resolve_model(word)

    assert Path(model.ref.locator).read_bytes() == (DIGITS / "digits.onnx").read_bytes()
    assert (model.name, model.inputs) == ("digits", (IMAGES,))
    assert digits.measured_with == (IMAGES,)


@pytest.mark.parametrize("word", ["digits", "digits/1", "digits@champion", "digits/1 source"])
def test_it_keeps_the_name_that_goes_on_meaning_it(digits: Version, registry: Registry, word: str) -> None:
    """A number is never given again; the newest version and an alias may become another."""
    change_alias(registry, digits.name, "champion")
    job = Request(model=word, settings={}, plan=Plan()).job()

    assert job.model.registered == "digits/1"
    assert rerun_command_line(a_result(job=replace(job, inputs=(), config={}))) == (
        "modeldyno profile digits/1 --backend onnxruntime"
    )
    assert Request(model=job.model.argument, settings={}, plan=Plan()).job() == job
    assert yaml.safe_load(job_text(a_result(job=job)))["model"] == "digits/1"


def test_a_sweep_of_it_names_it(digits: Version) -> None:
    study, _ = build_study(parse_yaml_text(f"model: {digits.name}\nspace: {{batch_size: [1, 4]}}", "s.yaml"))

    assert study.name == "digits"
    assert sweep_command(study).startswith("modeldyno sweep digits/1 --backend onnxruntime --space")
    assert yaml.safe_load(job_text(study))["model"] == "digits/1"
    assert "name" not in yaml.safe_load(job_text(study))


def test_a_gate_knows_its_baseline_by_the_name_of_the_model(digits: Version, tmp_path: Path) -> None:
    job = Request(model=digits.name, settings={}, plan=Plan()).job()

    assert possible_names(job) == ("digits",)
    with pytest.raises(RequestError, match="digits/1 is a registered model, which no checkout has"):
        measure_checkout(tmp_path, job, RunSession(execute=never))


def never(*_: object, **__: object) -> Any:
    """Measure nothing."""
    raise AssertionError


@pytest.mark.parametrize("word", ["digits", "digits/1", "digits@champion", "digits/1 onnx"])
def test_the_history_of_a_version_is_that_of_its_model(digits: Version, word: str) -> None:
    modeldyno.inspect(digits.name, progress=False)

    assert trend_of(word, metric="macs").name == "digits"


@pytest.mark.parametrize("word", ["digits/1", "digits"])
def test_a_request_for_it_has_its_inputs_unless_others_are_given(digits: Version, word: str) -> None:
    job = Request(model=word, settings={}, plan=Plan()).job()
    other = Request(model=word, settings={}, plan=Plan(), inputs=("image=2x1x8x8",), name="mine").job()
    converted = ConversionRequest(model=word, to=("torchscript",)).resolve()[0]

    assert (job.name, job.inputs) == (digits.model, (IMAGES,))
    assert (other.name, other.inputs[0].shape) == ("mine", (2, 1, 8, 8))
    assert (converted.name, converted.inputs) == ("digits", (IMAGES,))


def test_a_file_of_that_name_comes_first(digits: Version, tmp_path: Path) -> None:
    shutil.copy(DIGITS / "digits.onnx", tmp_path / digits.model)

    assert resolve_reference("digits").locator == "digits"


def test_a_version_or_variant_that_is_not_there_is_refused(digits: Version) -> None:
    with pytest.raises(RequestError, match=r"digits has no version 2"):
        resolve_reference("digits/2")
    with pytest.raises(UnknownName, match="no usable variant of digits/1 'onxn'"):
        resolve_reference(f"{digits.name} onxn")
    with pytest.raises(UnknownName, match="no alias of digits 'none'"):
        resolve_reference("digits@none")
    with pytest.raises(RequestError, match=r"There is no file or directory 'other/1'"):
        resolve_reference("other/1")


def test_a_kept_file_that_was_changed_is_never_measured(digits: Version, registry: Registry) -> None:
    for blob in Path(weights.place(registry.weights)).rglob("*"):
        if blob.is_file():
            blob.chmod(0o644)
            blob.write_bytes(blob.read_bytes()[:-1] + b"?")

    with pytest.raises(StoreError, match="is damaged: its digest is wrong"):
        resolve_reference(digits.name)


def test_a_document_of_the_name_comes_before_a_model_without_a_number(digits: Version) -> None:
    assert names_model("digits")
    modeldyno.inspect(digits.name, tags="digits", progress=False)

    assert not names_model("digits")
    assert names_model("digits/1")


def test_its_figures_are_taken_with_its_inputs(digits: Version, registry: Registry) -> None:
    """A worker's request has them, so that a model which declares no sizes can be measured."""
    (variant,) = [each for each in registry.variants(digits) if each.recipe == SOURCE]
    ref = resolve_reference(digits.name)
    request = execute._request(digits, variant, ref, Measure(probes=("latency",)), "cpu")
    assert (request.inputs, request.job().model.registered) == ((IMAGES,), "digits/1")


def test_inputs_may_be_added_until_there_are_figures(registry: Registry, model: Path) -> None:
    """Registered again with them, the same version has them."""
    first = register(Registration(model=str(model)), registry)
    again = register(Registration(model=str(model), inputs=("x=8x4",)), registry)

    assert (first.version.measured_with, again.new) == ((), False)
    assert [spec.shape for spec in again.version.measured_with] == [(8, 4)]


INPUTS: dict[str, Any] = {
    "[image=batchx1x8x8]": (IMAGES,),
    "image=batchx1x8x8": (IMAGES,),
    "[{name: image, shape: [-1, 1, 8, 8], dtype: TYPE_FP32, format: FORMAT_NCHW}]": (
        InputSpec(name="image", shape=(BATCH, 1, 8, 8), dtype="float32"),
    ),
    "[{name: ids, shape: [4], dtype: INT64}, mask=4]": (
        InputSpec(name="ids", shape=(4,), dtype="int64"),
        InputSpec(name="mask", shape=(4,)),
    ),
}


@pytest.mark.parametrize("text", INPUTS)
def test_inputs_stand_in_a_file_in_our_words_or_those_of_modelci(tmp_path: Path, text: str) -> None:
    path = tmp_path / "model.yaml"
    path.write_text(f"model: net.onnx\ninputs: {text}\n", encoding="utf-8")

    assert read_registration(path, {}).inputs == INPUTS[text]


@pytest.mark.parametrize("text", ["{name: x}", "{name: x, dtype: INT64}", "{shape: [1], name: x, rest: 1}"])
def test_a_table_of_an_input_has_a_name_and_a_shape(tmp_path: Path, text: str) -> None:
    path = tmp_path / "model.yaml"
    path.write_text(f"model: net.onnx\ninputs: [{text}]\n", encoding="utf-8")
    if "shape" in text:  # what else is said of it, such as ModelCI's format, does no harm
        assert read_registration(path, {}).inputs
        return

    with pytest.raises(RequestError, match="a table, such as"):
        read_registration(path, {})


def test_wrong_inputs_are_refused_before_anything_is_loaded(registry: Registry, model: Path) -> None:
    with pytest.raises(RequestError, match=r"There is no file none\.npz; check the path of the input"):
        register(Registration(model=str(model), inputs=("x=none.npz",)), registry)
    with pytest.raises(RequestError, match="'float33' is not one of"):
        register(Registration(model=str(model), inputs=("x=4:float33",)), registry)


def test_functions_take_the_version_that_was_found(digits: Version) -> None:
    """As `retrieve` returns it; `Profiler` serves it by its name."""
    (version,) = modeldyno.registry.retrieve("digits")
    result = modeldyno.inspect(version, store=False, progress=False)
    profiler = modeldyno.compat.Profiler(version)

    assert result.model is not None
    assert result.model.digest.partition(":")[2] == digits.digest.partition(":")[2]
    assert result.name == "digits"
    assert profiler.model_info == {"name": "digits", "path": "digits/1", "engine": "onnx"}
    assert profiler._path == "digits/1"
