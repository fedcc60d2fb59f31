"""Costs of normalisations per element; work once per row or channel is left out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.core.static.flops import Count
from modeldyno.core.static.flops.elementwise import per_element, tensor_arguments

if TYPE_CHECKING:
    from modeldyno.core.static.graph import Op


def _number_given(op: Op, *names: str) -> int:
    return sum(len(tensor_arguments(op, name)) for name in names)


def count_layer_norm(op: Op) -> Count:
    """Count 5 operations for each element: mean, difference, square, sum, scale; weight and bias 1 each."""
    return per_element(op, operations=5 + _number_given(op, "weight", "bias"), of="input")


def count_rms_norm(op: Op) -> Count:
    """Count 3 operations for each element: square, sum, scale; the weight is 1 more."""
    return per_element(op, operations=3 + _number_given(op, "weight"), of="input")


def count_batch_norm(op: Op) -> Count:
    """Count 2 operations for each element, for scale and shift fold; while training 4 more for statistics."""
    arguments = op.arguments
    training = arguments.get(
        "training", arguments.get("use_input_stats", not _number_given(op, "running_mean"))
    )
    return per_element(op, operations=6 if training else 2, of="input")


def count_batch_norm_training(op: Op) -> Count:
    """Count 6 operations for each element: 4 of statistics, scale and shift."""
    return per_element(op, operations=6, of="input")


def count_batch_norm_inference(op: Op) -> Count:
    """Count 2 operations for each element: scale and shift."""
    return per_element(op, operations=2, of="input")


def count_layer_norm_backward(op: Op) -> Count:
    """Count 9 operations for each element of the input's gradient (a weight is 1 more), 2 weight, 1 bias."""
    into, weight, bias = map(bool, op.arguments["output_mask"])
    operations = into * (9 + _number_given(op, "weight")) + 2 * weight + bias
    return per_element(op, operations=operations, of="input")


def count_rms_norm_backward(op: Op) -> Count:
    """Count 6 operations for each element of the input's gradient (a weight is 1 more), 2 of the weight's."""
    into, weight = map(bool, op.arguments["output_mask"])
    return per_element(op, operations=into * (6 + _number_given(op, "weight")) + 2 * weight, of="input")


def count_batch_norm_backward(op: Op) -> Count:
    """Count 4 operations for each element for its sums; the input's gradient 4 more, 1 at inference."""
    arguments = op.arguments
    into, *others = map(bool, arguments.get("output_mask", (True, True, True)))
    training = arguments.get("train", arguments.get("update", True))
    sums = 4 if training or any(others) else 0
    return Count(elementwise=(sums + into * (4 if training else 1)) * op.tensor("input").size)
