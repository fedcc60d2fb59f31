"""How much of an inspection to show."""

from __future__ import annotations

from dataclasses import dataclass

SORTS = ("order", "macs", "parameters", "flops", "weight_bytes", "bytes")
"""What modules can be sorted by: the order of their definition, or a number, the largest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What a reader wants to see of the modules and operators."""

    depth: int | None = None
    """Levels of the tree below the whole; None shows as many as are read at a glance."""
    sort: str = "order"
    """One of SORTS."""
    filter: str = ""
    """Only modules that have this text in their path or class."""
    verbose: bool = False
    """Whether to list every operator."""


PLAIN = Look()
