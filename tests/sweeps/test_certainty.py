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
from tests.support.random_surfaces import FAMILIES
from tests.support.recorded_surfaces import Surface, simulate_trial, study_of, verify_best

from modeldyno.adapters.strategies import bayesian
from modeldyno.core.study import default_baseline
from modeldyno.core.study.ranking import NEAR, ranking
from modeldyno.core.study.search_space import key
from modeldyno.core.study.study import Budget, Study
from modeldyno.views.study.blocks import headline

if TYPE_CHECKING:
    from modeldyno.core.study.goal import Goal


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
