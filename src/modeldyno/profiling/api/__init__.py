"""Profile a model from Python."""

from __future__ import annotations
