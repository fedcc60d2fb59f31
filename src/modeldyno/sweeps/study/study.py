"""A study: a space, a goal and the log of all trials; everything else is derived from these.

A study is a log and immutable: another trial gives a new study, and a study read back from a store continues
as if it had never stopped.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING

from modeldyno.base.document import StoredDocument
from modeldyno.base.job.job import Job
from modeldyno.base.job.knob import KnobValue
from modeldyno.base.job.model_ref import ModelIdentity
from modeldyno.base.metrics.constraints import Answer, Judgement
from modeldyno.base.metrics.metric import COSTS
from modeldyno.base.metrics.queries import goal_answers, trial_answers
from modeldyno.base.report.chosen_plot import ChosenPlot
from modeldyno.base.result.cost import cost_answers, with_cost
from modeldyno.base.result.result import Environment
from modeldyno.base.result.slowdown import slowdown_by_others
from modeldyno.conversion.agreement.rule import OutputCheck
from modeldyno.sweeps.study.goal import Goal
from modeldyno.sweeps.study.search_space import Key, Point, Space, key, product_of_knobs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from modeldyno.base.metrics.metric import Query
    from modeldyno.base.result.result import Result

SCHEMA = 1
CERTAIN = 0.95
"""The certainty at which verification ends unless another one is required."""
LOADS = ("concurrency", "rate")
"""The loads that can be varied."""


class TrialState(StrEnum):
    """The state of a trial."""

    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"
    """The point is invalid: nothing was run."""


class TrialPurpose(StrEnum):
    """The purpose of a trial."""

    DEFAULT = "default"
    """The baseline of the others."""
    SEARCH = "search"
    VERIFY = "verify"
    """Measured again, interleaved with its rivals, in a fresh process or on a freshly started server."""
    BISECT = "bisect"
    """A load between two of the axis, where a bound breaks; part of the ranking, unseen by the strategy."""
    CURVE = "curve"
    """Another load of one of the best configurations, measured after the search; no part of the ranking."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRequest:
    """The trial to run next."""

    point: Point
    stage: TrialPurpose = TrialPurpose.SEARCH
    care: float = 1.0
    """Multiple of the Plan's time to measure for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One measurement of one point."""

    number: int
    """From 1, in the order in which they began."""
    point: Point
    state: TrialState
    stage: TrialPurpose = TrialPurpose.SEARCH
    care: float = 1.0
    answers: tuple[Answer, ...] = ()
    judgements: tuple[Judgement, ...] = ()
    """On the constraints of the goal, by 95 % intervals."""
    doubts: tuple[str, ...] = ()
    """Codes."""
    failure: str = ""
    """What failed, or why the point is invalid."""
    kind: str = ""
    """Kind of the failure, such as ``oom``."""
    failed_stage: str = ""
    """Stage of the run that failed, such as ``open``, in which a server starts."""
    result: str = ""
    """Id of the Result."""
    seconds: float = 0.0
    """Its duration, loading included."""
    slowed: float = 1.0
    """Factor by which others on the machine may have slowed it down."""

    @classmethod
    def of(cls, result: Result, goal: Goal, ask: TrialRequest, *, number: int, seconds: float) -> Trial:
        """Extract from a Result what a study needs."""
        result, failed = with_cost(result, goal.price), result.failure
        raw = (replace(query, part="raw") for query in goal.queries if query.statistic and not query.part)
        queries = (*goal.queries, *raw)  # an uncertified percentile is a hint
        found_answers = (
            *trial_answers(result.measurements),
            *goal_answers(result.measurements, queries),
        )
        return cls(
            number=number,
            point=ask.point,
            state=TrialState.FAILED if failed else TrialState.DONE,
            stage=ask.stage,
            care=ask.care,
            answers=tuple({answer.query: answer for answer in found_answers}.values()),
            judgements=tuple(bound.judge(result.measurements) for bound in goal.constraints),
            doubts=tuple(dict.fromkeys(doubt.code for doubt in result.doubts)),
            failure=f"{failed.where}: {failed.message}" if failed else "",
            kind=str(failed.kind) if failed else "",
            failed_stage=failed.where if failed else "",
            result=result.id,
            seconds=seconds,
            slowed=max((slowdown_by_others(result, query) for query in goal.queries), default=1.0),
        )

    @property
    def measured(self) -> bool:
        """Whether anything was run for it."""
        return self.state is not TrialState.SKIPPED

    def ask(self, query: Query) -> Answer | None:
        """Return the measured answer, or None."""
        return next((answer for answer in self.answers if answer.query == query), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A point and all its trials that were not skipped."""

    point: Point
    trials: tuple[Trial, ...]

    @property
    def quoted_trials(self) -> tuple[Trial, ...]:
        """The trials that its figures come from: its verifications, if there are any.

        A trial chosen for its good figure suffers from selection bias, so that figure is not quoted.
        """
        done = [trial for trial in self.trials if trial.state is TrialState.DONE]
        verified = [trial for trial in done if trial.stage is TrialPurpose.VERIFY]
        return tuple(verified or done)

    @property
    def failed(self) -> bool:
        """Whether no trial succeeded."""
        return not self.quoted_trials


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """When a sweep ends; None: when there is nothing more to learn."""

    max_time: float | None = None
    """Seconds, everything included."""
    max_trials: int | None = None
    """Most measurements, verification included."""
    certain: float | None = None
    """Required share of resamples in which the answer is the best, or hardly worse; None: not required."""
    curves: int = 0
    """Number of best configurations that are measured at all loads after the search."""
    bisect: int = 0
    """Most loads to measure of each of the best configurations between one that holds the bounds and one that
    breaks them."""

    @property
    def enough(self) -> float:
        """The certainty at which verification ends."""
        return CERTAIN if self.certain is None else self.certain


@dataclass(frozen=True, kw_only=True, repr=False)
class Study(StoredDocument):
    """The goal and the log of trials of a sweep, as a document."""

    KIND = "study"
    id: str
    """Twelve hexadecimal digits; any unambiguous prefix names it."""
    created: str
    """Time of UTC, ISO 8601."""
    job: Job
    """The Job of every trial, except for the point."""
    space: Space
    goal: Goal
    outputs: OutputCheck | None = None
    """What the outputs of each trial must hold beside those of the default; None if they are not compared."""
    settings: dict[str, KnobValue] = field(default_factory=dict)
    """Knobs that the user set, without defaults of a backend."""
    default: Point = field(default_factory=dict)
    """The baseline point; it need not be in the space."""
    strategy: str = "quick"
    seed: int = 0
    budget: Budget = field(default_factory=Budget)
    trials: tuple[Trial, ...] = ()
    name: str = ""
    plots: tuple[ChosenPlot, ...] = ()
    """Charts of its page that were chosen, besides the usual ones."""
    model: ModelIdentity | None = None
    """Of the first trial that reported it; resumed studies must measure the same model."""
    environment: Environment | None = None
    """Of that trial; other hardware is not comparable."""
    schema: int = SCHEMA

    def __repr__(self) -> str:
        trials, points = (
            f"{len(values)} {noun}{'' if len(values) == 1 else 's'}"
            for values, noun in ((self.measured, "trial"), (self.candidates, "point"))
        )
        return f"<Study {self.id} of {self.name or self.job.model.argument}: {trials} of {points}>"

    def add(self, *trials: Trial) -> Study:
        """Return the study with more trials."""
        return replace(self, trials=(*self.trials, *trials))

    @cached_property
    def measured(self) -> tuple[Trial, ...]:
        """The trials for which something was run."""
        return tuple(trial for trial in self.trials if trial.measured)

    @cached_property
    def searched(self) -> Study:
        """The study without the trials that only complete curves."""
        trials = tuple(trial for trial in self.trials if trial.stage is not TrialPurpose.CURVE)
        return self if len(trials) == len(self.trials) else replace(self, trials=trials)

    @cached_property
    def candidates(self) -> Mapping[Key, Candidate]:
        """Every measured point, in the order of the first trials."""
        trials_by_point: dict[Key, list[Trial]] = {}
        for trial in self.measured:
            trials_by_point.setdefault(key(trial.point), []).append(trial)
        return {k: Candidate(point=ts[0].point, trials=tuple(ts)) for k, ts in trials_by_point.items()}

    @cached_property
    def skipped(self) -> Mapping[Key, Trial]:
        """Every invalid point."""
        return {key(trial.point): trial for trial in self.trials if not trial.measured}

    @cached_property
    def configuration_numbers(self) -> Mapping[Key, str]:
        """The number of each measured configuration in the order of first measurement, as text, by its key.

        That of the default is ``default``. A number stays when the study goes on or gets another goal.
        """
        default = key(self.configuration(self.default))
        keys = dict.fromkeys(key(self.configuration(c.point)) for c in self.candidates.values())
        numbers = {name: str(number) for number, name in enumerate((k for k in keys if k != default), 1)}
        return {**numbers, default: "default"}

    @property
    def spent(self) -> float:
        """Total seconds of all trials."""
        return sum(trial.seconds for trial in self.trials)

    @property
    def loads(self) -> tuple[str, ...]:
        """Axes that only change a load, of any model: the server stays open."""
        return (*LOADS, *(f"{model.name}.{load}" for model in self.job.beside for load in LOADS))

    def resolved(self, point: Mapping[str, KnobValue]) -> Point:
        """Return a point with the number of each load that is a product of knobs (``2*instances``)."""
        shown, values = dict(point), {**self.settings, **point}
        for load in point.keys() & set(self.loads):
            prefix = load.removesuffix("concurrency")  # of another model on the same server
            own = {
                name.removeprefix(prefix): value for name, value in values.items() if name.startswith(prefix)
            }
            product = product_of_knobs(point[load], own)
            if isinstance(product, int):
                shown[load] = product
        return shown

    def configuration(self, point: Mapping[str, KnobValue]) -> Point:
        """Return the part of a point that needs another server or session."""
        loads = self.loads
        return {name: value for name, value in point.items() if name not in loads}


# --- another goal -----------------------------------------------------------------------------------


def rerank_study(study: Study, goal: Goal, result: Callable[[str], Result | None]) -> tuple[Study, int]:
    """Return the study under another goal, and how many trials lack some of its metrics.

    Args:
        study: measured for another goal, or this one.
        goal: the new goal.
        result: returns a Result by its id; None if it is not stored.
    """
    trials = [_rejudge(trial, goal, result) for trial in study.trials]
    unknown = sum(
        trial.state is TrialState.DONE and any(trial.ask(query) is None for query in goal.queries)
        for trial in trials
    )
    return replace(study, goal=goal, trials=tuple(trials)), unknown


def _rejudge(trial: Trial, goal: Goal, result: Callable[[str], Result | None]) -> Trial:
    """Judge a trial by its stored Result, or else by what the study kept of it."""
    if trial.state is TrialState.SKIPPED:
        return trial
    stored = result(trial.result) if trial.result else None
    if stored is None:
        trial = _with_cost(trial, goal)
        judgements = (bound.on(answer) for bound in goal.constraints if (answer := trial.ask(bound.query)))
        return replace(trial, judgements=tuple(judgements))
    ask = TrialRequest(point=trial.point, stage=trial.stage, care=trial.care)
    rejudged = Trial.of(stored, goal, ask, number=trial.number, seconds=trial.seconds)
    return replace(
        rejudged,
        state=trial.state,
        doubts=trial.doubts,
        failure=trial.failure,
        kind=trial.kind,
        failed_stage=trial.failed_stage,
    )


def _with_cost(trial: Trial, goal: Goal) -> Trial:
    """Return a trial with its cost by the price of the goal, from the rates that the study kept."""
    if goal.price is None:
        return trial
    kept = (answer for answer in trial.answers if answer.query.metric not in COSTS)
    return replace(trial, answers=(*kept, *cost_answers(trial.answers, goal.price)))


# --- configurations by name -------------------------------------------------------------------------

NAMED = re.compile(r"(?:(?P<model>.+?)_)?(?:config_)?(?P<number>\d+|default)")
"""``text_3``, ``3``, ``text_default``; and ``text_config_3``, as Model Analyzer writes it."""


def base_name(study: Study) -> str:
    """Return the name of a study's model that is a valid directory name."""
    named = study.name or study.job.model.registered or study.job.model.locator
    return re.sub(r"[^\w.-]+", "-", re.split(r"[/#]", named)[-1]).strip("-.") or "model"


def configuration_number(study: Study, point: Mapping[str, KnobValue]) -> str:
    """Return the number of a point's configuration, or ``default``; empty if it was not measured."""
    return study.configuration_numbers.get(key(study.configuration(point)), "")


def configuration_label(study: Study, point: Mapping[str, KnobValue]) -> str:
    """Return the name of a point's configuration, such as ``text_recognition_3``."""
    number = configuration_number(study, point)
    return f"{base_name(study)}_{number}" if number else ""
