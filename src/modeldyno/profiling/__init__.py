"""Use case: one model, one Result."""

from __future__ import annotations
