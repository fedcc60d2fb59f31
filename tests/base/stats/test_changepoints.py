"""Levels of a series: exactness on small ones, false alarms and detection on simulated histories."""

from __future__ import annotations

from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modeldyno.base.stats import changepoints

RNG = np.random.default_rng(7)


def changepoints_of(values: list[float] | np.ndarray, least: float = 0.03) -> list[int]:
    series = np.asarray(values, dtype=float)
    return changepoints.find_level_ends(series, np.ones(series.size), least)


class TestHeights:
    def test_a_median_is_weighted(self) -> None:
        """What is as certain as two others together counts as much as both."""
        values = np.array([1.0, 2.0, 9.0])
        assert changepoints.weighted_median(values, np.array([1.0, 1.0, 1.0])) == 2.0
        assert changepoints.weighted_median(values, np.array([1.0, 1.0, 3.0])) == 9.0

    def test_of_two_medians_it_is_the_middle(self) -> None:
        """An even number of alike ones has two, and what lies between is as good."""
        assert changepoints.weighted_median(np.array([4.0, 1.0, 3.0, 2.0]), np.ones(4)) == 2.5


class TestEnds:
    def test_a_step_is_found_where_it_is(self) -> None:
        """Two levels without noise end where they end."""
        assert changepoints_of([1.0] * 8 + [1.5] * 7) == [8, 15]

    def test_two_steps_are_found(self) -> None:
        """A level that ended again is one."""
        assert changepoints_of([1.0] * 8 + [1.5] * 7 + [1.2] * 9) == [8, 15, 24]

    def test_an_odd_one_is_no_level(self) -> None:
        """One or two numbers that lie elsewhere move nothing."""
        assert changepoints_of([1.0] * 8 + [9.0] + [1.0] * 8 + [7.0, 7.0] + [1.0] * 8) == [27]

    def test_few_are_one_level(self) -> None:
        """Fewer than two levels of the shortest length cannot be told apart."""
        assert changepoints_of([1.0, 2.0, 1.0, 2.0, 3.0]) == [5]
        assert changepoints_of([1.0]) == [1]

    def test_what_does_not_matter_is_no_step(self) -> None:
        """However sure it is, a step smaller than what matters is left out, and a larger one stays."""
        series = [1.0] * 10 + [1.01] * 10 + [1.2] * 10
        assert changepoints_of(series) == [20, 30]
        assert changepoints_of(series, least=0.001) == [10, 20, 30]

    @settings(max_examples=60, deadline=None)
    @given(st.lists(st.integers(0, 5), min_size=6, max_size=12))
    def test_two_levels_are_the_best_that_there_are(self, series: list[int]) -> None:
        """The fit with two levels costs what trying every place for the step finds."""
        values = np.array(series, dtype=float)
        weights = np.linspace(0.5, 1.5, values.size)
        fits = list(changepoints._best_fits(values, weights))

        def cost(ends: tuple[int, ...]) -> float:
            return sum(
                float(
                    (
                        np.abs(values[a:b] - changepoints.weighted_median(values[a:b], weights[a:b]))
                        * weights[a:b]
                    ).sum()
                )
                for a, b in pairwise((0, *ends))
            )

        n, short = values.size, changepoints.SHORTEST
        for number, (least, ends) in enumerate(fits, 1):
            choices = (
                (*cuts, n)
                for cuts in combinations(range(short, n - short + 1), number - 1)
                if all(b - a >= short for a, b in pairwise((0, *cuts, n)))
            )
            assert least == pytest.approx(min(map(cost, choices)))
            assert cost(tuple(ends)) == pytest.approx(least)
            assert all(b - a >= short for a, b in pairwise((0, *ends)))


def noise(kind: str, n: int) -> np.ndarray:
    """Standard deviation 3 % or so, of the kinds that histories have."""
    match kind:
        case "normal":
            return RNG.normal(0, 0.03, n)
        case "heavy":
            return np.asarray(RNG.standard_t(3, n) * 0.017)
        case "skewed":
            return np.asarray((RNG.exponential(1, n) - 1) * 0.03)
        case _:  # spikes
            return np.asarray(RNG.normal(0, 0.01, n) + (RNG.random(n) < 0.1) * np.abs(RNG.normal(0, 0.15, n)))


@pytest.mark.parametrize("kind", ["normal", "heavy", "skewed", "spikes"])
class TestSimulated:
    def test_a_level_history_shows_a_step_rarely(self, kind: str) -> None:
        """Of histories without a step at most one in ten shows one, whatever their length and noise."""
        for n in (8, 25, 80):
            alarms = sum(len(changepoints_of(noise(kind, n))) > 1 for _ in range(60))
            assert alarms <= 6, f"{alarms} of 60 at length {n}"

    def test_a_step_is_found(self, kind: str) -> None:
        """A step of three standard deviations is found within two of its place, nearly always."""
        hits = 0
        for _ in range(40):
            series = noise(kind, 40)
            series[25:] += 0.09
            hits += any(abs(end - 25) <= 2 for end in changepoints_of(series)[:-1])
        assert hits >= 34
