"""What ``modeldyno serve`` does."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from modeldyno.base.errors import RunFailed
from modeldyno.base.stats.sanitize import clean
from modeldyno.engine.environment.running_servers import forget, is_recorded, stop_running
from modeldyno.profiling.request import parse_settings
from modeldyno.serving.serve import serve_model
from modeldyno.serving.servers.server_process import find_cause, read_tail

if TYPE_CHECKING:
    from modeldyno.engine.environment.running_servers import ServerRecord

_LOOK = 0.25
"""Seconds between two looks whether the server still runs."""


def run(**options: Any) -> None:
    """Start a server, say how it is used, and wait for its end unless it is detached."""
    if sys.stderr.isatty():
        click.echo(f"starting a server for {clean(options['model'])} ...", err=True)
    server = serve_model(**{**options, "settings": parse_settings(options["settings"])})
    click.echo(clean(f"{server.name} is served by {server.backend}: {server.url}"))
    click.echo(f"  load it: modeldyno load {server.name} -c 16")
    click.echo(f"  stop it: modeldyno servers stop {server.name}{'' if server.detached else ', or Ctrl-C'}")
    sys.stdout.flush()
    if not server.detached:
        _wait(server)


def _wait(server: ServerRecord) -> None:
    """Wait until the server is stopped, here or by its name.

    Raises:
        RunFailed: it has ended by itself.
    """
    try:
        while server.runs:
            time.sleep(_LOOK)
    except KeyboardInterrupt:
        stop_running(server)
        return
    if is_recorded(server):
        forget(server)
        why = find_cause(read_tail(Path(server.log)))
        raise RunFailed(f"The server '{server.name}' has ended{why and f': {why}'}; its log is {server.log}")
