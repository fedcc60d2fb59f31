"""Formulas of the operators of TensorFlow, by name, with the conventions of PyTorch and ONNX.

Filters are stored with the channels last: height, width, inputs, outputs; those of a transposed convolution
as height, width, outputs, inputs.
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
    count_nothing,
    for_all,
    per_element,
    tensor_arguments,
)
from modeldyno.models.flops.indexing import count_lookup
from modeldyno.models.flops.matmul import contraction_macs, count_einsum
from modeldyno.models.static.graph import Op

if TYPE_CHECKING:
    from modeldyno.models.flops import Formula


def count_tensorflow_matmul(op: Op, *, left: str = "a", transposed: str = "transpose_a") -> Count:
    """Count for each output the products along the contracted dimension of the left operand."""
    axis = -2 if op.arguments.get(transposed) else -1
    return Count(macs=contraction_macs(op, op.tensor(left).shape[axis]))


def count_tensorflow_convolution(op: Op) -> Count:
    """Count for each output its filter: all dimensions but the last."""
    return Count(macs=op.outputs[0].size * prod(op.tensor("filter").shape[:-1]))


def count_depthwise_convolution(op: Op) -> Count:
    """Count for each output the window of the filter, without its channels."""
    return Count(macs=op.outputs[0].size * prod(op.tensor("filter").shape[:-2]))


def count_transposed_convolution(op: Op) -> Count:
    """Count for each input its filter: all dimensions but the last."""
    return Count(macs=op.tensor("out_backprop").size * prod(op.tensor("filter").shape[:-1]))


def count_tensorflow_einsum(op: Op) -> Count:
    """Count one MAC for each combination of all indices, where some are summed and others are not."""
    operands = {"equation": op.arguments["equation"], "tensors": tensor_arguments(op, "inputs")}
    return count_einsum(Op(op.kind, operands, op.outputs))


def count_tensorflow_pooling(op: Op) -> Count:
    """Count one operation for each element of the window of each output, padding included."""
    return per_element(op, operations=prod(op.arguments["kernel_size"]))


_EACH: dict[int, str] = {
    0: "ResizeNearestNeighbor",
    1: """
        Abs Acos Acosh Add AddV2 Asin Asinh Atan Atan2 Atanh BiasAdd BiasAddV1 Ceil Cos Cosh Equal Erf
        Erfc Exp Expm1 Floor FloorDiv FloorMod Greater GreaterEqual Inv IsFinite IsInf IsNan Less LessEqual
        Log Log1p LogicalAnd LogicalNot LogicalOr Maximum Minimum Mod Neg NotEqual Pow Reciprocal Relu Rint
        Round Rsqrt Select SelectV2 Sign Sin Sinh Sqrt Square Sub Tan Tanh
    """,
    2: "DivNoNan LeakyRelu Relu6 SquaredDifference MulNoNan",
    3: "Softsign",
    4: "Elu Selu Sigmoid",
    5: "Softplus",
    7: "ResizeBilinear",
    31: "ResizeBicubic",
}
"""Operations for each output."""

_OF_INPUT: dict[int, str] = {
    1: "All Any ArgMax ArgMin Cumprod Cumsum Max Mean Min Prod Sum",
    2: "FusedBatchNorm FusedBatchNormV2 FusedBatchNormV3 L2Loss",
    5: "LogSoftmax Softmax",
}
"""Operations for each element of the first input."""

_FREE = """
    Assert BroadcastGradientArgs IsVariableInitialized NoOp Rank Shape ShapeN Size TensorListElementShape
    TensorArraySizeV3 TensorArrayV3 TensorListLength TensorListReserve
"""
_COPIES = """
    BatchToSpaceND BroadcastTo Cast Concat ConcatV2 DepthToSpace ExtractImagePatches MirrorPad OneHot Pack
    Pad PadV2 ReverseV2 Roll SpaceToBatchND SpaceToDepth Split SplitV TensorArrayGatherV3 TensorArrayReadV3
    TensorArrayScatterV3 TensorArrayWriteV3 TensorListGetItem TensorListSetItem Tile Transpose Unpack
"""
_MAKERS = """
    Fill OnesLike Range RandomStandardNormal RandomUniform StatelessRandomGetKeyCounter
    StatelessRandomNormalV2 StatelessRandomUniformV2 ZerosLike
"""

_OPERATORS: dict[str, Formula] = {
    **by_operations(per_element, _EACH),
    **by_operations(onnx_formulas.per_input_element, _OF_INPUT),
    **for_all(_FREE, count_nothing),
    **for_all(_COPIES, count_copy),
    **for_all(_MAKERS, count_creation),
    "Mul": partial(onnx_formulas.count_onnx_product, operations=6),
    **for_all("Div RealDiv Xdivy", partial(onnx_formulas.count_onnx_product, operations=11)),
    "AddN": onnx_formulas.count_variadic,
    **for_all("Slice StridedSlice", onnx_formulas.count_slice),
    **for_all("Gather GatherNd GatherV2", partial(count_lookup, table="params", index="indices")),
    "ResourceGather": count_copy,
    "MatMul": count_tensorflow_matmul,
    **for_all(
        "BatchMatMul BatchMatMulV2 BatchMatMulV3",
        partial(count_tensorflow_matmul, left="x", transposed="adj_x"),
    ),
    "Einsum": count_tensorflow_einsum,
    **for_all("Conv Conv2D Conv3D", count_tensorflow_convolution),
    "DepthwiseConv2dNative": count_depthwise_convolution,
    **for_all("Conv2DBackpropInput Conv3DBackpropInputV2", count_transposed_convolution),
    **for_all("AvgPool AvgPool3D MaxPool MaxPool3D MaxPoolV2 MaxPoolWithArgmax", count_tensorflow_pooling),
}

TENSORFLOW: dict[str, Formula] = {f"tf.{name}": formula for name, formula in _OPERATORS.items()}
"""Operator to its formula; of what ends in ``Grad`` and of sparse operators there is none."""
