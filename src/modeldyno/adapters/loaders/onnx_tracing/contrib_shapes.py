"""Shapes of operators that have no schema in the package onnx: those of ONNX Runtime.

Formal inputs and shapes are those of docs/ContribOperators.md in github.com/microsoft/onnxruntime.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from modeldyno.adapters.loaders.onnx_tracing.nodes import Value
from modeldyno.adapters.loaders.onnx_tracing.schema_inference import NOTHING, Found, like
from modeldyno.core.static.flops.indexing import broadcast

if TYPE_CHECKING:
    from modeldyno.adapters.loaders.onnx_tracing.nodes import Node

Values = Sequence[Value | None]
Rule = Callable[["Node", Values], list[Found]]


class Contrib(NamedTuple):
    """An operator."""

    formals: tuple[str, ...]
    """Names of its inputs; a last one that ends in ``*`` takes all that follow."""
    rule: Rule


def found(node: Node, values: Values) -> list[Found]:
    """Give the outputs of a node by its rule; NOTHING for one that has none, or is not understood by it."""
    known = OPERATORS.get(node.kind)
    count = len(node.outputs)
    if known is None or node.domain not in {"", "com.microsoft"}:
        return [NOTHING] * count
    try:
        outputs = known.rule(node, values)
    except (KeyError, ValueError, TypeError, IndexError, ZeroDivisionError):
        outputs = []
    return [*outputs, *[NOTHING] * count][:count]


def _at(values: Values, place: int) -> Value | None:
    return values[place] if place < len(values) else None


def _shape(values: Values, place: int) -> tuple[int, ...]:
    """Give the shape of an input.

    Raises:
        KeyError: it was left out, or its shape is unknown.
    """
    value = _at(values, place)
    if value is None or value.shape is None:
        raise KeyError(place)
    return value.shape


def _dtype(values: Values, place: int) -> str:
    value = _at(values, place)
    return "" if value is None else value.dtype


def _same(_: Node, values: Values, *, kind: int | str = 0) -> list[Found]:
    """As the first input; its dtype that of another input, or a given one."""
    return [Found(_shape(values, 0), _kind(values, kind))]


def _kind(values: Values, kind: int | str) -> str:
    return kind if isinstance(kind, str) else _dtype(values, kind)


def _product(node: Node, values: Values, *, right: int = 1, kind: int | str = 0) -> list[Found]:
    """As a matrix product, with the transpositions of FusedMatMul."""
    first, second = list(_shape(values, 0)), list(_shape(values, right))
    for shape, name in ((first, "A"), (second, "B")):
        if node.attributes.get(f"transBatch{name}"):
            shape[:-1] = [*shape[1:-1], shape[0]]
        if node.attributes.get(f"trans{name}") and len(shape) > 1:
            shape[-2:] = shape[:-3:-1]
    rows = first[-2:-1]
    columns = second[-1:] if len(second) > 1 else []
    batch = broadcast(tuple(first[:-2]), tuple(second[:-2]))
    return [Found((*batch, *rows, *columns), _kind(values, kind))]


def _narrow(node: Node, values: Values) -> list[Found]:
    """As MatMulNBits: the last dimension becomes N."""
    return [Found((*_shape(values, 0)[:-1], node.attributes["N"]), _dtype(values, 0))]


def _wide(_: Node, values: Values) -> list[Found]:
    """As a matrix product, for GemmFastGelu."""
    return [Found((*_shape(values, 0)[:-1], _shape(values, 1)[-1]), _dtype(values, 0))]


def _spread(_: Node, values: Values, *, right: int) -> list[Found]:
    return [Found(broadcast(_shape(values, 0), _shape(values, right)), _dtype(values, 0))]


def _normed(_: Node, values: Values, *, sums: int = 3) -> list[Found]:
    """Output, mean and inverse deviation of each row, and the sum of the inputs."""
    shape, kind = _shape(values, 0), _dtype(values, 0)
    row = Found((*shape[:-1], 1), "float32")
    return [Found(shape, kind), *[row] * (sums - 1), Found(shape, kind)]


def _embedded(_: Node, values: Values) -> list[Found]:
    ids, table = _shape(values, 0), _shape(values, 2)
    output = Found((*ids, table[-1]), _dtype(values, 2))
    return [output, Found(ids[:1], "int32"), output]


def _attention(node: Node, values: Values) -> list[Found]:
    """As Attention and QAttention, whose weight gives queries, keys and values side by side."""
    batch, length, _ = _shape(values, 0)
    sizes = node.attributes.get("qkv_hidden_sizes")
    hidden = sizes[2] if sizes else _shape(values, 1)[-1] // 3
    kind = _dtype(values, 3 if node.kind == "QAttention" else 0)
    place = 8 if node.kind == "QAttention" else 4
    before = 0 if _at(values, place) is None else _shape(values, place)[3]
    heads = node.attributes["num_heads"]
    present = (2, batch, heads, before + length, hidden // heads)
    return [Found((batch, length, hidden), kind), Found(present, kind)]


def _multi_head(node: Node, values: Values) -> list[Found]:
    """As MultiHeadAttention: keys and values of 3 or 4 dimensions, packed with the queries, or absent."""
    query, kind, heads = _shape(values, 0), _dtype(values, 0), node.attributes["num_heads"]
    batch, length = query[:2]
    value = query if _at(values, 2) is None else _shape(values, 2)
    if len(query) == 5:  # noqa: PLR2004 - (batch, length, heads, 3, width)
        hidden, total = heads * query[-1], length
    elif _at(values, 2) is None:  # keys and values are packed: (batch, length, heads, 2, width)
        packed = _shape(values, 1)
        hidden, total = heads * packed[-1], packed[1]
    else:
        hidden, total = (value[-1], value[1]) if len(value) == 3 else (heads * value[3], value[2])  # noqa: PLR2004
    total += 0 if _at(values, 6) is None else _shape(values, 6)[2]
    present = Found((batch, heads, total, hidden // heads), kind)
    return [Found((batch, length, hidden), kind), present, present]


def _grouped(node: Node, values: Values) -> list[Found]:
    """As GroupQueryAttention; with queries, keys and values packed where keys are left out."""
    heads, shared = node.attributes["num_heads"], node.attributes["kv_num_heads"]
    batch, length, hidden = _shape(values, 0)
    packed = _at(values, 1) is None
    width = hidden // (heads + 2 * shared if packed else heads)
    total = _at(values, 6)
    before = 0 if _at(values, 3) is None else _shape(values, 3)[2]
    known = None if total is None else total.data
    keys = before + length if known is None else int(known.max())
    present = Found((batch, shared, keys, width))
    kinds = [Found(present.dims, _dtype(values, 3) or _dtype(values, 0))] * 2
    return [Found((batch, length, heads * width), _dtype(values, 0)), *kinds]


def _rows(node: Node, values: Values) -> list[Found]:
    """As GatherBlockQuantized, whose bytes may hold two values each."""
    data, indices = list(_shape(values, 0)), _shape(values, 1)
    if _dtype(values, 0) == "uint8":
        data[-1] *= 8 // node.attributes.get("bits", 4)
    axis = node.attributes.get("gather_axis", 0) % len(data)
    return [Found((*data[:axis], *indices, *data[axis + 1 :]), _dtype(values, 2))]


def _joined(node: Node, values: Values) -> list[Found]:
    """As QLinearConcat: scale and zero point of the result, then tensor, scale and zero point of each."""
    found_ = like("Concat", [*values[2::3]], node.proto.attribute)
    return [Found(found_[0].dims, _dtype(values, 2))]


def _standard(
    node: Node, values: Values, *, name: str, places: tuple[int, ...] = (0, 1), kind: int | str = 0
) -> list[Found]:
    """As an operator of the default domain, on the inputs at some places.

    Its schema knows floating-point numbers only, and quantised ones have the same shapes.
    """
    chosen = [_floating(values[place]) for place in places if place < len(values)]
    return [Found(f.dims, _kind(values, kind)) for f in like(name, chosen, node.proto.attribute)]


def _floating(value: Value | None) -> Value | None:
    return None if value is None else replace(value, dtype="float32", data=None)


def _last(
    node: Node, values: Values, *, name: str, places: tuple[int, ...] = (0, 1), always: bool = False
) -> list[Found]:
    """The same where channels may come last."""
    if not (always or node.attributes.get("channels_last")):
        return _standard(node, values, name=name, places=places)
    shape = _shape(values, 0)
    first = Value((shape[0], shape[-1], *shape[1:-1]), _dtype(values, 0))
    dims = _standard(node, [first, *values[1:]], name=name, places=places)[0].dims
    return [NOTHING if dims is None else Found((dims[0], *dims[2:], dims[1]), _dtype(values, 0))]


def _multiplied(node: Node, values: Values) -> list[Found]:
    """As QGemm."""
    kind = _dtype(values, 1 if _at(values, 7) is None else 0)
    return [Found(_product(node, values, right=3)[0].dims, kind)]


def _recurrent(_: Node, values: Values) -> list[Found]:
    """As DynamicQuantizeLSTM, whose weights have their gates last: (directions, inputs, 4 x units)."""
    steps, batch, _width = _shape(values, 0)
    directions, units, _gates = _shape(values, 2)
    kind = _dtype(values, 0)
    state = Found((directions, batch, units), kind)
    return [Found((steps, directions, batch, units), kind), state, state]


def _halved(_: Node, values: Values) -> list[Found]:
    shape = _shape(values, 0)
    return [Found((*shape[:-1], shape[-1] // 2), _dtype(values, 0))]


def _quantized(_: Node, values: Values) -> list[Found]:
    return [Found(_shape(values, 0), _dtype(values, 2) or "uint8")]


_SCALES = ("A", "A_scale", "A_zero_point", "B", "B_scale", "B_zero_point", "C_scale", "C_zero_point")
_ONE = ("X", "X_scale", "X_zero_point", "Y_scale", "Y_zero_point")
_HEADS = ("query", "key", "value")
_CONV = ("X", "W", "B", "Z")
_QCONV = ("x", "x_scale", "x_zero_point", "w", "w_scale", "w_zero_point", "y_scale", "y_zero_point", "B")
_EXPERTS = ("input", "router_probs", "fc1_experts_weights")
_MATMUL = ("a_scale", "b_scale", "a_zero_point", "b_zero_point")

OPERATORS: dict[str, Contrib] = {
    "FusedMatMul": Contrib(("A", "B"), _product),
    "TransposeMatMul": Contrib(("A", "B"), _product),
    "FusedMatMulActivation": Contrib(("A", "B"), _product),
    "MatMulIntegerToFloat": Contrib(("A", "B", *_MATMUL, "bias"), partial(_product, kind=2)),
    "MatMulInteger16": Contrib(("A", "B"), partial(_product, kind="int32")),
    "DynamicQuantizeMatMul": Contrib(("A", "B", "b_scale", "b_zero_point", "bias"), _product),
    "MatMulNBits": Contrib(("A", "B", "scales", "zero_points", "g_idx", "bias"), _narrow),
    "MatMulBnb4": Contrib(("A", "B", "absmax"), _narrow),
    "MatMulFpQ4": Contrib(("A", "B", "B_shape"), _narrow),
    "FusedGemm": Contrib(("A", "B", "C"), _product),
    "GemmFastGelu": Contrib(("X", "W", "bias"), _wide),
    "QGemm": Contrib(("A", "a_scale", "a_zero_point", "B", "b_scale", "b_zero_point", "C"), _multiplied),
    "Gelu": Contrib(("X",), _same),
    "QuickGelu": Contrib(("X",), _same),
    "FastGelu": Contrib(("X", "bias"), _same),
    "BiasGelu": Contrib(("A", "B"), _same),
    "BiasAdd": Contrib(("X", "bias", "skip"), _same),
    "BiasSoftmax": Contrib(("data", "bias"), _same),
    "BiasSplitGelu": Contrib(("X", "bias"), _halved),
    "BiasDropout": Contrib(("data", "bias", "residual"), _same),
    "LayerNormalization": Contrib(("X", "Scale", "B"), _normed),
    "SimplifiedLayerNormalization": Contrib(("X", "scale"), _normed),
    "SkipLayerNormalization": Contrib(("input", "skip", "gamma", "beta", "bias"), _normed),
    "SkipSimplifiedLayerNormalization": Contrib(("input", "skip", "gamma", "bias"), _normed),
    "EmbedLayerNormalization": Contrib(
        ("input_ids", "segment_ids", "word_embedding", "position_embedding", "segment_embedding", "gamma",
         "beta", "mask", "position_ids"), _embedded),
    "GroupNorm": Contrib(("X", "gamma", "beta"), _same),
    "SkipGroupNorm": Contrib(("X", "gamma", "beta", "skip", "bias"), partial(_normed, sums=1)),
    "Attention": Contrib(
        ("input", "weights", "bias", "mask_index", "past", "attention_bias", "past_sequence_length"),
        _attention),
    "QAttention": Contrib(
        ("input", "weight", "bias", "input_scale", "weight_scale", "mask_index", "input_zero_point",
         "weight_zero_point", "past"), _attention),
    "MultiHeadAttention": Contrib(
        (*_HEADS, "bias", "key_padding_mask", "attention_bias", "past_key", "past_value"), _multi_head),
    "GroupQueryAttention": Contrib(
        (*_HEADS, "past_key", "past_value", "seqlens_k", "total_sequence_length", "cos_cache", "sin_cache"),
        _grouped),
    "LongformerAttention": Contrib(("input", "weight", "bias", "mask", "global_weight"), _same),
    "RotaryEmbedding": Contrib(("input", "position_ids", "cos_cache", "sin_cache"), _same),
    "MoE": Contrib((*_EXPERTS, "fc1_experts_bias", "fc2_experts_weights", "fc2_experts_bias",
                    "fc3_experts_weights", "fc3_experts_bias"), _same),
    "QMoE": Contrib((*_EXPERTS, "fc1_scales", "fc1_experts_bias", "fc2_experts_weights", "fc2_scales",
                     "fc2_experts_bias", "fc3_experts_weights", "fc3_scales", "fc3_experts_bias"), _same),
    "FusedConv": Contrib(_CONV, partial(_standard, name="Conv")),
    "NhwcFusedConv": Contrib(_CONV, partial(_last, name="Conv", always=True)),
    "NhwcConv": Contrib(_CONV, partial(_last, name="Conv", always=True)),
    "NhwcMaxPool": Contrib(("x",), partial(_last, name="MaxPool", places=(0,), always=True)),
    "QLinearConv": Contrib(_QCONV, partial(_last, name="Conv", places=(0, 3))),
    "QLinearConvTranspose": Contrib(_QCONV, partial(_last, name="ConvTranspose", places=(0, 3))),
    "QLinearAdd": Contrib(_SCALES, partial(_spread, right=3)),
    "QLinearMul": Contrib(_SCALES, partial(_spread, right=3)),
    "QLinearSigmoid": Contrib(_ONE, _same),
    "QLinearLeakyRelu": Contrib(_ONE, _same),
    "QLinearSoftmax": Contrib(_ONE, _same),
    "QLinearAveragePool": Contrib(_ONE, partial(_last, name="AveragePool", places=(0,))),
    "QLinearGlobalAveragePool": Contrib(_ONE, partial(_last, name="GlobalAveragePool", places=(0,))),
    "QLinearConcat": Contrib(("Y_scale", "Y_zero_point", "inputs*"), _joined),
    "QuantizeLinear": Contrib(("x", "y_scale", "y_zero_point"), _quantized),
    "DequantizeLinear": Contrib(("x", "x_scale", "x_zero_point"), partial(_same, kind=1)),
    "GatherBlockQuantized": Contrib(("data", "indices", "scales", "zero_points"), _rows),
    "DynamicQuantizeLSTM": Contrib(
        ("X", "W", "R", "B", "sequence_lens", "initial_h", "initial_c", "P", "W_scale", "W_zero_point",
         "R_scale", "R_zero_point"), _recurrent),
    "Inverse": Contrib(("X",), _same),
    "Trilu": Contrib(("X", "k"), _same),
}  # fmt: skip
"""By name; those of the default domain are what ONNX Runtime adds to it."""
