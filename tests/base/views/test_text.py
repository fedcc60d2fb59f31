from __future__ import annotations

from math import inf

import pytest

from modeldyno.base.metrics.doubt import Doubt
from modeldyno.base.metrics.measurement import Interval
from modeldyno.base.report.blocks import Severity
from modeldyno.base.stats.units import SECONDS
from modeldyno.base.views.text import (
    doubts_in_a_line,
    estimate_with_half_width,
    format_ends,
    format_rough_duration,
)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (30.0, "30 s"),
        (90.0, "90 s"),
        (100.0, "1 min 40 s"),
        (120.0, "2 min"),
        (150.0, "2 min 30 s"),
        (599.7, "10 min"),
        (1800.0, "30 min"),
        (6000.0, "1.7 h"),
        (7200.0, "2 h"),
        (float("inf"), "inf h"),
    ],
)
def test_a_limit_is_told_as_it_was_given(seconds: float, text: str) -> None:
    """A limit of less than ten minutes is told to the second: 100 s are not 2 min."""
    assert format_rough_duration(seconds) == text


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (0.0083, 0.0132, "8 to 13 ms"),
        (0.04, float("inf"), ">40.0 ms"),
        (0.0, 0.025, "<25.0 ms"),
        (float("-inf"), float("inf"), ""),
    ],
)
def test_what_bounds_an_uncertified_value_has_both_its_ends(low: float, high: float, text: str) -> None:
    """A bound can be held by the upper end alone; of nothing known nothing is said."""
    assert format_ends(low, high, SECONDS) == text


@pytest.mark.parametrize(
    ("codes", "more", "code", "text"),
    [
        (["drift"], "", "trust limited", "of drift; -v explains it"),
        (["drift", "steal"], "", "trust limited", "of steal; 1 more: drift; -v explains them"),
        (["drift", "forked"], "", "trust low", "of forked; 1 more: drift; -v explains them"),
        (["reused", "mine"], "", "trust limited", "of mine; 1 more: reused; -v explains them"),
        (["reused"], "", "doubts", "of reused; -v explains it"),
        (
            ["drift", "drift", "drift"],
            "and shows",
            "trust limited",
            "of drift; 2 more: drift (2); -v explains them, and shows",
        ),
    ],
)
def test_the_most_serious_doubt_stands_first_and_says_how_far_to_trust(
    codes: list[str], more: str, code: str, text: str
) -> None:
    """One doubt is explained by itself, several are; each other code stands once."""
    line = doubts_in_a_line([_doubt(code) for code in codes], "-v", more=more)

    assert (line.severity, line.code, line.text) == (Severity.DOUBT, code, text)


def test_doubts_of_a_model_begin_with_its_name() -> None:
    """Where a page is about several models."""
    assert doubts_in_a_line([_doubt("drift")], "--all", model="net").code == "net: trust limited"


def test_a_long_doubt_leaves_room_for_the_others_and_the_command() -> None:
    """Within the limit, which the command is part of."""
    long = Doubt(code="steal", seen="seen " * 40, advice="")
    line = doubts_in_a_line([long, _doubt("drift")], "-v", limit=80)

    assert len(line.text) <= 80
    assert "1 more: drift; -v explains them" in line.text


def _doubt(code: str) -> Doubt:
    return Doubt(code=code, seen=f"of {code}.", advice="")


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (9.4e-3, 10.6e-3, "10.0 ms ±6%"),
        (9.95e-3, 10.05e-3, "10.00 ms ±0.5%"),
        (1e-3, 90e-3, "10 ms ±>100%"),
        (9.9999e-3, 10.0001e-3, "±<0.1%"),
    ],
)
def test_an_estimate_stands_with_half_of_its_interval(low: float, high: float, text: str) -> None:
    """In percent; of none known, or without an end, alone."""
    written = estimate_with_half_width(10e-3, Interval(low=low, high=high), SECONDS)

    assert written.split("±")[1] == text.split("±")[1]
    assert "±" not in estimate_with_half_width(10e-3, None, SECONDS)
    assert "±" not in estimate_with_half_width(10e-3, Interval(low=0.0, high=inf), SECONDS)
    assert "±" not in estimate_with_half_width(0.0, Interval(low=0.0, high=1.0), SECONDS)
