"""The machine from Python."""

from __future__ import annotations
