"""The dashboard from Python."""

from __future__ import annotations

from modeldyno.api.error_wording import reword_errors
from modeldyno.dashboard.server import PORT, serve


@reword_errors
def ui(*, port: int = PORT, open_browser: bool = False) -> None:
    """Show what the store has in the browser of this machine, as ``modeldyno ui`` does, until Ctrl-C.

    Args:
        port: of 127.0.0.1; 0 takes any that is free.
        open_browser: open it in the browser.

    Raises:
        RequestError: the port is in use.
        MissingExtra: FastAPI, Jinja or uvicorn is not installed.
        StoreError: the store cannot be read.
    """
    serve(port=port, open_browser=open_browser)
