"""A study as blocks, charts and a page."""

from __future__ import annotations
