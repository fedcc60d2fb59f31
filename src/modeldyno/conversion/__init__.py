"""Convert a model into other forms, and judge whether each is still the model."""

from __future__ import annotations
