"""Measure a server under load."""

from __future__ import annotations
