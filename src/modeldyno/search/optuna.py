"""The samplers of Optuna, told at each proposal what the study knows: nothing is kept but the study.

``optuna`` or ``optuna:tpe`` is the tree-structured Parzen estimator, ``optuna:nsga2`` the genetic one for
several objectives, ``optuna:gp`` a Gaussian process. Points that break a bound are told as worse than all
that hold it, the more so the farther they miss it.
"""

from __future__ import annotations

import random
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from modeldyno.core.estimate import miss
from modeldyno.core.knob import KnobValue
from modeldyno.core.study import Ask
from modeldyno.errors import MissingExtra, UnknownName
from modeldyno.search.history import Closed, allowance, gains, sampled, spent

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from modeldyno.core.space import Axis, Point
    from modeldyno.core.study import Candidate, Study

requires: tuple[str, ...] = ("optuna",)

SAMPLERS = {"tpe": "TPESampler", "nsga2": "NSGAIISampler", "gp": "GPSampler"}
_STARTUP = 6
"""Random points before a model is made."""
_POPULATION = 10
_TRIES = 20
"""Suggestions that may be points which were measured, before a point is taken at random."""


def propose(study: Study) -> Ask | None:
    """Say what to measure next.

    Raises:
        UnknownName: there is no such sampler.
        MissingExtra: Optuna, or what the sampler needs beyond it, is not installed.
    """
    variant = study.strategy.partition(":")[2] or "tpe"
    if variant not in SAMPLERS:
        raise UnknownName.among("sampler of optuna", variant, SAMPLERS)
    if spent(study) >= allowance(study):
        return None
    closed = Closed.of(study)
    with _quiet():
        told = _told(study, variant)
        suggested = (_point(study, told.ask()) for _ in range(_TRIES))
        point = next((point for point in suggested if point not in closed), None)
    if point is None:
        source = random.Random(f"{study.seed} {len(study.trials)}")  # noqa: S311 - no secret
        point = next((point for point in sampled(study, source) if point not in closed), None)
    return None if point is None else Ask(point=point)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep Optuna from telling of every trial, and say what to install where it lacks something."""
    try:
        import optuna  # noqa: PLC0415 - heavy

        before = optuna.logging.get_verbosity()
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        try:
            yield
        finally:
            optuna.logging.set_verbosity(before)
    except ImportError as error:
        missing = error.name or "more of Optuna"
        raise MissingExtra(
            f"The strategy 'optuna' needs {missing}; install it with: pip install 'modeldyno[search]' torch scipy"
        ) from error


def _told(study: Study, variant: str) -> Any:
    """Make Optuna's study of all that was measured."""
    import optuna  # noqa: PLC0415 - heavy

    history = [c for c in study.candidates.values() if study.space.holds(c.point)]
    values = _values(study, history)
    if variant == "nsga2":
        sampler: Any = optuna.samplers.NSGAIISampler(population_size=_POPULATION, seed=study.seed)
        directions = ["maximize"] * len(study.goal.objectives)
    else:
        kind = getattr(optuna.samplers, SAMPLERS[variant])
        sampler = kind(n_startup_trials=_STARTUP, seed=(study.seed * 1_000_003 + len(study.trials)) % 2**32)
        directions = ["maximize"]
        values = [[sum(row)] for row in values]
    made = optuna.create_study(directions=directions, sampler=sampler)
    for candidate, row in zip(history, values, strict=True):
        params, ranges = _params(study, candidate.point)
        if variant == "nsga2":  # its generations are counted as trials are asked for
            made.enqueue_trial(params)
            trial = made.ask(ranges)
            made.tell(trial, row)
        else:
            made.add_trial(optuna.trial.create_trial(params=params, distributions=ranges, values=row))
    return made


def _values(study: Study, history: Sequence[Candidate]) -> list[list[float]]:
    """Give the gain of each candidate in each objective; what breaks a bound is worse than all that hold it."""
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
