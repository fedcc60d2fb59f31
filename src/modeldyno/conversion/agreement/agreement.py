"""How far a converted model agrees with its source: the figures of each output, the verdict, the sentence."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from modeldyno.base.metrics.metric import METRICS, Better
from modeldyno.conversion.agreement.inner_values import End
from modeldyno.conversion.agreement.rule import AgreementRule, Equivalence, Tolerance

if TYPE_CHECKING:
    from collections.abc import Sequence

    from modeldyno.base.stats.evaluation import Evaluation


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
    verdict: Equivalence
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
    ruled: float | None = None
    """The bound there by the rule alone, of an output that agrees only by a tolerance that was asked for."""
    floor: float | None = None
    """How far the source is from itself there: in float64, in another batch, with other threads."""
    cosine: float | None = None
    """Cosine of the angle between all its numbers and those of the reference; None for one that has none."""
    top: TopAgreement | None = None
    """Of outputs with classes or integers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstDifference:
    """Where the outputs of a converted model first leave those of its source, in the source's order."""

    sentence: str
    layer: str = ""
    """Path of the module; empty if no layer was found to differ."""
    kind: str = ""
    """Its class, such as ``Linear``."""
    end: End | None = None
    """What of it differs: its output, or what it is given by the code of the module around it."""
    after: str = ""
    """The last layer before it whose output agrees; empty if there is none."""
    unseen: tuple[str, ...] = ()
    """Layers after that one which could not be compared: an exporter may have merged them with others."""
    inputs_agree: bool = False
    """Whether its inputs were compared, too, and agree."""
    cosine: float | None = None
    error: float | None = None
    bound: float | None = None
    """The error where it is worst against its bound, and that bound."""
    compared: int = 0
    """Layers that were compared."""
    layers: int = 0
    """Layers of the source."""
    call: str = ""
    """The call that was followed, such as ``batch=3``: the one whose outputs are farthest off."""

    @property
    def place(self) -> str:
        """In few words: ``at a.b``, ``before a.b``, ``between a and b``, ``after a``; empty if unknown."""
        if self.unseen:
            return f"between {self.after or 'the inputs'} and {self.layer}"
        if self.end is not None:
            return f"{'at' if self.end is End.OUTPUT else 'before'} {self.layer}"
        return f"after {self.after}" if self.after else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskMetric:
    """A metric of labelled samples of a converted model, beside that of its source."""

    metric: str
    """Such as ``accuracy``."""
    source: float
    value: float
    low: float
    high: float
    """Ends of the 90 % interval of its change, so that 95 % of the harm is within."""
    samples: int
    inferior: bool
    """Whether it may be worse than the rule allows."""
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelAgreement:
    """Whether a converted model is still the model."""

    verdict: Equivalence
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
    tolerance: Tolerance | None = None
    """The wider bound that was asked for, and who did; None if the rule alone judged."""
    verified_by: str = ""
    """The user's own function that judged in place of the bounds; empty if none did."""
    metrics: tuple[TaskMetric, ...] = ()
    """How good a lossy form is at its task, where labelled samples were given."""
    first: FirstDifference | None = None
    """Where it first differs, of one that does."""

    @property
    def full_sentence(self) -> str:
        """The sentence, and where it first differs."""
        return self.sentence if self.first is None else f"{self.sentence}; {self.first.sentence}"

    @property
    def worst(self) -> OutputFigures | None:
        """The output farthest from its bound; None without outputs."""
        return max(self.outputs, key=_badness, default=None)


_ORDER = (Equivalence.AGREES, Equivalence.CLOSE, Equivalence.DIFFERS)


def worst_verdict(verdicts: tuple[Equivalence, ...]) -> Equivalence:
    """Return the worst of several verdicts."""
    return max(verdicts, key=_ORDER.index)


def _badness(figures: OutputFigures) -> tuple[int, float]:
    share = 0.0
    if figures.error:
        share = figures.error / figures.bound if figures.bound else float("inf")
    return _ORDER.index(figures.verdict), share


# --- metrics of labelled samples --------------------------------------------------------------------

_LEVEL = 0.9
"""Confidence of the interval: 95 % on the side of the harm."""


def judge_task(
    metric: str, source: Evaluation, converted: Evaluation, samples: int, rule: AgreementRule
) -> TaskMetric:
    """Judge a metric of the same labelled samples: sample by sample, unless it is no mean, as F1.

    Args:
        metric: its name.
        source: of the source.
        converted: of the converted model.
        samples: how many there are.
        rule: how much worse the metric may be.
    """
    from modeldyno.base.stats.evaluation import (
        independent_difference,
        paired_difference,
    )  # numpy is slow to import

    if source.scores is not None and converted.scores is not None:
        change, low, high = paired_difference(metric, source.scores, converted.scores, _LEVEL)
        same = bool((source.scores == converted.scores).all())
    else:
        change, low, high = independent_difference(source, converted, _LEVEL)
        same = False
    sign = -1.0 if METRICS[metric].better is Better.HIGHER else 1.0
    harm = 0.0 if same else max(sign * low, sign * high)
    allowed = rule.inferior * abs(source.value)
    inferior = harm > allowed
    values = f"{metric} {converted.value:.4g}, of the source {source.value:.4g}, on {samples:,} samples"
    if same:
        why = "no sample differs"
    elif not inferior:
        why = f"not inferior: at most {harm:.2g} worse"
    else:
        why = f"it may be {harm:.2g} worse, and {allowed:.2g} is allowed"
        why += "; more labelled samples would tell" if sign * change <= allowed else ""
    return TaskMetric(
        metric=metric,
        source=source.value,
        value=converted.value,
        low=low,
        high=high,
        samples=samples,
        inferior=inferior,
        sentence=f"{values} ({why})",
    )


def with_task(agreement: ModelAgreement, metrics: Sequence[TaskMetric]) -> ModelAgreement:
    """Add the metrics of the task: a model that may be inferior in one differs."""
    with_metrics = replace(agreement, metrics=tuple(metrics))
    if (worse := next((metric for metric in metrics if metric.inferior), None)) is not None:
        return replace(with_metrics, verdict=Equivalence.DIFFERS, sentence=f"differs: {worse.sentence}")
    return replace(
        with_metrics, sentence="; ".join([with_metrics.sentence, *(metric.sentence for metric in metrics)])
    )
