"""Documents to the neutral blocks of a report: what to say, in which order, with which digits.

Pure: the same Result gives the same blocks. `reporters` give them the form of a terminal, a page or
a file; nothing here knows of any format.
"""

from __future__ import annotations

from modeldyno.views.lists import brief, listing, numbers
from modeldyno.views.pages import page
from modeldyno.views.result.blocks import blocks
from modeldyno.views.result.compression_table import summary
from modeldyno.views.result.headline import headline
from modeldyno.views.result.memory_diff import memory_changed
from modeldyno.views.result.overview import overview
from modeldyno.views.view_options import PLAIN, SORTS, Look

__all__ = [
    "PLAIN",
    "SORTS",
    "Look",
    "blocks",
    "brief",
    "headline",
    "listing",
    "memory_changed",
    "numbers",
    "overview",
    "page",
    "summary",
]
