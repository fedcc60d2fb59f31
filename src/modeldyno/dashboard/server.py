"""Serves the dashboard until it is interrupted: to browsers of this machine, or with tokens to others."""

from __future__ import annotations

import os
import socket
import sys
import webbrowser
from contextlib import suppress
from ipaddress import ip_address
from typing import TYPE_CHECKING

import psutil

from modeldyno.base import plugins
from modeldyno.base.errors import RequestError
from modeldyno.dashboard.access import read_or_make_tokens

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

PORT = 8500
HOST = "127.0.0.1"
REQUIRES = ("fastapi", "jinja2", "python_multipart", "uvicorn")
_LARGEST_PORT = 65535
_PATIENCE = 1
"""Seconds that open answers have at the end."""
_SWITCH = 0.001
"""Seconds after which a thread that makes a page lets the answers of others through."""


def serve(
    *,
    port: int = PORT,
    host: str = HOST,
    token_file: Path | None = None,
    allow_hosts: Sequence[str] = (),
    open_browser: bool = False,
    tell: Callable[[str], None] = print,
) -> None:
    """Serve the dashboard of the user's store until Ctrl-C.

    Args:
        port: of the host; 0 takes any that is free.
        host: address to listen at; any but a loopback one needs a token file.
        token_file: with the tokens of readers and operators; it is made if there is none.
        allow_hosts: further names by which browsers reach it, such as that of a proxy, perhaps with a port.
        open_browser: open it in the browser.
        tell: is called with sentences, when it answers.

    Raises:
        RequestError: the port is in use, or no port; or others could ask without a token.
        MissingExtra: what it needs is not installed.
        StoreError: the store cannot be opened.
    """
    plugins.require(REQUIRES, "dashboard")
    import uvicorn  # an optional package

    from modeldyno.dashboard.app import make_app  # needs optional packages
    from modeldyno.dashboard.timed_protocol import TimedProtocol  # as above

    if token_file is None and not _is_loopback(host):
        raise RequestError(
            f"At {host} others can ask, too, so `token_file` has to name a file of tokens; it is made if "
            "there is none."
        )
    tokens, new = (None, False) if token_file is None else read_or_make_tokens(token_file)
    with listen(port, host) as listener, plugins.store() as store:
        bound = listener.getsockname()[1]
        names = (*_names_of(host), *allow_hosts)
        address = f"http://{_in_address(names[0] if names else host)}:{bound}"
        server: uvicorn.Server | None = None
        app = make_app(
            store,
            bound,
            ending=lambda: server is not None and server.should_exit,
            hosts=tuple(map(_in_address, names)),
            tokens=tokens,
        )
        server = uvicorn.Server(
            uvicorn.Config(
                app,
                http=TimedProtocol,
                log_level="error",
                access_log=False,
                lifespan="off",
                ws="none",
                server_header=False,
                timeout_graceful_shutdown=_PATIENCE,
            )
        )
        if new:
            tell(f"Wrote a reader's and an operator's token into {token_file}.")
        tell(f"The dashboard is at {address} and reads {store.place}; Ctrl-C ends it.")
        if open_browser:
            webbrowser.open(address)
        sys.setswitchinterval(_SWITCH)
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
    from modeldyno.dashboard.export import export_pages  # needs optional packages

    with plugins.store() as store:
        return export_pages(store, folder)


def listen(port: int, host: str = HOST) -> socket.socket:
    """Listen at a port of this machine; 0 is any that is free.

    Raises:
        RequestError: the port is in use, or no port, or the host is none of this machine.
    """
    if not 0 <= port <= _LARGEST_PORT:
        raise RequestError(f"There is no port {port}; `port` is a number up to {_LARGEST_PORT}.")
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family)
    except OSError as error:
        why = os.strerror(error.errno) if error.errno is not None and error.errno > 0 else str(error.strerror)
        raise RequestError(
            f"Port {port} of {host} cannot be used ({why}); name another with `port`; `port=0` takes any."
        ) from error


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _names_of(host: str) -> tuple[str, ...]:
    """Return the names by which others reach an address to listen at; none for a loopback one."""
    if _is_loopback(host):
        return () if host in {HOST, "localhost", "::1"} else (host,)
    if host not in _EVERY_ADDRESS:
        return (host,)
    families = {socket.AF_INET, socket.AF_INET6}
    interfaces = (each for one in psutil.net_if_addrs().values() for each in one if each.family in families)
    addresses = (each.address.partition("%")[0] for each in interfaces)
    return tuple(dict.fromkeys((socket.gethostname(), socket.getfqdn(), *addresses)))


_EVERY_ADDRESS = {"0.0.0.0", "::", ""}  # noqa: S104 - only with tokens


def _in_address(host: str) -> str:
    """Return a host as an address has it: one of IPv6 in brackets."""
    return f"[{host}]" if host.count(":") > 1 and not host.startswith("[") else host
