"""The dashboard from Python."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from modeldyno.dashboard.server import HOST, PORT, serve, write_pages
from modeldyno.profiling.api.error_wording import reword_errors
from modeldyno.profiling.api.profile import as_tuple

if TYPE_CHECKING:
    from collections.abc import Sequence


@reword_errors
def ui(
    *,
    port: int = PORT,
    host: str = HOST,
    token_file: str | Path | None = None,
    allow_hosts: str | Sequence[str] = (),
    open_browser: bool = False,
    export: str | Path | None = None,
) -> None:
    """Show what the store has in a browser, as ``modeldyno ui`` does, until Ctrl-C.

    Args:
        port: of the host; 0 takes any that is free.
        host: address to listen at; any but a loopback one needs a token file.
        token_file: with the tokens of readers and operators; it is made if there is none.
        allow_hosts: further names by which browsers reach it, such as that of a proxy, perhaps with a port.
        open_browser: open it in the browser.
        export: a new folder; all pages are written there as files, and nothing is served.

    Raises:
        RequestError: the port is in use, others could ask without a token, or the folder is not empty.
        MissingExtra: FastAPI, Jinja or uvicorn is not installed.
        StoreError: the store cannot be read.
    """
    if export is None:
        serve(
            port=port,
            host=host,
            token_file=None if token_file is None else Path(token_file),
            allow_hosts=as_tuple(allow_hosts, "allow_hosts"),
            open_browser=open_browser,
        )
    else:
        write_pages(Path(export))
