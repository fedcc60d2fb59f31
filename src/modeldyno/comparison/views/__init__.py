"""Comparisons, gates and trends as blocks and pages."""

from __future__ import annotations
