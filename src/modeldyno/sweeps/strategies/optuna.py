"""The samplers of Optuna, rebuilt at each proposal from the study, which is the only state.

`tpe` is the tree-structured Parzen estimator, `nsga2` the genetic one for several objectives, `gp` a Gaussian
process. Points that violate a constraint are reported as worse than all feasible ones, in proportion to the
violation.
"""

from __future__ import annotations

import random
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from modeldyno.sweeps.strategies.study_history import (
    ClosedPoints,
    due_points,
    log_gains,
    sample_points,
    search_budget,
    used_budget,
)
from modeldyno.sweeps.study.pooled_estimate import total_miss
from modeldyno.sweeps.study.study import TrialRequest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from modeldyno.base.job.knob import KnobValue
    from modeldyno.sweeps.study.search_space import Axis, Point
    from modeldyno.sweeps.study.study import Candidate, Study

_STARTUP = 6
"""Random points before a model is fitted."""
_POPULATION = 10
_TRIES = 20
"""Suggestions that may be closed points, before a random point is taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OptunaStrategy:
    """A strategy that wraps a sampler."""

    sampler: str
    """Its class in ``optuna.samplers``."""
    requires: tuple[str, ...] = ("optuna",)
    genetic: bool = False
    """Whether it counts generations as it is asked, and treats objectives separately."""

    def propose(self, study: Study) -> TrialRequest | None:
        """Return the next trial."""
        if used_budget(study) >= search_budget(study):
            return None
        closed = ClosedPoints.of(study)
        for due in due_points(study):
            return TrialRequest(point=due)
        with _quiet():
            optuna_study = self._optuna_study(study)
            suggested = (_point(study, optuna_study.ask()) for _ in range(_TRIES))
            point = next((point for point in suggested if point not in closed), None)
        if point is None:
            generator = random.Random(f"{study.seed} {len(study.trials)}")
            point = next((point for point in sample_points(study, generator) if point not in closed), None)
        return None if point is None else TrialRequest(point=point)

    def _optuna_study(self, study: Study) -> Any:
        """Build an Optuna study of all measurements in the space."""
        import optuna  # heavy

        history = [c for c in study.candidates.values() if study.space.holds(c.point)]
        values = _values(study, history)
        if not self.genetic:
            values = [[sum(row)] for row in values]
        sampler_class = getattr(optuna.samplers, self.sampler)
        optuna_study = optuna.create_study(
            directions=["maximize"] * (len(study.goal.objectives) if self.genetic else 1),
            sampler=sampler_class(**self._settings(study)),
        )
        for candidate, row in zip(history, values, strict=True):
            params, ranges = _params(study, candidate.point)
            if self.genetic:
                optuna_study.enqueue_trial(params)
                optuna_study.tell(optuna_study.ask(ranges), row)
            else:
                optuna_study.add_trial(
                    optuna.trial.create_trial(params=params, distributions=ranges, values=row)
                )
        return optuna_study

    def _settings(self, study: Study) -> dict[str, Any]:
        """Return the sampler's settings; the seed changes, as a rebuilt sampler would repeat its numbers."""
        if self.genetic:
            return {"population_size": _POPULATION, "seed": study.seed}
        seed = random.Random(f"{study.seed} {len(study.trials)}").getrandbits(32)
        return {"n_startup_trials": _STARTUP, "seed": seed}


tpe = OptunaStrategy(sampler="TPESampler")
nsga2 = OptunaStrategy(sampler="NSGAIISampler", genetic=True)
gp = OptunaStrategy(sampler="GPSampler", requires=("optuna", "torch", "scipy"))


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence Optuna's log of trials."""
    import optuna  # heavy

    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        yield
    finally:
        optuna.logging.set_verbosity(verbosity)


def _values(study: Study, history: Sequence[Candidate]) -> list[list[float]]:
    """Return the gain of each candidate per objective; infeasible ones rank below all others."""
    rows = [log_gains(study.goal, candidate) for candidate in history]
    complete_rows = [row for row in rows if row is not None]
    worst = [min(column) for column in zip(*complete_rows, strict=True)] or [0.0] * len(study.goal.objectives)
    failure_penalty = 1 + max((total_miss(c, study.goal) for c in history if not c.failed), default=0.0)
    adjusted = []
    for candidate, row in zip(history, rows, strict=True):
        penalty = failure_penalty if row is None else total_miss(candidate, study.goal)
        adjusted.append([low - penalty for low in worst] if row is None or penalty else list(row))
    return adjusted


def _params(study: Study, point: Mapping[str, KnobValue]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the index of each number on its axis, and each word itself, with their ranges."""
    axes = [axis for axis in study.space.axes if axis.name in point]
    params = {a.name: a.values.index(point[a.name]) if a.ordered else point[a.name] for a in axes}
    return params, {axis.name: _range(axis) for axis in axes}


def _range(axis: Axis) -> Any:
    import optuna  # heavy

    if axis.ordered:
        return optuna.distributions.IntDistribution(0, len(axis.values) - 1)
    return optuna.distributions.CategoricalDistribution(axis.values)


def _point(study: Study, trial: Any) -> Point:
    """Let Optuna choose a value on each axis that matters, one after the other."""
    point: Point = {}
    for axis in study.space.axes:
        if axis.name not in study.space.completed(point):
            continue
        if axis.ordered:
            point[axis.name] = axis.values[trial.suggest_int(axis.name, 0, len(axis.values) - 1)]
        else:
            point[axis.name] = trial.suggest_categorical(axis.name, axis.values)
    return point
