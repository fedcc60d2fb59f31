"""The line of progress, as the commands show it."""

from __future__ import annotations

from modeldyno.progress import Progress, line

__all__ = ["Progress", "line"]
