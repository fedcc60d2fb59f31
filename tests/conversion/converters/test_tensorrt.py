"""What is asked of TensorRT's builder, and what it says when it builds nothing."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.support import fake_tensorrt
from tests.support import tiny_onnx as models
from tests.support.fake_tensorrt import FakeBuilder, FakeParser, parser_error

from modeldyno.base import plugins
from modeldyno.base.errors import CannotRunHere
from modeldyno.base.job.input_spec import InputSpec
from modeldyno.base.job.model_ref import ModelRef
from modeldyno.conversion.failures import failure_of
from modeldyno.conversion.interface import ConversionSource
from modeldyno.conversion.recipe import ConversionOrder, run_order
from modeldyno.models import tensorrt_engine

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from modeldyno.conversion.agreement.conversion import Converted
    from modeldyno.conversion.interface import ConvertedFile

pytest.importorskip("onnx")


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have a TensorRT of this process."""
    monkeypatch.setattr(FakeParser, "errors", [])
    fake_tensorrt.install(monkeypatch)
    yield
    tensorrt_engine.import_package.cache_clear()


def build(path: Path, *sizes: int | str, recipe: str = "tensorrt", length: int = 4) -> ConvertedFile:
    """Build the engine of a network of two layers, declared with these sizes."""
    onnx = models.mlp(path)
    model = plugins.loader("onnx").load(ModelRef(scheme="onnx", locator=str(onnx)), seed=0, trust=False)
    source = ConversionSource(
        model=model,
        inputs=(InputSpec(name="x", shape=sizes or ("batch", 4), dtype="float32"),),
        example={"x": np.zeros((2, length), np.float32)},
        outputs=(),
    )
    return plugins.converter(recipe).convert(source, path / "model.engine", opset=None)


@pytest.mark.usefixtures("fake")
def test_an_engine_takes_batches_of_1_to_32_and_computes_in_float32(tmp_path: Path) -> None:
    """Which are the batches that outputs are compared at; TF32 would lose precision unasked."""
    made = build(tmp_path)

    assert made.converter == "TensorRT 10.0.1"
    assert FakeBuilder.last.sizes == {"x": ((1, 4), (8, 4), (32, 4))}
    assert not FakeBuilder.last.flags
    assert (tmp_path / "model.engine").read_bytes() == fake_tensorrt.engine_bytes()
    assert json.loads((tmp_path / "model.engine.json").read_text()) == {
        "inputs": [{"name": "x", "shape": ["batch", 4], "dtype": "float32"}]
    }


@pytest.mark.usefixtures("fake")
def test_another_free_size_reaches_four_times_its_usual_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Outputs are compared at up to twice that size."""
    monkeypatch.setattr(FakeBuilder, "shape", (-1, -1))
    build(tmp_path, "batch", "length", length=16)

    assert FakeBuilder.last.sizes == {"x": ((1, 1), (8, 16), (32, 64))}


@pytest.mark.usefixtures("fake")
def test_fixed_sizes_need_no_range(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """TensorRT takes them from the graph."""
    monkeypatch.setattr(FakeBuilder, "shape", (2, 4))
    build(tmp_path, 2, 4)

    assert not FakeBuilder.last.sizes


@pytest.mark.usefixtures("fake")
def test_an_engine_of_half_precision_is_built_from_such_a_graph(tmp_path: Path) -> None:
    """Older versions also want to be told."""
    pytest.importorskip("onnxruntime")
    made = build(tmp_path, recipe="tensorrt-fp16")

    assert made.converter.startswith("onnxruntime ")
    assert made.converter.endswith(", TensorRT 10.0.1")
    assert FakeBuilder.last.flags == {fake_tensorrt.Flag.FP16}


@pytest.mark.usefixtures("fake")
@pytest.mark.parametrize(
    ("error", "operators", "message"),
    [
        (parser_error(0, "ErrorCode.UNSUPPORTED_NODE", "false"), ("MatMul",), "MatMul is not supported"),
        (
            parser_error(0, "ErrorCode.INVALID_NODE", 'creator && "Plugin not found"'),
            ("MatMul",),
            "MatMul is not",
        ),
        (parser_error(-1, "ErrorCode.UNSUPPORTED_NODE", "no such dtype"), (), "RuntimeError: no such dtype"),
    ],
)
def test_what_the_parser_does_not_know_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: object, operators: tuple[str, ...], message: str
) -> None:
    """By operator, if it is one."""
    monkeypatch.setattr(FakeParser, "errors", [error])

    with pytest.raises(RuntimeError) as raised:
        build(tmp_path)

    failure = failure_of(raised.value)
    assert failure.operators == operators
    assert failure.message.startswith(message)


@pytest.mark.usefixtures("fake")
def test_a_build_that_fails_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In TensorRT's words."""
    monkeypatch.setattr(FakeBuilder, "fails", True)

    with pytest.raises(RuntimeError, match="no implementation found"):
        build(tmp_path)


@pytest.mark.usefixtures("fake")
def test_without_a_gpu_nothing_is_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """TensorRT measures its kernels on the GPU that the engine is for."""
    monkeypatch.setattr(FakeBuilder, "here", False)

    with pytest.raises(CannotRunHere, match="can use none here: CUDA initialization failure"):
        build(tmp_path)


def converted(recipe: str, model: str, folder: Path) -> Converted:
    reference = folder / "reference"
    reference.mkdir()
    order = ConversionOrder(model=ModelRef(scheme="onnx", locator=model), reference=str(reference))
    assert run_order(order, print).reference is not None
    answer = run_order(
        ConversionOrder(
            model=order.model, reference=str(reference), recipe=recipe, folder=str(folder / recipe)
        ),
        print,
    )
    assert answer.converted is not None
    return answer.converted


@pytest.mark.usefixtures("fake")
def test_an_engine_that_nothing_here_runs_is_kept_unchecked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is built, but nobody knows what it returns."""
    pytest.importorskip("onnxruntime")
    fake_tensorrt.install(monkeypatch).count = 0

    made = converted("tensorrt", str(models.mlp(tmp_path)), tmp_path)

    assert made.verdict == "no-device"
    assert made.failure is not None
    assert made.failure.message == "TensorRT runs an engine on an NVIDIA GPU, and there is none here"
    assert made.path.endswith("model.engine.unchecked")
    assert made.size > 0


@pytest.mark.usefixtures("fake")
def test_an_engine_that_returns_something_else_differs(tmp_path: Path) -> None:
    """This one adds 1 to its input."""
    pytest.importorskip("onnxruntime")

    made = converted("tensorrt", str(models.mlp(tmp_path)), tmp_path)

    assert made.verdict == "differs"
    assert made.path.endswith("model.engine.unchecked")


@pytest.mark.engine
@pytest.mark.parametrize("recipe", ["tensorrt-rtx", "tensorrt-rtx-fp16"])
def test_tensorrt_for_rtx_builds_without_a_gpu(recipe: str, tmp_path: Path) -> None:
    """The extra `tensorrt-rtx` has it."""
    pytest.importorskip("tensorrt_rtx")
    from tests.conversion.converters.conftest import ROOT

    made = converted(recipe, str(ROOT / "examples" / "digits" / "digits.onnx"), tmp_path)

    assert tensorrt_engine.package_of(tmp_path / recipe / "model.engine.unchecked") == "tensorrt_rtx"
    assert made.failure is not None
    assert made.verdict == "no-device", made


@pytest.mark.engine
def test_tensorrt_for_rtx_names_an_operator_that_it_does_not_know(tmp_path: Path) -> None:
    """ONNX Runtime has it."""
    pytest.importorskip("tensorrt_rtx")
    import onnx

    node = onnx.helper.make_node("FusedMatMul", ["x", "x"], ["y"], domain="com.microsoft", transB=1)
    graph = onnx.helper.make_graph(
        [node],
        "product",
        [onnx.helper.make_tensor_value_info("x", 1, ["batch", 4])],
        [onnx.helper.make_tensor_value_info("y", 1, ["batch", "other"])],
    )
    opsets = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("com.microsoft", 1)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8), tmp_path / "product.onnx")

    made = converted("tensorrt-rtx", str(tmp_path / "product.onnx"), tmp_path)

    assert made.verdict == "unsupported-operator"
    assert made.failure is not None
    assert made.failure.operators == ("FusedMatMul",)
