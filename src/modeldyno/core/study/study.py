"""A study: a space, a goal, and every trial that was made; whatever else is asked of it is derived.

A study is a log. Nothing in it is ever changed: a trial more gives a new study, and one that was read
back from a store goes on as if it had never stopped.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING

from modeldyno.core.metrics.constraints import Answer, Judgement
from modeldyno.core.result.result import Environment
from modeldyno.core.result.summary import ALONE, answers, asked_for
from modeldyno.core.spec.job import Job
from modeldyno.core.spec.knob import KnobValue
from modeldyno.core.spec.model_ref import ModelIdentity
from modeldyno.core.study.goal import Goal
from modeldyno.core.study.search_space import Key, Point, Space, key

if TYPE_CHECKING:
    from collections.abc import Mapping

    from modeldyno.core.metrics.metric import Query
    from modeldyno.core.result.result import Result

SCHEMA = 1
LOADS = ("concurrency", "rate")
"""What of a load can be varied."""


class State(StrEnum):
    """What became of a trial."""

    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"
    """It cannot be: nothing was run."""


class Stage(StrEnum):
    """Why a trial was made."""

    DEFAULT = "default"
    """What the others are compared with."""
    SEARCH = "search"
    VERIFY = "verify"
    """Again, in turns with its rivals, in a fresh process or on a freshly started server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """The trial to be made next."""

    point: Point
    stage: Stage = Stage.SEARCH
    care: float = 1.0
    """How many times as long as the Plan says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One measurement of one point."""

    number: int
    """From 1, in the order in which they were begun."""
    point: Point
    state: State
    stage: Stage = Stage.SEARCH
    care: float = 1.0
    answers: tuple[Answer, ...] = ()
    judgements: tuple[Judgement, ...] = ()
    """On the constraints of the goal, by 95 % intervals."""
    doubts: tuple[str, ...] = ()
    """Codes."""
    failure: str = ""
    """What went wrong, or why it cannot be."""
    kind: str = ""
    """Kind of the failure, such as ``oom``."""
    result: str = ""
    """Id of the Result."""
    seconds: float = 0.0
    """That it took, loading included."""

    @classmethod
    def of(cls, result: Result, goal: Goal, ask: Ask, *, number: int, seconds: float) -> Trial:
        """Take from a Result what a study needs."""
        failed = result.failures[0] if result.failures else None
        plain = (replace(query, part="raw") for query in goal.queries if query.statistic and not query.part)
        asked = (*goal.queries, *plain)  # a percentile that is no claim yet is a hint
        found = (*answers(result.measurements, ALONE), *asked_for(result.measurements, asked))
        return cls(
            number=number,
            point=ask.point,
            state=State.FAILED if failed else State.DONE,
            stage=ask.stage,
            care=ask.care,
            answers=tuple({answer.query: answer for answer in found}.values()),
            judgements=tuple(bound.judge(result.measurements) for bound in goal.constraints),
            doubts=tuple(dict.fromkeys(doubt.code for doubt in result.doubts)),
            failure=f"{failed.where}: {failed.message}" if failed else "",
            kind=str(failed.kind) if failed else "",
            result=result.id,
            seconds=seconds,
        )

    @property
    def measured(self) -> bool:
        """Whether something was run for it."""
        return self.state is not State.SKIPPED

    def ask(self, query: Query) -> Answer | None:
        """Give what was measured, or None."""
        return next((answer for answer in self.answers if answer.query == query), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A point, and all trials of it that were not skipped."""

    point: Point
    trials: tuple[Trial, ...]

    @property
    def telling(self) -> tuple[Trial, ...]:
        """The trials that its figures come from: those that verified it, where there are any.

        Whoever was chosen for a good figure was chosen for its luck, too; that figure is not quoted.
        """
        done = [trial for trial in self.trials if trial.state is State.DONE]
        verified = [trial for trial in done if trial.stage is Stage.VERIFY]
        return tuple(verified or done)

    @property
    def failed(self) -> bool:
        """Whether it never gave anything."""
        return not self.telling


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """When a sweep ends; None: when there is nothing more to learn."""

    max_time: float | None = None
    """Seconds, everything included."""
    max_trials: int | None = None
    """Measurements, verification included."""
    certain: float = 0.95
    """Share of resamples in which the best must be best for verification to end."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Study:
    """A document: what was to be found, and the log of its trials."""

    id: str
    """Twelve hexadecimal digits; any unambiguous prefix names it."""
    created: str
    """Time of UTC, ISO 8601."""
    job: Job
    """What a trial is, but for its point."""
    space: Space
    goal: Goal
    settings: dict[str, KnobValue] = field(default_factory=dict)
    """Knobs that the user set, without any default of a backend."""
    default: Point = field(default_factory=dict)
    """The point that the others are compared with; it need not be one of the space."""
    strategy: str = "quick"
    seed: int = 0
    budget: Budget = field(default_factory=Budget)
    trials: tuple[Trial, ...] = ()
    name: str = ""
    model: ModelIdentity | None = None
    """That of the first trial that told; whoever goes on must measure the same."""
    environment: Environment | None = None
    """Where that trial was made; unlike hardware is not comparable."""
    schema: int = SCHEMA

    def __repr__(self) -> str:
        return (
            f"<Study {self.id} of {self.name or self.job.model}: "
            f"{len(self.measured)} trials of {len(self.candidates)} points>"
        )

    def add(self, *trials: Trial) -> Study:
        """Give the study with trials more."""
        return replace(self, trials=(*self.trials, *trials))

    @cached_property
    def measured(self) -> tuple[Trial, ...]:
        """The trials for which something was run."""
        return tuple(trial for trial in self.trials if trial.measured)

    @cached_property
    def candidates(self) -> Mapping[Key, Candidate]:
        """Every point that was measured, in the order of the first trials."""
        found: dict[Key, list[Trial]] = {}
        for trial in self.measured:
            found.setdefault(key(trial.point), []).append(trial)
        return {k: Candidate(point=ts[0].point, trials=tuple(ts)) for k, ts in found.items()}

    @cached_property
    def skipped(self) -> Mapping[Key, Trial]:
        """Every point that cannot be."""
        return {key(trial.point): trial for trial in self.trials if not trial.measured}

    @property
    def spent(self) -> float:
        """Seconds of all trials."""
        return sum(trial.seconds for trial in self.trials)

    @property
    def loads(self) -> tuple[str, ...]:
        """Axes that change a load alone, of the model or of one beside it: the server stays open."""
        return (*LOADS, *(f"{each.name}.{load}" for each in self.job.beside for load in LOADS))

    def configuration(self, point: Mapping[str, KnobValue]) -> Point:
        """Give the part of a point that needs another server, or another session."""
        loads = self.loads
        return {name: value for name, value in point.items() if name not in loads}
