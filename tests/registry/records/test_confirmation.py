from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from modeldyno.base.metrics.doubt import Doubt
from modeldyno.base.metrics.measurement import observed_number
from modeldyno.registry.records.staleness import Confirmed, confirmation
from modeldyno.testing.sample_results import a_failed_result, a_result, a_small_result

if TYPE_CHECKING:
    from modeldyno.base.result.result import Result


def timed(milliseconds: float, seed: int = 0, noise: float = 0.01) -> Result:
    """Make a Result whose calls take about some milliseconds."""
    chance = random.Random(seed)
    return a_result(
        id=f"{seed:012}", samples=[milliseconds * 1e-3 * chance.gauss(1.0, noise) for _ in range(400)]
    )


@pytest.mark.parametrize(
    ("after", "outcome"),
    [
        (2.0, Confirmed.CONFIRMED),
        (2.1, Confirmed.CONFIRMED),
        (1.9, Confirmed.CONFIRMED),
        (2.26, Confirmed.UNDECIDED),
        (1.78, Confirmed.UNDECIDED),
        (2.5, Confirmed.CHANGED),
        (1.5, Confirmed.CHANGED),
        (20.0, Confirmed.CHANGED),
    ],
)
def test_a_figure_is_confirmed_if_it_surely_is_much_the_same(after: float, outcome: Confirmed) -> None:
    """It has changed if it surely has, by more than what is alike; else it is undecided."""
    assert confirmation(timed(2.0), timed(after, seed=1)).outcome is outcome


@pytest.mark.no_cover
def test_machines_that_vary_from_start_to_start_confirm_most_figures() -> None:
    """Of 200 measured twice with nothing changed, 3 % apart from start to start, none has changed."""
    chance = random.Random(5)
    outcomes = [
        confirmation(timed(chance.gauss(2.0, 0.06), seed), timed(chance.gauss(2.0, 0.06), seed + 1)).outcome
        for seed in range(200)
    ]

    assert outcomes.count(Confirmed.CHANGED) == 0
    assert outcomes.count(Confirmed.CONFIRMED) > 150


@pytest.mark.no_cover
def test_figures_a_quarter_apart_are_not_confirmed() -> None:
    """Of 200 that take a quarter longer, none is confirmed."""
    chance = random.Random(6)
    outcomes = {
        confirmation(timed(chance.gauss(2.0, 0.06), seed), timed(chance.gauss(2.5, 0.075), seed + 1)).outcome
        for seed in range(200)
    }

    assert Confirmed.CONFIRMED not in outcomes


def test_the_change_is_told_with_the_old_result() -> None:
    """Before and after, and the verdict."""
    confirmed = confirmation(timed(2.0), timed(3.0, seed=1))

    assert confirmed.before == timed(2.0).id
    assert confirmed.change.startswith("latency.p50: ")
    assert "worse" in confirmed.change


@pytest.mark.parametrize(("after", "outcome"), [(3.0, Confirmed.UNDECIDED), (2.0, Confirmed.UNDECIDED),
                                                (9.0, Confirmed.CHANGED)])  # fmt: skip
def test_what_others_may_have_done_is_no_change(after: float, outcome: Confirmed) -> None:
    """Beside a neighbour that takes half of the core, a figure may be that of a model twice as fast."""
    now = timed(after, seed=1)
    disturbed = replace(
        now,
        measurements=(*now.measurements, observed_number("foreign_cpu", 0.5)),
        doubts=(Doubt(code="interference", seen="other processes kept 0.5 cores busy", advice=""),),
    )
    assert confirmation(timed(2.0), disturbed).outcome is outcome


def test_a_model_that_fails_by_now_has_changed() -> None:
    """With its failure."""
    confirmed = confirmation(timed(2.0), a_failed_result())

    assert confirmed.outcome is Confirmed.CHANGED
    assert confirmed.change == "load: The child took 2 GiB."


def test_nothing_in_common_decides_nothing() -> None:
    """It is no confirmation."""
    confirmed = confirmation(timed(2.0), a_small_result())

    assert (confirmed.outcome, confirmed.change) == (Confirmed.UNDECIDED, "nothing was measured in both")
