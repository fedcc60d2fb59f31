from __future__ import annotations

import pytest

from modeldyno.base.report.blocks import Severity
from modeldyno.base.stats.units import SECONDS
from modeldyno.base.views.text import doubts_in_a_line, format_ends, format_rough_duration


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
        (["drift"], "", "1 doubt", "drift; -v explains it"),
        (["drift", "steal"], "", "2 doubts", "drift, steal; -v explains them"),
        (["drift", "drift"], "and shows", "2 doubts", "drift (2); -v explains them, and shows"),
    ],
)
def test_doubts_in_a_line_are_counted_as_one_says_it(
    codes: list[str], more: str, code: str, text: str
) -> None:
    """One doubt is explained by itself, several are; each code stands once."""
    line = doubts_in_a_line(codes, "-v", more=more)

    assert (line.severity, line.code, line.text) == (Severity.DOUBT, code, text)


def test_doubts_of_a_model_begin_with_its_name() -> None:
    """Where a page is about several models."""
    assert doubts_in_a_line(["drift"], "--all", model="net").code == "net: 1 doubt"
