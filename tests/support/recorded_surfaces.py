"""Spaces that were measured in full, to be searched repeatedly without measuring.

A surface knows the mean values of each point of its space, and how much repeated measurements of a
point differ. A search of it is almost instantaneous, and its answer can be compared with the truth.
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

from modeldyno.base.metrics.constraints import Answer, Constraint
from modeldyno.base.metrics.measurement import Interval
from modeldyno.base.metrics.metric import Query
from modeldyno.base.result.result import FailureKind
from modeldyno.sweeps.study import default_baseline, verification
from modeldyno.sweeps.study.goal import Goal
from modeldyno.sweeps.study.search_space import Axis, Key, Point, Space, key
from modeldyno.sweeps.study.study import LOADS, Study, Trial, TrialRequest, TrialState
from modeldyno.testing.sample_results import a_job
from modeldyno.testing.sample_studies import make_goal

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

Values = dict[Query, float]
START, LOOK = 0.4, 1.4
"""Seconds of virtual time that a server start and a measurement take, as for small models in Triton."""


@dataclass(frozen=True, kw_only=True)
class Surface:
    """The measured values of a space."""

    name: str
    space: Space
    default: Point
    goals: tuple[Goal, ...]
    queries: tuple[Query, ...]
    means: Mapping[Key, NDArray[np.float64]]
    """Point to the logarithms of its means, in the order of `queries`."""
    failures: Mapping[Key, str]
    """Point to its failure; a point that has neither is invalid."""
    noise: NDArray[np.float64]
    """Square root of the covariance of the logarithms between measurements of a point."""

    @classmethod
    def read(cls, path: Path) -> Surface:
        """Read a recorded surface."""
        return cls.of(json.loads(path.read_text()))

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Surface:
        """Compute means and noise from the values of all repetitions."""
        rows = [row for row in document["points"] if row["runs"]]
        names = sorted({name for row in rows for run in row["runs"] for name in run})
        runs_by_point = {
            key(row["point"]): np.array([[run.get(name) or np.nan for name in names] for run in row["runs"]])
            for row in rows
        }
        means = {k: np.log(runs.mean(axis=0)) for k, runs in runs_by_point.items()}
        passes = max(map(len, runs_by_point.values()))
        return cls(
            name=document["name"],
            space=Space(axes=tuple(Axis(**_axis_fields(axis)) for axis in document["axes"])),
            default=document["default"],
            goals=tuple(make_goal(**fields) for fields in document["goals"]),
            queries=tuple(map(Query.parse, names)),
            means=means,
            failures={key(row["point"]): row["failure"] for row in document["points"] if row.get("failure")},
            noise=_square_root(
                _noise_covariance(np.log([runs for runs in runs_by_point.values() if len(runs) == passes]))
            ),
        )

    def values(self, point: Point) -> Values:
        """Return the mean values of a point; empty for one that fails or is invalid."""
        row = self.means.get(key(point))
        return {} if row is None else dict(zip(self.queries, np.exp(row).tolist(), strict=True))

    def draw(self, point: Point, source: np.random.Generator) -> Values:
        """Simulate one measurement of a point."""
        row = self.means.get(key(point))
        if row is None:
            return {}
        noisy = np.exp(row + self.noise @ source.standard_normal(len(row)))
        return dict(zip(self.queries, noisy.tolist(), strict=True))

    def score(self, goal: Goal, point: Point) -> float:
        """Return the logarithm of a point's true score; minus infinity if a bound is broken."""
        values = self.values(point)
        if not values or any(violation(bound, values) > 0 for bound in goal.constraints):
            return -math.inf
        return goal.gain(values, dict.fromkeys(values, 1.0))

    @cached_property
    def bests(self) -> tuple[float, ...]:
        """The score of the best point, by goal."""
        return tuple(max(self.score(goal, dict(k)) for k in self.means) for goal in self.goals)


def _axis_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}


def _noise_covariance(logs: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the covariance of points x passes x metrics about their points, without shifts of whole passes.

    A search takes less time than a pass, so what slowed down the whole machine affected all of it.
    """
    points, passes, metrics = logs.shape
    deviations = logs - logs.mean(axis=1, keepdims=True)
    deviations = (deviations - deviations.mean(axis=0)).reshape(-1, metrics)
    freedom = max((points - 1) * (passes - 1), 1)
    return np.asarray(np.nan_to_num(deviations.T @ deviations / freedom))


def _square_root(covariance: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return a square root of a matrix that may be singular."""
    values, vectors = np.linalg.eigh(covariance)
    return np.asarray(vectors * np.sqrt(np.clip(values, 0, None)))


def violation(bound: Constraint, values: Mapping[Query, float]) -> float:
    """Return the logarithm of the factor by which a bound is exceeded; 0 if it holds."""
    ratio = math.log(max(values[bound.query], 1e-300) / max(bound.bound, 1e-300))
    return max(0.0, ratio if bound.at_most else -ratio)


def clearest_bound(
    values: NDArray[np.float64], scores: NDArray[np.float64], bounds: NDArray[np.float64]
) -> float:
    """Return the bound that is farthest from the values of the points it decides on, so that noise cannot.

    Args:
        values: one per point, logarithms of the metric that is bounded from above.
        scores: one per point.
        bounds: candidates; at least one must be met by some point.
    """

    def margin(bound: float) -> float:
        best = scores[values <= bound].max(initial=-math.inf)
        return float(np.abs(values - bound)[scores >= best - _NEAR].min()) if math.isfinite(best) else -1.0

    return float(max(bounds.tolist(), key=margin))


_NEAR = 0.1
"""How much worse than the best, in logarithms, a point may be to matter for the choice of a bound."""


# --- search ------------------------------------------------------------------------------------------


def study_of(surface: Surface, goal: Goal, *, seed: int = 0, strategy: str = "quick") -> Study:
    """Return a new study of a surface."""
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


def simulate_trial(surface: Surface, study: Study, ask: TrialRequest, source: np.random.Generator) -> Trial:
    """Simulate a trial in virtual time."""
    number = len(study.trials) + 1
    base = Trial(number=number, point=ask.point, state=TrialState.DONE, stage=ask.stage, care=ask.care)
    values = surface.draw(ask.point, source)
    seconds = LOOK + (START if _needs_start(study, ask) else 0)
    if not values and (failure := surface.failures.get(key(ask.point))):
        kind = FailureKind.OOM if "memory" in failure else FailureKind.ERROR
        return replace(base, state=TrialState.FAILED, failure=failure, kind=str(kind), seconds=seconds)
    if not values:
        return replace(base, state=TrialState.SKIPPED, failure="it is invalid")
    answers = tuple(_answer(query, value) for query, value in values.items())
    by_query = {answer.query: answer for answer in answers}
    judgements = tuple(bound.on(by_query[bound.query]) for bound in study.goal.constraints)
    return replace(base, answers=answers, judgements=judgements, seconds=seconds)


def _answer(query: Query, value: float) -> Answer:
    """Return a measurement's answer; its interval does not cover variation between measurements."""
    width = 0.08 if query.statistic == "p99" else 0.01
    return Answer(
        query=query, value=value, interval=Interval(low=value / (1 + width), high=value * (1 + width))
    )


def _needs_start(study: Study, ask: TrialRequest) -> bool:
    """Return whether a trial needs another server or process."""
    if not study.measured or not any(axis.name in LOADS for axis in study.space.axes):
        return True
    same_server = study.configuration(study.measured[-1].point) == study.configuration(ask.point)
    return not same_server or verification.needs_fresh_process(study, ask)


def count_starts(trials: Sequence[Trial]) -> int:
    """Count the servers or processes started for trials."""
    return sum(trial.seconds > LOOK for trial in trials)


def run_search(
    surface: Surface,
    goal: Goal,
    propose: Callable[[Study], TrialRequest | None],
    *,
    seed: int = 0,
    strategy: str = "quick",
) -> Study:
    """Search as a sweep does: the default at a few loads, then what is proposed until it ends."""
    source = np.random.default_rng([seed, 20])
    study = study_of(surface, goal, seed=seed, strategy=strategy)
    while (ask := default_baseline.next_baseline_trial(study) or propose(study)) is not None:
        study = study.add(simulate_trial(surface, study, ask, source))
    return study


def verify_best(surface: Surface, study: Study) -> Study:
    """Verify the best candidates, as a sweep does."""
    source = np.random.default_rng([study.seed, 21])
    while (ask := verification.next_verification_trial(study)) is not None:
        study = study.add(simulate_trial(surface, study, ask, source))
    return study
