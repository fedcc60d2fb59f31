"""Costs per element: pointwise operators, reductions, norms, optimisers, and operators that cost nothing.

Work of a normalisation once per row or channel is left out.

A complex element has two parts, so each operation on it counts twice. Exceptions: a product is 4 real
multiplications and 2 additions, a quotient 11 operations, an absolute value 4.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from modeldyno.models.flops import Count
from modeldyno.models.static.graph import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from modeldyno.models.flops import Formula
    from modeldyno.models.static.graph import Op


def for_all(names: str, formula: Formula) -> dict[str, Formula]:
    """Return a table that has one formula for each of several operators."""
    return dict.fromkeys(names.split(), formula)


def by_operations(formula: Callable[..., Count], table: Mapping[int, str]) -> dict[str, Formula]:
    """Return a table of operators from the number of operations to the names of those that take so many."""
    return {name: partial(formula, operations=n) for n, names in table.items() for name in names.split()}


def tensor_arguments(op: Op, name: str) -> list[Tensor]:
    """Return an argument that is a tensor or a list of tensors as a list; empty where it was left out."""
    value = op.arguments.get(name)
    return [
        item for item in (value if isinstance(value, list | tuple) else (value,)) if isinstance(item, Tensor)
    ]


def total_elements(operands: Iterable[Tensor]) -> int:
    """Return the number of elements of tensors."""
    return sum(tensor.size for tensor in operands)


def total_bytes(operands: Iterable[Tensor]) -> int:
    """Return the bytes of tensors."""
    return sum(tensor.bytes for tensor in operands)


def is_complex(tensor: Tensor) -> bool:
    """Check whether the elements are complex numbers."""
    return tensor.dtype.startswith("complex")


def real_parts(op: Op) -> int:
    """Return 2 where an operator has complex operands or outputs, otherwise 1."""
    return 1 + any(is_complex(tensor) for tensor in (*op.tensors(), *op.outputs))


def per_element(op: Op, *, operations: int = 1, of: str = "") -> Count:
    """Count `operations` for each element of the argument `of`; of the first output where it is empty."""
    elements = total_elements(tensor_arguments(op, of)) if of else op.outputs[0].size
    return Count(elementwise=operations * real_parts(op) * elements)


def count_product(op: Op, *, operations: int) -> Count:
    """Count one operation for each output; `operations` where both operands are complex."""
    all_complex = all(is_complex(tensor) for tensor in op.tensors())
    return Count(elementwise=(operations if all_complex else real_parts(op)) * op.outputs[0].size)


def count_abs(op: Op) -> Count:
    """Count one operation for each output, 4 for a complex number: two squares, a sum and a root."""
    return Count(elementwise=(4 if is_complex(op.tensor("self")) else 1) * op.outputs[0].size)


def count_min_max(op: Op) -> Count:
    """Count one comparison for each input; between two tensors, for each output."""
    return per_element(op, of="" if tensor_arguments(op, "other") else "self")


def count_trace(op: Op) -> Count:
    """Count one addition for each element of the diagonal."""
    return Count(elementwise=real_parts(op) * min(op.tensor("self").shape))


def count_scaled_sum(op: Op) -> Count:
    """Count one operation for each output, two where `alpha` scales an operand."""
    return per_element(op, operations=1 + (op.arguments.get("alpha", 1) != 1))


def count_division(op: Op) -> Count:
    """Count as a product of 11 operations where complex; one more where the quotient is rounded."""
    rounded = op.arguments.get("rounding_mode") is not None
    return per_element(op, operations=2) if rounded else count_product(op, operations=11)


def count_clamp(op: Op) -> Count:
    """Count one comparison for each output and bound."""
    return per_element(op, operations=sum(op.arguments.get(bound) is not None for bound in ("min", "max")))


def count_gelu(op: Op) -> Count:
    """Count 5 operations for each output; 9 for the approximation by a hyperbolic tangent."""
    return per_element(op, operations=9 if op.arguments.get("approximate") == "tanh" else 5)


def count_gelu_backward(op: Op) -> Count:
    """Count 11 operations for each output; 18 for the approximation by a hyperbolic tangent."""
    return per_element(op, operations=18 if op.arguments.get("approximate") == "tanh" else 11)


def count_loss(op: Op, *, operations: int, of: str = "self") -> Count:
    """Count `operations` for each element of the prediction, and one to add it up where that is asked for."""
    return per_element(op, operations=operations + (op.arguments.get("reduction", 1) != 0), of=of)


def count_nll_loss(op: Op) -> Count:
    """Count the sign and the sum of the one value that each target picks; the rest is not read."""
    target = op.tensor("target")
    picked = target.size * op.tensor("self").bytes // max(1, op.tensor("self").size)
    return Count(
        elementwise=2 * target.size, read=target.bytes + picked + total_bytes(tensor_arguments(op, "weight"))
    )


def count_cross_entropy(op: Op) -> Count:
    """Count the logarithm of a softmax (5 for each input), and sign and sum for each target."""
    return Count(elementwise=5 * op.tensor("self").size + 2 * op.tensor("target").size)


def count_dropout(op: Op) -> Count:
    """Count a random comparison and a product for each output; nothing at inference."""
    mode = op.arguments.get("train", op.arguments.get("training", True))
    return per_element(op, operations=2) if mode or mode is None else count_view_or_copy(op)


def count_nothing(_: Op) -> Count:
    """Count nothing: neither computed nor read nor written."""
    return Count(read=0, written=0)


def count_copy(_: Op) -> Count:
    """Count no operation; inputs are read and outputs are written."""
    return Count()


def count_creation(_: Op) -> Count:
    """Count no operation; outputs are written and nothing is read. Random numbers are not counted."""
    return Count(read=0)


def count_overwrite(op: Op) -> Count:
    """Count no operation; the source is read and the target is written."""
    return Count(read=total_bytes([*tensor_arguments(op, "src"), *tensor_arguments(op, "other")]))


def count_view_or_copy(op: Op) -> Count:
    """Count no operation; a copy where an output has another storage than the first input."""
    first = next(op.tensors(), None)
    moves = first is not None and any(output.storage != first.storage for output in op.outputs)
    return count_copy(op) if moves else count_nothing(op)


def count_norm(op: Op) -> Count:
    """Count 2 operations for each input: a power or absolute value, and a sum or comparison."""
    return per_element(op, operations=2, of="self")


def count_matrix_norm(op: Op) -> Count:
    """Count 2 operations for each input, for norms that need no singular values.

    Raises:
        ValueError: the norm needs them, or may.
    """
    if op.arguments.get("ord") in {2, -2, "nuc"}:
        raise ValueError("singular values are computed iteratively")
    return count_norm(op)


def count_sort(op: Op, *, along: int | None = -1) -> Count:
    """Count n log2 n comparisons for each row of n, as merge sort does; n log2 k where k are kept."""
    values = op.tensor("self")
    dim = op.arguments.get("dim", along)
    row = values.size if dim is None or not values.shape else values.shape[dim]
    kept = min(max(op.arguments.get("k", row), 2), max(row, 1))
    return Count(elementwise=values.size * (kept - 1).bit_length())


def count_binary_search(op: Op) -> Count:
    """Count the log2 n comparisons of a binary search among n for each output."""
    among = (tensor_arguments(op, "sorted_sequence") or tensor_arguments(op, "boundaries"))[0]
    return per_element(op, operations=among.shape[-1].bit_length())


def count_foreach(op: Op, *, operations: int = 1) -> Count:
    """Count `operations` for each element of the tensors of the list `self`."""
    written = None if op.outputs else total_bytes(tensor_arguments(op, "self"))
    return Count(
        elementwise=operations * real_parts(op) * total_elements(tensor_arguments(op, "self")),
        written=written,
    )


def count_foreach_copy(op: Op) -> Count:
    """Count no operation; lists are read and written, in place only written."""
    if op.outputs:
        return Count()
    return Count(
        read=total_bytes(tensor_arguments(op, "src")), written=total_bytes(tensor_arguments(op, "self"))
    )


def _step(op: Op, operations: int, *states: str) -> Count:
    """Count an optimiser step, with what all have in common: the sign and the scale of the gradient."""
    operations += bool(op.arguments.get("maximize")) + (op.arguments.get("grad_scale") is not None)
    changed = [tensor for name in ("self", *states) for tensor in tensor_arguments(op, name)]
    return Count(
        elementwise=operations * total_elements(tensor_arguments(op, "self")), written=total_bytes(changed)
    )


def count_adam(op: Op) -> Count:
    """Count 13 operations for each weight: 3 first moment, 4 second, 3 denominator, 3 step; AMSGrad 1 more.

    Decay adds 2 (to the gradient; Kingma and Ba, ICLR 2015), or 1 (to the weight; Loshchilov and Hutter,
    ICLR 2019).
    """
    decay = 1 if op.kind.rstrip("_").endswith("adamw") else 2
    operations = 13 + decay * bool(op.arguments.get("weight_decay")) + bool(op.arguments.get("amsgrad"))
    return _step(op, operations, "exp_avgs", "exp_avg_sqs", "max_exp_avg_sqs", "state_steps")


def count_sgd(op: Op) -> Count:
    """Count 2 operations for each weight; decay 2, momentum 3 after the first step and Nesterov's 2 more."""
    momentum = bool(op.arguments.get("momentum"))
    operations = 2 + 2 * bool(op.arguments.get("weight_decay"))
    operations += 3 * (momentum and not op.arguments.get("is_first_step"))
    operations += 2 * (momentum and bool(op.arguments.get("nesterov")))
    return _step(op, operations, "momentum_buffer_list")


def count_adagrad(op: Op) -> Count:
    """Count 7 operations for each weight, and 2 for decay."""
    operations = 7 + 2 * bool(op.arguments.get("weight_decay"))
    return _step(op, operations, "state_sums", "state_steps")


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
