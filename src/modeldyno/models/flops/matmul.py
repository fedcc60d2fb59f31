"""Costs of matrix products and of what is built on them: contractions, distances, factorisations.

A product of complex matrices takes 4 real MACs for each complex one. Products with a sparse operand count
as dense. An outer product has no sums: its multiplications are element-wise.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from modeldyno.models.flops import Count
from modeldyno.models.flops.elementwise import is_complex, tensor_arguments, total_elements
from modeldyno.models.flops.indexing import broadcast_shape

if TYPE_CHECKING:
    from collections.abc import Sequence

    from modeldyno.models.static.graph import Op, Tensor


def contraction_macs(op: Op, length: int) -> int:
    """Return the MACs where each output is a sum of `length` products."""
    return op.outputs[0].size * length * _real_macs(op.outputs[0])


def _real_macs(tensor: Tensor) -> int:
    """Return the real MACs of one MAC: 4 for complex numbers."""
    return 4 if is_complex(tensor) else 1


def _values_per_element(tensor: Tensor) -> int:
    """Return the values in one element: ``float4_e2m1fn_x2`` holds 2."""
    return 2 if tensor.dtype.endswith("_x2") else 1


def _optional_additions(op: Op, *names: str) -> int:
    """Return the additions of optional operands, one for each output and operand."""
    return sum(op.outputs[0].size for name in names if tensor_arguments(op, name))


def count_linear(op: Op, *, data: str, operations: int = 0) -> Count:
    """Count a linear layer whose weight may be packed: each input by the width of the output.

    `bias` and `other` are one operation more for each output, and so is a function fused with it.
    """
    output = op.outputs[0]
    fused = any(op.arguments.get(name) not in {None, "", "none"} for name in ("attr", "post_op_name"))
    extras = _optional_additions(op, "B", "bias", "other") + (operations + fused) * output.size
    return Count(macs=op.tensor(data).size * output.shape[-1], elementwise=extras)


def count_linear_cross_entropy(op: Op) -> Count:
    """Count a linear layer once and for each gradient computed; 5 operations per score, 2 per gradient."""
    weight, samples = op.tensor("linear_weight"), op.tensor("target").size
    gradients = [bool(op.arguments.get(f"compute_{name}_grad")) for name in ("input", "linear_weight")]
    operations = 5 + len(tensor_arguments(op, "linear_bias")) + 2 * any(gradients)
    return Count(
        macs=samples * weight.size * (1 + sum(gradients)),
        elementwise=samples * (weight.shape[0] * operations + 2),
    )


def count_matmul_lists(op: Op) -> Count:
    """Count the matrix product of each pair of a list."""
    macs = sum(
        first.size * second.shape[-1] * _real_macs(first)
        for first, second in zip(tensor_arguments(op, "self"), tensor_arguments(op, "mat2"), strict=True)
    )
    return Count(macs=macs)


def count_matmul(op: Op, *, left: str = "self") -> Count:
    """Count for each output the products along the last dimension of `left`, and the sum with a bias."""
    first = op.tensor(left)
    macs = contraction_macs(op, first.shape[-1] * _values_per_element(first))
    return Count(macs=macs, elementwise=_optional_additions(op, "bias"))


def count_compressed_matmul(op: Op, *, right: str = "mat2", added: str = "bias") -> Count:
    """Count a product with a compressed left operand as if it were dense, along the rows of `right`."""
    return Count(
        macs=contraction_macs(op, op.tensor(right).shape[0]), elementwise=_optional_additions(op, added)
    )


def count_inner(op: Op) -> Count:
    """Count a matrix product along the last dimensions; with a scalar, one product for each output."""
    first, second = op.tensor("self"), op.tensor("other")
    return count_matmul(op) if first.shape and second.shape else Count(elementwise=op.outputs[0].size)


def count_addmm(op: Op, *, left: str = "mat1") -> Count:
    """Count a matrix product and one addition for each output; scales other than 1 are one more each."""
    first, arguments = op.tensor(left), op.arguments
    beta, alpha = arguments.get("beta", 1), arguments.get("alpha", 1)
    operations = (alpha != 1) + (0 if beta == 0 else 1 + (beta != 1))
    return Count(macs=contraction_macs(op, first.shape[-1]), elementwise=operations * op.outputs[0].size)


def count_addbmm(op: Op) -> Count:
    """Count the matrix products of a batch, and the sums of all of them with one matrix."""
    batch = op.tensor("batch1")
    return Count(macs=contraction_macs(op, batch.shape[0] * batch.shape[-1]), elementwise=op.outputs[0].size)


def count_addmm_activation(op: Op) -> Count:
    """Count a matrix product, the sum with a bias, and a rectifier (1) or GELU (5) of each output."""
    count = count_addmm(op)
    extra = (5 if op.arguments.get("use_gelu") else 1) * op.outputs[0].size
    return Count(macs=count.macs, elementwise=count.elementwise + extra)


def count_grouped_matmul(op: Op) -> Count:
    """Count all rows by K by N; where both are matrices, groups share the contracted dimension."""
    first, second = op.tensor("self"), op.tensor("mat2")
    both = len(first.shape) == len(second.shape) == 2
    macs = first.size * second.shape[-1] if both else contraction_macs(op, first.shape[-1])
    return Count(macs=macs * _values_per_element(first), elementwise=_optional_additions(op, "bias"))


def count_tensordot(op: Op) -> Count:
    """Count for each output the products along the contracted dimensions."""
    first = op.tensor("self")
    return Count(macs=contraction_macs(op, prod(first.shape[dim] for dim in op.arguments["dims_self"])))


def count_vecdot(op: Op) -> Count:
    """Count one MAC for each pair of elements."""
    first, second = op.tensor("x"), op.tensor("y")
    return Count(macs=prod(broadcast_shape(first.shape, second.shape)) * _real_macs(op.outputs[0]))


def count_trilinear(op: Op) -> Count:
    """Count the product of two operands, summed where the third is broadcast, and that with the third."""
    shapes = []
    for name, at in (("i1", "expand1"), ("i2", "expand2"), ("i3", "expand3")):
        shape = list(op.tensor(name).shape)
        for dim in sorted(op.arguments[at]):
            shape.insert(dim, 1)
        shapes.append(tuple(shape))
    pair = broadcast_shape(*shapes[:2])
    summed = set(op.arguments["sumdim"]) & set(op.arguments["expand3"])
    left_shape = tuple(1 if dim in summed else size for dim, size in enumerate(pair))
    return Count(macs=prod(pair) + prod(broadcast_shape(left_shape, shapes[2])))


def count_bilinear(op: Op) -> Count:
    """Count for each sample the weight with the first input, its result with the second, and the bias."""
    width, _, second = op.tensor("weight").shape
    samples = prod(op.tensor("input1").shape[:-1])
    macs = samples * (op.tensor("weight").size + width * second)
    return Count(macs=macs, elementwise=_optional_additions(op, "bias"))


def count_sparse_matmul(op: Op) -> Count:
    """Count each stored element of the sparse operand with the row or column of the other that it meets."""
    *_, first, second = op.tensors()
    macs = second.shape[-1] * first.stored if first.stored is not None else 0
    if second.stored is not None:
        macs = first.shape[0] * second.stored
    return Count(macs=macs, elementwise=op.outputs[0].size if "mat1" in op.arguments else 0)


def count_matmul_chain(op: Op) -> Count:
    """Count the cheapest order of a chain of products (Cormen et al., Introduction to Algorithms, 14.2)."""
    shapes = [
        tensor.shape for tensor in (tensor_arguments(op, "tensors") or tensor_arguments(op, "matrices"))
    ]
    count = len(shapes)
    first = (1, *shapes[0])[-2:]
    sizes = [*first, *((*shape, 1)[1] for shape in shapes[1:])]
    best = {(i, i + 1): 0 for i in range(count)}
    for span in range(2, count + 1):
        for i in range(count - span + 1):
            k = i + span
            best[i, k] = min(
                best[i, j] + best[j, k] + sizes[i] * sizes[j] * sizes[k] for j in range(i + 1, k)
            )
    return Count(macs=best[0, count] * _real_macs(op.outputs[0]))


def count_matrix_power(op: Op) -> Count:
    """Count the products of binary exponentiation: squarings, and one for each further bit that is set.

    Raises:
        ValueError: the power is negative, so an inverse comes first.
    """
    exponent = op.arguments["n"]
    if exponent < 0:
        raise ValueError(exponent)
    steps = exponent.bit_length() + exponent.bit_count() - 2 if exponent else 0
    return Count(macs=steps * contraction_macs(op, op.outputs[0].shape[-1]))


def count_einsum(op: Op) -> Count:
    """Count pairwise contractions, in the order of `path`, else from left to right.

    Indices of only one operand are summed first, which is element-wise; so are products without a sum.
    """
    terms, sizes, output = _parse_einsum(op.arguments["equation"], tensor_arguments(op, "tensors"))
    macs = elementwise = 0
    for i, j in _contraction_steps(op.arguments.get("path"), len(terms)):
        pair = terms[i], terms[j]
        terms = [term for at, term in enumerate(terms) if at not in {i, j}]
        needed = output.union(*terms)
        kept = pair[0] & (pair[1] | needed), pair[1] & (pair[0] | needed)
        elementwise += sum(_points(term, sizes) for term in pair if term not in kept)
        points = kept[0] | kept[1]
        if points <= needed:
            elementwise += _points(points, sizes)
        else:
            macs += _points(points, sizes)
        terms.append(points & needed)
    if terms[0] != output:
        elementwise += _points(terms[0], sizes)
    return Count(macs=macs * _real_macs(op.outputs[0]), elementwise=elementwise)


def _contraction_steps(path: Sequence[int] | None, count: int) -> list[tuple[int, int]]:
    """Return the indices of the terms contracted in each step; the result becomes the last term."""
    if path:
        return list(zip(path[::2], path[1::2], strict=True))
    return [(0, 1 if left == count else left - 1) for left in range(count, 1, -1)]


def _points(indices: frozenset[str], sizes: dict[str, int]) -> int:
    return prod(sizes[index] for index in indices)


def _parse_einsum(
    equation: str, operands: Sequence[Tensor]
) -> tuple[list[frozenset[str]], dict[str, int], frozenset[str]]:
    """Return the indices of the operands, their sizes, and the indices of the result."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    sizes: dict[str, int] = {}
    terms: list[list[str]] = []
    for text, operand in zip(left.split(","), operands, strict=True):
        head, dots, tail = text.partition("...")
        hidden = len(operand.shape) - len(head) - len(tail)
        term = [*head, *(f".{n}" for n in range(hidden, 0, -1) if dots), *tail]
        for index, length in zip(term, operand.shape, strict=True):
            sizes[index] = max(length, sizes.get(index, 1))
        terms.append(term)
    ellipsis = {index for index in sizes if index.startswith(".")}
    once = {index for index in sizes if sum(term.count(index) for term in terms) == 1}
    named = set(right.replace("...", ""))
    result = (named | (ellipsis if "..." in right else set())) if arrow else once | ellipsis
    return [frozenset(term) for term in terms], sizes, frozenset(result)


def count_euclidean(op: Op) -> Count:
    """Count a product of rows longer by 2 (their squared lengths), a clamp and a root for each pair."""
    rows = total_elements((op.tensor("x1"), op.tensor("x2")))
    macs = contraction_macs(op, op.tensor("x1").shape[-1] + 2)
    return Count(macs=macs, elementwise=3 * rows + 2 * op.outputs[0].size)


def count_distances(op: Op, *, rows: str = "x1") -> Count:
    """Count a difference, a power and a sum for each pair of rows and each of their elements."""
    return Count(elementwise=3 * op.outputs[0].size * op.tensor(rows).shape[-1])


def count_distances_backward(op: Op) -> Count:
    """Count 4 operations for each pair of rows and each of their elements."""
    return Count(elementwise=4 * op.tensor("grad").size * op.tensor("x1").shape[-1])


def count_matmul_backward(op: Op, *, grad: str = "grad_output", mask: str = "output_mask") -> Count:
    """Count the MACs of the forward product for each of the two gradients asked for, and the bias's sum."""
    first, second = op.tensor("self"), op.tensor(grad)
    into, weight, *bias = map(bool, op.arguments[mask])
    macs = second.size * first.shape[-1] * (into + weight) * _real_macs(second)
    return Count(macs=macs, elementwise=second.size * sum(bias))


def count_one_gradient(op: Op) -> Count:
    """Count the MACs of the forward product once."""
    columns = (tensor_arguments(op, "input") or tensor_arguments(op, "weight"))[0].shape[-1]
    return Count(macs=op.tensor("grad_output").size * columns)


def count_affine_grid(op: Op) -> Count:
    """Count for each coordinate the product with a row of `theta`."""
    return Count(macs=contraction_macs(op, op.tensor("theta").shape[-1]))


def count_lu(op: Op, *, matrix: str = "A") -> Count:
    """Count n(n-1)(2n-1)/6 MACs and n(n-1)/2 divisions: LU (Golub, Van Loan, Matrix Computations, ch. 3)."""
    array = op.tensor(matrix)
    n, batch = array.shape[-1], prod(array.shape[:-2])
    macs = batch * n * (n - 1) * (2 * n - 1) // 6
    return Count(macs=macs * _real_macs(array), elementwise=batch * n * (n - 1) // 2)


def count_cholesky(op: Op) -> Count:
    """Count n(n^2-1)/6 MACs, n(n-1)/2 divisions and n roots (Golub, Van Loan, Matrix Computations, ch. 4)."""
    array = op.tensor("self")
    n, batch = array.shape[-1], prod(array.shape[:-2])
    macs = batch * n * (n * n - 1) // 6
    return Count(macs=macs * _real_macs(array), elementwise=batch * n * (n + 1) // 2)


def count_triangular(op: Op, *, matrix: str, systems: int = 2, divided: int = 1) -> Count:
    """Count n(n-1)/2 MACs for each triangular system and column, and n divisions unless its diagonal is 1."""
    n = op.tensor(matrix).shape[-1]
    columns = op.outputs[0].size // max(n, 1)
    macs = columns * systems * n * (n - 1) // 2
    return Count(macs=macs * _real_macs(op.outputs[0]), elementwise=columns * divided * n)


def count_solve(op: Op, *, matrix: str = "A") -> Count:
    """Count an LU factorisation, and two triangular systems for each column of the result."""
    first, then = count_lu(op, matrix=matrix), count_triangular(op, matrix=matrix)
    return Count(macs=first.macs + then.macs, elementwise=first.elementwise + then.elementwise)
