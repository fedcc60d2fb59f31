"""Models behind servers that we start: Triton, TorchServe, MLServer."""

from __future__ import annotations
