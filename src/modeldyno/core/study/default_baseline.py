"""The default configuration at its best load: what a study compares everything with is not to be a straw man.

Over rising loads the score goes up, and then down or beyond a bound. So few loads are enough: the middle
one, and then always the middle of the wider gap beside the best one so far; of two as wide, the one that
ends where nothing was measured, or where more was.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from modeldyno.core.metrics.constraints import Verdict
from modeldyno.core.study.goal import Rank
from modeldyno.core.study.search_space import key
from modeldyno.core.study.study import Ask, Stage, State

if TYPE_CHECKING:
    from collections.abc import Mapping

    from modeldyno.core.metrics.metric import Query
    from modeldyno.core.study.goal import Goal
    from modeldyno.core.study.search_space import Axis, Point
    from modeldyno.core.study.study import Study, Trial

MOST = 4
"""Loads of the default that are measured where a configuration stands for itself at its best."""


def next_ask(study: Study) -> Ask | None:
    """Say at which load the default is to be measured next; None where it is known well enough."""
    points = _points(study)
    known = {key(trial.point): trial for trial in study.trials if trial.stage is not Stage.VERIFY}
    seen = {place: known[key(point)] for place, point in enumerate(points) if key(point) in known}
    if study.goal.rank is Rank.EACH:
        place = next((n for n in range(len(points)) if n not in seen), None)
    else:
        place = _next(len(points), seen, study.goal)
    return None if place is None else Ask(point=points[place], stage=Stage.DEFAULT)


def _points(study: Study) -> list[Point]:
    """Give the default at each load, rising; once, where it has a load of its own, or there are none."""
    axes = [
        axis
        for axis in study.space.axes
        if axis.name in study.loads and (axis.where is None or study.default.get(axis.where) in axis.equals)
    ]
    if not axes or any(axis.name in study.default for axis in axes):
        return [study.default]
    first, *others = axes
    middle = {axis.name: _middle(axis) for axis in others}
    return [_placed(study, {**middle, first.name: value}) for value in first.values]


def _middle(axis: Axis) -> int | float | str:
    return axis.values[len(axis.values) // 2]


def _placed(study: Study, load: Point) -> Point:
    """Add a load to the default, in the order of the axes."""
    point = {**study.default, **load}
    order = [axis.name for axis in study.space.axes if axis.name in point]
    return {name: point[name] for name in (*order, *(n for n in point if n not in order))}


def _next(count: int, seen: Mapping[int, Trial], goal: Goal) -> int | None:
    """Give the place of the load to be measured next, of so many."""
    if not seen:
        return count // 2
    if len(seen) >= min(MOST, count):
        return None
    scores = {place: score for place, trial in seen.items() if (score := _score(trial, goal)) is not None}
    if not scores:  # what fails or breaks a bound does so at greater loads as well
        least = min(seen)
        return (least - 1) // 2 if least else None
    best = max(scores, key=lambda place: (scores[place], place))
    below = max((place for place in seen if place < best), default=-1)
    above = min((place for place in seen if place > best), default=count)
    known = {-1: math.inf, count: math.inf, **dict.fromkeys(seen, -math.inf), **scores}
    sides = [
        (above - best, known[above], (best + above) // 2),
        (best - below, known[below], (below + best) // 2),
    ]
    gaps = [side for side in sides if side[0] > 1]
    return max(gaps)[2] if gaps else None


def _score(trial: Trial, goal: Goal) -> float | None:
    """Give the weighted mean of the logarithms; None for what failed, breaks a bound or has no number."""
    broken = any(judgement.verdict is Verdict.BROKEN for judgement in trial.judgements)
    values = {o.query: value(trial, o.query) for o in goal.objectives}
    found = {query: value for query, value in values.items() if value is not None}
    if trial.state is not State.DONE or broken or len(found) < len(values):
        return None
    score = goal.gain(found, dict.fromkeys(found, 1.0))
    return None if math.isnan(score) or score == -math.inf else score


def value(trial: Trial, query: Query) -> float | None:
    """Give what was measured; of a percentile that is no claim yet, the plain quantile as a hint."""
    answers = (trial.ask(query), trial.ask(replace(query, part="raw")) if query.statistic else None)
    return next((answer.value for answer in answers if answer is not None and answer.value is not None), None)


def best_so_far(study: Study) -> Trial | None:
    """Give the trial of the highest score that breaks no bound, however uncertain: a hint on the way."""
    scored = [(score, -t.number, t) for t in study.trials if (score := _score(t, study.goal)) is not None]
    return max(scored)[2] if scored else None
