"""Use case: profile one model into one Result."""

from __future__ import annotations
