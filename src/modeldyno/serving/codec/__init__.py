"""Explanations as JSON."""

from __future__ import annotations
