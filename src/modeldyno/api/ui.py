"""The dashboard from Python."""

from __future__ import annotations

from pathlib import Path

from modeldyno.api.error_wording import reword_errors
from modeldyno.dashboard.server import PORT, serve, write_pages


@reword_errors
def ui(*, port: int = PORT, open_browser: bool = False, export: str | Path | None = None) -> None:
    """Show what the store has in the browser of this machine, as ``modeldyno ui`` does, until Ctrl-C.

    Args:
        port: of 127.0.0.1; 0 takes any that is free.
        open_browser: open it in the browser.
        export: a new folder; all pages are written there as files, and nothing is served.

    Raises:
        RequestError: the port is in use, or the folder is not empty.
        MissingExtra: FastAPI, Jinja or uvicorn is not installed.
        StoreError: the store cannot be read.
    """
    if export is None:
        serve(port=port, open_browser=open_browser)
    else:
        write_pages(Path(export))
