"""Progress on one line of the terminal: plain writes a few times a second, so as not to disturb."""

from __future__ import annotations

import shutil
import sys
from time import monotonic
from typing import TYPE_CHECKING

from modeldyno.core.result import Event, Progressed
from modeldyno.core.units import FRACTION, SECONDS, format_quantity

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

_PAUSE = 0.25
"""Seconds between two writes at least."""


class Progress:
    """Shows where a run stands, on standard error, when that is a terminal."""

    def __init__(self, *, quiet: bool = False) -> None:
        """Stay silent when `quiet`, or when nobody sees it."""
        self._shown = not quiet and sys.stderr.isatty()
        self._written = 0.0
        self._process = ""

    def __enter__(self) -> Self:
        """Begin."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave an empty line."""
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    def watch(self, event: Event) -> None:
        """Show an event, if it is progress and the last write was a while ago."""
        if not self._shown or not isinstance(event, Progressed):
            return
        if event.stage.startswith("process "):
            self._process = f"{event.stage}, "
            return
        now = monotonic()
        if event.runs and now - self._written < _PAUSE:
            return
        self._written = now
        width = shutil.get_terminal_size().columns - 1
        sys.stderr.write(f"\r\x1b[K{line(event, self._process, width)}")
        sys.stderr.flush()


def line(event: Progressed, process: str = "", width: int | None = None) -> str:
    """Say it in one line: stage, samples so far, the target so far, time left.

    Where it is too wide, all but the time left is cut.
    """
    parts = [f"  {process}{event.stage}"]
    if event.runs:
        parts.append(f"{event.runs:,} samples")
    if event.value is not None and event.precision is not None:
        value = format_quantity(event.value, SECONDS, 3)
        parts.append(f"{value} ± {format_quantity(event.precision, FRACTION, 2)}")
    left = "" if event.left is None else f", about {_duration(max(event.left, 0))} left"
    text = ", ".join(parts)
    return text + left if width is None else text[: max(0, width - len(left))] + left


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < _MINUTES else f"{seconds / 60:.0f} min"


_MINUTES = 180
"""Seconds from which on minutes are told."""
