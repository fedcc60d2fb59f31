"""Whether a converted model is still the model: its outputs against those of the source."""

from __future__ import annotations
