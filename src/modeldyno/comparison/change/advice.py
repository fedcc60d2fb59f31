"""Advice: what was tried on a model, its gains and costs, and the best combination."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING

from modeldyno.base.document import Document
from modeldyno.base.job.knob import KnobValue
from modeldyno.base.metrics.metric import COSTS, METRICS, Better, Query
from modeldyno.base.result.cost import Price
from modeldyno.base.result.output_agreement import OutputAgreement
from modeldyno.base.result.result import Result
from modeldyno.base.result.where import as_text
from modeldyno.comparison.change.comparison import Change, ChangeVerdict
from modeldyno.profiling.findings.bottleneck import Bottleneck
from modeldyno.profiling.findings.finding import Finding

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from modeldyno.base.job.input_spec import InputSpec
    from modeldyno.sweeps.study.search_space import Axis

SCHEMA = 1
HOPELESS = 1.5
"""A candidate is dropped after its single run if it is this many times as bad as the baseline."""
_CODES_OF_AXES = {"threads": "threads", "batch_size": "batch-size"}
"""Axes of a space to the code of the matching finding."""

Settings = dict[str, KnobValue]


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateSettings:
    """Settings to try, and what suggests them."""

    codes: tuple[str, ...]
    """Codes of findings; settings from the usual space of a knob have the knob's name."""
    settings: Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedSetting:
    """The outcome of a candidate."""

    candidate: CandidateSettings
    change: Change | None = None
    """Of the metric to improve; None if it failed."""
    beside: tuple[Change, ...] = ()
    """Of the metrics shown along with it."""
    outputs: tuple[OutputAgreement, ...] = ()
    """How far its outputs agree with those of the baseline on the same inputs."""
    unlike: str = ""
    """Why the outputs could not be compared."""
    failure: str = ""
    rounds: int = 0
    """Interleaved rounds with the baseline; 0 if it ran only once."""
    answers: tuple[Change, ...] = ()
    """Of what was evaluated on labelled samples, such as the accuracy; only of the best setting."""

    @property
    def outcome(self) -> ChangeVerdict:
        """Whether it helped; undecided after a single run."""
        return self.change.outcome if self.change is not None and self.rounds else ChangeVerdict.UNDECIDED

    @property
    def error(self) -> float:
        """Largest relative difference of an output; 0 if none was compared."""
        return max((agreement.relative for agreement in self.outputs), default=0.0)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Advice(Document):
    """Observations, trials and the best settings for a model, as a document."""

    KIND = "advice"
    id: str
    created: str
    query: Query
    """The metric to improve."""
    tolerance: float
    """Largest relative difference of outputs up to which settings are combined."""
    baseline: Result
    """The first measurement."""
    bottleneck: Bottleneck | None = None
    findings: tuple[Finding, ...] = ()
    tried: tuple[TriedSetting, ...] = ()
    left_out: tuple[CandidateSettings, ...] = ()
    """Not tried for lack of time."""
    finals: tuple[TriedSetting, ...] = ()
    """The best single setting and the combination of all that helped, measured again."""
    best: TriedSetting | None = None
    """The better of these; None if nothing helped."""
    command: str = ""
    """The command that measures the model with these settings."""
    price: Price | None = None
    """Of the machine, if one was given."""
    schema: int = SCHEMA


# --- what to try -----------------------------------------------------------------------------------


def candidates(
    all_findings: Iterable[Finding], axes: Iterable[Axis], baseline: Result, metric: str
) -> tuple[CandidateSettings, ...]:
    """Return what to try, without repeats: suggestions of findings, then the usual values of knobs.

    Another batch size changes the work of a call: it is tried only to improve a rate or a cost, and if no
    given shape fixes the batch.
    """
    config = baseline.job.config
    batches = of_any_batch(metric) and fixed_batch(baseline) is None
    chosen: dict[tuple[tuple[str, KnobValue], ...], CandidateSettings] = {}

    def add(code: str, settings: Settings) -> None:
        if "batch_size" in settings and not batches:
            return
        key = tuple(sorted(settings.items()))
        earlier = chosen.get(key)
        codes = (code,) if earlier is None else tuple(dict.fromkeys((*earlier.codes, code)))
        chosen[key] = CandidateSettings(codes=codes, settings=settings)

    for finding in all_findings:
        if can_be_tried(finding) and finding.job is not None:
            new = {n: v for n, v in finding.job.config.items() if (n, v) not in config.items()}
            add(finding.code, new)
    for axis in axes:
        code = _CODES_OF_AXES.get(axis.name, axis.name)
        for value in axis.values:
            if config.get(axis.name) != value and (axis.name, value) not in _DEFAULT_VALUES:
                add(code, {axis.name: value})
    return tuple(sorted(chosen.values(), key=lambda candidate: bool(candidate.settings.keys() & _SLOW)))


def of_any_batch(metric: str) -> bool:
    """Return whether a metric compares calls of different batch sizes: a rate, or a cost."""
    return METRICS[metric].better is Better.HIGHER or metric in COSTS


def fixed_batch(baseline: Result) -> InputSpec | None:
    """Return the first input whose shape fixes the batch to a number."""
    shaped = (spec for spec in baseline.job.inputs if spec.shape)
    return next((spec for spec in shaped if spec.shape and isinstance(spec.shape[0], int)), None)


def can_be_tried(finding: Finding) -> bool:
    """Return whether a finding can be tried: it is about settings and the speed of calls."""
    return finding.job is not None and finding.metric == "throughput"


_SLOW = frozenset({"compile"})
"""Knobs that may take minutes before the first call: tried last, to leave time for the others."""
_DEFAULT_VALUES = {("batch_size", 1), ("precision", "fp32")}
"""Values of an axis that equal the default."""


def worth_rounds(looked: Sequence[TriedSetting]) -> tuple[TriedSetting, ...]:
    """Return the candidates worth interleaved rounds, the best first: they ran, not surely far worse."""
    ran = [tried for tried in looked if _optimistic_gain(tried.change) > 1 / HOPELESS - 1]
    return tuple(sorted(ran, key=lambda tried: -relative_gain(tried.change)))


def _optimistic_gain(change: Change | None) -> float:
    """Return the gain at the better end of the interval, because one run on a busy machine is uncertain."""
    if change is None or change.interval is None:
        return relative_gain(change)
    rate = METRICS[change.query.metric].better is Better.HIGHER
    return relative_gain(replace(change, difference=change.interval.high if rate else change.interval.low))


# --- what helped -----------------------------------------------------------------------------------


def relative_gain(change: Change | None) -> float:
    """Return the improvement relative to the baseline; for a time, how many more calls fit into it."""
    if change is None or change.difference is None:
        return -inf
    if METRICS[change.query.metric].better is Better.HIGHER:
        return change.difference
    return 1 / (1 + change.difference) - 1 if change.difference > -1 else inf


def which_helped(tried: Iterable[TriedSetting], tolerance: float) -> tuple[TriedSetting, ...]:
    """Return what is surely better, within the tolerance of the outputs, the best first."""
    successful = [t for t in tried if t.outcome is ChangeVerdict.BETTER and t.error <= tolerance]
    return tuple(sorted(successful, key=lambda t: -relative_gain(t.change)))


def final_candidates(better: Sequence[TriedSetting]) -> tuple[CandidateSettings, ...]:
    """Return the finalists: the best single setting, and all compatible settings that helped.

    Args:
        better: what helped, the best first.
    """
    if not better:
        return ()
    combined: Settings = {}
    codes: list[str] = []
    for tried in better:
        if not tried.candidate.settings.keys() & combined.keys():
            combined |= tried.candidate.settings
            codes += tried.candidate.codes
    single = better[0].candidate
    if combined == single.settings:
        return (single,)
    return (CandidateSettings(codes=tuple(dict.fromkeys(codes)), settings=combined), single)


def best_finalist(finalists: Sequence[TriedSetting], tolerance: float) -> TriedSetting | None:
    """Return the best finalist; None if none surely helped."""
    return next(iter(which_helped(finalists, tolerance)), None)


def with_outputs(tried: TriedSetting, outputs: tuple[OutputAgreement, ...], unlike: str = "") -> TriedSetting:
    """Add how far the outputs agree, or why that is unknown."""
    return replace(tried, outputs=outputs, unlike=unlike)


def format_settings(settings: Mapping[str, KnobValue]) -> str:
    """Write settings as the command line takes them: ``threads=2 compile=on``."""
    return " ".join(f"{name}={as_text(value)}" for name, value in settings.items())
