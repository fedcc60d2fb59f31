"""What a model costs without running it: operators, FLOPs, memory, other input sizes, rooflines."""

from __future__ import annotations
