"""Shapes and parameters of the operators of ``ai.onnx.ml``: classical models in ONNX files.

Formal attributes and shapes are those of Operators-ml.md in github.com/onnx/onnx.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from modeldyno.models.loaders.onnx_tracing.schema_inference import NOTHING, InferredType
from modeldyno.models.static.weights import Weight

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from modeldyno.models.loaders.onnx_tracing.nodes import OnnxNode, Values
    from modeldyno.models.loaders.onnx_tracing.tensors import Proto

DOMAIN = "ai.onnx.ml"

_LEARNED = (
    "base_values", "class_weights", "coefficients", "intercepts", "leaf_weights", "prob_a", "prob_b", "rho",
    "support_vectors", "target_weights",
)  # fmt: skip
"""Attributes that training determines; those of scalers and imputers are statistics, like running means."""
_STATISTICS = ("imputed_value_floats", "offset", "scale")
_DOUBLE = 11
"""TensorProto.DataType."""


def infer(node: OnnxNode, values: Values) -> list[InferredType]:
    """Infer the outputs of a node by its rule; NOTHING without a rule, or where the input is unknown."""
    rule = _RULES.get(node.kind) if node.domain == DOMAIN else None
    first = values[0] if values else None
    if node.kind == "ArrayFeatureExtractor" and node.domain == DOMAIN:
        return [_extracted_features(values)]
    if rule is None or first is None or first.shape is None or not first.shape:
        return [NOTHING] * len(node.outputs)
    return rule(node, first.shape, first.dtype)[: len(node.outputs)]


def makes_maps(node: OnnxNode) -> bool:
    """Return whether the output is a sequence of maps, which holds no tensors."""
    return node.domain == DOMAIN and node.kind == "ZipMap"


def learned_weights(node: Proto) -> Iterator[Weight]:
    """Yield the learned attributes of a NodeProto; of trees the thresholds of inner nodes and the leaves."""
    modes = next((a.strings for a in node.attribute if a.name == "nodes_modes"), ())
    inner = sum(mode != b"LEAF" for mode in modes)
    for attribute in node.attribute:
        name = attribute.name.removesuffix("_as_tensor")
        tensor = attribute.t if attribute.name != name or attribute.HasField("t") else None
        size = len(attribute.floats) if tensor is None else math.prod(tensor.dims)
        if name in {"nodes_values", "nodes_splits"}:
            size = inner if modes and name == "nodes_values" else size
        elif name not in _LEARNED and name not in _STATISTICS:
            continue
        if size:
            double = tensor is not None and tensor.data_type == _DOUBLE
            yield Weight(
                name=f"{node.output[0]}.{name}",
                shape=(size,),
                dtype="float64" if double else "float32",
                size=size,
                bytes=size * (8 if double else 4),
                parameter=name not in _STATISTICS,
                scope="",
            )


def _as_float32(_: OnnxNode, shape: tuple[int, ...], __: str) -> list[InferredType]:
    return [InferredType(shape, "float32")]


def _same_type(_: OnnxNode, shape: tuple[int, ...], kind: str) -> list[InferredType]:
    return [InferredType(shape, kind)]


def _targets(name: str) -> Callable[[OnnxNode, tuple[int, ...], str], list[InferredType]]:
    def rule(node: OnnxNode, shape: tuple[int, ...], _: str) -> list[InferredType]:
        return [InferredType((_rows(shape), int(node.attributes.get(name, 1))), "float32")]

    return rule


def _rows(shape: tuple[int, ...]) -> int:
    """Return the number of rows; a single row may come without its axis."""
    return 1 if len(shape) == 1 else shape[0]


def _extracted_features(values: Values) -> InferredType:
    """As many of the last axis as there are indices; of a single axis it makes a row."""
    data, indices = values
    if data is None or indices is None or not data.shape or indices.shape is None:
        return NOTHING
    return InferredType((*(data.shape[:-1] or (1,)), math.prod(indices.shape)), data.dtype)


def _feature_vectorizer(node: OnnxNode, shape: tuple[int, ...], _: str) -> list[InferredType]:
    widths = node.attributes.get("inputdimensions", ())
    return [InferredType((_rows(shape), sum(widths)), "float32")]


def _classifier(node: OnnxNode, shape: tuple[int, ...], _: str) -> list[InferredType]:
    """A label and the scores of all classes, for each row."""
    labels: Any = ()
    kind = "int64"
    for name in ("classlabels_strings", "classlabels_ints", "classlabels_int64s"):
        if node.attributes.get(name):
            labels, kind = node.attributes[name], "string" if name.endswith("strings") else "int64"
    rows = _rows(shape)
    return [InferredType((rows,), kind), InferredType((rows, len(labels)), "float32")]


_RULES: dict[str, Callable[[OnnxNode, tuple[int, ...], str], list[InferredType]]] = {
    "Scaler": _as_float32,
    "Normalizer": _as_float32,
    "Imputer": _same_type,
    "Binarizer": _same_type,
    "FeatureVectorizer": _feature_vectorizer,
    "LinearRegressor": _targets("targets"),
    "SVMRegressor": _targets(""),
    "TreeEnsembleRegressor": _targets("n_targets"),
    "LinearClassifier": _classifier,
    "SVMClassifier": _classifier,
    "TreeEnsembleClassifier": _classifier,
}
