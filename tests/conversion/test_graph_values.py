"""The steps of a converted graph, and the values within it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from modeldyno.base import plugins
from modeldyno.base.job.model_ref import ModelRef
from modeldyno.conversion.agreement.inner_values import keep_value
from modeldyno.conversion.graph_values import inner_graph

if TYPE_CHECKING:
    from pathlib import Path


def test_an_onnx_file_shows_values_that_it_does_not_return(tmp_path: Path) -> None:
    """Its steps name the modules that they came from, and what a branch takes counts as taken."""
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    helper, float32 = onnx.helper, onnx.TensorProto.FLOAT
    returned = [helper.make_tensor_value_info("z", float32, None)]
    branch = helper.make_graph([helper.make_node("Identity", ["h"], ["z"])], "branch", [], returned)
    nodes = [
        helper.make_node("Mul", ["x", "two"], ["h"]),
        helper.make_node("If", ["yes"], ["y"], then_branch=branch, else_branch=branch),
    ]
    nodes[0].metadata_props.add(key="pkg.torch.onnx.name_scopes", value="['', 'net', 'net.a', 'mul']")
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", float32, ["batch", 3])],
        [helper.make_tensor_value_info("y", float32, None)],
        [
            onnx.numpy_helper.from_array(np.float32(2), "two"),
            onnx.numpy_helper.from_array(np.array(True), "yes"),
        ],
    )
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), path)
    model = plugins.loader("onnx").load(ModelRef(scheme="onnx", locator=str(path)), seed=0, trust=True)

    inner = inner_graph(model, "onnxruntime")

    assert inner is not None
    assert [step.scopes for step in inner.steps] == [("", "net", "net.a"), ()]
    assert [step.inputs for step in inner.steps] == [("x",), ("h", "h")]
    assert inner.returned == {"y"}
    values = inner.record(["h"], {"x": np.ones((2, 3), np.float32)}, lambda array: keep_value(array, 2, 9))
    assert values["h"].values.tolist() == [[2, 2, 2], [2, 2, 2]]
    assert [file.name for file in tmp_path.iterdir()] == ["m.onnx"]
