"""What ``modeldyno devices`` does."""

from __future__ import annotations

import sys
import time
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from modeldyno.base import codec, plugins
from modeldyno.base.clock import monotonic
from modeldyno.base.errors import RequestError
from modeldyno.cli.actions.output_options import OutputTargets
from modeldyno.cli.actions.printing import ignore_broken_pipe
from modeldyno.engine.environment.devices import read_devices
from modeldyno.engine.views import devices as view

if TYPE_CHECKING:
    from collections.abc import Callable

    from modeldyno.engine.environment.devices import DeviceReading

_HOME, _END_OF_LINE, _BELOW = "\x1b[H", "\x1b[K", "\x1b[J"
"""What moves a terminal to its first line, and erases the rest of a line and what is below."""


def run(period: float | None, json_path: str | None) -> None:
    """Show the devices once, or again after each period."""
    if period is not None:
        _watch(period, json_path)
        return
    targets = OutputTargets.of_document(json_path)
    reading = read_devices()
    targets.write(codec.encode_document(_document(reading)))
    targets.print_report(view.blocks(reading))


def _watch(period: float, json_path: str | None) -> None:
    """Show the devices until Ctrl-C: on a terminal in place, else a line for each reading."""
    if json_path not in {None, "-"}:
        raise RequestError("--watch writes a line of JSON for each reading; give --json -, and redirect it.")
    show = _print_json if json_path else _redraw if sys.stdout.isatty() else _print_line
    if show is _redraw:
        click.clear()
    try:
        with ignore_broken_pipe():
            _repeat(period, show)
    except KeyboardInterrupt:
        return


def _repeat(period: float, show: Callable[[DeviceReading], None]) -> None:
    """Read and show at the beginning of each period; the time of reading is part of it."""
    due = monotonic()
    while True:
        show(read_devices())
        sys.stdout.flush()
        due = max(due + period, monotonic())
        time.sleep(max(0.0, due - monotonic()))


def _redraw(reading: DeviceReading) -> None:
    lines = plugins.terminal().text(tuple(view.blocks(reading))).splitlines()
    text = "".join(f"{line}{_END_OF_LINE}\n" for line in (f"{datetime.now():%H:%M:%S}", *lines))  # noqa: DTZ005 - the user's clock
    sys.stdout.write(f"{_HOME}{text}{_BELOW}")


def _print_line(reading: DeviceReading) -> None:
    sys.stdout.write(f"{datetime.now():%H:%M:%S} {view.line(reading)}\n")  # noqa: DTZ005 - as above


def _print_json(reading: DeviceReading) -> None:
    sys.stdout.write(codec.to_json(_document(reading)).decode() + "\n")


def _document(reading: DeviceReading) -> dict[str, object]:
    return {"time": datetime.now(UTC).isoformat(), **asdict(reading)}
