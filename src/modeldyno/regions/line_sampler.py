"""Sample which line of the user's code a thread is in, from another thread, while a call is recorded.

The samples weigh the time since the one before, so that their sum is the wall time, whatever the thread that
takes them had to wait for.
"""

from __future__ import annotations

import sys
from pathlib import Path
from threading import Event, Thread, get_ident
from typing import TYPE_CHECKING

from modeldyno.base.clock import perf_counter
from modeldyno.engine.trace.line_times import LineTimes
from modeldyno.models.static.source_line import is_user_file

if TYPE_CHECKING:
    from types import FrameType

PERIOD = 0.002
"""Seconds between samples."""
_LOADER = str(Path("torch", "utils", "data", "dataloader.py"))
_BACKGROUND = "_MultiProcessingDataLoaderIter"


class LineSampler:
    """Samples the thread that makes it, until `stop`."""

    def __init__(self) -> None:
        self.times = LineTimes(calls=1)
        self.files: dict[str, str] = {}
        """The path of each file by its name in lines."""
        self._sampled = get_ident()
        self._stop = Event()
        self._thread = Thread(target=self._run, name="modeldyno-lines", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Take no more samples."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        last = perf_counter()
        while not self._stop.wait(PERIOD):
            frame = sys._current_frames().get(self._sampled)
            now = perf_counter()
            self._add(frame, now - last)
            last = now

    def _add(self, frame: FrameType | None, seconds: float) -> None:
        """Add a sample: the innermost line, and the line around the loader that it is in, if any."""
        line, waiting, within = "", "", False
        while frame is not None:
            code = frame.f_code
            if code.co_filename.endswith(_LOADER):
                within, waiting = True, ""
                self.times.in_background |= code.co_qualname.startswith(_BACKGROUND)
            elif is_user_file(code.co_filename):
                path = Path(code.co_filename)
                here = f"{path.name}:{frame.f_lineno}"
                self.files.setdefault(path.name, code.co_filename)
                line = line or here
                waiting = waiting or (here if within else "")
            frame = frame.f_back
        self.times.add(line, seconds, waiting)
