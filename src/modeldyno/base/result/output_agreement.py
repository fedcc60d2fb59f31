"""How far the outputs of two models agree."""

from __future__ import annotations

from dataclasses import dataclass

CLOSE = 0.01
"""Outputs that differ by more, relative to the largest value of the baseline's, are doubted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputAgreement:
    """How far the outputs of the two models agree on the same inputs."""

    output: str
    largest: float
    """Largest absolute difference of two elements."""
    relative: float
    """Largest difference, relative to the largest element of the baseline."""
    cosine: float
    """Cosine similarity of the two outputs as vectors."""
