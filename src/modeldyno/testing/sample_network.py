"""A small network in numpy that `doctor` measures: ``call:modeldyno.testing.sample_network:network``."""

from __future__ import annotations

from typing import Any

import numpy as np

_SOURCE = np.random.default_rng(0)
_BATCH = _SOURCE.standard_normal((32, 256))
_WEIGHTS = [_SOURCE.standard_normal((256, 256)) / 16 for _ in range(4)]


def network() -> Any:
    """Pass a batch through four layers, which takes about a millisecond."""
    values = _BATCH
    for weights in _WEIGHTS:
        values = np.maximum(values @ weights, 0.0)
    return values
