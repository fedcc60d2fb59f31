"""Stores: where Results are kept."""

from __future__ import annotations
