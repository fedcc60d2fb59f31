"""A PostgreSQL server for the time of a test: Debian's `postgresql`, or that of the `initdb` on the path."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_USER = "postgres"
"""Whom Debian's package makes: the server refuses to be run by root."""
_PATIENCE = 60.0


def postgres_programs() -> Path | None:
    """Return the folder of the newest installed server's programs; None without one."""
    of_debian = Path("/usr/lib/postgresql").glob("*/bin/initdb")
    newest = max(of_debian, key=lambda program: int(program.parts[-3]), default=shutil.which("initdb"))
    return None if newest is None else Path(newest).resolve().parent


@contextmanager
def temporary_postgres() -> Iterator[str]:
    """Run a server with an empty database at a free port of the loopback; give its URL."""
    programs = postgres_programs()
    if programs is None:
        raise SystemExit("needs PostgreSQL: apt install postgresql")
    user = _USER if os.geteuid() == 0 else None
    with tempfile.TemporaryDirectory(prefix="postgres-") as name:
        folder = Path(name)
        if user is not None:
            shutil.chown(folder, user)
        data, at = f"{folder}/data", ("-h", "127.0.0.1", "-p", _free_port())
        with (folder / "log").open("w") as log:
            make = [f"{programs}/initdb", "-D", data, "-A", "trust", "-U", _USER, "-E", "UTF8", "--no-sync"]
            subprocess.run(make, user=user, cwd=folder, stdout=log, stderr=log, check=True)
            command = [f"{programs}/postgres", "-D", data, *at, "-k", name]
            server = subprocess.Popen(command, user=user, cwd=folder, stdout=log, stderr=log)
        try:
            end = time.monotonic() + _PATIENCE
            ready = [f"{programs}/pg_isready", "-q", *at]
            while subprocess.run(ready, check=False).returncode:
                if server.poll() is not None or time.monotonic() > end:
                    raise SystemExit(f"PostgreSQL did not start: {(folder / 'log').read_text()[-500:]}")
                time.sleep(0.05)
            yield f"postgresql://{_USER}@127.0.0.1:{at[-1]}/postgres"
        finally:
            server.send_signal(signal.SIGINT)
            server.wait()


def _free_port() -> str:
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        return str(reserved.getsockname()[1])


@contextmanager
def empty_store(named: str | None) -> Iterator[str]:
    """Give the URL of an empty store: the one that is named, a server's for `postgresql`, else a file's."""
    if named == "postgresql":
        with temporary_postgres() as url:
            yield url
    elif named:
        yield named
    else:
        with tempfile.TemporaryDirectory(prefix="store-") as folder:
            yield f"sqlite:///{folder}/store.db"
