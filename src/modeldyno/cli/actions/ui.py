"""What ``modeldyno ui`` does."""

from __future__ import annotations

from pathlib import Path

import click

from modeldyno.core.stats.sanitize import clean
from modeldyno.dashboard.server import serve, write_pages
from modeldyno.views.text import count


def run(port: int, *, open_browser: bool, export: str | None) -> None:
    """Serve the dashboard until interrupted, or write its pages."""
    if export is not None:
        number = write_pages(Path(export))
        click.echo(clean(f"Wrote {count(number, 'page')}; open {Path(export, 'index.html')} in a browser."))
        return
    serve(port=port, open_browser=open_browser, tell=lambda text: click.echo(clean(text)))
