"""What all views share: sentences, numbers as text, how much to show."""

from __future__ import annotations
