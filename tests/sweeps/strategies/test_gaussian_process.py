from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from modeldyno.sweeps.strategies.bayesian import MAX_DEVIATION
from modeldyno.sweeps.strategies.gaussian_process import AxisScaling, FeatureMap, Prior, Surrogate, kernel
from modeldyno.sweeps.study.search_space import Axis, Point, Space, parse_axis

if TYPE_CHECKING:
    from numpy.typing import NDArray

AXES = tuple(map(parse_axis, ("batch_size=1..64*2", "threads=1..4", "precision=fp32,bf16,int8")))
POINTS = list(Space(axes=AXES).points())
CHART = FeatureMap.of(AXES)
WORDS = {"fp32": 0.0, "bf16": 0.7, "int8": -0.4}


def truth(point: Point) -> float:
    """A logarithm: a power of the batch, a bend of the threads, effects of the words, an interaction."""
    batch, threads = np.log2(float(point["batch_size"])), float(point["threads"])
    word = WORDS[str(point["precision"])]
    return float(3 + 0.3 * batch - 0.1 * (threads - 2) ** 2 + word + 0.05 * batch * word)


def fitted(count: int, noise: float = 0.0) -> tuple[Surrogate, list[Point], list[Point]]:
    """Fit to a number of points; return these and the others."""
    source = np.random.default_rng(3)
    order = [POINTS[n] for n in source.permutation(len(POINTS))]
    measured, other = order[:count], order[count:]
    result = np.array([truth(point) for point in measured]) + noise * source.standard_normal(count)
    made = Surrogate.fit(CHART, CHART.locate(measured), result, np.ones(count), Prior(noise=0.02))
    return made, measured, other


def errors(made: Surrogate, points: list[Point]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    mean, spread = made.predict(CHART.locate(points))
    return np.abs(mean - [truth(point) for point in points]), spread


class TestSurrogate:
    def test_effects_of_numbers_and_words_are_learnt_from_a_fifth_of_the_points(self) -> None:
        """Unmeasured points are predicted to within a few per cent."""
        made, _, other = fitted(17)
        wrong, _ = errors(made, other)

        assert np.median(wrong) < 0.05
        assert wrong.max() < 0.4

    def test_its_errors_are_as_large_as_it_says(self) -> None:
        """Of unmeasured points 95 % lie within two deviations, scaled as early in a search."""
        made, _, other = fitted(17, noise=0.03)
        wrong, spread = errors(made, other)

        assert (wrong <= 2 * MAX_DEVIATION * spread).mean() > 0.95

    def test_what_was_measured_is_known_better_than_what_was_not(self) -> None:
        """The deviation is least at the measurements."""
        made, measured, other = fitted(12)

        assert errors(made, measured)[1].mean() < 0.5 * errors(made, other)[1].mean()

    def test_one_measurement_is_enough_to_begin(self) -> None:
        """Far from the measurements nearly nothing is known."""
        made, measured, other = fitted(1)
        mean, spread = made.predict(CHART.locate([measured[0], *other]))

        assert mean[0] == pytest.approx(truth(measured[0]), abs=0.01)
        assert spread[1:].max() > 0.3

    def test_repeated_measurements_count_for_more(self) -> None:
        """A mean of a hundred is known better than one."""
        places, result = CHART.locate(POINTS[:4]), np.zeros(4)
        one = Surrogate.fit(CHART, places, result, np.ones(4), Prior(noise=0.2))
        many = Surrogate.fit(CHART, places, result, np.full(4, 100.0), Prior(noise=0.2))

        assert (many.predict(places)[1] < one.predict(places)[1]).all()

    def test_the_variance_of_a_point_is_its_covariance_with_itself(self) -> None:
        """Without measurements the deviation is that of the prior, on every axis."""
        made, _, other = fitted(1)
        places = CHART.locate(other)
        whole = kernel(CHART, places, places, made.theta)

        assert np.linalg.eigvalsh(whole).min() > -1e-9
        assert np.allclose(whole, whole.T)


class TestScale:
    def test_wide_numbers_count_by_ratios(self) -> None:
        """A doubling is one step, wherever it is."""
        scale = AxisScaling.of(Axis(name="batch_size", values=(1, 2, 4, 8, 16)))

        assert scale.column([{"batch_size": n} for n in (1, 2, 4, 8, 16)]).tolist() == [-1, -0.5, 0, 0.5, 1]

    def test_with_a_zero_the_order_counts(self) -> None:
        """A delay of zero is one step before the smallest."""
        scale = AxisScaling.of(Axis(name="queue_delay", values=(0, 100, 5000)))

        assert scale.column([{"queue_delay": n} for n in (0, 100, 5000)]).tolist() == [-1, 0, 1]

    def test_what_does_not_matter_lies_in_the_middle(self) -> None:
        """A point without the axis is as far from one end as from the other."""
        scale = AxisScaling.of(Axis(name="queue_delay", values=(1, 2)))

        assert scale.column([{}]).tolist() == [0.0]

    def test_a_number_that_is_none_of_the_axis_lies_between_those_that_are(self) -> None:
        """The default of a server may be any value."""
        scale = AxisScaling.of(Axis(name="max_batch", values=(4, 8)))

        assert -1 < scale.column([{"max_batch": 6}])[0] < 1

    def test_words_are_alike_or_not(self) -> None:
        """No word lies between two others; an unknown one is like none."""
        chart = FeatureMap.of([Axis(name="precision", values=("fp32", "bf16", "int8"))])
        places = chart.locate([{"precision": word} for word in ("fp32", "bf16", "int8", "fp8")])

        assert (chart.apart(places, places) == 1 - np.eye(4)).all()

    def test_an_axis_of_one_value_has_no_place(self) -> None:
        """An axis of one value adds nothing."""
        assert FeatureMap.of([parse_axis("threads=2")]).locate([{"threads": 2}]).shape == (1, 0)
