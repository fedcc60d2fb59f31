"""A PostgreSQL server for the time of a test: Debian's `postgresql`, or whatever `initdb` is on the path."""

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
    with tempfile.TemporaryDirectory(prefix="postgres-") as name, socket.socket() as reserved:
        folder = Path(name)
        if user is not None:
            shutil.chown(folder, user)
        with (folder / "log").open("w") as log:
            make = [programs / "initdb", "-D", folder / "data", "-A", "trust", "-U", _USER, "-E", "UTF8"]
            subprocess.run([*make, "--no-sync"], user=user, cwd=folder, stdout=log, stderr=log, check=True)
            reserved.bind(("127.0.0.1", 0))
            port = str(reserved.getsockname()[1])
            reserved.close()
            words = [
                programs / "postgres",
                "-D",
                folder / "data",
                "-h",
                "127.0.0.1",
                "-p",
                port,
                "-k",
                folder,
            ]
            server = subprocess.Popen(words, user=user, cwd=folder, stdout=log, stderr=log)
        try:
            end = time.monotonic() + _PATIENCE
            ready = [programs / "pg_isready", "-q", "-h", "127.0.0.1", "-p", port]
            while subprocess.run(ready, check=False).returncode:
                if server.poll() is not None or time.monotonic() > end:
                    raise SystemExit(f"PostgreSQL did not start: {(folder / 'log').read_text()[-500:]}")
                time.sleep(0.05)
            yield f"postgresql://{_USER}@127.0.0.1:{port}/postgres"
        finally:
            server.send_signal(signal.SIGINT)
            server.wait()
