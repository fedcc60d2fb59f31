"""Conversions as blocks."""

from __future__ import annotations
