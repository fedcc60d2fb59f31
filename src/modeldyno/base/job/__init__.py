"""What is asked for: a model, its inputs, knobs, a load, a Job."""

from __future__ import annotations
