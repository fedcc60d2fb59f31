"""Few measurements, each where most is to be gained by what is known so far.

After the default that is always the point whose expected improvement under the bounds is greatest (Gardner
et al. 2014, "Bayesian optimization with inequality constraints"), or one of the server that is open, where
that gains as much in a second. While nothing holds the bounds, it is the point from which they are missed by
least.
"""

from __future__ import annotations

import random
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING

from modeldyno.adapters.strategies import grid
from modeldyno.adapters.strategies.study_history import (
    LEAST,
    Closed,
    allowance,
    foremost,
    open_points,
    sampled,
    serves,
    spent,
)
from modeldyno.core.study.pooled_estimate import blur
from modeldyno.core.study.search_space import key
from modeldyno.core.study.study import Ask, State

if TYPE_CHECKING:
    from collections.abc import Sequence

    from modeldyno.adapters.strategies.acquisition import Array, Outlook
    from modeldyno.core.study.search_space import Point
    from modeldyno.core.study.study import Candidate, Study

requires: tuple[str, ...] = ()

ENOUGH = 0.01
"""Expected gain, as a share, below which nothing more is measured, once there are `LEAST` measurements; nor
for one below what a look errs by, which would not be seen."""
WARM, WARM_LEAST = 0.75, 0.4
"""Shares of the greatest expected gain for which the open server is kept: where nothing is known of how long
a start takes, and however long it takes, for a measurement is spent as well."""
DARING, LAST = 2.5, 1.25
"""Times that a score may be farther from what is predicted: few measurements tell little of errors too.

It falls from the one to the other with the measurements that are left, which can make use of a surprise.
That a bound is broken is believed at once: what lies just beyond it is a temptation otherwise.
"""
_MOMENT = 1e-3
"""Seconds that a trial takes at least."""
_WALKED = 512
"""Largest space of which all points are looked at."""
_BESIDE = 16
"""Points of a larger one of which the neighbours are looked at, the best ones."""
_RIVALS = 64
"""Measured points of which one may be the best so far."""
_HOLDS = 0.5
"""Probability from which on a measured point counts as one that holds its bounds."""
_HOPE = 0.1
"""What a point that holds all bounds is worth beyond what it takes from the excess, while there is none."""


def propose(study: Study) -> Ask | None:
    """Say what to measure next."""
    if study.space.size <= LEAST:
        return grid.propose(study)
    if spent(study) >= allowance(study):
        return None
    leaders = foremost(study)
    points = _candidates(study, leaders)
    if not points:
        return None
    if not leaders:
        return Ask(point=_unguided(study, points))
    from modeldyno.adapters.strategies.acquisition import Outlook  # noqa: PLC0415 - numpy

    gain = _gain(Outlook.of(study, leaders), leaders, points, _daring(study))
    best = int(gain.argmax())
    if spent(study) >= LEAST and gain[best] < max(ENOUGH, blur(study, study.goal.objectives[0].query)):
        return None
    opened = max(_open(study, points), key=lambda place: float(gain[place]), default=best)
    return Ask(point=points[opened if gain[opened] >= _keeping(study) * gain[best] else best])


def _candidates(study: Study, leaders: Sequence[Candidate]) -> list[Point]:
    """Give the points to choose from: all of a small space; some of a large one, those near the best too."""
    if study.space.size <= _WALKED:
        return list(open_points(study))
    closed = Closed.of(study)
    source = random.Random(f"{study.seed} {len(study.trials)}")  # noqa: S311 - no secret
    around = [c.point for c in leaders if study.space.holds(c.point)][:_BESIDE]
    return list({key(p): p for p in sampled(study, source, around) if p not in closed}.values())


def _unguided(study: Study, points: Sequence[Point]) -> Point:
    """Give the default where it is a point of the space, and else any: nothing has told anything yet."""
    first = study.space.completed(study.default)
    source = random.Random(f"{study.seed} {len(study.trials)}")  # noqa: S311 - no secret
    return first if first in points else source.choice(points)


def _daring(study: Study) -> float:
    """Give how far scores may be from what is predicted, by the share of the measurements that is left."""
    left = 1 - spent(study) / (allowance(study) - 1)
    return LAST + (DARING - LAST) * left


def _gain(outlook: Outlook, leaders: Sequence[Candidate], points: Sequence[Point], daring: float) -> Array:
    """Give the expected gain of each point; while nothing holds the bounds, what their excess would lose."""
    import numpy as np  # noqa: PLC0415 - heavy

    score, excess = outlook.draws([candidate.point for candidate in leaders[:_RIVALS]], daring)
    ahead, beyond = outlook.draws(points, daring)
    holds = (excess <= 0).mean(axis=1) >= _HOLDS
    if holds.any():
        best = score.mean(axis=1)[holds].max()
        gain = (np.clip(ahead - best, 0, None) * (beyond <= 0)).mean(axis=1)
    else:
        least = excess.mean(axis=1).min()
        gain = (np.clip(least - beyond, 0, None) + _HOPE * (beyond <= 0)).mean(axis=1)
    return np.asarray(gain * outlook.works(points))


def _keeping(study: Study) -> float:
    """Give the share of a gain that is worth as much on the open server, by the seconds that trials took."""
    looks: dict[bool, list[float]] = {True: [], False: []}
    for before, trial in pairwise(study.measured):
        same = study.configuration(before.point) == study.configuration(trial.point)
        looks[same and before.state is State.DONE].append(trial.seconds)
    if not all(looks.values()):
        return WARM
    kept, started = (max(median(looks[same]), _MOMENT) for same in (True, False))
    return min(max(WARM_LEAST, kept / started), 1.0)


def _open(study: Study, points: Sequence[Point]) -> list[int]:
    """Give the places of the points for which the server that was measured last can stay open."""
    if not study.measured or not serves(study.space.axes):
        return []
    last = study.configuration(study.measured[-1].point)
    return [place for place, point in enumerate(points) if study.configuration(point) == last]
