"""What a command prints by itself fits a screen of forty lines and eighty columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.support.sample_explanations import an_explanation
from tests.support.sample_reports import a_large_study, a_measured_comparison

from modeldyno.base import plugins
from modeldyno.base.kinds import kind_of
from modeldyno.base.views.view_options import ViewOptions
from modeldyno.profiling.views import overview
from modeldyno.reports import terminal
from modeldyno.testing.reporters import full_result
from modeldyno.testing.sample_results import an_inspection
from modeldyno.testing.sample_series import a_capacity, a_ladder, a_trend

if TYPE_CHECKING:
    from collections.abc import Callable

    from modeldyno.base.document import Document

SCREEN = 40
OPTIONS = ViewOptions(knobs=plugins.knobs)


def text_of(document: Document) -> str:
    return terminal.text(list(kind_of(document).blocks(document, OPTIONS)))


PRINTED: dict[str, tuple[Callable[[], str], int]] = {
    "a profile with every part": (lambda: terminal.text(list(overview(full_result(), OPTIONS))), SCREEN),
    "a comparison": (lambda: text_of(a_measured_comparison()), 30),
    "a sweep of 1,000 trials": (lambda: text_of(a_large_study(1000)), 55),  # six knobs: a line more for each
    "a ladder of loads": (lambda: text_of(a_ladder()), SCREEN),
    "a search for a load": (lambda: text_of(a_capacity()), 20),
    "an explanation": (lambda: text_of(an_explanation()), SCREEN),
    "a history": (lambda: text_of(a_trend()), 25),
    # two axes of sizes, a device and an operator without a formula beside the figures and modules
    "an inspection with every option": (lambda: terminal.text(list(overview(an_inspection()))), 66),
}
"""What is printed, to the most lines of it."""


@pytest.mark.parametrize("name", PRINTED)
def test_what_is_printed_fits_a_screen(name: str) -> None:
    """Forty lines, but for what has more options than a screen, and eighty columns."""
    printed, most = PRINTED[name]
    lines = printed().splitlines()

    assert len(lines) <= most
    assert max(map(len, lines)) <= 80
