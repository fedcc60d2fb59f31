"""Costs of reading and changing elements by index: only elements that are looked up are read.

Rows that are looked up more than once are read at most as often as the whole table would be.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from modeldyno.models.flops import Count
from modeldyno.models.flops.elementwise import tensor_arguments, total_bytes, total_elements
from modeldyno.models.static.graph import Tensor, bits_per_element

if TYPE_CHECKING:
    from modeldyno.models.static.graph import Op


def count_lookup(op: Op, *, table: str = "self", index: str = "index") -> Count:
    """Count no operation; the elements found and their indices are read."""
    return Count(
        read=_lookup_bytes(op.tensor(table), op.outputs[0].size) + total_bytes(tensor_arguments(op, index))
    )


def count_embedding_bag(op: Op) -> Count:
    """Count one addition or comparison for each element of each row looked up; a weighted one is two."""
    table, weights = op.tensor("weight"), tensor_arguments(op, "per_sample_weights")
    elements = op.tensor("indices").size * table.shape[-1]
    others = total_bytes([op.tensor("indices"), *tensor_arguments(op, "offsets"), *weights])
    return Count(elementwise=elements * (2 if weights else 1), read=_lookup_bytes(table, elements) + others)


def count_embedding_bag_backward(op: Op) -> Count:
    """Count one addition for each element of each row that was looked up; a weighted one is two."""
    elements = op.tensor("indices").size * op.tensor("grad").shape[-1]
    return Count(elementwise=elements * (2 if tensor_arguments(op, "per_sample_weights") else 1))


def count_scatter(op: Op, *, by: str, operations: int = 0) -> Count:
    """Count `operations` for each element changed, as many as `by` has; in place, no others are touched."""
    operations = operations or int(bool(op.arguments.get("accumulate") or op.arguments.get("reduce")))
    operations += bool(operations) and op.arguments.get("alpha", 1) != 1
    return _count_changes(op, total_elements(tensor_arguments(op, by)), operations)


def count_index_put(op: Op) -> Count:
    """Count one addition for each element where values accumulate; in place, no others are touched."""
    return _count_changes(op, _selected_elements(op), int(bool(op.arguments.get("accumulate"))))


def count_index_fill(op: Op) -> Count:
    """Count no operation; in place, only the slices of the indices are written."""
    target = op.tensor("self")
    length = target.shape[op.arguments["dim"]] if target.shape else 1
    return _count_changes(op, target.size // length * op.tensor("index").size, 0)


def _count_changes(op: Op, elements: int, operations: int) -> Count:
    target = op.tensor("self")
    count = elements * operations
    if not op.kind.endswith("_"):
        return Count(elementwise=count)
    touched = _lookup_bytes(target, elements)
    others = total_bytes(t for name in op.arguments if name != "self" for t in tensor_arguments(op, name))
    return Count(elementwise=count, read=others + (touched if operations else 0), written=touched)


def _lookup_bytes(table: Tensor, elements: int) -> int:
    """Return the bytes of the elements looked up in a table; one that is looked up twice is read twice."""
    return (elements * bits_per_element(table.dtype) + 7) // 8


def _selected_elements(op: Op) -> int:
    """Return how many elements a list of index tensors selects; an upper bound for masks."""
    target, indices = op.tensor("self"), op.arguments["indices"]
    if any(isinstance(index, Tensor) and index.dtype in {"bool", "uint8"} for index in indices):
        values = op.tensor("values").size
        return values if values > 1 else target.size
    chosen: tuple[int, ...] = ()
    others = 1
    for dim, length in enumerate(target.shape):
        index = indices[dim] if dim < len(indices) else None
        if isinstance(index, Tensor):
            chosen = broadcast_shape(chosen, index.shape)
        else:
            others *= length
    return prod(chosen) * others


def broadcast_shape(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the broadcast shape of shapes."""
    rank = max(map(len, shapes))
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    return tuple(0 if 0 in sizes else max(sizes) for sizes in zip(*padded, strict=True))
