"""The quiet runs of two sides on a machine that others slow down."""

from __future__ import annotations

import numpy as np
import pytest

from modeldyno.base.metrics.metric import Query
from modeldyno.base.stats.quiet_runs_test import FEWEST, fastest_runs_difference
from modeldyno.comparison.change.change_test import judge_numbers
from modeldyno.comparison.change.comparison import ChangeVerdict

SOURCE = np.random.default_rng(11)
ROUNDS = 22


def draw_sides(effect: float, seed: int) -> tuple[list[float], list[float]]:
    """Two sides on a machine that is half as fast again in three rounds of five."""
    source = np.random.default_rng(seed)
    busy = 0.4 * (source.random((2, ROUNDS)) < 0.6) * source.uniform(0.6, 1.2, (2, ROUNDS))
    own = 0.01 * source.standard_normal((2, ROUNDS))
    here, there = np.exp(busy + own)
    return here.tolist(), (there * (1 + effect)).tolist()


def test_the_interval_covers_the_truth() -> None:
    """Of 200 comparisons at 95 %, some ten miss it."""
    covered = 0
    for seed in range(200):
        before, after = draw_sides(0.1, seed)
        difference, reach = fastest_runs_difference(np.log(before).tolist(), np.log(after).tolist(), 0.95)
        covered += abs(difference - np.log(1.1)) <= reach
    assert covered >= 180


def test_a_margin_is_left_out_no_more_often_than_the_level_says() -> None:
    """Where the truth is the margin, it is above the interval in at most 5 % of the cases."""
    source = np.random.default_rng(3)
    left_out = 0
    for _ in range(400):
        before, after = 0.04 * source.standard_normal((2, FEWEST))
        difference, reach = fastest_runs_difference(before.tolist(), (0.03 + after).tolist(), 0.9, 0.03)
        left_out += difference + reach < 0.03
    assert left_out <= 20


def test_a_slowdown_is_seen_that_the_mean_of_all_hides() -> None:
    """With neighbours at work, 10 % is found by the quiet runs, for a time and for a rate."""
    before, after = draw_sides(0.1, 2)
    time = judge_numbers(Query.parse("latency.p50"), before, after, paired=True)
    rate = judge_numbers(
        Query.parse("throughput"), [1 / t for t in before], [1 / t for t in after], paired=True
    )
    assert (time.outcome, rate.outcome) == (ChangeVerdict.WORSE, ChangeVerdict.WORSE)
    assert "the fastest of 22 rounds, paired" in time.why
    apart = judge_numbers(Query.parse("latency.p50"), before, after)
    assert apart.outcome is ChangeVerdict.UNDECIDED


def test_memory_has_no_quiet_runs() -> None:
    """What others do not make larger is compared by all of its processes."""
    before, after = draw_sides(0.1, 2)
    difference = judge_numbers(Query.parse("process_memory.max"), before, after, paired=True)
    assert "fastest" not in difference.why


def test_few_rounds_are_compared_by_their_mean() -> None:
    """Exchanges of fewer rounds are too few."""
    before, after = draw_sides(0.1, 2)
    difference = judge_numbers(
        Query.parse("latency.p50"), before[: FEWEST - 1], after[: FEWEST - 1], paired=True
    )
    assert "fastest" not in difference.why


def test_sides_without_spread_differ_for_certain() -> None:
    """Exchanges give as much in 2 of 512 cases only."""
    difference, reach = fastest_runs_difference([0.0] * 9, [0.1] * 9, 0.95)
    assert difference == pytest.approx(0.1)
    assert reach < difference


def test_where_the_mean_is_surer_it_is_taken() -> None:
    """Drift that both of a round met alike cancels out in pairs, and not in the least of a side."""
    drift = np.exp(np.linspace(0, 1, ROUNDS))
    noise = np.exp(0.05 * SOURCE.standard_normal(ROUNDS))
    difference = judge_numbers(
        Query.parse("latency.p50"), drift.tolist(), (drift * noise).tolist(), paired=True
    )
    assert difference.interval is not None
    assert difference.interval.half_width() < 0.05
