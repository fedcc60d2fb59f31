"""A sweep: its space, trials, goal, ranking, verification."""

from __future__ import annotations
