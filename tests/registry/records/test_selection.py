"""The told certainty covers that an answer was chosen: thousands of choices among figures of known truth."""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.support.sample_registry import a_figure, a_target, a_task, a_version

from modeldyno.base.metrics.constraints import Constraint, Verdict
from modeldyno.base.metrics.measurement import Distribution, Interval, Measurement, observed_number
from modeldyno.base.stats.statistics import Z
from modeldyno.registry.records.answer import TAIL, chance_of_error, choose, judge_figure, lower_end
from modeldyno.testing.sample_results import a_small_result

if TYPE_CHECKING:
    from modeldyno.registry.records.answer import AnswerCandidate, RegistryAnswer

TASK = a_task(a_version())
FIGURES = [a_figure(TASK, key=f"{n}") for n in range(20)]
SHARES = (0.975, 0.99, 0.999)
"""Certainties at which answers are counted that are told with at least as much."""

Draw = Callable[[np.random.Generator, int], np.ndarray]
"""Samples whose quantiles are known."""


def judge(key: int, measured: Measurement, bound: Constraint, among: int) -> AnswerCandidate:
    """Judge one of several figures."""
    return judge_figure(
        FIGURES[key],
        a_small_result(measurements=(measured,)),
        a_target(),
        bounds=(bound,),
        demand=None,
        price=None,
        among=among,
    )


def wrong_answers(ask: Callable[[], RegistryAnswer], questions: int) -> dict[float, float]:
    """Ask about figures that all break the bound by a hair; return the share of answers at each certainty."""
    certainties = [best.certainty for _ in range(questions) if (best := ask().best) is not None]
    return {share: sum(certainty >= share for certainty in certainties) / questions for share in SHARES}


def allowed(share: float, questions: int) -> float:
    """Return what a share of wrong answers may be, with three standard errors of so many questions."""
    return 1 - share + 3 * math.sqrt((1 - share) * share / questions)


def rates(among: int, counted: int) -> Callable[[], RegistryAnswer]:
    """Ask which of several figures has a rate above that which all of them have."""
    chance, bound = np.random.default_rng(7), Constraint.parse("throughput >= 100/s")

    def ask() -> RegistryAnswer:
        values = chance.normal(100.0, 2.0, among)
        return choose(
            "digits",
            [judge(key, a_rate(float(value), Z * 2.0), bound, counted) for key, value in enumerate(values)],
        )

    return ask


def latencies(
    draw: Draw, truth: float, statistic: str, samples: int, among: int
) -> Callable[[], RegistryAnswer]:
    """Ask which of several figures has a percentile below that which all of them have."""
    chance, bound = np.random.default_rng(7), Constraint.parse(f"latency.{statistic} <= {truth}s")

    def ask() -> RegistryAnswer:
        each = [Measurement(metric="latency", value=Distribution.of(draw(chance, samples))) for _ in FIGURES]
        return choose("digits", [judge(n, each[n], bound, among) for n in range(among)])

    return ask


@pytest.mark.no_cover
@pytest.mark.parametrize("questions", [1000, pytest.param(10_000, marks=pytest.mark.slow)])
def test_of_thousands_of_choices_those_told_as_sure_are(questions: int) -> None:
    """Of ten figures that break a bound by a hair one is told as 99 % sure in 1 % of the questions."""
    wrong = wrong_answers(rates(10, 10), questions)

    assert all(wrong[share] <= allowed(share, questions) for share in SHARES)


def test_without_counting_the_choice_they_were_not() -> None:
    """Each figure judged for itself: every fifth question has a wrong answer."""
    assert wrong_answers(rates(10, 1), 200)[0.975] > 0.15


def bimodal(chance: np.random.Generator, n: int) -> np.ndarray:
    """One answer in fifty takes ten times as long."""
    slow = chance.random(n) < 0.02
    return np.where(slow, 0.1, 0.01) * chance.uniform(0.99, 1.01, n)


SOURCES = {
    "lognormal p50": (lambda c, n: c.lognormal(0.0, 1.0, n), 1.0, "p50", 200),
    "lognormal p99": (
        lambda c, n: c.lognormal(0.0, 1.0, n),
        float(np.exp(NormalDist().inv_cdf(0.99))),
        "p99",
        700,
    ),
    "bimodal p98": (bimodal, 0.0990001, "p98", 400),
    "bimodal p99": (bimodal, 0.1, "p99", 700),
}


@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize("questions", [30, pytest.param(10_000, marks=pytest.mark.slow)])
def test_percentiles_are_as_sure_whatever_their_distribution(name: str, questions: int) -> None:
    """Skewed, heavy in the tail, or with a gap at the bound."""
    draw, truth, statistic, samples = SOURCES[name]
    wrong = wrong_answers(latencies(draw, truth, statistic, samples, 10), questions)

    assert all(wrong[share] <= allowed(share, questions) for share in SHARES)


class TestChance:
    """Of one figure, and of the best of several."""

    def test_a_bound_at_the_end_of_the_interval_leaves_a_fortieth(self) -> None:
        """Half of five percent; among ten figures a quarter, and never more than certainty."""
        held = Constraint.parse("throughput >= 100/s").judge([a_rate(110.0, 10.0)])
        assert held.verdict is Verdict.HELD
        chances = [chance_of_error(held, None, among) for among in (1, 10, 1000)]
        assert chances == pytest.approx([TAIL, 10 * TAIL, 1.0])

    def test_a_bound_far_from_it_leaves_little(self) -> None:
        """By the tail of Student's t of four degrees: at four times the distance 0.0002."""
        held = Constraint.parse("throughput >= 100/s").judge([a_rate(140.0, 10.0)])
        assert chance_of_error(held, None, 1) == pytest.approx(1.88e-4, rel=0.01)

    def test_what_does_not_vary_leaves_nothing(self) -> None:
        """An interval without width, and a count."""
        rate = Constraint.parse("throughput >= 100/s")
        assert chance_of_error(rate.judge([a_rate(110.0, 0.0)]), None, 10) == 0.0
        count = Constraint.parse("parameters <= 5").judge([Measurement(metric="parameters", value=4.0)])
        assert chance_of_error(count, None, 10) == 0.0

    def test_what_was_seen_once_leaves_a_fortieth_whatever_the_choice(self) -> None:
        """Nothing tells how much it varies."""
        once = Constraint.parse("load_time <= 3s").judge([observed_number("load_time", 2.0)])
        assert chance_of_error(once, None, 1) == chance_of_error(once, None, 10) == TAIL

    @pytest.mark.parametrize("sign", [1, -1])
    def test_few_samples_beyond_a_percentile_leave_what_the_binomial_says(self, sign: int) -> None:
        """Of 700 samples none beyond the bound: 0.99^700, although the interval ends far from it."""
        samples = Distribution.of(0.01 + 1e-6 * np.random.default_rng(1).random(700))
        text = "latency.p99 <= 1s" if sign > 0 else "latency.p1 >= 1ms"
        held = Constraint.parse(text).judge([Measurement(metric="latency", value=samples)])
        assert held.verdict is Verdict.HELD
        assert chance_of_error(held, samples, 1) == pytest.approx(0.99**700, rel=1e-6)
        assert chance_of_error(held, None, 1) < 1e-9

    def test_some_samples_beyond_leave_the_sum(self) -> None:
        """At most two of 1,000 with a chance of 1 % each."""
        slow = np.where(
            np.arange(1000) % 400 == 399, 2.0, 0.01 + 1e-6 * np.random.default_rng(1).random(1000)
        )
        held = Constraint.parse("latency.p99 <= 1s").judge(
            [Measurement(metric="latency", value=(samples := Distribution.of(slow)))]
        )
        expected = sum(c * 0.01**k * 0.99 ** (1000 - k) for k, c in enumerate((1, 1000, 1000 * 999 / 2)))
        assert chance_of_error(held, samples, 1) == pytest.approx(expected, rel=1e-6)

    def test_a_percentile_that_is_not_certified_needs_its_samples(self) -> None:
        """All 400 hold the bound: 0.99^400; without the samples half of five percent is taken."""
        samples = Distribution.of(0.01 + 1e-6 * np.random.default_rng(1).random(400))
        held = Constraint.parse("latency.p99 <= 1s").judge([Measurement(metric="latency", value=samples)])
        assert (held.verdict, held.answer.value) == (Verdict.HELD, None)
        assert chance_of_error(held, samples, 1) == pytest.approx(0.99**400, rel=1e-6)
        assert chance_of_error(held, None, 1) == TAIL


def a_rate(value: float, half: float) -> Measurement:
    """Make a rate with its interval."""
    return Measurement(
        metric="throughput", value=value, interval=Interval(low=value - half, high=value + half)
    )


def test_the_lower_end_of_the_highest_of_several_is_lower() -> None:
    """The more figures, the farther; of one it is that of its interval."""
    ends = [lower_end(100.0, Interval(low=90.0, high=110.0), among) for among in (1, 10, 100)]
    assert ends[0] == pytest.approx(90.0)
    assert ends[2] < ends[1] < 83
