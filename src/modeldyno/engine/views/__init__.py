"""The machine as tables."""

from __future__ import annotations
