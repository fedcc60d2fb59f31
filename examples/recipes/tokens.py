"""Any Python callable: ``modeldyno profile call:examples/recipes/tokens.py:count``."""

from __future__ import annotations

import re

count_inputs = ("The quick brown fox jumps over the lazy dog. " * 200,)
"""What `count` is called with."""


def count(text: str) -> int:
    """Count the words of a text."""
    return len(re.findall(r"\w+", text))
