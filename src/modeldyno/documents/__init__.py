"""Documents: looking them up, importing, exporting and writing reports."""

from __future__ import annotations
