"""Costs of the operators of TensorFlow, whose filters have their channels last."""

from __future__ import annotations

from typing import Any

import pytest

from modeldyno.models.flops import count_op
from modeldyno.models.flops.registry import formulas
from modeldyno.models.static.graph import Op, Tensor


def tensor(*shape: int) -> Tensor:
    return Tensor(shape, "float32")


def cost(kind: str, output: Tensor, **arguments: Any) -> tuple[int, int, bool]:
    """Return MACs, element-wise operations, and whether there is a formula."""
    counted = count_op(Op(f"tf.{kind}", arguments, (output,)), formulas())
    return counted.macs, counted.elementwise, counted.known


@pytest.mark.parametrize(
    ("kind", "output", "arguments", "expected"),
    [
        ("MatMul", tensor(2, 5), {"a": tensor(2, 3), "b": tensor(3, 5)}, (30, 0, True)),
        ("MatMul", tensor(2, 5), {"a": tensor(3, 2), "transpose_a": True}, (30, 0, True)),
        ("BatchMatMulV2", tensor(4, 2, 5), {"x": tensor(4, 2, 3), "y": tensor(4, 3, 5)}, (120, 0, True)),
        ("Conv2D", tensor(1, 4, 4, 8), {"filter": tensor(3, 3, 2, 8)}, (2304, 0, True)),
        ("DepthwiseConv2dNative", tensor(1, 4, 4, 6), {"filter": tensor(3, 3, 2, 3)}, (864, 0, True)),
        (
            "Conv2DBackpropInput",
            tensor(1, 8, 8, 5),
            {"filter": tensor(2, 2, 5, 3), "out_backprop": tensor(1, 4, 4, 3)},
            (960, 0, True),
        ),
        (
            "Einsum",
            tensor(2, 4),
            {"inputs": [tensor(2, 3), tensor(3, 4)], "equation": "ab,bc->ac"},
            (24, 0, True),
        ),
        (
            "MaxPool",
            tensor(1, 2, 2, 3),
            {"input": tensor(1, 4, 4, 3), "kernel_size": (2, 2)},
            (0, 48, True),
        ),
        ("Softmax", tensor(2, 3), {"logits": tensor(2, 3)}, (0, 30, True)),
        ("MatrixInverse", tensor(2, 2), {"input": tensor(2, 2)}, (0, 0, False)),
    ],
)
def test_costs_by_hand(
    kind: str, output: Tensor, arguments: dict[str, Any], expected: tuple[int, int, bool]
) -> None:
    """MACs and element-wise operations as derived by hand; what has no formula says so."""
    assert cost(kind, output, **arguments) == expected


def test_a_lookup_reads_only_its_rows() -> None:
    """Of a table only the rows that are looked up are read, and the indices."""
    arguments = {"params": tensor(100, 4), "indices": Tensor((3,), "int32")}
    counted = count_op(Op("tf.GatherV2", arguments, (tensor(3, 4),)), formulas())
    assert (counted.read, counted.written) == (48 + 12, 48)
