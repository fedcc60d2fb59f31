"""``modeldyno convert`` of files that refuse what was drawn for them, or are quantised."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cli.conftest import CommandResult

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")


def write(
    path: Path, nodes: list[Any], weights: dict[str, Any], x: tuple[Any, ...], y: tuple[Any, ...]
) -> str:
    """Write a network of one input and one output, and return its path."""
    from onnx import TensorProto, helper, numpy_helper

    kind = TensorProto.INT64 if x[0] == "ids" else TensorProto.FLOAT
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info(x[0], kind, x[1:])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, y)],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in weights.items()],
    )
    onnx.save(
        onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8), path
    )
    return str(path)


def weight(*shape: int) -> Any:
    """Return normal numbers that depend on their shape alone, whichever tests ran before."""
    return np.random.default_rng(shape).standard_normal(shape).astype(np.float32)


def test_a_magnitude_that_makes_an_index_leave_its_table_is_left_out(
    modeldyno: Callable[..., CommandResult], tmp_path: Path
) -> None:
    """It is ours: the form is compared with the others, and the page says which was left out, and why."""
    node = onnx.helper.make_node
    model = write(
        tmp_path / "bins.onnx",
        [
            node("Mul", ["x", "five"], ["scaled"]),
            node("Cast", ["scaled"], ["index"], to=onnx.TensorProto.INT64),
            node("Gather", ["table", "index"], ["y"]),
        ],
        {"five": np.float32(5), "table": weight(60, 4)},
        ("x", "batch", 8),
        ("batch", 8, 4),
    )
    result = modeldyno("convert", model, "--to", "onnx-fp16")

    report = " ".join(result.out.split())
    assert result.code == 0, result.out
    assert "inputs x 10 were left out: with them, the source fails" in report
    assert "out of data bounds" in report
    assert "inputs x 0.1 were left out" not in report


@pytest.mark.parametrize("options", [(), ("--input", "x=4x128")])
@pytest.mark.parametrize("fixed", [1, 4])
def test_a_batch_that_is_named_free_and_fixed_inside_is_checked_at_what_it_accepts(
    modeldyno: Callable[..., CommandResult], tmp_path: Path, options: tuple[str, ...], fixed: int
) -> None:
    """Another one than ours is found where the request names it."""
    node = onnx.helper.make_node
    model = write(
        tmp_path / "fixed.onnx",
        [node("Reshape", ["x", "shape"], ["flat"]), node("MatMul", ["flat", "w"], ["y"])],
        {"shape": np.array([fixed, 128]), "w": weight(128, 10)},
        ("x", "batch", 128),
        (fixed, 10),
    )
    result = modeldyno("convert", model, *options, "--to", "onnx-fp16")

    report = " ".join(result.out.split())
    if fixed == 4 and not options:
        assert (result.code, "source-invalid" in report) == (1, True)
        return
    assert result.code == 0, result.out
    assert f"the batch was checked at {fixed}, not at all of 32, 3, 1: the source refuses others" in report
    samples = re.search(r"compared: (\d+) random samples", report)
    assert samples is not None
    assert int(samples[1]) >= 32


def test_real_samples_have_a_length_of_their_own(
    modeldyno: Callable[..., CommandResult], tmp_path: Path
) -> None:
    """Not the usual one of random samples."""
    node = onnx.helper.make_node
    model = write(
        tmp_path / "sequence.onnx",
        [node("Gather", ["table", "ids"], ["rows"]), node("MatMul", ["rows", "w"], ["y"])],
        {"table": weight(50, 16), "w": weight(16, 4)},
        ("ids", "batch", "seq"),
        ("batch", "seq", 4),
    )
    np.savez(tmp_path / "data.npz", ids=np.arange(600).reshape(6, 100) % 50)
    result = modeldyno("convert", model, "--to", "onnx-fp16", "--data", "data.npz")

    assert result.code == 0, result.out + result.err
    assert "seq=100" in result.out


@pytest.mark.parametrize("way", ["dynamic", "pairs", "operators"])
def test_a_quantised_network_in_half_precision_is_valid(
    modeldyno: Callable[..., CommandResult], tmp_path: Path, way: str
) -> None:
    """Its scales stay float32; what is float becomes float16."""
    from onnxruntime import quantization

    class Samples(quantization.CalibrationDataReader):  # type: ignore[misc]
        samples = iter([{"x": weight(4, 16)} for _ in range(4)])

        def get_next(self) -> Any:
            return next(self.samples, None)

    node = onnx.helper.make_node
    source, model = tmp_path / "floats.onnx", str(tmp_path / "int8.onnx")
    write(
        source,
        [node("MatMul", ["x", "w1"], ["a"]), node("Relu", ["a"], ["b"]), node("MatMul", ["b", "w2"], ["y"])],
        {"w1": weight(16, 32), "w2": weight(32, 4)},
        ("x", "batch", 16),
        ("batch", 4),
    )
    if way == "dynamic":
        quantization.quantize_dynamic(str(source), model)
    else:
        form = quantization.QuantFormat.QDQ if way == "pairs" else quantization.QuantFormat.QOperator
        quantization.quantize_static(str(source), model, Samples(), quant_format=form)
    result = modeldyno("convert", model, "--to", "onnx-fp16", "-o", "half")

    assert result.code == 0, result.out
    onnx.checker.check_model(onnx.load("half/onnx-fp16/model.onnx"), full_check=True)


def test_the_nodes_of_a_branch_are_in_order_too(
    modeldyno: Callable[..., CommandResult], tmp_path: Path
) -> None:
    """Each after those whose values it reads; a branch may read those of the graph around it."""
    node = onnx.helper.make_node
    value = onnx.helper.make_tensor_value_info("out", onnx.TensorProto.FLOAT, None)
    branches = {
        f"{name}_branch": onnx.helper.make_graph(
            [node("Softmax", ["h"], [f"s{name}"]), node("Add", [f"s{name}", "h"], ["out"])], name, [], [value]
        )
        for name in ("then", "else")
    }
    for branch in branches.values():
        branch.output[0].name = branch.node[1].output[0] = f"out_{branch.name}"
    model = write(
        tmp_path / "branch.onnx",
        [
            node("MatMul", ["x", "w"], ["h"]),
            node("ReduceMax", ["h"], ["top"], keepdims=0),
            node("Greater", ["top", "zero"], ["positive"]),
            node("If", ["positive"], ["y"], **branches),
        ],
        {"w": weight(16, 4), "zero": np.float32(0)},
        ("x", "batch", 16),
        ("batch", 4),
    )
    result = modeldyno("convert", model, "--to", "onnx-fp16", "-o", "half")

    assert result.code == 0, result.out
    onnx.checker.check_model(onnx.load("half/onnx-fp16/model.onnx"))
