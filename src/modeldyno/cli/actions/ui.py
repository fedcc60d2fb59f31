"""What ``modeldyno ui`` does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from modeldyno.base.stats.sanitize import clean
from modeldyno.base.views.text import count
from modeldyno.dashboard.server import serve, write_pages


def run(*, export: str | None, token_file: str | None, **options: Any) -> None:
    """Serve the dashboard until interrupted, or write its pages."""
    if export is not None:
        number = write_pages(Path(export))
        click.echo(clean(f"Wrote {count(number, 'page')}; open {Path(export, 'index.html')} in a browser."))
        return
    serve(
        **options,
        token_file=None if token_file is None else Path(token_file),
        tell=lambda text: click.echo(clean(text)),
    )
