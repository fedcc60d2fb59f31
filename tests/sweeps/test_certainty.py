"""What a study claims that stops early: its certainty is of what was tried, and is kept there.

The truth of the whole space is known. What the same number would be worth of the whole space is printed, as
that is why it is not claimed (decision 0041).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.support import recorded_surfaces
from tests.support.random_surfaces import FAMILIES
from tests.support.recorded_surfaces import Surface, simulate_trial, study_of, verify_best

from modeldyno.base.metrics.measurement import Interval
from modeldyno.base.stats.units import RATE, SECONDS
from modeldyno.sweeps.strategies import bayesian
from modeldyno.sweeps.study import default_baseline
from modeldyno.sweeps.study.ranking import NEAR, ranking
from modeldyno.sweeps.study.search_space import key
from modeldyno.sweeps.study.study import Budget, Study
from modeldyno.sweeps.views.blocks import headline

if TYPE_CHECKING:
    from modeldyno.base.metrics.constraints import Answer
    from modeldyno.sweeps.study.goal import Goal
    from modeldyno.sweeps.study.study import Trial, TrialRequest


@dataclass(slots=True)
class Claims:
    """Studies, their mean certainty, and how many were right of what they tried and of the whole space."""

    studies: int = 0
    certainty: float = 0.0
    right: int = 0
    right_of_all: int = 0
    claims: int = 0
    claims_right: int = 0


def stopped_early(surface: Surface, goal: Goal, most: int, seed: int) -> Study:
    """Search until so many points were measured, and verify the best of them."""
    study = replace(study_of(surface, goal, seed=seed), budget=Budget(max_trials=math.ceil(1.5 * most)))
    source = np.random.default_rng([seed, 41])
    while len(study.trials) < most:
        ask = default_baseline.next_baseline_trial(study) or bayesian.propose(study)
        if ask is None:
            break
        study = study.add(simulate_trial(surface, study, ask, source))
    return verify_best(surface, replace(study, budget=Budget()))


def tally(count: int) -> Claims:
    """Stop studies of random surfaces after 2 to 10 measurements."""
    claims, families = Claims(), list(FAMILIES.values())
    for seed in range(count):
        surface = families[seed % len(families)](seed // len(families))
        goal, best = surface.goals[0], surface.bests[0]
        study = stopped_early(surface, goal, 2 + seed % 9, seed)
        ranked = ranking(study, 300)
        if ranked.best is None:
            continue
        answer = surface.score(goal, ranked.best.point)
        configuration = study.configuration(ranked.best.point)
        own = max(
            surface.score(goal, candidate.point)
            for candidate in study.candidates.values()
            if study.configuration(candidate.point) == configuration
        )
        tried = max(surface.score(goal, candidate.point) for candidate in study.candidates.values())
        right = max(answer, own) >= tried - math.log1p(NEAR)
        claims.studies += 1
        claims.certainty += ranked.near_best
        claims.right += right
        claims.right_of_all += answer >= best - math.log1p(NEAR)
        claims.claims += ranked.near_best >= 0.95
        claims.claims_right += ranked.near_best >= 0.95 and right
        whole = len({key(candidate.point) for candidate in study.candidates.values()}) >= surface.space.size
        assert ("of the" in headline(study, ranked)) is not whole or ranked.explored.tried <= 1
    return claims


@pytest.mark.parametrize("count", [24, pytest.param(2000, marks=pytest.mark.slow)])
def test_a_certainty_is_kept_of_what_was_tried(count: int) -> None:
    """As many are right as say so, and no sentence speaks of what was not tried."""
    claims = tally(count)
    print(f"\n{claims}")

    assert claims.right >= claims.certainty - 2 * math.sqrt(claims.studies) * 0.25
    assert claims.claims_right >= 0.95 * claims.claims - 2 * math.sqrt(0.05 * claims.claims)


def beside_neighbours(trial: Trial, source: np.random.Generator) -> Trial:
    """Return a trial as it is beside neighbours, which make a fifth of the trials up to 3 times slower."""
    if source.random() >= 0.2 or not trial.answers:
        return trial
    factor = math.exp(source.uniform(0, math.log(3)))
    answers = tuple(slowed(answer, factor) for answer in trial.answers)
    by_query = {answer.query: answer for answer in answers}
    judgements = tuple(each.constraint.on(by_query[each.constraint.query]) for each in trial.judgements)
    return replace(trial, answers=answers, judgements=judgements, slowed=3.0)


def slowed(answer: Answer, factor: float) -> Answer:
    """Return a time that much longer, or a rate that much lower."""
    ends, power = answer.interval, {SECONDS: 1, RATE: -1}.get(answer.query.unit, 0)
    assert answer.value is not None
    assert ends is not None
    scale = factor**power
    interval = Interval(low=ends.low * scale, high=ends.high * scale)
    return replace(answer, value=answer.value * scale, interval=interval)


@pytest.mark.parametrize("count", [12, pytest.param(400, marks=pytest.mark.slow)])
def test_a_certainty_is_kept_where_neighbours_come_and_go(
    monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """What was tried beside them may be faster than it seemed, and is tried again."""
    plain = simulate_trial

    def simulate(surface: Surface, study: Study, ask: TrialRequest, source: np.random.Generator) -> Trial:
        return beside_neighbours(plain(surface, study, ask, source), source)

    monkeypatch.setattr(recorded_surfaces, "simulate_trial", simulate)
    monkeypatch.setitem(globals(), "simulate_trial", simulate)
    claims = tally(count)
    print(f"\n{claims}")

    assert claims.right >= claims.certainty - 2 * math.sqrt(claims.studies) * 0.25
    assert claims.claims_right >= 0.95 * claims.claims - 2 * math.sqrt(0.05 * claims.claims)
