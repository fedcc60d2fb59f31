"""Scripts written for ModelCI run on this registry, with other imports."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from sqlalchemy import event
from sqlalchemy.engine import Engine as DatabaseEngine
from tests.support.sample_registry import a_variant, a_version

import modeldyno
from modeldyno.base.errors import RequestError, UnknownName
from modeldyno.compat import modelci
from modeldyno.compat.modelci import Engine, Framework, IOShape, Metric, ModelInputFormat, ModelVersion, Task
from modeldyno.registry import api
from modeldyno.registry.records.records import VariantState, is_run_by

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from modeldyno.registry.interface import Registry


def test_a_registration_as_modelci_writes_it(registry: Registry, model: Path) -> None:
    """The second listing of its page: a path, enumerations, shapes; then all that finds it again."""
    (version,) = modelci.register_model(
        model,
        dataset="ImageNet",
        metric={Metric.ACC: 0.76},
        task=Task.IMAGE_CLASSIFICATION,
        inputs=[IOShape([-1, 3, 224, 224], float, "x", ModelInputFormat.FORMAT_NCHW)],
        outputs=[IOShape([-1], int, name="label")],
        architecture="ResNet50",
        framework=Framework.PYTORCH,
        engine=Engine.ONNX,
        version=ModelVersion(1),
        convert=False,
        profile=False,
    )

    assert (version.name, version.task, version.metrics) == (
        "ResNet50/1",
        "image classification",
        {"acc": 0.76},
    )
    assert version.measured_with[0].shape == ("batch", 3, 224, 224)
    assert (version.outputs[0].dtype, version.layouts) == ("int32", {"x": "NCHW"})
    assert version.labels == {"framework": "PYTORCH", "engine": "ONNX"}
    assert list(registry.tasks()) == []
    child = replace(version, parent="ResNet50/1", digest="sha256:other")
    registry.add_version(child)

    assert modelci.retrieve_model("ResNet50", engine=Engine.ONNX, version=SimpleNamespace(ver=1)) == [version]
    assert modelci.retrieve_model(architecture_name="ResNet50", framework="ONNX", download=False) != []
    assert modelci.retrieve_model("ResNet50", engine=Engine.TRT) == []
    assert modelci.retrieve_model_by_task(Task.IMAGE_CLASSIFICATION)[0].number == 2
    assert [one.number for one in modelci.retrieve_model_by_parent_id(version)] == [2]

    updated = modelci.update_model("ResNet50/1", {"dataset": "digits", "metric": {"mAP": 0.5}})
    assert (updated.dataset, updated.metrics) == ("digits", {"acc": 0.76, "map": 0.5})
    modelci.delete_model_by_id(version)
    assert [one.number for one in modelci.retrieve_model("ResNet50")] == [2]


def test_a_model_of_modelci_registers_as_one_argument(registry: Registry, model: Path) -> None:
    """Its newer signature takes one object that says everything."""
    described: dict[str, Any] = {
        "architecture": "Net", "version": 3, "task": "Segmentation", "metric": {"IoU": 0.5}, "engine": None,
        "inputs": [{"name": "x", "shape": [-1, 4], "dtype": "TYPE_FP32"}],
    }  # fmt: skip
    of_object = SimpleNamespace(weight=SimpleNamespace(file=model), **described)

    (version,) = modelci.register_model(of_object, convert=False)
    (same,) = modelci.register_model({"weight": str(model), **described})

    assert (version.name, same.name, version.task) == ("Net/3", "Net/3", "segmentation")
    assert {task.kind for task in registry.tasks(model="Net")} == {"profile", "convert"}


def test_a_yaml_file_registers(registry: Registry, model: Path, tmp_path: Path) -> None:
    """As the command does."""
    file = tmp_path / "model.yml"
    file.write_text(f"weight: {model}\narchitecture: Net\nprofile: false\nconvert: false\n")

    assert [version.name for version in modelci.register_model_from_yaml(file)] == ["Net/1"]
    assert list(registry.tasks()) == []


def test_a_live_model_gets_an_example_of_its_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or what was given as model_input."""
    given: list[Any] = []
    monkeypatch.setattr(api, "add", lambda _model, example, **_words: given.append(example))
    named = [IOShape([-1, 3], float, "x"), IOShape((2,), np.dtype("int64"), "ids")]

    modelci.register_model(object(), inputs=named)
    modelci.register_model(object(), inputs=[IOShape([-1, 3], "TYPE_BOOL")])
    modelci.register_model(object(), inputs=named, model_input=["data"])
    modelci.register_model(object())

    of_names, of_places, as_given, nothing = given
    assert {name: (array.shape, str(array.dtype)) for name, array in of_names.items()} == {
        "x": ((1, 3), "float32"),
        "ids": ((2,), "int64"),
    }
    assert [(array.shape, str(array.dtype)) for array in of_places] == [((1, 3), "bool")]
    assert (as_given, nothing) == (("data",), None)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ({"inputs": [IOShape([-1, -1], float)]}, "only the first size may be -1"),
        ({"inputs": [SimpleNamespace(name="x")]}, "has no shape; write IOShape"),
        ({"inputs": [IOShape([1], object)]}, "is no type of a tensor; known: float16"),
        ({"version": "one"}, "version is a number from 1, not 'one'"),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(model: Path, words: dict[str, Any], says: str) -> None:
    with pytest.raises(RequestError, match=says):
        modelci.register_model(model, **words)


def test_models_that_say_too_much_or_too_little_are_refused() -> None:
    with pytest.raises(RequestError, match="names no file; give it as weight"):
        modelci.register_model({"architecture": "Net"})
    with pytest.raises(RequestError, match="have no 'weights'; known: weight, "):
        modelci.register_model({"weights": "net.onnx"})
    with pytest.raises(RequestError, match="architecture of a version never changes"):
        modelci.update_model("Net/1", {"architecture": "Other"})
    with pytest.raises(RequestError, match="What to change is a mapping"):
        modelci.update_model("Net/1", "task")


def test_its_names_lead_to_where_they_are() -> None:
    """Also its arguments: a function of ours says what they are called here."""
    with pytest.raises(AttributeError, match=r"it is modeldyno\.compat\.retrieve_model"):
        modeldyno.retrieve_model  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(UnknownName, match="no argument 'architecture'; did you mean 'name'"):
        modeldyno.registry.retrieve(architecture="ResNet50")  # type: ignore[call-arg]
    with pytest.raises(UnknownName, match="no argument 'metric'; did you mean 'metrics'"):
        modeldyno.registry.add("net.onnx", metric={"acc": 1})  # type: ignore[call-arg]


def test_an_engine_runs_a_version_or_a_form_of_it(registry: Registry, model: Path) -> None:
    """One that is still the model."""
    version = modeldyno.registry.add(model, name="Net", profile=False, convert=False)
    for recipe, state in (("openvino-fp16", VariantState.CLOSE), ("torchscript", VariantState.DIFFERS)):
        registry.put_variant(a_variant(version, recipe, state=state), "ada")

    for engine, count in (("ONNX", 1), ("onnxruntime", 1), ("openvino", 1), ("TorchScript", 0), ("TFS", 0)):
        assert len(modeldyno.registry.retrieve("Net", engine=engine)) == count, engine
    assert not is_run_by(version, (), "onnx")


@contextmanager
def counted_queries() -> Iterator[list[str]]:
    """Count what is asked of any database."""
    statements: list[str] = []

    def count(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if statement.lstrip().upper().startswith("SELECT"):
            statements.append(statement)

    event.listen(DatabaseEngine, "before_cursor_execute", count)
    try:
        yield statements
    finally:
        event.remove(DatabaseEngine, "before_cursor_execute", count)


@pytest.mark.parametrize("number", [3, 30])
def test_versions_of_an_engine_are_found_by_one_query(registry: Registry, number: int) -> None:
    """However many there are, in a file and on a server: with their variants, and in the same order."""
    for each in range(1, number + 1):
        version, _ = registry.add_version(a_version("net", each, digest=f"sha256:{each}"))
        registry.put_variant(a_variant(version), "ada")
        state = VariantState.FAILED if each % 3 else VariantState.AGREES
        registry.put_variant(a_variant(version, "torchscript", backend="torch", state=state), "ada")
    registry.find_versions("net", limit=1)  # the connection is open

    with counted_queries() as statements:
        versions = registry.find_versions("net", engine="TORCHSCRIPT", limit=2)
    assert [one.number for one in versions] == list(range(number, 0, -3))[:2]
    assert len(statements) == 1
    with counted_queries() as statements:
        assert [one.number for one in registry.find_versions(engine="onnxruntime")] == [number]
    assert len(statements) == 1
    assert registry.find_versions("net", engine="tvm") == []
