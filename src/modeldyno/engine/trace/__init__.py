"""Analysis of instrumented calls: layers, operators, memory, data flow, tokens, energy, regions."""

from __future__ import annotations
