"""What limits a model, and what may be done about it."""

from __future__ import annotations
