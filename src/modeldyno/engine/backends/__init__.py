"""Backends: Model -> Session."""

from __future__ import annotations
