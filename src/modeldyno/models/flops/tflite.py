"""Formulas of the built-in operators of TensorFlow Lite, by name, with the conventions of the other dialects.

Filters have the outputs first (outputs, height, width, inputs), those of depthwise and three-dimensional
convolutions last. Sums with a bias and a fused activation are element-wise. Where an operator computes with
integers, each operand takes 2 operations to dequantise, and each output 5 to quantise, which applies the
activation as well; a product dequantises nothing.
"""

from __future__ import annotations

from functools import partial
from math import prod
from typing import TYPE_CHECKING

from modeldyno.models.flops import Count, onnx_formulas
from modeldyno.models.flops.elementwise import (
    by_operations,
    count_copy,
    count_creation,
    count_gelu,
    count_nothing,
    for_all,
    tensor_arguments,
)
from modeldyno.models.flops.indexing import count_lookup
from modeldyno.models.flops.matmul import contraction_macs
from modeldyno.models.flops.recurrent import LSTM, PLAIN, count_recurrent

if TYPE_CHECKING:
    from modeldyno.models.flops import Formula
    from modeldyno.models.static.graph import Op

_ACTIVATIONS = {"RELU": 1, "RELU_N1_TO_1": 2, "RELU6": 2, "TANH": 1, "SIGN_BIT": 1}
"""Operations of a fused activation for each output."""
_QUANTISE, _DEQUANTISE = 5, 2


def _last_operations(op: Op) -> int:
    """Return the operations for each output that follow its computation: quantising, or an activation."""
    activation = _ACTIVATIONS.get(op.arguments.get("fused_activation_function", ""), 0)
    return _QUANTISE if op.arguments.get("quantized") else activation


def count_tflite_product(op: Op, *, outputs_first: bool = True, transposed: bool = False) -> Count:
    """Count for each output its filter (transposed: for each input), its bias and its activation."""
    filters, output = op.tensor("filter").shape, op.outputs[0].size
    taps = prod(filters[1:] if outputs_first else filters[:-1])
    after = len(tensor_arguments(op, "bias")) + _last_operations(op)
    macs = (op.tensor("input").size if transposed else output) * taps
    return Count(macs=macs, elementwise=output * after)


def count_tflite_matmul(op: Op) -> Count:
    """Count for each output the products along the contracted dimension of the left operand."""
    axis = -2 if op.arguments.get("adj_x") else -1
    macs = contraction_macs(op, op.tensor("x").shape[axis])
    return Count(macs=macs, elementwise=op.outputs[0].size * _last_operations(op))


def count_tflite_elements(op: Op, *, operations: int) -> Count:
    """Count operations for each output, its activation, and the scales of integers."""
    scales = _DEQUANTISE * len([*op.tensors()]) if op.arguments.get("quantized") else 0
    return Count(elementwise=op.outputs[0].size * (operations + scales + _last_operations(op)))


def count_tflite_pooling(op: Op) -> Count:
    """Count one operation for each element of the window of each output, and its activation."""
    window = op.arguments["filter_height"] * op.arguments["filter_width"]
    activation = _ACTIVATIONS.get(op.arguments.get("fused_activation_function", ""), 0)
    return Count(elementwise=op.outputs[0].size * (window + activation))


def count_tflite_gelu(op: Op) -> Count:
    """Count 5 operations for each output; 9 for the approximation by a hyperbolic tangent."""
    approximate = "tanh" if op.arguments.get("approximate") else "none"
    return count_gelu(type(op)(op.kind, {**op.arguments, "approximate": approximate}, op.outputs))


def count_tflite_recurrent(op: Op, *, operations: int) -> Count:
    """Count for each token of the input the weights, the biases, and the units' operations."""
    tokens = prod(op.tensor("input").shape[:-1])
    weights = tensor_arguments(op, "weights")
    return count_recurrent(tokens, weights, op.outputs[0].shape[-1], operations)


_EACH: dict[int, str] = {
    0: "RESIZE_NEAREST_NEIGHBOR",
    1: """
        ABS ADD ATAN2 CEIL COS DIV EQUAL EXP FLOOR FLOOR_DIV FLOOR_MOD GREATER GREATER_EQUAL LESS LESS_EQUAL
        LOG LOGICAL_AND LOGICAL_NOT LOGICAL_OR MAXIMUM MINIMUM MUL NEG NOT_EQUAL POW RELU ROUND RSQRT SELECT
        SELECT_V2 SIGN SIN SQRT SQUARE SUB TANH BITWISE_XOR RIGHT_SHIFT
    """,
    2: "DEQUANTIZE LEAKY_RELU PRELU RELU6 RELU_0_TO_1 RELU_N1_TO_1 SQUARED_DIFFERENCE",
    4: "ELU LOGISTIC",
    5: "HARD_SWISH QUANTIZE",
    7: "RESIZE_BILINEAR",
}
"""Operations for each output."""

_OF_INPUT: dict[int, str] = {
    1: "ARG_MAX ARG_MIN CUMSUM MEAN REDUCE_ALL REDUCE_ANY REDUCE_MAX REDUCE_MIN REDUCE_PROD SUM",
    3: "L2_NORMALIZATION",
    5: "LOG_SOFTMAX SOFTMAX",
}
"""Operations for each element of the first input."""

_COPIES = """
    ASSIGN_VARIABLE BATCH_TO_SPACE_ND BROADCAST_TO CAST CONCATENATION DEPTH_TO_SPACE MIRROR_PAD ONE_HOT PACK
    PAD PADV2 READ_VARIABLE REVERSE_SEQUENCE REVERSE_V2 SPACE_TO_BATCH_ND SPACE_TO_DEPTH SPLIT SPLIT_V TILE
    TRANSPOSE UNPACK
"""

_OPERATORS: dict[str, Formula] = {
    **by_operations(count_tflite_elements, _EACH),
    **by_operations(onnx_formulas.per_input_element, _OF_INPUT),
    **for_all("CALL_ONCE RANK SHAPE VAR_HANDLE", count_nothing),
    **for_all(_COPIES, count_copy),
    **for_all("FILL RANGE ZEROS_LIKE", count_creation),
    **for_all("SLICE STRIDED_SLICE", onnx_formulas.count_slice),
    **for_all("GATHER GATHER_ND EMBEDDING_LOOKUP", partial(count_lookup, table="params", index="indices")),
    "ADD_N": onnx_formulas.count_variadic,
    "GELU": count_tflite_gelu,
    **for_all("CONV_2D FULLY_CONNECTED", count_tflite_product),
    **for_all("CONV_3D DEPTHWISE_CONV_2D", partial(count_tflite_product, outputs_first=False)),
    **for_all(
        "CONV_3D_TRANSPOSE TRANSPOSE_CONV",
        partial(count_tflite_product, outputs_first=False, transposed=True),
    ),
    "BATCH_MATMUL": count_tflite_matmul,
    **for_all("AVERAGE_POOL_2D L2_POOL_2D MAX_POOL_2D", count_tflite_pooling),
    **for_all("LSTM UNIDIRECTIONAL_SEQUENCE_LSTM", partial(count_tflite_recurrent, operations=LSTM)),
    **for_all("RNN UNIDIRECTIONAL_SEQUENCE_RNN", partial(count_tflite_recurrent, operations=PLAIN)),
}

TFLITE: dict[str, Formula] = {f"tflite.{name}": formula for name, formula in _OPERATORS.items()}
"""Operator to its formula; of custom operators and those that run on TensorFlow (Flex) there is none."""
