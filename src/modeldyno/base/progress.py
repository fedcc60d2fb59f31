"""Shows progress: a line updated several times a second; where none can be, a new one every ten seconds."""

from __future__ import annotations

import shutil
import sys
from contextlib import contextmanager
from importlib import import_module
from math import inf
from threading import Event as Flag
from threading import Thread
from typing import TYPE_CHECKING, Any

from modeldyno.base.clock import monotonic
from modeldyno.base.result.result import Event, Progressed, SecondPassed
from modeldyno.base.stats.units import FRACTION, SECONDS, format_quantity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType
    from typing import Self

_MIN_UPDATE_INTERVAL = 0.25
"""Minimum seconds between two updates."""
_LINE_INTERVAL = 10.0
"""Seconds between two lines if standard error is not a terminal, such as a file or a CI log."""
_PYTHON_PATIENCE = 2.0
"""Seconds before a call from Python shows progress."""
_NOTEBOOK_WIDTH = 100


@contextmanager
def showing_progress(
    watch: Callable[[Event], None] | None = None, *, progress: bool = True
) -> Iterator[Callable[[Event], None]]:
    """Yield a callback for events: it calls `watch`, and shows progress after two seconds."""
    with Progress(quiet=not progress, patience=_PYTHON_PATIENCE) as display:

        def both(event: Event) -> None:
            display.watch(event)
            if watch is not None:
                watch(event)

        yield both


class Progress:
    """Shows the progress of a run on standard error."""

    def __init__(
        self,
        *,
        quiet: bool = False,
        patience: float = 0.0,
        every: float = _LINE_INTERVAL,
        longest: float | None = None,
    ) -> None:
        """Show nothing if `quiet`, or in the first `patience` seconds; a bar of the `longest` time it takes.

        If standard error is neither a terminal nor a notebook, write a line `every` so many seconds.
        """
        quiet = quiet or sys.stderr is None  # None in a program without a console
        self._quiet = quiet
        self._notebook = _in_notebook()
        self._shown = not quiet and (self._notebook or _is_terminal())
        self._begin = monotonic() + patience
        self._written = 0.0
        self._wrote = False
        self._process = ""
        self._begun = monotonic()
        self._last: Progressed | None = None
        self._second: SecondPassed | None = None
        """The newest second of a load that goes on."""
        self._passed_at = 0.0
        """When it was heard of."""
        self._done = 0.0
        self._every = every
        self._longest = longest
        self._ended = Flag()
        self._thread: Thread | None = None
        self._output: Any = None
        """The output of a notebook's cell that has the line: updated, as each writing would be one more."""

    def __enter__(self) -> Self:
        """Start writing lines, if standard error is not a terminal."""
        if not self._quiet and not self._shown:
            self._thread = Thread(target=self._repeat, daemon=True)
            self._thread.start()
        return self

    def _repeat(self) -> None:
        """Write the elapsed time and the progress at regular intervals."""
        while not self._ended.wait(self._every):
            stage = "" if self._last is None else f": {self._line(self._last).strip()}"
            elapsed = _format_duration(monotonic() - self._begun)
            sys.stderr.write(f"  {elapsed}{self._share()}{stage}\n")
            sys.stderr.flush()

    def announce(self, text: str) -> None:
        """Write an announcement before long work on its own line."""
        if not self._quiet:
            sys.stderr.write(f"{_ERASE_LINE if self._shown and not self._notebook else ''}{text}\n")
            sys.stderr.flush()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop, and clear the progress line."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()  # it may still write
        if self._wrote:
            self._write("")

    def watch(self, event: Event) -> None:
        """Show a progress event, unless the last update was just before."""
        if isinstance(event, SecondPassed):
            self._second, self._passed_at = event, monotonic()
        if self._quiet or not isinstance(event, Progressed):
            return
        if event.stage.startswith("process "):
            self._process = f"{event.stage}, "
            return
        self._last = event
        self._done = max(self._done, event.share)
        if not self._shown:
            return
        now = monotonic()
        if now < self._begin or (event.runs and now - self._written < _MIN_UPDATE_INTERVAL):
            return
        self._written = now
        width = _NOTEBOOK_WIDTH if self._notebook else shutil.get_terminal_size().columns - 1
        shown = self._bar()
        self._write(shown + self._line(event, width - len(shown)))

    def _line(self, event: Progressed, width: int | None = None) -> str:
        """Format an event with the newest second of the load, unless that is over."""
        is_fresh = monotonic() - self._passed_at < _SECOND_SHOWN
        return line(event, self._process, width, self._second if is_fresh else None)

    def _share(self) -> str:
        """Return how much of the longest time has passed, such as `` (25 % of at most 10 min)``."""
        if self._longest is None:
            return ""
        share = self._passed(self._longest)
        return f" ({100 * share:.0f} % of at most {_format_duration(self._longest)})"

    def _bar(self) -> str:
        """Draw how much of the longest time has passed, or of the runs is done, whichever ends it first."""
        if self._longest is None:
            return ""
        share = max(self._passed(self._longest), self._done)
        done = int(share * _BAR)
        return f"  [{'#' * done}{'.' * (_BAR - done)}] {100 * share:.0f} %"

    def _passed(self, longest: float) -> float:
        return min(1.0, (monotonic() - self._begun) / longest)

    def _write(self, text: str) -> None:
        """Replace the progress line."""
        self._wrote = True
        if not self._notebook:
            sys.stderr.write(f"{_ERASE_LINE}{text}")
            sys.stderr.flush()
        elif self._output is None:
            display = import_module("IPython.display").display
            self._output = display({"text/plain": text}, raw=True, display_id=True)
        else:
            self._output.update({"text/plain": text}, raw=True)


def _is_terminal() -> bool:
    """Check whether standard error is a terminal; a replacement object may lack ``isatty``."""
    return bool(getattr(sys.stderr, "isatty", bool)())


def _in_notebook() -> bool:
    """Check whether standard error is that of a Jupyter kernel."""
    return "ipykernel" in sys.modules and type(sys.stderr).__module__.startswith("ipykernel")


def line(
    event: Progressed, process: str = "", width: int | None = None, passed: SecondPassed | None = None
) -> str:
    """Format an event as one line: stage, samples, current value of the target statistic, time left.

    Of a load of streamed answers, the tokens and the first token of its newest second take the place of that
    value, and the samples are left out where they have no room. What is too wide without them is truncated,
    but for the time left.
    """
    left = "" if event.left is None else f", about {_format_duration(max(event.left, 0))} left"
    room = inf if width is None else max(0, width - len(left))
    parts = [f"  {process}{event.stage}"]
    if event.runs:
        parts.append(f"{event.runs:,} samples")
    if tokens := _tokens(passed):
        parts.append(tokens)
        if len(", ".join(parts)) > room:
            parts = [parts[0], tokens]
    elif event.value is not None and event.precision is not None:
        value = format_quantity(event.value, SECONDS, 3)
        half_width = format_quantity(event.precision, FRACTION, 2)
        parts.append(f"{value} ± {half_width}" if event.precision <= _BOUNDED else f"about {value}")
    text = ", ".join(parts)
    return (text if len(text) <= room else text[: int(room)]) + left


def _tokens(passed: SecondPassed | None) -> str:
    """Say how many tokens came in a second, and how long the first ones took; nothing without any."""
    if passed is None:
        return ""
    second = passed.second
    count, name = (second.pieces, "pieces") if second.tokens is None else (second.tokens, "tokens")
    parts = [] if count is None else [f"{count:,.0f} {name}/s"]
    if second.first_token is not None:
        parts.append(f"first token {format_quantity(second.first_token, SECONDS, 3)}")
    return ", ".join(parts)


def _format_duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < _MINUTES_FROM else f"{seconds / 60:.0f} min"


_BAR = 12
"""Characters of a bar."""
_BOUNDED = 1.0
"""Largest half-width of an interval, as a part of the value, that says more than that it is not known yet."""
_ERASE_LINE = "\r\x1b[K"
"""Control sequence that erases the progress line."""
_SECOND_SHOWN = 3.0
"""Seconds for which a second of a load is shown after it has passed."""
_MINUTES_FROM = 180
"""Seconds from which a duration is shown in minutes."""
