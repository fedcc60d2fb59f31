from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from tests.support.torch_allocator import recorded_peak

if TYPE_CHECKING:
    from collections.abc import Callable

WIDE = 256
ONE = WIDE * WIDE * 4


@pytest.fixture
def x() -> torch.Tensor:
    return torch.ones(WIDE, WIDE)


def square(x: torch.Tensor) -> torch.Tensor:
    return x * x


CALLS: dict[str, tuple[int, Callable[[torch.Tensor], object]]] = {
    "nothing": (0, lambda _x: None),
    "views": (0, lambda x: x.t()[3:].unsqueeze(0).expand(5, -1, -1)),
    "one": (ONE, square),
    "a chain holds two": (2 * ONE, lambda x: square(square(square(square(x))))),
    "in place": (ONE, lambda x: square(x).relu_().neg_()),
    "kept": (3 * ONE, lambda x: [square(x) for _ in range(3)]),
    "dropped": (ONE, lambda x: [square(x).shape for _ in range(3)]),
    "a product": (ONE, lambda x: x @ x),
    "another shape": (WIDE * 7 * 4, lambda x: x @ x[:, :7]),
    "a linear layer": (ONE // 2, lambda x: torch.nn.functional.linear(x, x[:128], x[0, :128])),
    "another dtype": (ONE // 2, lambda x: x.to(torch.bfloat16)),
    "a residual": (3 * ONE, lambda x: square(x) + square(x)),
    "a number": (ONE + 12, lambda x: x + 1),
    "NumPy": (0, lambda _x: np.ones((WIDE, WIDE))),
}


OFTEN = ("nothing", "a chain holds two", "in place", "kept", "a product", "another dtype", "NumPy")
"""Of each kind one; the others are behind ``slow``, as a recording takes half a second."""


@pytest.mark.parametrize(
    "name", [name if name in OFTEN else pytest.param(name, marks=pytest.mark.slow) for name in CALLS]
)
def test_recorded_peak(name: str, x: torch.Tensor) -> None:
    expected, call = CALLS[name]
    assert recorded_peak(lambda: call(x)) == expected


def test_a_backward_pass_is_recorded(x: torch.Tensor) -> None:
    weight = torch.nn.Parameter(x)

    def step() -> object:
        loss = (weight * weight * weight).sum()
        return torch.autograd.grad(loss, [weight])

    # The gradients of the last factor, of w w, and of the two factors of that; the loss and its own gradient.
    assert recorded_peak(step) == 4 * ONE + 8


def test_what_was_there_before_is_the_baseline(x: torch.Tensor) -> None:
    before = [square(x)]

    def call() -> object:
        before.clear()
        return square(x)

    assert recorded_peak(call) == ONE


def test_what_an_earlier_recording_left_is_part_of_the_baseline(x: torch.Tensor) -> None:
    kept: list[object] = []
    assert recorded_peak(lambda: kept.append(square(x))) == ONE
    assert recorded_peak(lambda: square(x)) == ONE

    def call() -> object:
        kept.clear()
        return square(x)

    assert recorded_peak(call) == ONE


def test_an_error_comes_through(x: torch.Tensor) -> None:
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        recorded_peak(lambda: x @ x[:7])
    assert recorded_peak(lambda: square(x)) == ONE
