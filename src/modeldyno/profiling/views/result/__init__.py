"""A Result as blocks: headline, table, layers, memory, operators, provenance."""

from __future__ import annotations
