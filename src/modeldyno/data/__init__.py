"""Payloads: model inputs, random or real."""

from __future__ import annotations

from modeldyno.data.assumed_sizes import assume_sizes
from modeldyno.data.batches import Payload, Shaped, assumptions, build, shapes

__all__ = ["Payload", "Shaped", "assume_sizes", "assumptions", "build", "shapes"]
