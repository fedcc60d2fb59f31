"""Serves the dashboard to the browsers of this machine until it is interrupted."""

from __future__ import annotations

import os
import socket
import webbrowser
from contextlib import suppress
from typing import TYPE_CHECKING

from modeldyno import plugins
from modeldyno.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PORT = 8500
HOST = "127.0.0.1"
REQUIRES = ("fastapi", "jinja2", "uvicorn")
_LARGEST_PORT = 65535
_PATIENCE = 1
"""Seconds that open answers have at the end."""


def serve(*, port: int = PORT, open_browser: bool = False, tell: Callable[[str], None] = print) -> None:
    """Serve the dashboard of the user's store until Ctrl-C.

    Args:
        port: of 127.0.0.1; 0 takes any that is free.
        open_browser: open it in the browser.
        tell: is called once with a sentence, when it answers.

    Raises:
        RequestError: the port is in use, or no port.
        MissingExtra: what it needs is not installed.
        StoreError: the store cannot be opened.
    """
    plugins.require(REQUIRES, "dashboard")
    import uvicorn  # noqa: PLC0415 - an optional package

    from modeldyno.dashboard.app import make_app  # noqa: PLC0415 - needs optional packages

    with listen(port) as listener, plugins.store() as store:
        address = f"http://{HOST}:{listener.getsockname()[1]}"
        server: uvicorn.Server | None = None
        app = make_app(
            store, listener.getsockname()[1], ending=lambda: server is not None and server.should_exit
        )
        server = uvicorn.Server(
            uvicorn.Config(
                app,
                log_level="error",
                access_log=False,
                lifespan="off",
                ws="none",
                server_header=False,
                timeout_graceful_shutdown=_PATIENCE,
            )
        )
        tell(f"The dashboard is at {address} and reads {store.place}; Ctrl-C ends it.")
        if open_browser:
            webbrowser.open(address)
        # uvicorn raises the signal again that has ended it.
        with suppress(KeyboardInterrupt):
            server.run(sockets=[listener])


def write_pages(folder: Path) -> int:
    """Write all pages of the user's store as files into a new folder; return how many.

    Raises:
        RequestError: the folder is not empty, or cannot be written.
        MissingExtra: what it needs is not installed.
        StoreError: the store cannot be read.
    """
    plugins.require(REQUIRES, "dashboard")
    from modeldyno.dashboard.export import export_pages  # noqa: PLC0415 - needs optional packages

    with plugins.store() as store:
        return export_pages(store, folder)


def listen(port: int) -> socket.socket:
    """Listen at a port of this machine; 0 is any that is free.

    Raises:
        RequestError: the port is in use, or no port.
    """
    if not 0 <= port <= _LARGEST_PORT:
        raise RequestError(f"There is no port {port}; `port` is a number up to {_LARGEST_PORT}.")
    try:
        return socket.create_server((HOST, port))
    except OSError as error:
        why = os.strerror(error.errno or 0)
        raise RequestError(
            f"Port {port} of {HOST} cannot be used ({why}); name another with `port`; `port=0` takes any."
        ) from error
