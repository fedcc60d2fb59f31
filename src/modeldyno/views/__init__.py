"""Turn documents into the neutral blocks of a report: sentences, tables and charts, in reading order.

Pure functions: the same Result gives the same blocks. `reporters` render them for a terminal, a page or a
file; nothing here depends on an output format. What is named here is imported on first use: a headline
needs no charts.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from modeldyno.views.lists import brief, listing, numbers
    from modeldyno.views.result.blocks import blocks, overview
    from modeldyno.views.result.compression_table import summary
    from modeldyno.views.result.headline import headline
    from modeldyno.views.result.page import page
    from modeldyno.views.view_options import PLAIN, SORTS, ViewOptions

_HOMES = {
    "PLAIN": "view_options",
    "SORTS": "view_options",
    "ViewOptions": "view_options",
    "blocks": "result.blocks",
    "brief": "lists",
    "headline": "result.headline",
    "listing": "lists",
    "numbers": "lists",
    "overview": "result.blocks",
    "page": "result.page",
    "summary": "result.compression_table",
}

__all__ = [
    "PLAIN",
    "SORTS",
    "ViewOptions",
    "blocks",
    "brief",
    "headline",
    "listing",
    "numbers",
    "overview",
    "page",
    "summary",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
