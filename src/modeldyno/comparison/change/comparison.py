"""A comparison: a baseline, its candidates, and a row for each metric that both have.

Verdicts compare the interval with the smallest effect that matters. The rows of a comparison hold together,
because their intervals are widened for their number.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from modeldyno.base.document import Conclusion, MeasuredAt
from modeldyno.base.metrics.doubt import Doubt
from modeldyno.base.metrics.measurement import Interval
from modeldyno.base.metrics.metric import Query
from modeldyno.base.result.output_agreement import OutputAgreement
from modeldyno.base.result.result import Fact, Result
from modeldyno.base.stats.units import FRACTION, format_percent

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


SCHEMA = 1
SMALLEST_EFFECT = 0.03
"""Smallest relative change that matters, unless a metric has its own."""


class ChangeVerdict(StrEnum):
    """How a candidate compares with the baseline, in one metric or as a whole."""

    BETTER = "better"
    WORSE = "worse"
    SAME = "same"
    """Equivalent: the whole interval lies within the smallest effect that matters."""
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One metric of baseline and candidate: difference, interval, and verdict."""

    query: Query
    baseline: float | None
    """The compared value in the base unit: with several processes, that of a typical one. None if it is not
    certified or was not measured."""
    candidate: float | None
    """The same for the candidate; for interleaved runs, the baseline plus the difference found in the
    rounds."""
    difference: float | None
    """Relative change of the number: candidate / baseline - 1. None if there is no ratio."""
    interval: Interval | None
    """Of the difference, widened for the number of metrics judged together."""
    outcome: ChangeVerdict
    smallest: float = SMALLEST_EFFECT
    """Smallest relative effect that matters in this metric."""
    why: str = ""
    """Why it is undecided, or what the verdict is based on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingDiff:
    """A setting or an environment fact that differs between the two; None if one side lacks it."""

    name: str
    baseline: Fact | None
    candidate: Fact | None


def differing_facts(before: Mapping[str, Fact], now: Mapping[str, Fact]) -> tuple[SettingDiff, ...]:
    """Return the facts that differ between the two; none if one side has no facts."""
    if not before or not now:
        return ()
    return tuple(
        SettingDiff(name=name, baseline=before.get(name), candidate=now.get(name))
        for name in {**before, **now}
        if before.get(name) != now.get(name)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CausePart:
    """What a part of the model contributes to a change."""

    scope: str
    """Path of a module or name of an operator in the candidate; in the baseline if it is gone."""
    kind: str
    baseline: float
    """Base units of the metric; 0 if it is new."""
    candidate: float
    """0 if it is gone."""
    interval: Interval | None = None
    """Of the difference, in base units; None for what does not vary."""
    changed: bool = False
    """Whether the part itself is new, gone, or changed: another class, another output, or a different number
    of calls."""

    @property
    def difference(self) -> float:
        """Candidate less baseline."""
        return self.candidate - self.baseline

    @property
    def sure(self) -> bool:
        """Whether its contribution exceeds its own noise."""
        return self.interval is None or self.interval.low > 0 or self.interval.high < 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """Where the change of a metric comes from: its parts, the largest first, and a remainder."""

    query: Query
    by: str
    """What the parts are: layers, operators, kernels."""
    total: float
    """Change of the metric, in base units."""
    parts: tuple[CausePart, ...]

    @property
    def rest(self) -> float:
        """What no part explains."""
        return self.total - sum(part.difference for part in self.parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateComparison:
    """One candidate compared with the baseline."""

    candidate: Result
    changes: tuple[Change, ...]
    """Every metric that both have, judged together; those that decide the verdict come first."""
    judged: tuple[Query, ...] = ()
    """The queries that decide the overall verdict; empty: all of `changes`."""
    settings: tuple[SettingDiff, ...] = ()
    """Of the job: knobs, inputs, load."""
    software: tuple[SettingDiff, ...] = ()
    hardware: tuple[SettingDiff, ...] = ()
    """Not empty only if the comparison was forced."""
    outputs: tuple[OutputAgreement, ...] = ()
    outputs_verdict: ChangeVerdict | None = None
    """Whether the outputs will do, where a tolerance or the user's own function was to judge them: the same,
    worse, or undecided if they could not be compared. None if nothing was asked."""
    unlike: str = ""
    """Why they will not do."""
    causes: tuple[Cause, ...] = ()
    doubts: tuple[Doubt, ...] = ()

    @property
    def outcome(self) -> ChangeVerdict:
        """The overall verdict: worse if any judged metric is, or the outputs are; same only if all are."""
        outcomes = {change.outcome for change in self.verdicts}
        if self.outputs_verdict not in {None, ChangeVerdict.SAME}:
            outcomes |= {self.outputs_verdict}
        if ChangeVerdict.WORSE in outcomes:
            return ChangeVerdict.WORSE
        if ChangeVerdict.UNDECIDED in outcomes or not outcomes:
            return ChangeVerdict.UNDECIDED
        return ChangeVerdict.BETTER if ChangeVerdict.BETTER in outcomes else ChangeVerdict.SAME

    @property
    def verdicts(self) -> tuple[Change, ...]:
        """The changes that decide the overall verdict."""
        return tuple(change for change in self.changes if not self.judged or change.query in self.judged)

    def of(self, outcome: ChangeVerdict) -> Iterator[Change]:
        """Return the changes with this outcome."""
        return (change for change in self.changes if change.outcome == outcome)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Comparison(Conclusion):
    """A baseline and its candidates with all verdicts, as a document."""

    KIND = "comparison"
    id: str
    """Twelve hexadecimal digits."""
    created: str
    """UTC time, ISO 8601."""
    baseline: Result
    contrasts: tuple[CandidateComparison, ...]
    order: str = "stored"
    """Layout of the runs: ``alternating`` or ``block`` if both were run for it."""
    sequence: tuple[int, ...] = ()
    """The side of each run, if they were run for it: 0 is the baseline, 1 the first candidate."""
    level: float = 0.95
    """Joint confidence of all intervals of a candidate, at each of the planned looks."""
    schema: int = SCHEMA

    @property
    def name(self) -> str:
        """The name of the baseline's model."""
        return self.baseline.name

    @property
    def model_digests(self) -> frozenset[str]:
        """Digests of the models of both sides."""
        return frozenset().union(*(result.model_digests for result in self.results))

    @property
    def measured_at(self) -> MeasuredAt:
        """Where its last candidate was measured."""
        return self.results[-1].measured_at

    @property
    def results(self) -> tuple[Result, ...]:
        """The Results compared: the baseline, then each candidate."""
        return (self.baseline, *(contrast.candidate for contrast in self.contrasts))


# --- changes in percentage points -------------------------------------------------------------------


def in_points(change: Change) -> bool:
    """Return whether a change is shown in points: that of a share with a baseline above 0."""
    return change.query.unit == FRACTION and bool(change.baseline)


def points(ratio: float, change: Change) -> str:
    """Format a relative change of a share in percentage points, without its sign."""
    return format_percent(abs(ratio) * (change.baseline or 0.0)).removesuffix("%")


def signed_points(ratio: float, change: Change) -> str:
    """Format it with its sign."""
    return f"{'+' if ratio > 0 else '-' if ratio else ''}{points(ratio, change)}"


def difference_in_points(change: Change) -> str:
    """Format the difference of a share with its interval: ``-1.0 points (-1.7 to -0.3)``."""
    span = change.interval
    size = f"{signed_points(change.difference or 0.0, change)} points"
    ends = [signed_points(end, change) for end in (span.low, span.high)] if span else []
    return f"{size} ({' to '.join(ends)})" if len(set(ends)) > 1 else size
