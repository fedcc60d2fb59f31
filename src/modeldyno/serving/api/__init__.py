"""Servers and loads from Python."""

from __future__ import annotations
