"""A comparison: a baseline, what is compared with it, and one row for each metric that both have.

A verdict is by interval, against the smallest effect that matters; what a row says holds with the others
of its comparison, because their intervals are widened for their number.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from modeldyno.core.metrics.doubt import Doubt
from modeldyno.core.metrics.measurement import Interval
from modeldyno.core.metrics.metric import Query
from modeldyno.core.result.result import Fact, Result

if TYPE_CHECKING:
    from collections.abc import Iterator

SCHEMA = 1
SMALLEST_EFFECT = 0.03
"""A relative change smaller than this does not matter, unless a metric says otherwise."""


class Outcome(StrEnum):
    """How a candidate does beside the baseline, in one metric or as a whole."""

    BETTER = "better"
    WORSE = "worse"
    SAME = "same"
    """Equivalent: the whole interval lies within the smallest effect that matters."""
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One metric of baseline and candidate: the difference, its interval, the verdict."""

    query: Query
    baseline: float | None
    """What is compared, in the base unit: where there are several processes, the number of a typical one.
    None where it is no claim or was not measured."""
    candidate: float | None
    """Likewise; of runs in turns, what the baseline is and the difference that was found in the rounds."""
    difference: float | None
    """Relative, as the number moves: candidate / baseline - 1. None where there is no ratio."""
    interval: Interval | None
    """Of the difference, widened for the number of metrics that are judged together."""
    outcome: Outcome
    smallest: float = SMALLEST_EFFECT
    """Relative effect that matters in this metric."""
    why: str = ""
    """What keeps it undecided, or what the verdict rests on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A setting or a fact of the environment that is not the same in both; None where one lacks it."""

    name: str
    baseline: Fact | None
    candidate: Fact | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """How far the outputs of the two models agree on the same inputs."""

    output: str
    largest: float
    """Largest absolute difference of two elements."""
    relative: float
    """Largest difference, relative to the largest element of the baseline."""
    cosine: float
    """Of the two outputs, each as one vector."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What a part of the model contributes to a change."""

    scope: str
    """Path of a module or name of an operator, as in the candidate; of the baseline where it is gone."""
    kind: str
    baseline: float
    """Base units of the metric; 0 where it is new."""
    candidate: float
    """0 where it is gone."""
    interval: Interval | None = None
    """Of the difference, in base units; None of what does not vary."""
    changed: bool = False
    """Whether the part itself is new, gone, or not what it was: of another class, with another output, or
    called more or less often."""

    @property
    def difference(self) -> float:
        """How much more than before."""
        return self.candidate - self.baseline

    @property
    def sure(self) -> bool:
        """Whether it contributes anything at all beyond its own noise."""
        return self.interval is None or self.interval.low > 0 or self.interval.high < 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """Where the change of a metric comes from: its parts, the largest first, and a rest."""

    query: Query
    by: str
    """What the parts are: layers, operators, kernels."""
    total: float
    """How much the metric changed, in base units."""
    parts: tuple[Part, ...]

    @property
    def rest(self) -> float:
        """What no part accounts for."""
        return self.total - sum(part.difference for part in self.parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Contrast:
    """One candidate beside the baseline."""

    candidate: Result
    changes: tuple[Change, ...]
    """Every metric that both have, judged together; those that the verdict rests on come first."""
    judged: tuple[Query, ...] = ()
    """What the verdict as a whole rests on; empty: all of `changes`."""
    settings: tuple[Difference, ...] = ()
    """Of the job: knobs, inputs, load."""
    software: tuple[Difference, ...] = ()
    hardware: tuple[Difference, ...] = ()
    """Not empty only where the comparison was forced."""
    outputs: tuple[Agreement, ...] = ()
    causes: tuple[Cause, ...] = ()
    doubts: tuple[Doubt, ...] = ()

    @property
    def outcome(self) -> Outcome:
        """The verdict as a whole: worse where anything judged is, and same only where everything is."""
        found = {change.outcome for change in self.verdicts}
        if Outcome.WORSE in found:
            return Outcome.WORSE
        if Outcome.UNDECIDED in found or not found:
            return Outcome.UNDECIDED
        return Outcome.BETTER if Outcome.BETTER in found else Outcome.SAME

    @property
    def verdicts(self) -> tuple[Change, ...]:
        """The changes that the verdict as a whole rests on."""
        return tuple(change for change in self.changes if not self.judged or change.query in self.judged)

    def of(self, outcome: Outcome) -> Iterator[Change]:
        """Give the changes that have this outcome."""
        return (change for change in self.changes if change.outcome == outcome)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A document: what was compared with what, and what came of it."""

    id: str
    """Twelve hexadecimal digits."""
    created: str
    """Time of UTC, ISO 8601."""
    baseline: Result
    contrasts: tuple[Contrast, ...]
    order: str = "stored"
    """How the runs were laid out: ``alternating`` or ``block`` where both were run for it."""
    sequence: tuple[int, ...] = ()
    """Which was run, run after run, where they were run for it: 0 is the baseline, 1 the first candidate."""
    level: float = 0.95
    """Confidence of all intervals of a candidate together, at each of the looks that were planned."""
    schema: int = SCHEMA
