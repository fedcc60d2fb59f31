"""Bayesian optimization with constraints: measures where the expected improvement is greatest.

After the default configuration that is always the point with the greatest expected improvement under the
constraints (Gardner et al. 2014, "Bayesian optimization with inequality constraints"), or a point of the
server that is already running, where that gains as much per second. While no point meets the constraints, it
is the one expected to violate them least. The last measurements are for values that no trial had, if any.
"""

from __future__ import annotations

import random
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING

from modeldyno.sweeps.strategies import grid
from modeldyno.sweeps.strategies.study_history import (
    LEAST,
    ClosedPoints,
    due_points,
    has_load_axis,
    open_points,
    rank_candidates,
    sample_points,
    search_budget,
    used_budget,
)
from modeldyno.sweeps.study.exploration import covering_points
from modeldyno.sweeps.study.pooled_estimate import median_trial_error
from modeldyno.sweeps.study.search_space import key
from modeldyno.sweeps.study.study import TrialRequest, TrialState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from modeldyno.sweeps.strategies.acquisition import Acquisition, Array
    from modeldyno.sweeps.study.search_space import Point
    from modeldyno.sweeps.study.study import Candidate, Study

requires: tuple[str, ...] = ()

ENOUGH = 0.01
"""Relative expected gain below which the search stops, once there are `LEAST` measurements; a gain below the
noise of one measurement stops it too."""
WARM, WARM_LEAST = 0.75, 0.4
"""Shares of the greatest expected gain for which the running server is kept: the first where the start time
is unknown; at least the second, whatever the start time, since a measurement is spent as well."""
MAX_DEVIATION, MIN_DEVIATION = 2.5, 1.25
"""Factors on the predicted deviation of a score, as few measurements estimate errors badly, too.

The factor falls from the first to the second as the budget is used: early measurements can follow up a
surprise. Constraints get no such factor: points just beyond a constraint would be tried again and again.
"""
_MIN_SECONDS = 1e-3
"""Minimum seconds of a trial."""
_ENUMERATED = 512
"""Largest space that is enumerated completely."""
_NEIGHBOURED = 16
"""Best points of a larger space whose neighbours are candidates."""
_RIVALS = 64
"""Measured points that may be the best so far."""
_FEASIBLE = 0.5
"""Probability from which a measured point counts as feasible."""
_FEASIBLE_BONUS = 0.1
"""Bonus of a feasible point over its reduced violation, while there is none."""


def propose(study: Study) -> TrialRequest | None:
    """Return the next trial."""
    due = due_points(study)
    if study.space.size <= LEAST:
        return TrialRequest(point=due[0]) if due else grid.propose(study)
    points = due or _candidates(study)
    if used_budget(study) >= search_budget(study) or not points:
        return None
    if not rank_candidates(study):
        return TrialRequest(point=_first_point(study, points))
    point = _most_promising(study, points, required=bool(due))
    return None if point is None else TrialRequest(point=point)


def _most_promising(study: Study, points: Sequence[Point], *, required: bool) -> Point | None:
    """Return the point with the greatest expected gain, or one that the running server can measure.

    If none promises enough, it is one with values that no trial had, or None. With `required` one of the
    points is measured, whatever it promises.
    """
    from modeldyno.sweeps.strategies.acquisition import Acquisition  # numpy

    leaders = rank_candidates(study)
    gain = _gain(Acquisition.of(study, leaders), leaders, points, _deviation_factor(study))
    best = int(gain.argmax())
    if required:
        return points[best]
    enough = max(ENOUGH, median_trial_error(study, study.goal.objectives[0].query))
    if used_budget(study) >= LEAST and gain[best] < enough:
        return next(iter(covering_points(study, ClosedPoints.of(study).__contains__)), None)
    on_running_server = max(
        _running_server_points(study, points), key=lambda index: float(gain[index]), default=best
    )
    return points[on_running_server if gain[on_running_server] >= _warm_share(study) * gain[best] else best]


def _candidates(study: Study) -> list[Point]:
    """Return the points to choose from: all of a small space, else a sample and neighbours of the best."""
    if study.space.size <= _ENUMERATED:
        return list(open_points(study))
    closed = ClosedPoints.of(study)
    generator = random.Random(f"{study.seed} {len(study.trials)}")
    leaders = rank_candidates(study)
    centres = [c.point for c in leaders if study.space.holds(c.point)][:_NEIGHBOURED]
    return list({key(p): p for p in sample_points(study, generator, centres) if p not in closed}.values())


def _first_point(study: Study, points: Sequence[Point]) -> Point:
    """Return the default if it is in the space, else a random point: nothing is known yet."""
    first = study.space.completed(study.default)
    generator = random.Random(f"{study.seed} {len(study.trials)}")
    return first if first in points else generator.choice(points)


def _deviation_factor(study: Study) -> float:
    """Return how far scores may deviate from the prediction, by the share of the budget that is left."""
    remaining = 1 - used_budget(study) / (search_budget(study) - 1)
    return MIN_DEVIATION + (MAX_DEVIATION - MIN_DEVIATION) * remaining


def _gain(
    acquisition: Acquisition, leaders: Sequence[Candidate], points: Sequence[Point], deviation_factor: float
) -> Array:
    """Return the expected gain of each point; while none meets the constraints, of reduced violation."""
    import numpy as np  # heavy

    score, excess = acquisition.draws([candidate.point for candidate in leaders[:_RIVALS]], deviation_factor)
    candidate_scores, candidate_excess = acquisition.draws(points, deviation_factor)
    holds = (excess <= 0).mean(axis=1) >= _FEASIBLE
    if holds.any():
        best = score.mean(axis=1)[holds].max()
        gain = (np.clip(candidate_scores - best, 0, None) * (candidate_excess <= 0)).mean(axis=1)
    else:
        least = excess.mean(axis=1).min()
        gain = (np.clip(least - candidate_excess, 0, None) + _FEASIBLE_BONUS * (candidate_excess <= 0)).mean(
            axis=1
        )
    return np.asarray(gain * acquisition.success_probability(points))


def _warm_share(study: Study) -> float:
    """Return the share of a gain worth as much on the running server, from the durations of trials."""
    durations: dict[bool, list[float]] = {True: [], False: []}
    for previous, trial in pairwise(study.measured):
        same_server = study.configuration(previous.point) == study.configuration(trial.point)
        durations[same_server and previous.state is TrialState.DONE].append(trial.seconds)
    if not all(durations.values()):
        return WARM
    warm, cold = (max(median(durations[same_server]), _MIN_SECONDS) for same_server in (True, False))
    return min(max(WARM_LEAST, warm / cold), 1.0)


def _running_server_points(study: Study, points: Sequence[Point]) -> list[int]:
    """Return the indices of points for which the server measured last can keep running."""
    if not study.measured or not has_load_axis(study.space.axes):
        return []
    running = study.configuration(study.measured[-1].point)
    return [index for index, point in enumerate(points) if study.configuration(point) == running]
