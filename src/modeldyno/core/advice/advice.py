"""Advice: what was tried on a model, what it gained and cost, and the best combination of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING

from modeldyno.core.advice.bottleneck import Bottleneck
from modeldyno.core.advice.finding import Finding
from modeldyno.core.comparison.comparison import Agreement, Change, Outcome
from modeldyno.core.metrics.metric import METRICS, Better, Query
from modeldyno.core.result.result import Result
from modeldyno.core.spec.knob import KnobValue

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from modeldyno.core.spec.input_spec import InputSpec
    from modeldyno.core.study.search_space import Axis

SCHEMA = 1
HOPELESS = 1.5
"""How many times as bad as the baseline a candidate may be when it runs once, and still run in turns."""
_FAMILIAR = {"threads": "threads", "intra_threads": "threads", "batch_size": "batch-size"}
"""Knobs of a space, by the code of the finding that they belong to."""

Settings = dict[str, KnobValue]


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """Settings to try, and what suggests them."""

    codes: tuple[str, ...]
    """Of findings; those of a knob's usual space are named for the knob."""
    settings: Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """What came of a candidate."""

    candidate: Candidate
    change: Change | None = None
    """Of the metric that was to be improved; None where it did not run."""
    beside: tuple[Change, ...] = ()
    """Of what is told along with it."""
    outputs: tuple[Agreement, ...] = ()
    """With those of the baseline, on the same inputs."""
    unlike: str = ""
    """Why the outputs could not be held against each other."""
    failure: str = ""
    rounds: int = 0
    """In which it and the baseline ran in turns; 0 where it ran once only."""

    @property
    def outcome(self) -> Outcome:
        """Whether it helped; what ran once only is not decided."""
        return self.change.outcome if self.change is not None and self.rounds else Outcome.UNDECIDED

    @property
    def error(self) -> float:
        """Largest difference of an output, relative to its largest element; 0 where none was compared."""
        return max((agreement.relative for agreement in self.outputs), default=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """A document: what was seen, what was tried, and what is best."""

    id: str
    created: str
    query: Query
    """What was to be improved."""
    tolerance: float
    """Largest relative difference of outputs up to which settings are combined."""
    baseline: Result
    """The first look."""
    bottleneck: Bottleneck | None = None
    findings: tuple[Finding, ...] = ()
    tried: tuple[Tried, ...] = ()
    left_out: tuple[Candidate, ...] = ()
    """For want of time."""
    finals: tuple[Tried, ...] = ()
    """The best that helped alone, and with all that helped, measured again in rounds of their own."""
    best: Tried | None = None
    """The better of these; None where nothing helped."""
    command: str = ""
    """That measures the model with it."""
    schema: int = SCHEMA


# --- what to try -----------------------------------------------------------------------------------


def candidates(
    found: Iterable[Finding], axes: Iterable[Axis], baseline: Result, metric: str
) -> tuple[Candidate, ...]:
    """Give what to try, each once: what findings suggest, then what is usual for the backend's knobs.

    Another size of the batch does another work in a call: it is tried where a rate is to be improved, and no
    shape that was given fixes it.
    """
    config = baseline.job.config
    batches = METRICS[metric].better is Better.HIGHER and fixed_batch(baseline) is None
    chosen: dict[tuple[tuple[str, KnobValue], ...], Candidate] = {}

    def add(code: str, settings: Settings) -> None:
        if "batch_size" in settings and not batches:
            return
        key = tuple(sorted(settings.items()))
        known = chosen.get(key)
        codes = (code,) if known is None else tuple(dict.fromkeys((*known.codes, code)))
        chosen[key] = Candidate(codes=codes, settings=settings)

    for finding in found:
        if tries(finding) and finding.job is not None:
            new = {n: v for n, v in finding.job.config.items() if (n, v) not in config.items()}
            add(finding.code, new)
    for axis in axes:
        code = _FAMILIAR.get(axis.name, axis.name)
        for value in axis.values:
            if config.get(axis.name) != value and (axis.name, value) not in _USUAL:
                add(code, {axis.name: value})
    return tuple(sorted(chosen.values(), key=lambda each: bool(each.settings.keys() & _SLOW)))


def fixed_batch(baseline: Result) -> InputSpec | None:
    """Give the first input whose batch was given as a number, as part of its shape."""
    shaped = (spec for spec in baseline.job.inputs if spec.shape)
    return next((spec for spec in shaped if spec.shape and isinstance(spec.shape[0], int)), None)


def tries(finding: Finding) -> bool:
    """Say whether a finding is tried: it is a matter of settings, and of the speed of calls."""
    return finding.job is not None and finding.metric == "throughput"


_SLOW = frozenset({"compile"})
"""Knobs that may take minutes before the first call: tried last, so that the others have their time."""
_USUAL = {("batch_size", 1), ("precision", "fp32")}
"""Values of an axis that come to what is usual anyway."""


def promising(looked: Sequence[Tried]) -> tuple[Tried, ...]:
    """Give those worth rounds in turns, the best first: they ran, and are not surely far worse."""
    ran = [tried for tried in looked if _at_best(tried.change) > 1 / HOPELESS - 1]
    return tuple(sorted(ran, key=lambda tried: -gain(tried.change)))


def _at_best(change: Change | None) -> float:
    """Give the gain at the better end of the interval: one look on a busy machine tells little."""
    if change is None or change.interval is None:
        return gain(change)
    rate = METRICS[change.query.metric].better is Better.HIGHER
    return gain(replace(change, difference=change.interval.high if rate else change.interval.low))


# --- what helped -----------------------------------------------------------------------------------


def gain(change: Change | None) -> float:
    """Give how much better, relative to the baseline: of a time how many more calls fit into it."""
    if change is None or change.difference is None:
        return -inf
    if METRICS[change.query.metric].better is Better.HIGHER:
        return change.difference
    return 1 / (1 + change.difference) - 1 if change.difference > -1 else inf


def helped(tried: Iterable[Tried], tolerance: float) -> tuple[Tried, ...]:
    """Give what is surely better, within the tolerance of the outputs, the best first."""
    found = [t for t in tried if t.outcome is Outcome.BETTER and t.error <= tolerance]
    return tuple(sorted(found, key=lambda t: -gain(t.change)))


def combinations(better: Sequence[Tried]) -> tuple[Candidate, ...]:
    """Give what to measure at last: the best alone, and with all that helped by other knobs; nothing of none.

    Args:
        better: what helped, the best first.
    """
    if not better:
        return ()
    whole: Settings = {}
    codes: list[str] = []
    for tried in better:
        if not tried.candidate.settings.keys() & whole.keys():
            whole |= tried.candidate.settings
            codes += tried.candidate.codes
    alone = better[0].candidate
    if whole == alone.settings:
        return (alone,)
    return (Candidate(codes=tuple(dict.fromkeys(codes)), settings=whole), alone)


def best(finalists: Sequence[Tried], tolerance: float) -> Tried | None:
    """Choose among those that were measured at last; where none surely helped there is none."""
    return next(iter(helped(finalists, tolerance)), None)


def with_outputs(tried: Tried, outputs: tuple[Agreement, ...], unlike: str = "") -> Tried:
    """Add how far the outputs agree, or why that is not known."""
    return replace(tried, outputs=outputs, unlike=unlike)


def shown(settings: Mapping[str, KnobValue]) -> str:
    """Write settings as ``--set`` takes them."""
    return " ".join(f"{name}={_word(value)}" for name, value in settings.items())


def _word(value: KnobValue) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
