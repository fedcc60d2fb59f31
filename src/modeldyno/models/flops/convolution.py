"""Costs of convolutions: each output is a sum over the kernel and the input channels of its group.

Taps on padding count, and so do those of a transposed convolution outside of the output, as the usual
algorithms compute them. Strides, dilation and groups are already reflected in the shapes.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from modeldyno.models.flops import Count
from modeldyno.models.flops.elementwise import is_complex, tensor_arguments

if TYPE_CHECKING:
    from modeldyno.models.static.graph import Op, Tensor


def convolution_macs(input_: Tensor, weight: Tensor, output: Tensor, *, transposed: bool = False) -> int:
    """Return the MACs: the whole filter for each output, or for each input if transposed."""
    taps = prod(weight.shape[1:]) * (4 if is_complex(weight) else 1)
    return (input_ if transposed else output).size * taps


def count_convolution(
    op: Op, *, data: str = "input", weight: str = "weight", bias: str = "bias", transposed: bool = False
) -> Count:
    """Count for each output (transposed: each input) the MACs of its filter, and the sum with a bias."""
    output, filters = op.outputs[0], op.tensor(weight)
    transposed = transposed or bool(op.arguments.get("transposed"))
    extra = output.size * sum(len(tensor_arguments(op, name)) for name in (bias, "z", "other"))
    return Count(
        macs=convolution_macs(op.tensor(data), filters, output, transposed=transposed), elementwise=extra
    )


def count_convolution_relu(op: Op) -> Count:
    """Count a convolution, and a rectifier for each output."""
    count = count_convolution(op, data="self")
    return Count(macs=count.macs, elementwise=count.elementwise + op.outputs[0].size)


def count_packed_convolution(op: Op, *, operations: int = 0) -> Count:
    """Count a convolution whose filters are packed, and operations for each output.

    The name of the filters depends on the overload.
    """
    filters = op.arguments.get("packed_weight", op.arguments.get("weight"))
    assert isinstance(filters, tuple)
    size = op.outputs[0].size
    return Count(macs=size * prod(filters[1:]), elementwise=size * operations)


def count_packed_transposed_convolution(op: Op) -> Count:
    """Count a transposed convolution whose filters are packed: each element of the input meets them all."""
    filters = op.arguments["packed_weight"]
    assert isinstance(filters, tuple)
    return Count(macs=op.tensor("qx").size * prod(filters[1:]))


def count_convolution_backward(op: Op, *, data: str = "input") -> Count:
    """Count the MACs of the forward once for each of the gradients of input and weight that is asked for.

    The gradient of the bias is a sum, one addition for each element of the gradient.
    """
    grad, output_mask = op.tensor("grad_output"), op.arguments["output_mask"]
    transposed = bool(op.arguments.get("transposed"))
    forward = convolution_macs(op.tensor(data), op.tensor("weight"), grad, transposed=transposed)
    return Count(
        macs=forward * (bool(output_mask[0]) + bool(output_mask[1])),
        elementwise=grad.size * bool(output_mask[2]),
    )


def count_conv_tbc(op: Op) -> Count:
    """Count for each output the taps times the input channels, and the sum with the bias."""
    taps, channels, _ = op.tensor("weight").shape
    return Count(macs=op.outputs[0].size * taps * channels, elementwise=op.outputs[0].size)


def count_conv_tbc_backward(op: Op) -> Count:
    """Count the MACs of the forward twice, for input and weight, and the sum of the bias's gradient."""
    grad = op.tensor("self")
    taps, channels, _ = op.tensor("weight").shape
    return Count(macs=2 * grad.size * taps * channels, elementwise=grad.size)
