"""Turn documents into the neutral blocks of a report: sentences, tables and charts, in reading order.

Pure functions: the same Result gives the same blocks. `reporters` render them for a terminal, a page or a
file; nothing here depends on an output format.
"""

from __future__ import annotations

from modeldyno.views.lists import brief, listing, numbers
from modeldyno.views.result.blocks import blocks
from modeldyno.views.result.compression_table import summary
from modeldyno.views.result.headline import headline
from modeldyno.views.result.overview import overview
from modeldyno.views.result.page import page
from modeldyno.views.view_options import PLAIN, SORTS, ViewOptions

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
