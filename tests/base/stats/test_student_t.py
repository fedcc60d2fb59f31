"""Student's t, against scipy."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import t as reference

from modeldyno.base.stats import student_t


@settings(deadline=None)
@given(st.floats(1e-9, 0.5), st.floats(0.7, 500))
def test_a_point_is_exceeded_with_its_probability(tail: float, degrees: float) -> None:
    """The point agrees with scipy's, at any level and any degrees of freedom."""
    assert student_t.upper_tail_quantile(tail, degrees) == pytest.approx(
        reference.isf(tail, degrees), rel=1e-7, abs=1e-6
    )


@settings(deadline=None)
@given(st.floats(0, 1e6), st.floats(0.7, 500))
def test_what_lies_beyond_a_point(t: float, degrees: float) -> None:
    """The probability beyond a point agrees with scipy's, far out, too."""
    assert student_t.upper_tail_probability(t, degrees) == pytest.approx(
        reference.sf(t, degrees), rel=1e-7, abs=1e-290
    )


@pytest.mark.parametrize("degrees", [0.3, 1e4, 1e6, 1e7, 1e12])
def test_it_holds_for_very_few_and_very_many_degrees(degrees: float) -> None:
    """Below one degree of freedom the points lie far out, and of many it is the normal distribution."""
    for tail in (1e-9, 0.0025, 0.025, 0.4):
        assert student_t.upper_tail_quantile(tail, degrees) == pytest.approx(
            float(reference.isf(tail, degrees)), rel=1e-5
        )
    assert student_t.upper_tail_probability(2.5, degrees) == pytest.approx(
        float(reference.sf(2.5, degrees)), rel=1e-5
    )


def test_without_degrees_of_freedom_nothing_is_known() -> None:
    """A point with no degrees of freedom is infinitely far away."""
    assert student_t.upper_tail_quantile(0.025, 0) == math.inf


def test_half_lies_beyond_the_middle() -> None:
    """The distribution is symmetric."""
    assert student_t.upper_tail_probability(0, 3) == pytest.approx(0.5)
    assert student_t.upper_tail_quantile(0.5, 3) == pytest.approx(0, abs=1e-9)
