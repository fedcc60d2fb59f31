"""Choose the loads at which to measure the default configuration, the baseline of a study.

The default is compared at its best load, so that the baseline is no straw man. Over rising loads the score
rises, then falls or breaks a bound, so a few loads suffice: first the middle one, then always the middle of
the wider gap next to the best so far; of two equal gaps, the one whose end is unmeasured or has the better
score.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from modeldyno.base.metrics.constraints import Verdict
from modeldyno.sweeps.study.goal import Rank
from modeldyno.sweeps.study.search_space import key
from modeldyno.sweeps.study.study import TrialPurpose, TrialRequest, TrialState

if TYPE_CHECKING:
    from collections.abc import Mapping

    from modeldyno.base.metrics.metric import Query
    from modeldyno.sweeps.study.goal import Goal
    from modeldyno.sweeps.study.search_space import Point
    from modeldyno.sweeps.study.study import Study, Trial

MOST = 4
"""Most loads measured of the default if each configuration is judged at its best load."""


def next_baseline_trial(study: Study) -> TrialRequest | None:
    """Return the next trial of the default; None if enough is known."""
    points = _points(study)
    by_point = {key(trial.point): trial for trial in study.trials if trial.stage is not TrialPurpose.VERIFY}
    tried = {index: by_point[key(point)] for index, point in enumerate(points) if key(point) in by_point}
    if study.goal.rank is Rank.EACH:
        index = next((index for index in range(len(points)) if index not in tried), None)
    else:
        index = _next_index(len(points), tried, study.goal)
    return None if index is None else TrialRequest(point=points[index], stage=TrialPurpose.DEFAULT)


def _points(study: Study) -> list[Point]:
    """Return the default at each load, rising; once, if it fixes its own load or there are none."""
    axes = [
        axis
        for axis in study.space.axes
        if axis.name in study.loads and (axis.where is None or study.default.get(axis.where) in axis.equals)
    ]
    if not axes or any(axis.name in study.default for axis in axes):
        return [study.default]
    first, *others = axes
    middle = {axis.name: axis.values[len(axis.values) // 2] for axis in others}
    return [_with_load(study, {**middle, first.name: value}) for value in first.values]


def _with_load(study: Study, load: Point) -> Point:
    """Add a load to the default, in the order of the axes."""
    point = {**study.default, **load}
    order = [axis.name for axis in study.space.axes if axis.name in point]
    return {name: point[name] for name in (*order, *(n for n in point if n not in order))}


def _next_index(count: int, tried: Mapping[int, Trial], goal: Goal) -> int | None:
    """Return the index of the load to measure next, out of `count`."""
    if not tried:
        return count // 2
    if len(tried) >= min(MOST, count):
        return None
    scores = {
        index: score for index, trial in tried.items() if (score := _trial_score(trial, goal)) is not None
    }
    if not scores:  # what fails or breaks a bound does so at larger loads as well
        smallest = min(tried)
        return (smallest - 1) // 2 if smallest else None
    best = max(scores, key=lambda index: (scores[index], index))
    below = max((index for index in tried if index < best), default=-1)
    above = min((index for index in tried if index > best), default=count)
    padded = {-1: math.inf, count: math.inf, **dict.fromkeys(tried, -math.inf), **scores}
    intervals = [
        (above - best, padded[above], (best + above) // 2),
        (best - below, padded[below], (below + best) // 2),
    ]
    gaps = [side for side in intervals if side[0] > 1]
    return max(gaps)[2] if gaps else None


def _trial_score(trial: Trial, goal: Goal) -> float | None:
    """Return the weighted mean of logarithms; None if the trial failed, broke a bound or lacks values."""
    broken = any(judgement.verdict is Verdict.BROKEN for judgement in trial.judgements)
    values = {o.query: value_or_raw(trial, o.query) for o in goal.objectives}
    known_values = {query: value for query, value in values.items() if value is not None}
    if trial.state is not TrialState.DONE or broken or len(known_values) < len(values):
        return None
    score = goal.gain(known_values, dict.fromkeys(known_values, 1.0))
    return None if math.isnan(score) or score == -math.inf else score


def value_or_raw(trial: Trial, query: Query) -> float | None:
    """Return the measured value; of a percentile that is not certified, the raw quantile as a hint."""
    answers = (trial.ask(query), trial.ask(replace(query, part="raw")) if query.statistic else None)
    return next((answer.value for answer in answers if answer is not None and answer.value is not None), None)


def best_so_far(study: Study) -> Trial | None:
    """Return the trial with the highest score that breaks no bound, however uncertain: a progress hint."""
    scored = [
        (score, -t.number, t) for t in study.trials if (score := _trial_score(t, study.goal)) is not None
    ]
    return max(scored)[2] if scored else None
