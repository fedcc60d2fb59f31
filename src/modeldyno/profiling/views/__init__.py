"""Turn documents into the neutral blocks of a report: sentences, tables and charts, in reading order.

Pure functions: the same Result gives the same blocks. `reporters` render them for a terminal, a page or a
file; nothing here depends on an output format. What is named here is imported on first use: a headline
needs no charts.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from modeldyno.base.views.view_options import PLAIN, SORTS, ViewOptions
    from modeldyno.profiling.views.lists import brief, listing, numbers
    from modeldyno.profiling.views.result.blocks import blocks, overview
    from modeldyno.profiling.views.result.compression_table import summary
    from modeldyno.profiling.views.result.headline import headline
    from modeldyno.profiling.views.result.page import page

_HOMES = {
    "PLAIN": "modeldyno.base.views.view_options",
    "SORTS": "modeldyno.base.views.view_options",
    "ViewOptions": "modeldyno.base.views.view_options",
    "blocks": "modeldyno.profiling.views.result.blocks",
    "brief": "modeldyno.profiling.views.lists",
    "headline": "modeldyno.profiling.views.result.headline",
    "listing": "modeldyno.profiling.views.lists",
    "numbers": "modeldyno.profiling.views.lists",
    "overview": "modeldyno.profiling.views.result.blocks",
    "page": "modeldyno.profiling.views.result.page",
    "summary": "modeldyno.profiling.views.result.compression_table",
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
    return getattr(import_module(_HOMES[name]), name)
