"""Statistics and text of numbers: quantiles, intervals, Student t, drift, change points, units."""

from __future__ import annotations
