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
from dataclasses import dataclass
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


@dataclass(slots=True, kw_only=True)
class PostgresServer:
    """A server that can be stopped, and started again with what it holds."""

    folder: Path
    programs: Path
    port: str
    user: str | None
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Of its database, at the loopback."""
        return f"postgresql://{_USER}@127.0.0.1:{self.port}/postgres"

    def make(self) -> None:
        """Make an empty database."""
        command = [f"{self.programs}/initdb", "-D", f"{self.folder}/data", "-A", "trust", "-U", _USER]
        self._run([*command, "-E", "UTF8", "--no-sync"]).wait()

    def start(self) -> None:
        """Start, and wait until it answers."""
        at = ("-h", "127.0.0.1", "-p", self.port)
        socket_folder = ("-k", str(self.folder))
        command = [f"{self.programs}/postgres", "-D", f"{self.folder}/data", *at, *socket_folder]
        self.process = self._run(command)
        end = time.monotonic() + _PATIENCE
        while subprocess.run([f"{self.programs}/pg_isready", "-q", *at], check=False).returncode:
            if self.process.poll() is not None or time.monotonic() > end:
                raise SystemExit(f"PostgreSQL did not start: {(self.folder / 'log').read_text()[-500:]}")
            time.sleep(0.05)

    def stop(self) -> None:
        """End it at once, as its connections are."""
        if self.process is not None:
            self.process.send_signal(signal.SIGINT)
            self.process.wait()
            self.process = None

    def _run(self, command: list[str]) -> subprocess.Popen[bytes]:
        with (self.folder / "log").open("a") as log:
            return subprocess.Popen(command, user=self.user, cwd=self.folder, stdout=log, stderr=log)


@contextmanager
def postgres_server() -> Iterator[PostgresServer]:
    """Run a server with an empty database at a free port of the loopback."""
    programs = postgres_programs()
    if programs is None:
        raise SystemExit("needs PostgreSQL: apt install postgresql")
    user = _USER if os.geteuid() == 0 else None
    with tempfile.TemporaryDirectory(prefix="postgres-") as name:
        if user is not None:
            shutil.chown(name, user)
        server = PostgresServer(folder=Path(name), programs=programs, port=str(free_port()), user=user)
        server.make()
        server.start()
        try:
            yield server
        finally:
            server.stop()


@contextmanager
def temporary_postgres() -> Iterator[str]:
    """Run a server with an empty database at a free port of the loopback; give its URL."""
    with postgres_server() as server:
        yield server.url


def free_port() -> int:
    """Return a port of the loopback that nothing listens at now."""
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        return int(reserved.getsockname()[1])


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
