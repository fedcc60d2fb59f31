"""Costs of recurrent layers: each token is multiplied by each weight matrix of each layer and direction.

Beyond the biases, a unit takes 22 operations in an LSTM (4 sums of gates, 3 logistic functions of 4, 2
hyperbolic tangents, 4 of the state), 16 in a GRU (2 sums, 2 logistic functions of 4, 3 of the candidate,
3 of the state) and 2 in a plain layer (sum and activation).
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from modeldyno.core.static.flops import Count
from modeldyno.core.static.flops.elementwise import size, tensors

if TYPE_CHECKING:
    from modeldyno.core.static.graph import Op, Tensor

LSTM, GRU, PLAIN = 22, 16, 2
"""Operations for each unit, see above."""
_MODES = (PLAIN, PLAIN, LSTM, GRU)
"""By the mode number of the kernels: ReLU, tanh, LSTM, GRU."""


def cost(tokens: int, weights: list[Tensor], units: int, operations: int) -> Count:
    """Count layers: `weights` and biases of all of them, and `units`, the sum of their widths."""
    matrices = [tensor for tensor in weights if len(tensor.shape) > 1]
    biases = size(weights) - size(matrices)
    return Count(macs=tokens * size(matrices), elementwise=tokens * (biases + units * operations))


def layers(op: Op, *, operations: int) -> Count:
    """Count MACs of all layers and directions for each token, packed or not, and the units' operations."""
    data = tensors(op, "input") or tensors(op, "data")
    state = tensors(op, "hx")[-1]
    units = state.shape[0] * state.shape[-1]
    return cost(prod(data[0].shape[:-1]), tensors(op, "params"), units, operations)


def kernel(op: Op) -> Count:
    """Count the same for a fused kernel, which takes the kind of layer as a number."""
    arguments, data = op.arguments, op.tensor("input")
    units = arguments["hidden_size"] * arguments["num_layers"] * (1 + bool(arguments["bidirectional"]))
    return cost(prod(data.shape[:-1]), tensors(op, "weight"), units, _MODES[arguments["mode"]])


def kernel_backward(op: Op) -> Count:
    """Count the MACs of the forward twice, and its element-wise part twice."""
    forward = kernel(op)
    return Count(macs=2 * forward.macs, elementwise=2 * forward.elementwise)


def one_layer(op: Op) -> Count:
    """Count the same for one layer in one direction."""
    arguments, data = op.arguments, op.tensor("input")
    weights = [tensor for n in range(5) for tensor in tensors(op, f"weight{n}")]
    if not arguments.get("has_biases", True):
        weights = weights[:2]
    return cost(prod(data.shape[:-1]), weights, arguments["hidden_size"], _MODES[arguments["mode"]])


def one_layer_backward(op: Op) -> Count:
    """Count the MACs of the forward twice, and its element-wise part twice."""
    forward = one_layer(op)
    return Count(macs=2 * forward.macs, elementwise=2 * forward.elementwise)


def cell(op: Op, *, operations: int) -> Count:
    """Count one step: both products, biases, and the units' operations."""
    weights = [tensor for name in ("w_ih", "w_hh", "b_ih", "b_hh") for tensor in tensors(op, name)]
    return cost(prod(op.tensor("input").shape[:-1]), weights, tensors(op, "hx")[0].shape[-1], operations)


def gates(op: Op, *, operations: int) -> Count:
    """Count one step without its products: biases and the units' operations."""
    biases = size([*tensors(op, "input_bias"), *tensors(op, "hidden_bias")])
    units = op.outputs[0].shape[-1]
    return Count(elementwise=prod(op.outputs[0].shape[:-1]) * (biases + units * operations))
