"""The table of metrics, measurements, when enough was measured, doubts, and bounds on metrics."""

from __future__ import annotations
