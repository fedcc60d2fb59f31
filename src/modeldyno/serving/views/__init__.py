"""Loads on a server as blocks and pages."""

from __future__ import annotations
