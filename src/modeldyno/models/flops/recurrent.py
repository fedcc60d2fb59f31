"""Costs of recurrent layers: each token is multiplied by each weight matrix of each layer and direction.

Beyond the biases, a unit takes 22 operations in an LSTM (4 sums of gates, 3 logistic functions of 4, 2
hyperbolic tangents, 4 of the state), 16 in a GRU (2 sums, 2 logistic functions of 4, 3 of the candidate,
3 of the state) and 2 in a plain layer (sum and activation).
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from modeldyno.models.flops import Count
from modeldyno.models.flops.elementwise import tensor_arguments, total_elements

if TYPE_CHECKING:
    from modeldyno.models.static.graph import Op, Tensor

LSTM, GRU, PLAIN = 22, 16, 2
"""Operations for each unit, see above."""
_MODES = (PLAIN, PLAIN, LSTM, GRU)
"""By the mode number of the kernels: ReLU, tanh, LSTM, GRU."""


def count_recurrent(tokens: int, weights: list[Tensor], units: int, operations: int) -> Count:
    """Count layers: `weights` and biases of all of them, and `units`, the sum of their widths."""
    matrices = [tensor for tensor in weights if len(tensor.shape) > 1]
    biases = total_elements(weights) - total_elements(matrices)
    return Count(macs=tokens * total_elements(matrices), elementwise=tokens * (biases + units * operations))


def count_rnn_layers(op: Op, *, operations: int) -> Count:
    """Count MACs of all layers and directions for each token, packed or not, and the units' operations."""
    data = tensor_arguments(op, "input") or tensor_arguments(op, "data")
    state = tensor_arguments(op, "hx")[-1]
    units = state.shape[0] * state.shape[-1]
    return count_recurrent(prod(data[0].shape[:-1]), tensor_arguments(op, "params"), units, operations)


def count_packed_rnn_layers(op: Op, *, operations: int) -> Count:
    """Count the same for layers with packed weights, each told by the shapes of its weights and biases."""
    data = tensor_arguments(op, "input") or tensor_arguments(op, "data")
    state = tensor_arguments(op, "hx")[-1]
    shapes = [shape for layer in op.arguments["params"] for shape in layer]
    units = state.shape[0] * state.shape[-1]
    return _count_shapes(prod(data[0].shape[:-1]), shapes, units, operations)


def count_packed_rnn_cell(op: Op, *, operations: int) -> Count:
    """Count one step of a cell with packed weights, which are told by their shapes."""
    names = ("bias_ih", "bias_hh", "b_ih", "b_hh")
    biases = [tensor.shape for name in names for tensor in tensor_arguments(op, name)]
    shapes = [op.arguments["w_ih"], op.arguments["w_hh"], *biases]
    units = tensor_arguments(op, "hx")[0].shape[-1]
    return _count_shapes(prod(op.tensor("input").shape[:-1]), shapes, units, operations)


def _count_shapes(tokens: int, shapes: list[tuple[int, ...]], units: int, operations: int) -> Count:
    matrices = sum(prod(shape) for shape in shapes if len(shape) > 1)
    biases = sum(prod(shape) for shape in shapes if len(shape) == 1)
    return Count(macs=tokens * matrices, elementwise=tokens * (biases + units * operations))


def count_rnn_kernel(op: Op) -> Count:
    """Count the same for a fused kernel, which takes the kind of layer as a number."""
    arguments, data = op.arguments, op.tensor("input")
    units = arguments["hidden_size"] * arguments["num_layers"] * (1 + bool(arguments["bidirectional"]))
    return count_recurrent(
        prod(data.shape[:-1]), tensor_arguments(op, "weight"), units, _MODES[arguments["mode"]]
    )


def count_rnn_kernel_backward(op: Op) -> Count:
    """Count the MACs of the forward twice, and its element-wise part twice."""
    forward = count_rnn_kernel(op)
    return Count(macs=2 * forward.macs, elementwise=2 * forward.elementwise)


def count_rnn_layer(op: Op) -> Count:
    """Count the same for one layer in one direction."""
    arguments, data = op.arguments, op.tensor("input")
    weights = [tensor for n in range(5) for tensor in tensor_arguments(op, f"weight{n}")]
    if not arguments.get("has_biases", True):
        weights = weights[:2]
    return count_recurrent(
        prod(data.shape[:-1]), weights, arguments["hidden_size"], _MODES[arguments["mode"]]
    )


def count_rnn_layer_backward(op: Op) -> Count:
    """Count the MACs of the forward twice, and its element-wise part twice."""
    forward = count_rnn_layer(op)
    return Count(macs=2 * forward.macs, elementwise=2 * forward.elementwise)


def count_rnn_cell(op: Op, *, operations: int) -> Count:
    """Count one step: both products, biases, and the units' operations."""
    weights = [tensor for name in ("w_ih", "w_hh", "b_ih", "b_hh") for tensor in tensor_arguments(op, name)]
    return count_recurrent(
        prod(op.tensor("input").shape[:-1]), weights, tensor_arguments(op, "hx")[0].shape[-1], operations
    )


def count_rnn_gates(op: Op, *, operations: int) -> Count:
    """Count one step without its products: biases and the units' operations."""
    biases = total_elements([*tensor_arguments(op, "input_bias"), *tensor_arguments(op, "hidden_bias")])
    units = op.outputs[0].shape[-1]
    return Count(elementwise=prod(op.outputs[0].shape[:-1]) * (biases + units * operations))
