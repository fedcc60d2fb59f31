"""The reference model that shows whether a machine is still the same; its code must never change."""

from __future__ import annotations

import numpy as np

_SIZE = 384


def multiply(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Multiply two matrices, and pass through the memory that the product takes."""
    product = a @ b
    rows: np.ndarray = np.maximum(product, 0.0).sum(axis=1)
    return rows


def multiply_inputs() -> dict[str, np.ndarray]:
    """Return two matrices of 384 x 384 numbers in float32."""
    source = np.random.default_rng(0)
    shape = (_SIZE, _SIZE)
    return {name: source.standard_normal(shape).astype(np.float32) for name in ("a", "b")}
