"""Costs of the operators of TensorFlow Lite, most of whose filters have their outputs first."""

from __future__ import annotations

from typing import Any

import pytest

from modeldyno.models.flops import count_op
from modeldyno.models.flops.registry import describe_formula, formulas
from modeldyno.models.flops.tflite import TFLITE
from modeldyno.models.static.graph import Op, Tensor


def tensor(*shape: int) -> Tensor:
    return Tensor(shape, "float32")


def cost(kind: str, output: Tensor, **arguments: Any) -> tuple[int, int, bool]:
    """Return MACs, element-wise operations, and whether there is a formula."""
    counted = count_op(Op(f"tflite.{kind}", arguments, (output,)), formulas())
    return counted.macs, counted.elementwise, counted.known


CONVOLUTION = {"filter": tensor(8, 3, 3, 2), "bias": tensor(8)}


@pytest.mark.parametrize(
    ("kind", "output", "arguments", "expected"),
    [
        ("CONV_2D", tensor(1, 4, 4, 8), {"filter": tensor(8, 3, 3, 2)}, (2304, 0, True)),
        (
            "CONV_2D",
            tensor(1, 4, 4, 8),
            {**CONVOLUTION, "fused_activation_function": "RELU6"},
            (2304, 128 * (1 + 2), True),
        ),
        (
            "CONV_2D",
            tensor(1, 4, 4, 8),
            {**CONVOLUTION, "fused_activation_function": "RELU", "quantized": True},
            (2304, 128 * (1 + 5), True),
        ),
        ("DEPTHWISE_CONV_2D", tensor(1, 4, 4, 6), {"filter": tensor(1, 3, 3, 6)}, (864, 0, True)),
        ("CONV_3D", tensor(1, 2, 2, 2, 5), {"filter": tensor(3, 3, 3, 4, 5)}, (8 * 5 * 108, 0, True)),
        (
            "TRANSPOSE_CONV",
            tensor(1, 8, 8, 5),
            {"filter": tensor(5, 2, 2, 3), "input": tensor(1, 4, 4, 3)},
            (960, 0, True),
        ),
        (
            "FULLY_CONNECTED",
            tensor(2, 5),
            {"filter": tensor(5, 3), "bias": tensor(5), "input": tensor(2, 3)},
            (30, 10, True),
        ),
        ("BATCH_MATMUL", tensor(4, 2, 5), {"x": tensor(4, 2, 3), "y": tensor(4, 3, 5)}, (120, 0, True)),
        ("BATCH_MATMUL", tensor(2, 5), {"x": tensor(3, 2), "adj_x": True}, (30, 0, True)),
        (
            "UNIDIRECTIONAL_SEQUENCE_LSTM",
            tensor(1, 7, 5),
            {"input": tensor(1, 7, 3), "weights": [tensor(5, 3), tensor(5, 5), tensor(5)]},
            (7 * 40, 7 * (5 + 5 * 22), True),
        ),
        (
            "MAX_POOL_2D",
            tensor(1, 2, 2, 3),
            {"filter_height": 2, "filter_width": 3, "fused_activation_function": "RELU"},
            (0, 12 * (6 + 1), True),
        ),
        (
            "ADD",
            tensor(2, 3),
            {"input_0": tensor(2, 3), "input_1": tensor(3), "fused_activation_function": "RELU"},
            (0, 12, True),
        ),
        (
            "ADD",
            tensor(2, 3),
            {"input_0": tensor(2, 3), "input_1": tensor(3), "quantized": True},
            (0, 6 * (1 + 2 * 2 + 5), True),
        ),
        ("ADD_N", tensor(2), {"a": tensor(2), "b": tensor(2), "c": tensor(2)}, (0, 4, True)),
        ("GELU", tensor(2), {"input_0": tensor(2), "approximate": False}, (0, 10, True)),
        ("GELU", tensor(2), {"input_0": tensor(2), "approximate": True}, (0, 18, True)),
        ("SOFTMAX", tensor(2, 3), {"input_0": tensor(2, 3)}, (0, 30, True)),
        ("MEAN", tensor(2), {"input_0": tensor(2, 3)}, (0, 6, True)),
        ("FlexMatrixInverse", tensor(2, 2), {"input_0": tensor(2, 2)}, (0, 0, False)),
    ],
)
def test_costs_by_hand(
    kind: str, output: Tensor, arguments: dict[str, Any], expected: tuple[int, int, bool]
) -> None:
    """MACs and element-wise operations as derived by hand; what has no formula says so."""
    assert cost(kind, output, **arguments) == expected


def test_every_formula_says_what_it_counts() -> None:
    """In a sentence, for the reference."""
    assert all(describe_formula(formula).startswith("Count ") for formula in TFLITE.values())
