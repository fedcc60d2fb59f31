"""Progress: one line of the terminal, written a few times a second; elsewhere a line every ten seconds."""

from __future__ import annotations

import shutil
import sys
from contextlib import contextmanager
from threading import Event as Flag
from threading import Thread
from time import monotonic
from typing import TYPE_CHECKING

from modeldyno.core.result.result import Event, Progressed
from modeldyno.core.stats.units import FRACTION, SECONDS, format_quantity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType
    from typing import Self

_PAUSE = 0.25
"""Seconds between two writes at least."""
_EVERY = 10.0
"""Seconds between two lines where standard error is no terminal, such as a file or the log of a job."""
_PATIENCE = 2.0
"""Seconds that a call from Python may take before it says how far it is."""
_NOTEBOOK_WIDTH = 100


@contextmanager
def showing_progress(
    watch: Callable[[Event], None] | None = None, *, progress: bool = True
) -> Iterator[Callable[[Event], None]]:
    """Give what is to be told of events: `watch`, and after two seconds a line on standard error."""
    with Progress(quiet=not progress, patience=_PATIENCE) as shown:

        def both(event: Event) -> None:
            shown.watch(event)
            if watch is not None:
                watch(event)

        yield both


class Progress:
    """Shows where a run stands, on standard error."""

    def __init__(self, *, quiet: bool = False, patience: float = 0.0, every: float = _EVERY) -> None:
        """Stay silent when `quiet`, and in the first `patience` seconds.

        Where standard error is neither a terminal nor a notebook's, there is a line every so many seconds.
        """
        quiet = quiet or sys.stderr is None  # a program without a console has none
        self._quiet = quiet
        self._notebook = _in_notebook()
        self._shown = not quiet and (self._notebook or _is_terminal())
        self._begin = monotonic() + patience
        self._written = 0.0
        self._wrote = False
        self._process = ""
        self._begun = monotonic()
        self._last: Progressed | None = None
        self._every = every
        self._ended = Flag()
        self._thread: Thread | None = None
        # A notebook knows no control sequence that erases.
        self._erase = f"\r{' ' * _NOTEBOOK_WIDTH}\r" if self._notebook else _ERASE

    def __enter__(self) -> Self:
        """Begin."""
        if not self._quiet and not self._shown:
            self._thread = Thread(target=self._repeat, daemon=True)
            self._thread.start()
        return self

    def _repeat(self) -> None:
        """Say again and again how long it has taken, and where it stands."""
        while not self._ended.wait(self._every):
            stage = "" if self._last is None else f": {line(self._last, self._process).strip()}"
            sys.stderr.write(f"  {_duration(monotonic() - self._begun)}{stage}\n")
            sys.stderr.flush()

    def announce(self, text: str) -> None:
        """Say on a line of its own, before long work, what it will take."""
        if not self._quiet:
            sys.stderr.write(f"{self._erase if self._shown else ''}{text}\n")
            sys.stderr.flush()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave an empty line."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()  # it may be about to write
        if self._wrote:
            self._write("")

    def watch(self, event: Event) -> None:
        """Show an event, if it is progress and the last write was a while ago."""
        if self._quiet or not isinstance(event, Progressed):
            return
        if event.stage.startswith("process "):
            self._process = f"{event.stage}, "
            return
        self._last = event
        if not self._shown:
            return
        now = monotonic()
        if now < self._begin or (event.runs and now - self._written < _PAUSE):
            return
        self._written = now
        width = _NOTEBOOK_WIDTH if self._notebook else shutil.get_terminal_size().columns - 1
        self._write(line(event, self._process, width))

    def _write(self, text: str) -> None:
        """Replace the line."""
        sys.stderr.write(f"{self._erase}{text}")
        sys.stderr.flush()
        self._wrote = True


def _is_terminal() -> bool:
    """Say whether standard error is a terminal; what a program puts in its place may not know."""
    return bool(getattr(sys.stderr, "isatty", bool)())


def _in_notebook() -> bool:
    """Say whether standard error is that of a kernel of Jupyter."""
    return "ipykernel" in sys.modules and type(sys.stderr).__module__.startswith("ipykernel")


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


_ERASE = "\r\x1b[K"
"""What takes the line of progress off a terminal."""
_MINUTES = 180
"""Seconds from which on minutes are told."""
