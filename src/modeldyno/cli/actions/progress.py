"""The progress line of the commands; see `modeldyno.progress`."""

from __future__ import annotations

from modeldyno.progress import Progress, line

__all__ = ["Progress", "line"]
