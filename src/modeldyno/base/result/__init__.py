"""A Result: the fold over the events of a run, its parts, its numbers."""

from __future__ import annotations
