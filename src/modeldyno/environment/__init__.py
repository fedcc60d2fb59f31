"""The machine that is measured: its make, its peaks, its processes."""

from __future__ import annotations
