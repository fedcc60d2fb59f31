"""Spaces that were measured in full, to be searched again as often as one likes without measuring anything.

A surface knows what each point of its space gives in the mean, and how much repeated measurements of a
point differ. A search of it takes a blink, and its answer can be judged by the truth.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from modeldyno.core.metrics.constraints import Answer, Constraint
from modeldyno.core.metrics.measurement import Interval
from modeldyno.core.metrics.metric import Query
from modeldyno.core.result.result import FailureKind
from modeldyno.core.study import default_baseline, verification
from modeldyno.core.study.goal import Goal, Objective
from modeldyno.core.study.search_space import Axis, Key, Point, Space, key
from modeldyno.core.study.study import LOADS, Ask, State, Study, Trial
from modeldyno.testing.sample_results import a_job

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

Values = dict[Query, float]
START, LOOK = 0.4, 1.4
"""Seconds that a start of a server, and a measurement, take in virtual time: as small models do in Triton."""


@dataclass(frozen=True, kw_only=True)
class Surface:
    """What a space gives."""

    name: str
    space: Space
    default: Point
    goals: tuple[Goal, ...]
    queries: tuple[Query, ...]
    means: Mapping[Key, NDArray[np.float64]]
    """Point to the logarithms of the means, in the order of `queries`."""
    failures: Mapping[Key, str]
    """Point to what went wrong there; whatever is in neither cannot be."""
    noise: NDArray[np.float64]
    """Root of the covariance of the logarithms between measurements of a point."""

    @classmethod
    def read(cls, path: Path) -> Surface:
        """Read a surface that was recorded."""
        return cls.of(json.loads(path.read_text()))

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Surface:
        """Take the means and the noise from what each repetition gave."""
        rows = [row for row in document["points"] if row["runs"]]
        names = sorted({name for row in rows for run in row["runs"] for name in run})
        every = {
            key(row["point"]): np.array([[run.get(name) or np.nan for name in names] for run in row["runs"]])
            for row in rows
        }
        means = {k: np.log(runs.mean(axis=0)) for k, runs in every.items()}
        passes = max(map(len, every.values()))
        return cls(
            name=document["name"],
            space=Space(axes=tuple(Axis(**_axis(axis)) for axis in document["axes"])),
            default=document["default"],
            goals=tuple(goal_of(**words) for words in document["goals"]),
            queries=tuple(map(Query.parse, names)),
            means=means,
            failures={key(row["point"]): row["failure"] for row in document["points"] if row.get("failure")},
            noise=_root(_strayed(np.log([runs for runs in every.values() if len(runs) == passes]))),
        )

    def values(self, point: Point) -> Values:
        """Give what a point gives in the mean; nothing for one that fails or cannot be."""
        row = self.means.get(key(point))
        return {} if row is None else dict(zip(self.queries, np.exp(row).tolist(), strict=True))

    def drawn(self, point: Point, source: np.random.Generator) -> Values:
        """Measure a point once."""
        row = self.means.get(key(point))
        if row is None:
            return {}
        noisy = np.exp(row + self.noise @ source.standard_normal(len(row)))
        return dict(zip(self.queries, noisy.tolist(), strict=True))

    def score(self, goal: Goal, point: Point) -> float:
        """Give the logarithm of how good a point is in truth; minus infinity where a bound is broken."""
        values = self.values(point)
        if not values or any(violation(bound, values) > 0 for bound in goal.constraints):
            return -math.inf
        return goal.gain(values, dict.fromkeys(values, 1.0))

    @cached_property
    def bests(self) -> tuple[float, ...]:
        """The score of the best point, for each goal."""
        return tuple(max(self.score(goal, dict(k)) for k in self.means) for goal in self.goals)


def _axis(words: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in words.items()}


def _strayed(logs: NDArray[np.float64]) -> NDArray[np.float64]:
    """Give the covariance of points x passes x metrics about their points; what shifts a pass is left out.

    A search takes less time than a pass: what made the whole machine slower made all of it slower.
    """
    points, passes, metrics = logs.shape
    about = logs - logs.mean(axis=1, keepdims=True)
    about = (about - about.mean(axis=0)).reshape(-1, metrics)
    freedom = max((points - 1) * (passes - 1), 1)
    return np.asarray(np.nan_to_num(about.T @ about / freedom))


def _root(covariance: NDArray[np.float64]) -> NDArray[np.float64]:
    """Give a root of a matrix that may be singular."""
    values, vectors = np.linalg.eigh(covariance)
    return np.asarray(vectors * np.sqrt(np.clip(values, 0, None)))


def goal_of(
    *, maximize: str | Sequence[str] = (), minimize: str | Sequence[str] = (), require: Sequence[str] = ()
) -> Goal:
    """Make a goal of words."""
    up, down = ([text] if isinstance(text, str) else list(text) for text in (maximize, minimize))
    return Goal(
        objectives=(
            *(Objective.parse(text, maximize=True) for text in up),
            *(Objective.parse(text, maximize=False) for text in down),
        ),
        constraints=tuple(map(Constraint.parse, require)),
    )


def violation(bound: Constraint, values: Mapping[Query, float]) -> float:
    """Give the logarithm of how many times a bound is exceeded; 0 where it holds."""
    ratio = math.log(max(values[bound.query], 1e-300) / max(bound.bound, 1e-300))
    return max(0.0, ratio if bound.at_most else -ratio)


def clearest(values: NDArray[np.float64], scores: NDArray[np.float64], bounds: NDArray[np.float64]) -> float:
    """Give the bound that is farthest from what any point gives that it decides upon: noise has no say in it.

    Args:
        values: points, of the metric that is bounded from above, in logarithms.
        scores: points.
        bounds: to choose from; one at least that some point holds.
    """

    def room(bound: float) -> float:
        best = scores[values <= bound].max(initial=-math.inf)
        return float(np.abs(values - bound)[scores >= best - _NEAR].min()) if math.isfinite(best) else -1.0

    return float(max(bounds.tolist(), key=room))


_NEAR = 0.1
"""How much worse than the best a point may be, in logarithms, for a bound to have a say in which is it."""


# --- searching ---------------------------------------------------------------------------------------


def study_of(surface: Surface, goal: Goal, *, seed: int = 0, strategy: str = "quick") -> Study:
    """Begin a study of a surface."""
    return Study(
        id="0123456789ab",
        created="2026-01-02T03:04:05.678901+00:00",
        job=a_job(),
        space=surface.space,
        goal=goal,
        default=surface.default,
        strategy=strategy,
        seed=seed,
    )


def measured(surface: Surface, study: Study, ask: Ask, source: np.random.Generator) -> Trial:
    """Make a trial in virtual time."""
    number = len(study.trials) + 1
    base = Trial(number=number, point=ask.point, state=State.DONE, stage=ask.stage, care=ask.care)
    values = surface.drawn(ask.point, source)
    seconds = LOOK + (START if _opened(study, ask) else 0)
    if not values and (why := surface.failures.get(key(ask.point))):
        kind = FailureKind.OOM if "memory" in why else FailureKind.ERROR
        return replace(base, state=State.FAILED, failure=why, kind=str(kind), seconds=seconds)
    if not values:
        return replace(base, state=State.SKIPPED, failure="it cannot be")
    answers = tuple(_answer(query, value) for query, value in values.items())
    found = {answer.query: answer for answer in answers}
    judgements = tuple(bound.on(found[bound.query]) for bound in study.goal.constraints)
    return replace(base, answers=answers, judgements=judgements, seconds=seconds)


def _answer(query: Query, value: float) -> Answer:
    """Give what a measurement would say; its interval knows nothing of the next measurement."""
    width = 0.08 if query.statistic == "p99" else 0.01
    return Answer(
        query=query, value=value, interval=Interval(low=value / (1 + width), high=value * (1 + width))
    )


def _opened(study: Study, ask: Ask) -> bool:
    """Say whether another server, or another process, has to be started for a trial."""
    if not study.measured or not any(axis.name in LOADS for axis in study.space.axes):
        return True
    kept = study.configuration(study.measured[-1].point) == study.configuration(ask.point)
    return not kept or verification.fresh(study, ask)


def starts(trials: Sequence[Trial]) -> int:
    """Count the servers or processes that were started for trials."""
    return sum(trial.seconds > LOOK for trial in trials)


def searched(
    surface: Surface,
    goal: Goal,
    propose: Callable[[Study], Ask | None],
    *,
    seed: int = 0,
    strategy: str = "quick",
) -> Study:
    """Search as a sweep does: the default first, at a few loads, and then what is proposed until it ends."""
    source = np.random.default_rng([seed, 20])
    study = study_of(surface, goal, seed=seed, strategy=strategy)
    while (ask := default_baseline.next_ask(study) or propose(study)) is not None:
        study = study.add(measured(surface, study, ask, source))
    return study


def verified(surface: Surface, study: Study) -> Study:
    """Measure the best again, as a sweep does."""
    source = np.random.default_rng([study.seed, 21])
    while (ask := verification.next_ask(study)) is not None:
        study = study.add(measured(surface, study, ask, source))
    return study
