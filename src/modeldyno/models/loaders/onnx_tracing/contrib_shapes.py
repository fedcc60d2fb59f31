"""Shapes of operators without a schema in the onnx package: those of ONNX Runtime.

Formal inputs and shapes are those of ContribOperators.md in github.com/microsoft/onnxruntime.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from modeldyno.models.flops.indexing import broadcast_shape
from modeldyno.models.loaders.onnx_tracing.nodes import GraphValue, Values, element_dtype, shape_at, value_at
from modeldyno.models.loaders.onnx_tracing.schema_inference import NOTHING, InferredType, infer_as

if TYPE_CHECKING:
    from modeldyno.models.loaders.onnx_tracing.nodes import OnnxNode

Rule = Callable[["OnnxNode", Values], list[InferredType]]


class Contrib(NamedTuple):
    """An operator of ONNX Runtime."""

    formals: tuple[str, ...]
    """Names of its inputs; a last one that ends in ``*`` takes all remaining ones."""
    rule: Rule


def infer(node: OnnxNode, values: Values) -> list[InferredType]:
    """Infer the outputs of a node by its rule; NOTHING without a rule, or where the rule fails."""
    operator = OPERATORS.get(node.kind)
    count = len(node.outputs)
    if operator is None or node.domain not in {"", "com.microsoft"}:
        return [NOTHING] * count
    try:
        outputs = operator.rule(node, values)
    except (KeyError, ValueError, TypeError, IndexError, ZeroDivisionError):
        outputs = []
    return [*outputs, *[NOTHING] * count][:count]


def _dtype(values: Values, position: int) -> str:
    value = value_at(values, position)
    return "" if value is None else value.dtype


def _like_first_input(_: OnnxNode, values: Values, *, kind: int | str = 0) -> list[InferredType]:
    """Like the first input; the dtype is given or that of another input."""
    return [InferredType(shape_at(values, 0), _kind(values, kind))]


def _kind(values: Values, kind: int | str) -> str:
    return kind if isinstance(kind, str) else _dtype(values, kind)


def _product(node: OnnxNode, values: Values, *, right: int = 1, kind: int | str = 0) -> list[InferredType]:
    """Like a matrix product, with the transpositions of FusedMatMul."""
    first, second = list(shape_at(values, 0)), list(shape_at(values, right))
    for shape, name in ((first, "A"), (second, "B")):
        if node.attributes.get(f"transBatch{name}"):
            shape[:-1] = [*shape[1:-1], shape[0]]
        if node.attributes.get(f"trans{name}") and len(shape) > 1:
            shape[-2:] = shape[:-3:-1]
    rows = first[-2:-1]
    columns = second[-1:] if len(second) > 1 else []
    batch = broadcast_shape(tuple(first[:-2]), tuple(second[:-2]))
    return [InferredType((*batch, *rows, *columns), _kind(values, kind))]


def _packed_products(
    node: OnnxNode, values: Values, *, columns: tuple[str, ...] = ("N",)
) -> list[InferredType]:
    """Like MatMulNBits: the last dimension becomes N; of several products, the sum before them is last."""
    shape, kind = shape_at(values, 0), _dtype(values, 0)
    if not node.attributes.get("transB", 1):
        columns = ("K",)
    products = [InferredType((*shape[:-1], node.attributes[name]), kind) for name in columns]
    return [*products, InferredType(shape, kind)]


def _blob_product(_: OnnxNode, values: Values) -> list[InferredType]:
    """Like MatMulFpQ4, whose third input says the sizes of the matrix."""
    sizes = value_at(values, 2)
    if sizes is None or sizes.data is None:
        return [NOTHING]
    return [InferredType((*shape_at(values, 0)[:-1], int(sizes.data[1])), _dtype(values, 0))]


def _rows_product(_: OnnxNode, values: Values) -> list[InferredType]:
    """Like a product with a matrix of (outputs, packed inputs)."""
    return [InferredType((*shape_at(values, 0)[:-1], shape_at(values, 1)[0]), _dtype(values, 0))]


def _gather_packed(node: OnnxNode, values: Values) -> list[InferredType]:
    kind = element_dtype(node.attributes.get("output_dtype", _BFLOAT16))
    return [InferredType((*shape_at(values, 1), node.attributes["K"]), kind)]


_BFLOAT16 = 16
"""TensorProto.DataType."""


def _gemm_fast_gelu(_: OnnxNode, values: Values) -> list[InferredType]:
    """Like a matrix product, for GemmFastGelu."""
    return [InferredType((*shape_at(values, 0)[:-1], shape_at(values, 1)[-1]), _dtype(values, 0))]


def _broadcast(_: OnnxNode, values: Values, *, right: int) -> list[InferredType]:
    return [InferredType(broadcast_shape(shape_at(values, 0), shape_at(values, right)), _dtype(values, 0))]


def _normalisation(_: OnnxNode, values: Values, *, sums: int = 3) -> list[InferredType]:
    """Output, mean and inverse deviation of each row, and the sum of the inputs."""
    shape, kind = shape_at(values, 0), _dtype(values, 0)
    row = InferredType((*shape[:-1], 1), "float32")
    return [InferredType(shape, kind), *[row] * (sums - 1), InferredType(shape, kind)]


def _embed_layer_norm(_: OnnxNode, values: Values, *, kind: int | str = 2) -> list[InferredType]:
    ids, table = shape_at(values, 0), shape_at(values, 2)
    output = InferredType((*ids, table[-1]), _kind(values, kind))
    return [output, InferredType(ids[:1], "int32"), output]


def _attention(node: OnnxNode, values: Values) -> list[InferredType]:
    """Like Attention and QAttention, whose weight gives queries, keys and values side by side."""
    batch, length, _ = shape_at(values, 0)
    sizes = node.attributes.get("qkv_hidden_sizes")
    hidden = sizes[2] if sizes else shape_at(values, 1)[-1] // 3
    kind = _dtype(values, 3 if node.kind == "QAttention" else 0)
    position = 8 if node.kind == "QAttention" else 4
    past_length = 0 if value_at(values, position) is None else shape_at(values, position)[3]
    heads = node.attributes["num_heads"]
    present = (2, batch, heads, past_length + length, hidden // heads)
    return [InferredType((batch, length, hidden), kind), InferredType(present, kind)]


def _multi_head_attention(node: OnnxNode, values: Values) -> list[InferredType]:
    """Like MultiHeadAttention: keys and values of 3 or 4 dimensions, packed with the queries, or absent."""
    query, kind, heads = shape_at(values, 0), _dtype(values, 0), node.attributes["num_heads"]
    batch, length = query[:2]
    value = query if value_at(values, 2) is None else shape_at(values, 2)
    if len(query) == 5:
        hidden, total = heads * query[-1], length
    elif value_at(values, 2) is None:  # keys and values are packed: (batch, length, heads, 2, width)
        packed = shape_at(values, 1)
        hidden, total = heads * packed[-1], packed[1]
    else:
        hidden, total = (value[-1], value[1]) if len(value) == 3 else (heads * value[3], value[2])
    total += 0 if value_at(values, 6) is None else shape_at(values, 6)[2]
    present = InferredType((batch, heads, total, hidden // heads), kind)
    return [InferredType((batch, length, hidden), kind), present, present]


def _group_query_attention(node: OnnxNode, values: Values) -> list[InferredType]:
    """Like GroupQueryAttention; queries, keys and values are packed where keys are omitted."""
    heads, kv_heads = node.attributes["num_heads"], node.attributes["kv_num_heads"]
    batch, length, hidden = shape_at(values, 0)
    packed = value_at(values, 1) is None
    width = hidden // (heads + 2 * kv_heads if packed else heads)
    total = value_at(values, 6)
    past_length = 0 if value_at(values, 3) is None else shape_at(values, 3)[2]
    known_total = None if total is None else total.data
    keys = past_length + length if known_total is None else int(known_total.max())
    present = InferredType((batch, kv_heads, keys, width))
    kinds = [InferredType(present.dims, _dtype(values, 3) or _dtype(values, 0))] * 2
    return [InferredType((batch, length, heads * width), _dtype(values, 0)), *kinds]


def _gather_block_quantized(node: OnnxNode, values: Values) -> list[InferredType]:
    """Like GatherBlockQuantized, whose bytes may hold two values each."""
    data, indices = list(shape_at(values, 0)), shape_at(values, 1)
    if _dtype(values, 0) == "uint8":
        data[-1] *= 8 // node.attributes.get("bits", 4)
    axis = node.attributes.get("gather_axis", 0) % len(data)
    return [InferredType((*data[:axis], *indices, *data[axis + 1 :]), _dtype(values, 2))]


def _qlinear_concat(node: OnnxNode, values: Values) -> list[InferredType]:
    """Like QLinearConcat: scale and zero point of the result, then tensor, scale and zero point of each."""
    concatenated = infer_as("Concat", [*values[2::3]], node.proto.attribute)
    return [InferredType(concatenated[0].dims, _dtype(values, 2))]


def _like_standard(
    node: OnnxNode, values: Values, *, name: str, places: tuple[int, ...] = (0, 1), kind: int | str = 0
) -> list[InferredType]:
    """Like an operator of the default domain, on the inputs at some positions.

    Its schema supports floating point only; quantised numbers have the same shapes.
    """
    selected = [_as_float(values[position]) for position in places if position < len(values)]
    return [InferredType(f.dims, _kind(values, kind)) for f in infer_as(name, selected, node.proto.attribute)]


def _as_float(value: GraphValue | None) -> GraphValue | None:
    return None if value is None else replace(value, dtype="float32", data=None)


def _channels_last(
    node: OnnxNode, values: Values, *, name: str, places: tuple[int, ...] = (0, 1), always: bool = False
) -> list[InferredType]:
    """The same where channels may come last."""
    if not (always or node.attributes.get("channels_last")):
        return _like_standard(node, values, name=name, places=places)
    shape = shape_at(values, 0)
    first = GraphValue((shape[0], shape[-1], *shape[1:-1]), _dtype(values, 0))
    dims = _like_standard(node, [first, *values[1:]], name=name, places=places)[0].dims
    return [NOTHING if dims is None else InferredType((dims[0], *dims[2:], dims[1]), _dtype(values, 0))]


def _qgemm(node: OnnxNode, values: Values) -> list[InferredType]:
    """Like QGemm."""
    kind = _dtype(values, 1 if value_at(values, 7) is None else 0)
    return [InferredType(_product(node, values, right=3)[0].dims, kind)]


def _recurrent(_: OnnxNode, values: Values) -> list[InferredType]:
    """Like DynamicQuantizeLSTM, whose weights have their gates last: (directions, inputs, 4 x units)."""
    steps, batch, _width = shape_at(values, 0)
    directions, units, _gates = shape_at(values, 2)
    kind = _dtype(values, 0)
    state = InferredType((directions, batch, units), kind)
    return [InferredType((steps, directions, batch, units), kind), state, state]


def _bias_split_gelu(_: OnnxNode, values: Values) -> list[InferredType]:
    shape = shape_at(values, 0)
    return [InferredType((*shape[:-1], shape[-1] // 2), _dtype(values, 0))]


def _quantize_linear(_: OnnxNode, values: Values) -> list[InferredType]:
    return [InferredType(shape_at(values, 0), _dtype(values, 2) or "uint8")]


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
    "MatMulNBits": Contrib(("A", "B", "scales", "zero_points", "g_idx", "bias"), _packed_products),
    "MatMulNBitsMlp": Contrib(
        ("A", "skip", "norm_scale", "gate_B", "gate_scales", "gate_bias", "up_B", "up_scales", "up_bias"),
        _packed_products),
    "MatMulNBitsQkv": Contrib(
        ("A", "skip", "norm_scale", "q_B", "q_scales", "q_bias", "k_B", "k_scales", "k_bias", "v_B",
         "v_scales", "v_bias"),
        partial(_packed_products, columns=("Nq", "Nkv", "Nkv"))),
    "MatMulNBitsQLoRA": Contrib(
        ("X", "W", "scales", "lora_A", "lora_A_scales", "lora_B", "lora_B_scales"), _packed_products),
    "MatMulPacked": Contrib(("A", "B", "global_scale"), _packed_products),
    "MatMulBnb4": Contrib(("A", "B", "absmax"), _packed_products),
    "MatMulFpQ4": Contrib(("A", "B", "B_shape"), _blob_product),
    "MatMulBlockQuantizedFp4Weight": Contrib(
        ("A", "B", "weight_scale", "weight_scale_2", "input_scale", "bias"), _rows_product),
    "MatMulBlockQuantizedFp8Weight": Contrib(("A", "B", "b_scale", "a_scale", "bias"), _rows_product),
    "FusedGemm": Contrib(("A", "B", "C"), _product),
    "GemmFastGelu": Contrib(("X", "W", "bias"), _gemm_fast_gelu),
    "QGemm": Contrib(
        ("A", "a_scale", "a_zero_point", "B", "b_scale", "b_zero_point", "C", "y_scale", "y_zero_point"),
        _qgemm),
    "Gelu": Contrib(("X",), _like_first_input),
    "QuickGelu": Contrib(("X",), _like_first_input),
    "FastGelu": Contrib(("X", "bias"), _like_first_input),
    "BiasGelu": Contrib(("A", "B"), _like_first_input),
    "BiasAdd": Contrib(("X", "bias", "skip"), _like_first_input),
    "BiasSoftmax": Contrib(("data", "bias"), _like_first_input),
    "BiasSplitGelu": Contrib(("X", "bias"), _bias_split_gelu),
    "BiasDropout": Contrib(("data", "bias", "residual"), _like_first_input),
    "LayerNormalization": Contrib(("X", "Scale", "B"), _normalisation),
    "SimplifiedLayerNormalization": Contrib(("X", "scale"), _normalisation),
    "SkipLayerNormalization": Contrib(("input", "skip", "gamma", "beta", "bias"), _normalisation),
    "SkipSimplifiedLayerNormalization": Contrib(("input", "skip", "gamma", "bias"), _normalisation),
    "EmbedLayerNormalization": Contrib(
        ("input_ids", "segment_ids", "word_embedding", "position_embedding", "segment_embedding", "gamma",
         "beta", "mask", "position_ids"), _embed_layer_norm),
    "QEmbedLayerNormalization": Contrib(
        ("input_ids", "segment_ids", "word_embedding_quant", "position_embedding_quant", "segment_embedding",
         "gamma_quant", "beta_quant", "mask", "word_embedding_scale", "position_embedding_scale",
         "segment_embedding_scale", "gamma_scale", "beta_scale", "word_embedding_zero_point",
         "position_embedding_zero_point", "segment_embedding_zero_point", "gamma_zero_point",
         "beta_zero_point"), partial(_embed_layer_norm, kind="float32")),
    "GroupNorm": Contrib(("X", "gamma", "beta"), _like_first_input),
    "SkipGroupNorm": Contrib(("X", "gamma", "beta", "skip", "bias"), partial(_normalisation, sums=1)),
    "Attention": Contrib(
        ("input", "weights", "bias", "mask_index", "past", "attention_bias", "past_sequence_length"),
        _attention),
    "QAttention": Contrib(
        ("input", "weight", "bias", "input_scale", "weight_scale", "mask_index", "input_zero_point",
         "weight_zero_point", "past"), _attention),
    "MultiHeadAttention": Contrib(
        (*_HEADS, "bias", "key_padding_mask", "attention_bias", "past_key", "past_value"),
        _multi_head_attention),
    "GroupQueryAttention": Contrib(
        (*_HEADS, "past_key", "past_value", "seqlens_k", "total_sequence_length", "cos_cache", "sin_cache",
         "position_ids", "attention_bias", "head_sink", "k_scale", "v_scale", "q_norm_weight",
         "k_norm_weight"), _group_query_attention),
    "LongformerAttention": Contrib(("input", "weight", "bias", "mask", "global_weight"), _like_first_input),
    "RotaryEmbedding": Contrib(("input", "position_ids", "cos_cache", "sin_cache"), _like_first_input),
    "MoE": Contrib((*_EXPERTS, "fc1_experts_bias", "fc2_experts_weights", "fc2_experts_bias",
                    "fc3_experts_weights", "fc3_experts_bias"), _like_first_input),
    "QMoE": Contrib((*_EXPERTS, "fc1_scales", "fc1_experts_bias", "fc2_experts_weights", "fc2_scales",
                     "fc2_experts_bias", "fc3_experts_weights", "fc3_scales", "fc3_experts_bias",
                     "fc1_zero_points", "fc2_zero_points", "fc3_zero_points", "router_weights",
                     "fc1_global_scale", "fc2_global_scale", "fc1_act_scale", "fc2_act_scale"),
                    _like_first_input),
    "MoEPacked": Contrib(
        ("input", "router_probs", "gate_experts_weights", "up_experts_weights", "down_experts_weights",
         "router_weights"), _like_first_input),
    "FusedConv": Contrib(_CONV, partial(_like_standard, name="Conv")),
    "NhwcFusedConv": Contrib(_CONV, partial(_channels_last, name="Conv", always=True)),
    "NhwcConv": Contrib(_CONV, partial(_channels_last, name="Conv", always=True)),
    "NhwcMaxPool": Contrib(("x",), partial(_channels_last, name="MaxPool", places=(0,), always=True)),
    "QLinearConv": Contrib(_QCONV, partial(_channels_last, name="Conv", places=(0, 3))),
    "QLinearConvTranspose": Contrib(_QCONV, partial(_channels_last, name="ConvTranspose", places=(0, 3))),
    "QLinearAdd": Contrib(_SCALES, partial(_broadcast, right=3)),
    "QLinearMul": Contrib(_SCALES, partial(_broadcast, right=3)),
    "QLinearSigmoid": Contrib(_ONE, _like_first_input),
    "QLinearLeakyRelu": Contrib(_ONE, _like_first_input),
    "QLinearSoftmax": Contrib(_ONE, _like_first_input),
    "QLinearAveragePool": Contrib(_ONE, partial(_channels_last, name="AveragePool", places=(0,))),
    "QLinearGlobalAveragePool": Contrib(_ONE, partial(_channels_last, name="GlobalAveragePool", places=(0,))),
    "QLinearConcat": Contrib(("Y_scale", "Y_zero_point", "inputs*"), _qlinear_concat),
    "QuantizeLinear": Contrib(("x", "y_scale", "y_zero_point"), _quantize_linear),
    "DequantizeLinear": Contrib(("x", "x_scale", "x_zero_point"), partial(_like_first_input, kind=1)),
    "GatherPacked": Contrib(("data", "indices"), _gather_packed),
    "GatherBlockQuantized": Contrib(("data", "indices", "scales", "zero_points"), _gather_block_quantized),
    "DynamicQuantizeLSTM": Contrib(
        ("X", "W", "R", "B", "sequence_lens", "initial_h", "initial_c", "P", "W_scale", "W_zero_point",
         "R_scale", "R_zero_point"), _recurrent),
    "Inverse": Contrib(("X",), _like_first_input),
    "Trilu": Contrib(("X", "k"), _like_first_input),
}  # fmt: skip
"""By name; those of the default domain are ONNX Runtime's additions to it."""
