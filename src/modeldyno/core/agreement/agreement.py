"""How far a converted model agrees with its source: the figures of each output, the verdict, the sentence."""

from __future__ import annotations

from dataclasses import dataclass

from modeldyno.core.agreement.rule import Sameness


@dataclass(frozen=True, slots=True, kw_only=True)
class TopAgreement:
    """For how many samples the largest element of an output, or the whole integer, stays the same."""

    same: int
    of: int
    low: float
    """Lower end of the 95 % Wilson interval of the share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputFigures:
    """One output of a converted model beside that of its source, over all calls."""

    output: str
    """The name that the source gives it."""
    verdict: Sameness
    reason: str = ""
    """Why it does not agree; empty if it does."""
    values: int
    """Numbers that were compared."""
    largest: float | None = None
    """Largest absolute error of all; None where no errors can be computed, as with other shapes."""
    relative: float | None = None
    """Largest error of a sample as a share of the largest value of that sample."""
    error: float | None = None
    """Error where it is worst against its bound."""
    bound: float | None = None
    """The bound at that place."""
    floor: float | None = None
    """How far the source is from itself there: in float64, in another batch, with other threads."""
    cosine: float | None = None
    """Cosine of the angle between all its numbers and those of the reference; None for one that has none."""
    top: TopAgreement | None = None
    """Of outputs with classes or integers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelAgreement:
    """Whether a converted model is still the model."""

    verdict: Sameness
    """The worst of its outputs."""
    sentence: str
    outputs: tuple[OutputFigures, ...]
    samples: int
    """Distinct samples that both models answered."""
    calls: tuple[str, ...]
    """What was called, such as ``batch=3 seq=7``."""
    floors: tuple[str, ...] = ()
    """How the noise floor was measured: ``float64``, ``another batch``."""
    notes: tuple[str, ...] = ()
    """What this check could not see."""

    @property
    def worst(self) -> OutputFigures | None:
        """The output farthest from its bound; None without outputs."""
        return max(self.outputs, key=_badness, default=None)


_ORDER = (Sameness.AGREES, Sameness.CLOSE, Sameness.DIFFERS)


def worst_verdict(verdicts: tuple[Sameness, ...]) -> Sameness:
    """Return the worst of several verdicts."""
    return max(verdicts, key=_ORDER.index)


def _badness(figures: OutputFigures) -> tuple[int, float]:
    share = 0.0
    if figures.error:
        share = figures.error / figures.bound if figures.bound else float("inf")
    return _ORDER.index(figures.verdict), share
