"""The machine that is measured: its hardware, its peaks, its processes."""

from __future__ import annotations
