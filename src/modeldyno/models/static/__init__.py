"""Static cost analysis without running the model: operators, FLOPs, memory, other input sizes, rooflines."""

from __future__ import annotations
