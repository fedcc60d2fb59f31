"""Any chart of a document as a picture by its address, for a wiki, a ticket or a README."""

from __future__ import annotations

from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from modeldyno.base.errors import RequestError
from modeldyno.dashboard.page import PageBlocks, PageLink, PageLinks, address
from modeldyno.reports.write import Page, charts_by_name, draw_chart

if TYPE_CHECKING:
    from modeldyno.dashboard.page import DashboardPage

KINDS = {"svg": "image/svg+xml", "png": "image/png"}
"""Formats of a picture, and what browsers call them."""
_ONE_AT_A_TIME = Lock()
"""Matplotlib keeps its settings for the whole process."""


def draw(page: DashboardPage, suffix: str, title: str) -> bytes:
    """Draw the chart of a page that has this title, or its first chart.

    Raises:
        RequestError: there is no such chart.
        MissingExtra: Matplotlib is not installed.
    """
    laid_out = _laid_out(page)
    titles = list(charts_by_name(laid_out))
    if not titles:
        raise RequestError(f"{page.title} has no chart.")
    with _ONE_AT_A_TIME:
        return draw_chart(laid_out, Path(f"chart.{suffix}"), title or titles[0])


def links_to_charts(page: DashboardPage, *path: str) -> PageLinks | None:
    """Return links to the pictures of a page's charts; None if it has none."""
    links = tuple(
        PageLink(text=f"{title} (SVG)", address=address(*path, "chart.svg", chart=title))
        for title in charts_by_name(_laid_out(page))
    )
    return PageLinks(label="Charts as pictures (chart.svg, or chart.png)", links=links) if links else None


def _laid_out(page: DashboardPage) -> Page:
    blocks = (block for part in page.parts if isinstance(part, PageBlocks) for block in part.blocks)
    return Page(title=page.title, blocks=tuple(blocks))
