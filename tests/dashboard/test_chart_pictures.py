"""Charts by their addresses."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from tests.dashboard.conftest import links_of

pytest.importorskip("matplotlib")

if TYPE_CHECKING:
    from tests.dashboard.conftest import Visitor

RESULT = "/results/010101010101"


def test_a_page_links_to_a_picture_of_each_of_its_charts(visitor: Visitor) -> None:
    """They are SVGs whose titles are those of the links."""
    links = [link for link in links_of(visitor.read(RESULT)) if "/chart.svg?" in link]

    assert links
    for link in links:
        answer = visitor.get(link)
        assert answer.headers["content-type"] == "image/svg+xml"
        assert answer.text.lstrip().startswith("<?xml")


def test_the_first_chart_needs_no_name_and_may_be_a_png(visitor: Visitor) -> None:
    answer = visitor.get(f"{RESULT}/chart.png")

    assert answer.headers["content-type"] == "image/png"
    assert answer.content.startswith(b"\x89PNG")


def test_a_chart_that_is_not_there_is_told_with_those_that_are(visitor: Visitor) -> None:
    answer = visitor.get(f"{RESULT}/chart.svg?chart=nothing")

    assert answer.status_code == 404
    assert re.search("There is no chart &#39;nothing&#39; here; charts: ", answer.text)


def test_a_chart_of_no_document_is_not_found(visitor: Visitor) -> None:
    assert visitor.get("/results/ffff/chart.svg").status_code == 404
