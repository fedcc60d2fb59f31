"""Plain callables with their inputs."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def add(left: Array, right: Array) -> Array:
    """Two arrays in."""
    return left + right


def add_inputs() -> dict[str, Array]:
    """Inputs of `add`, by name."""
    return {"left": np.ones((3, 2), "float32"), "right": np.full((3, 2), 2, "float32")}


def square(x: Array, /) -> Array:
    """Take its input by position only."""
    return x * x


square_inputs = (np.arange(4.0).reshape(2, 2),)


def nothing() -> dict[str, float]:
    """Need nothing."""
    return {"answer": 42.0}


def wanting(x: Array) -> Array:
    """Have no inputs of its own."""
    return x


constant = 3
