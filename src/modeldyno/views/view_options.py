"""How much of a Result to show."""

from __future__ import annotations

from dataclasses import dataclass

SORTS = ("order", "macs", "parameters", "flops", "weight_bytes", "bytes")
"""Sort keys of modules: definition order, or a number in descending order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewOptions:
    """Which modules and operators to show."""

    depth: int | None = None
    """Levels of the module tree to show below the root; None chooses as many as fit a short table."""
    sort: str = "order"
    """One of SORTS."""
    filter: str = ""
    """Show only modules with this text in their path or class."""
    verbose: bool = False
    """Whether to list every operator."""


PLAIN = ViewOptions()
