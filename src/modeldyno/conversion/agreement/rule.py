"""What a converted model must hold to be called the same: bounds by dtype, and what lossy ones must keep.

The bounds are those of `torch.testing.assert_close` for each dtype. Its absolute bound fits outputs of
about 1; here it shrinks with outputs that are smaller, so that a model that returns millionths cannot be
replaced by one that returns zeros.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class Equivalence(StrEnum):
    """The verdict on one output, or on all of them."""

    AGREES = "agrees"
    """Within the noise of the source itself, or the bound of its dtype."""
    CLOSE = "close"
    """Farther off, as declared beforehand: the recipe loses precision on purpose, and kept what it must."""
    DIFFERS = "differs"
    """Another model."""


@dataclass(frozen=True, slots=True)
class DtypeBound:
    """The largest error that is put down to rounding in a dtype."""

    relative: float
    """Of the reference value."""
    absolute: float
    """For outputs of 1 or more; smaller ones get their share of it."""
    digits: float
    """Half the digits of the dtype, as a fraction: no noise of the source excuses a larger error."""


BOUNDS = {
    "float16": DtypeBound(1e-3, 1e-5, 2**-5),
    "bfloat16": DtypeBound(1.6e-2, 1e-5, 2**-4),
    "float32": DtypeBound(1.3e-6, 1e-5, 2**-12),
    "float64": DtypeBound(1e-7, 1e-7, 2**-24),
    "complex64": DtypeBound(1.3e-6, 1e-5, 2**-12),
    "complex128": DtypeBound(1e-7, 1e-7, 2**-24),
}
"""Dtype to its bound; all other dtypes must be equal."""
PRECISION = ("bfloat16", "float16", "float32", "complex64", "float64", "complex128")
"""Dtypes from the coarsest to the finest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """A wider bound than the rule's, which a person answers for."""

    relative: float = 0.0
    """The share of a sample's largest value by which an element may be off; below 1, and 0 for no more than
    the rule allows."""
    outputs: dict[str, float] = field(default_factory=dict)
    """The same of single outputs, by name."""
    by: str
    """Who asked for it."""

    def of(self, output: str) -> float:
        """Return the share that an output may be off by."""
        return self.outputs.get(output, self.relative)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputCheck:
    """What outputs of the same inputs must hold, of another configuration or another model."""

    tolerance: Tolerance | None = None
    """By how much they may be off; an output without a share of its own by `CLOSE`."""
    verify: str = ""
    """The user's own function that judges instead, as a reference."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgreementRule:
    """What is asked of a converted model."""

    lossy: bool = False
    """Whether the recipe declares that it loses precision, such as one to int8: then `close` is possible."""
    cosine: float = 0.999
    """Least cosine between an output and its reference, of a lossy recipe."""
    argmax: float = 0.85
    """Least share of samples whose largest element stays the same, of a lossy recipe, at the lower end of its
    95 % interval, which is 0.89 for 32 samples that all agree."""
    inferior: float = 0.01
    """A metric of labelled samples may be worse by this share of its value, of a lossy recipe."""
    noise: float = 10.0
    """The error may be this many times the noise floor."""
    computed: str = ""
    """The coarsest dtype that the source computes in, if that is not the dtype of its outputs."""
    tolerance: Tolerance | None = None
    """A wider bound that was asked for; the verdict by the rule alone is told beside it."""
    verified_by: str = ""
    """The user's own function that judges outputs of equal shapes and dtypes in place of the bounds."""
    narrows: bool = False
    """Whether the recipe computes in float32 what the source computes in float64, and says so."""


def bound_of(dtype: str, rule: AgreementRule) -> DtypeBound | None:
    """Return the bound of an output; None for one that must be equal."""
    bounded = [name for name in (dtype, rule.computed) if name in BOUNDS]
    if dtype not in BOUNDS:
        return None
    return BOUNDS[min(bounded, key=PRECISION.index)]
