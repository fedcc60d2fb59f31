"""PyTorch: sessions, hooks, memory, operators, training, generation."""

from __future__ import annotations
