"""What ``modeldyno ui`` does."""

from __future__ import annotations

import click

from modeldyno.core.stats.sanitize import clean
from modeldyno.dashboard.server import serve


def run(port: int, *, open_browser: bool) -> None:
    """Serve the dashboard until interrupted."""
    serve(port=port, open_browser=open_browser, tell=lambda text: click.echo(clean(text)))
