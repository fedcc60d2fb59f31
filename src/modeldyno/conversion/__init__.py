"""Convert a model into other forms, and judge whether each is still the model."""

from __future__ import annotations

from modeldyno.conversion.request import ConversionRequest
from modeldyno.conversion.run import convert

__all__ = ["ConversionRequest", "convert"]
