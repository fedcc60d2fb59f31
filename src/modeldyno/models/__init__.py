"""What a model is and what it costs: loaders, tracing, static analysis, FLOPs."""

from __future__ import annotations
