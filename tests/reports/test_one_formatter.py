"""A figure of a document reads the same in its sentence, its line in a list, its tables and its page."""

from __future__ import annotations

import re
from decimal import Decimal
from itertools import permutations
from typing import TYPE_CHECKING

import pytest
from tests.support.sample_explanations import an_explanation
from tests.support.sample_reports import a_measured_comparison

from modeldyno.base.kinds import kind_of
from modeldyno.base.report.blocks import Notice, Table
from modeldyno.reports.write import lay_out_document
from modeldyno.testing.reporters import full_result, uncertified_result
from modeldyno.testing.sample_results import a_result
from modeldyno.testing.sample_series import a_capacity, a_ladder, a_trend
from modeldyno.testing.sample_studies import a_served_study

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from modeldyno.base.document import Document

DOCUMENTS: dict[str, Callable[[], Document]] = {
    "result": full_result,
    "a few calls": a_result,
    "uncertified": uncertified_result,
    "explanation": an_explanation,
    "comparison": a_measured_comparison,
    "ladder": a_ladder,
    "search": a_capacity,
    "trend": a_trend,
    "study": a_served_study,
}
FIGURE = re.compile(r"(?<![\w.,-])(\d[\d,]*(?:\.\d+)?) ?(ns|us|ms|s|/s|KiB|MiB|GiB)(?![\w/])")
INTERVAL = re.compile(r"(at least|at most|[\d.,]+ to) [\d.,]+")


def texts_of(document: Document) -> Iterator[str]:
    """Yield every text that is shown of a document, without intervals."""
    kind = kind_of(document)
    shown = [kind.headline(document), kind.brief(document)]
    for block in (*kind.blocks(document), *lay_out_document(document).blocks):
        shown += [block.text] if isinstance(block, Notice) else []
        shown += [cell for row in block.rows for cell in row] if isinstance(block, Table) else []
    yield from (INTERVAL.sub("", text) for text in shown)


def is_rounded(exact: str, rough: str) -> bool:
    """Whether one text of a number is a rounding of another."""
    number, other = Decimal(exact), Decimal(rough)
    places = len(rough.partition(".")[2])
    if len(exact.partition(".")[2]) > places:
        return number.quantize(Decimal(1).scaleb(-places)) == other
    return exact != rough and "." not in exact and round(number, -1) == other


@pytest.mark.parametrize("kind", DOCUMENTS)
def test_no_figure_reads_differently_in_two_places(kind: str) -> None:
    """None is shown as 25 us here and as 24.5 us there."""
    places: dict[tuple[str, str], str] = {}
    for text in texts_of(DOCUMENTS[kind]()):
        for number, unit in FIGURE.findall(text):
            places.setdefault((number.replace(",", ""), unit), text)
    clashes = [
        (exact, rough, unit, where, elsewhere)
        for ((exact, unit), where), ((rough, other), elsewhere) in permutations(places.items(), 2)
        if unit == other and where != elsewhere and is_rounded(exact, rough)
    ]

    assert clashes == []
