from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from modeldyno.base.job.input_spec import InputSpec
from modeldyno.base.job.model_ref import ModelRef
from modeldyno.models.flops import count_op
from modeldyno.models.flops.onnx import ONNX
from modeldyno.models.interface import Tracing
from modeldyno.models.loaders import onnx as loader
from modeldyno.models.static.graph import Role
from modeldyno.models.static.weights import weight_measurements

if TYPE_CHECKING:
    from pathlib import Path

    from modeldyno.models.interface import Model

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")
from onnx import TensorProto, helper, numpy_helper

ML = "ai.onnx.ml"
TREE = {
    "nodes_treeids": [0, 0, 0],
    "nodes_nodeids": [0, 1, 2],
    "nodes_featureids": [1, 0, 0],
    "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
    "nodes_values": [0.5, 0.0, 0.0],
    "nodes_truenodeids": [1, 0, 0],
    "nodes_falsenodeids": [2, 0, 0],
}
MACHINE = {
    "kernel_type": "RBF",
    "kernel_params": [0.1, 0.0, 3.0],
    "support_vectors": [1.0] * 8,
    "coefficients": [1.0, -1.0],
    "rho": [0.5],
}
CASES: list[tuple[str, dict[str, Any], list[tuple[int, ...]], int, int]] = [
    ("Scaler", {"scale": [1.0] * 4, "offset": [0.0] * 4}, [(3, 4)], 0, 8),
    ("Normalizer", {"norm": "L2"}, [(3, 4)], 0, 0),
    ("Imputer", {"imputed_value_floats": [0.0] * 4, "replaced_value_float": 9.0}, [(3, 4)], 0, 4),
    ("Binarizer", {"threshold": 0.5}, [(3, 4)], 0, 0),
    ("FeatureVectorizer", {"inputdimensions": [4]}, [(3, 4)], 0, 0),
    ("LinearRegressor", {"coefficients": [1.0] * 8, "intercepts": [0.0] * 2, "targets": 2}, [(3, 2)], 10, 0),
    ("LinearClassifier",
     {"coefficients": [1.0] * 12, "intercepts": [0.0] * 3, "classlabels_ints": [0, 1, 2]},
     [(3,), (3, 3)], 15, 0),
    ("SVMRegressor", {**MACHINE, "n_supports": 2}, [(3, 1)], 11, 0),
    ("SVMClassifier", {**MACHINE, "vectors_per_class": [1, 1], "classlabels_ints": [0, 1]},
     [(3,), (3, 2)], 11, 0),
    ("TreeEnsembleRegressor",
     {**TREE, "target_treeids": [0, 0], "target_nodeids": [1, 2], "target_ids": [0, 0],
      "target_weights": [1.0, 2.0], "n_targets": 1}, [(3, 1)], 3, 0),
    ("TreeEnsembleClassifier",
     {**TREE, "class_treeids": [0, 0], "class_nodeids": [1, 2], "class_ids": [0, 1],
      "class_weights": [1.0, 2.0], "classlabels_strings": ["a", "b"]}, [(3,), (3, 2)], 3, 0),
]  # fmt: skip


def saved(folder: Path, nodes: list[Any], outputs: list[str], weights: dict[str, Any] | None = None) -> Path:
    graph = helper.make_graph(
        nodes, "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4])],
        [helper.make_empty_tensor_value_info(name) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(ML, 3)]
    path = folder / "ml.onnx"
    path.write_bytes(helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString())
    return path


def read_model(path: Path) -> Model:
    return loader.look(ModelRef(scheme="onnx", locator=str(path)), seed=0, trust=False)


def traced(path: Path) -> Any:
    model = read_model(path)
    assert model.graph is not None
    inputs = (InputSpec(name="x", shape=(3, 4), dtype="float32"),)
    return model.graph(Tracing(inputs=inputs, sizes={"batch": 3}))


@pytest.mark.parametrize(
    ("kind", "attributes", "shapes", "parameters", "buffers"), CASES, ids=[case[0] for case in CASES]
)
def test_classical_operators_have_the_shapes_of_the_runtime_and_parameters(
    tmp_path: Path,
    kind: str,
    attributes: dict[str, Any],
    shapes: list[tuple[int, ...]],
    parameters: int,
    buffers: int,
) -> None:
    """Models of scikit-learn's converters have shapes, and parameters that are part of the memory."""
    outputs = [f"y{i}" for i in range(len(shapes))]
    path = saved(tmp_path, [helper.make_node(kind, ["x"], outputs, domain=ML, **attributes)], outputs)
    ran = runtime.InferenceSession(path).run(None, {"x": np.ones((3, 4), np.float32)})
    assert [np.shape(array) for array in ran] == shapes

    graph = traced(path)
    (op,) = graph.ops
    assert [tensor.shape for tensor in op.outputs] == shapes
    held = sum(storage.bytes for storage in graph.storages if storage.role is Role.WEIGHT)
    assert held == 4 * (parameters + buffers)
    model = read_model(path)
    assert model.weights is not None
    result = {m.metric: m.value for m in weight_measurements(model.weights()) if not m.scope}
    assert (result["parameters"], result["buffers"]) == (parameters, buffers)


def test_support_vectors_are_multiplied_with_every_row(tmp_path: Path) -> None:
    """A support vector machine of 2 vectors of 4 numbers takes 8 products and 2 coefficients a row."""
    made = helper.make_node("SVMRegressor", ["x"], ["y"], domain=ML, n_supports=2, **MACHINE)
    (op,) = traced(saved(tmp_path, [made], ["y"])).ops
    assert count_op(op, ONNX).macs == 3 * (8 + 2)


def test_labels_and_maps_of_a_pipeline_are_counted(tmp_path: Path) -> None:
    """Labels taken by index have the runtime's shape, and what follows them has a size; maps cost nothing."""
    nodes = [
        helper.make_node("ArgMax", ["x"], ["i"], axis=1),
        helper.make_node("ArrayFeatureExtractor", ["classes", "i"], ["label"], domain=ML),
        helper.make_node("ArrayFeatureExtractor", ["x", "pair"], ["two"], domain=ML),
        helper.make_node("MatMul", ["two", "w"], ["y"]),
        helper.make_node("ZipMap", ["x"], ["maps"], domain=ML, classlabels_int64s=[0, 1, 2, 3]),
    ]
    weights = {
        "classes": np.arange(4, dtype=np.int64),
        "pair": np.array([0, 2]),
        "w": np.ones((2, 5), np.float32),
    }
    path = saved(tmp_path, nodes, ["label", "two", "y", "maps"], weights)
    ran = runtime.InferenceSession(path).run(None, {"x": np.ones((3, 4), np.float32)})
    result = traced(path)
    shapes = {op.name: [tensor.shape for tensor in op.outputs] for op in result.ops}

    assert {name: shapes[name] for name in ("label", "two", "y")} == {
        name: [np.shape(array)] for name, array in zip(("label", "two", "y"), ran, strict=False)
    }
    assert shapes["maps"] == []
    assert all(op.sized for op in result.ops)
    assert sum(count_op(op, ONNX).macs for op in result.ops) == 3 * 2 * 5


def test_what_follows_a_scaler_is_counted(tmp_path: Path) -> None:
    """The products after a scaler, as in a scikit-learn pipeline, have known sizes."""
    nodes = [
        helper.make_node("Scaler", ["x"], ["a"], domain=ML, scale=[1.0] * 4, offset=[0.0] * 4),
        helper.make_node("MatMul", ["a", "w"], ["y"]),
    ]
    result = traced(saved(tmp_path, nodes, ["y"], {"w": np.ones((4, 5), np.float32)}))
    assert sum(count_op(op, ONNX).macs for op in result.ops) == 3 * 4 * 5
    assert all(op.sized for op in result.ops)
