"""The samplers of Optuna, told at each proposal what the study knows: nothing is kept but the study.

`tpe` is the tree-structured Parzen estimator, `nsga2` the genetic one for several objectives, `gp` a
Gaussian process. Points that break a bound are told as worse than all that hold it, the more so the farther
they miss it.
"""

from __future__ import annotations

import random
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from modeldyno.adapters.strategies.study_history import Closed, allowance, gains, sampled, spent
from modeldyno.core.study.pooled_estimate import miss
from modeldyno.core.study.study import Ask

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from modeldyno.core.spec.knob import KnobValue
    from modeldyno.core.study.search_space import Axis, Point
    from modeldyno.core.study.study import Candidate, Study

_STARTUP = 6
"""Random points before a model is made."""
_POPULATION = 10
_TRIES = 20
"""Suggestions that may be points which were measured, before one is taken at random."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampler:
    """A strategy of the name of a sampler."""

    sampler: str
    """Its class in ``optuna.samplers``."""
    requires: tuple[str, ...] = ("optuna",)
    genetic: bool = False
    """Whether it counts generations as it is asked, and knows several objectives apart."""

    def propose(self, study: Study) -> Ask | None:
        """Say what to measure next."""
        if spent(study) >= allowance(study):
            return None
        closed = Closed.of(study)
        with _quiet():
            told = self._told(study)
            suggested = (_point(study, told.ask()) for _ in range(_TRIES))
            point = next((point for point in suggested if point not in closed), None)
        if point is None:
            source = random.Random(f"{study.seed} {len(study.trials)}")  # noqa: S311 - no secret
            point = next((point for point in sampled(study, source) if point not in closed), None)
        return None if point is None else Ask(point=point)

    def _told(self, study: Study) -> Any:
        """Make Optuna's study of all that was measured in the space."""
        import optuna  # noqa: PLC0415 - heavy

        history = [c for c in study.candidates.values() if study.space.holds(c.point)]
        values = _values(study, history)
        if not self.genetic:
            values = [[sum(row)] for row in values]
        kind = getattr(optuna.samplers, self.sampler)
        made = optuna.create_study(
            directions=["maximize"] * (len(study.goal.objectives) if self.genetic else 1),
            sampler=kind(**self._settings(study)),
        )
        for candidate, row in zip(history, values, strict=True):
            params, ranges = _params(study, candidate.point)
            if self.genetic:
                made.enqueue_trial(params)
                made.tell(made.ask(ranges), row)
            else:
                made.add_trial(optuna.trial.create_trial(params=params, distributions=ranges, values=row))
        return made

    def _settings(self, study: Study) -> dict[str, Any]:
        """Give what the sampler is made with; one that is made anew must not begin with the same numbers."""
        if self.genetic:
            return {"population_size": _POPULATION, "seed": study.seed}
        seed = random.Random(f"{study.seed} {len(study.trials)}").getrandbits(32)  # noqa: S311 - no secret
        return {"n_startup_trials": _STARTUP, "seed": seed}


tpe = Sampler(sampler="TPESampler")
nsga2 = Sampler(sampler="NSGAIISampler", genetic=True)
gp = Sampler(sampler="GPSampler", requires=("optuna", "torch", "scipy"))


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep Optuna from telling of every trial."""
    import optuna  # noqa: PLC0415 - heavy

    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        yield
    finally:
        optuna.logging.set_verbosity(before)


def _values(study: Study, history: Sequence[Candidate]) -> list[list[float]]:
    """Give the gain of each candidate in each objective, that of what breaks a bound below all others."""
    rows = [gains(study.goal, candidate) for candidate in history]
    known = [row for row in rows if row is not None]
    worst = [min(column) for column in zip(*known, strict=True)] or [0.0] * len(study.goal.objectives)
    lost = 1 + max((miss(c, study.goal) for c in history if not c.failed), default=0.0)
    told = []
    for candidate, row in zip(history, rows, strict=True):
        missed = lost if row is None else miss(candidate, study.goal)
        told.append([low - missed for low in worst] if row is None or missed else list(row))
    return told


def _params(study: Study, point: Mapping[str, KnobValue]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Give the place of each number on its axis, and each word as it is, with their ranges."""
    axes = [axis for axis in study.space.axes if axis.name in point]
    params = {a.name: a.values.index(point[a.name]) if a.ordered else point[a.name] for a in axes}
    return params, {axis.name: _range(axis) for axis in axes}


def _range(axis: Axis) -> Any:
    import optuna  # noqa: PLC0415 - heavy

    if axis.ordered:
        return optuna.distributions.IntDistribution(0, len(axis.values) - 1)
    return optuna.distributions.CategoricalDistribution(axis.values)


def _point(study: Study, trial: Any) -> Point:
    """Let Optuna choose on each axis that matters, one after the other."""
    point: Point = {}
    for axis in study.space.axes:
        if axis.name not in study.space.completed(point):
            continue
        if axis.ordered:
            point[axis.name] = axis.values[trial.suggest_int(axis.name, 0, len(axis.values) - 1)]
        else:
            point[axis.name] = trial.suggest_categorical(axis.name, axis.values)
    return point
