"""Two Results beside each other: the test of a change, its causes, a gate's rule, a metric's history."""

from __future__ import annotations
