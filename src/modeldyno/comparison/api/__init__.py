"""Comparisons, gates and advice from Python."""

from __future__ import annotations
