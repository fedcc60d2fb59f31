"""Documents to the neutral blocks of a report: what to say, in which order, with which digits.

Pure: the same Result gives the same blocks. `reporters` give them the form of a terminal, a page or
a file; nothing here knows of any format.
"""

from __future__ import annotations

from modeldyno.views.lists import brief, listing, numbers
from modeldyno.views.look import PLAIN, SORTS, Look
from modeldyno.views.memory_change import memory_changed
from modeldyno.views.overview import overview
from modeldyno.views.pages import page
from modeldyno.views.report import blocks
from modeldyno.views.sentence import headline
from modeldyno.views.summary import summary

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
