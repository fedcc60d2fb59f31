"""What the second pass saw: layers, operators, memory, data flow, tokens, energy, regions."""

from __future__ import annotations
