"""The servers that were left running: a small file for each, by which other commands find and stop it.

The files are in the user's state directory, in a folder for each machine, as several may share a home.
Whether a server still runs is decided by its process, never by its file; files of servers that are gone are
removed when they are read.
"""

from __future__ import annotations

import json
import os
import platform
import re
import signal
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

from modeldyno.base.clock import monotonic
from modeldyno.base.errors import RequestError, RunFailed, UnknownName
from modeldyno.base.system.process_tree import list_process_tree, start_ticks, stat_fields
from modeldyno.engine.environment.containers import Container, find_container, list_containers

VARIABLE = "MODELDYNO_STATE"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
_POLL = 0.02
"""Seconds between two checks of a server that is ending."""
_STOP_TIME = 30.0
"""Seconds after which a server that does not end is killed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerRecord:
    """A server that we started, and how to reach it."""

    name: str
    """Unique among the servers of this user on this machine."""
    model: str
    """The reference that was served."""
    backend: str
    device: str
    """Where the model runs, as it was asked for: ``cpu``, ``cuda:0``."""
    url: str
    """What `load` takes."""
    protocol: str
    ports: Mapping[str, int]
    """Interface (``http``, ``grpc``, ``metrics``) to port."""
    pid: int
    """The root of its processes."""
    ticks: int
    """When that process started, in ticks since boot; 0 if the system does not tell."""
    started: str
    """Time in UTC, in ISO 8601."""
    detached: bool
    """Whether it stays until it is stopped; else it ends with the process that started it."""
    log: str
    """Path of its log."""
    inputs: tuple[str, ...] = ()
    """What the model takes, as ``--input`` has it, if the server does not tell by itself."""

    @property
    def reference_text(self) -> str:
        """What stands for it where a model is taken."""
        return self.url

    @property
    def runs(self) -> bool:
        """Whether its process is there, and is no other with the same number."""
        try:
            os.kill(self.pid, 0)
        except (ProcessLookupError, PermissionError):  # of another user: the number was used again
            return False
        is_zombie = stat_fields(self.pid)[:1] == ["Z"]
        return not is_zombie and (not self.ticks or start_ticks(self.pid) == self.ticks)


def state_folder() -> Path:
    """Return the folder of this machine's files: below MODELDYNO_STATE, or the user's state directory."""
    if chosen := os.environ.get(VARIABLE):
        root = Path(chosen).absolute()
    else:
        try:
            home = Path.home()
        except RuntimeError as error:
            raise RequestError(f"There is no home directory for the state; set {VARIABLE}.") from error
        if sys.platform == "darwin":
            root = home / "Library" / "Application Support" / "modeldyno" / "state"
        else:
            state = Path(os.environ.get("XDG_STATE_HOME", ""))
            root = (state if state.is_absolute() else home / ".local" / "state") / "modeldyno"
    return root / "servers" / (platform.node() or "here")


def check_name(name: str) -> str:
    """Return a server's name.

    Raises:
        RequestError: it could not be the name of a file, or a server that runs has it.
    """
    if not _NAME.fullmatch(name):
        raise RequestError(
            f"'{name}' is no name of a server: letters, digits, _, . and - are allowed, at most 100."
        )
    if _find(name) is not None:
        raise RequestError(
            f"A server '{name}' runs already; choose another name, or stop it: modeldyno servers stop {name}."
        )
    return name


def claim(server: ServerRecord, *, numbered: bool) -> ServerRecord:
    """Record a server under its name, which nobody else can then take.

    Args:
        server: what to record.
        numbered: whether to append a number to a name that is taken.

    Returns:
        The server under the name that it got.

    Raises:
        RequestError: the name is taken, or the folder cannot be written.
    """
    folder = state_folder()
    number = 1
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        while True:
            claimed = server if number == 1 else replace(server, name=f"{server.name}-{number}")
            _find(claimed.name)  # removes the file of a server that is gone
            if _create(folder / f"{claimed.name}.json", claimed):
                return claimed
            if not numbered:
                check_name(claimed.name)
            number += 1
    except OSError as error:
        raise RequestError(
            f"The server cannot be recorded in {folder}: {error.strerror}; set {VARIABLE} to a folder."
        ) from error


def _create(path: Path, server: ServerRecord) -> bool:
    """Write a complete file at once; return whether it was not there yet."""
    descriptor, temporary = tempfile.mkstemp(prefix=".", dir=path.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(asdict(server), file, indent=2)
        os.link(temporary, path)
    except FileExistsError:
        return False
    finally:
        Path(temporary).unlink()
    return True


def list_running() -> tuple[ServerRecord, ...]:
    """Return the servers that run, in the order in which they were started; forget those that are gone."""
    records = (_read(path) for path in state_folder().glob("*.json"))
    return tuple(sorted((server for server in records if server), key=lambda server: server.started))


def find_running(name: str) -> ServerRecord:
    """Return the server of a name.

    Raises:
        UnknownName: none that runs has it.
    """
    server = _find(name)
    if server is None:
        names = [server.name for server in list_running()]
        raise UnknownName.among("running server", name, names)
    return server


def named(names: Sequence[str], *, all_servers: bool) -> tuple[ServerRecord, ...]:
    """Return the servers of these names, or all that run.

    Raises:
        RequestError: no server that runs has a name, none is named, or names come with `all_servers`.
    """
    if bool(names) is all_servers:
        raise RequestError("Give the names of the servers to stop, or `all_servers` for every one of them.")
    for name in names:
        if _find(name) is None and (container := find_container(name)) is not None:
            raise RequestError(
                f"'{name}' is a container not started here; end it with: {container.program} stop {name}"
            )
    return list_running() if all_servers else tuple(map(find_running, dict.fromkeys(names)))


def list_other_containers(servers: Sequence[ServerRecord]) -> tuple[Container, ...]:
    """Return the running containers that publish a port, without those of the given servers."""
    known_ports = {port for server in servers for port in server.ports.values()}
    return tuple(
        container
        for container in list_containers()
        if known_ports.isdisjoint(port for _, port in container.ports.values())
    )


def running_url(name: str) -> str | None:
    """Return the URL of a running server; None if there is none of the name."""
    server = _find(name)
    return None if server is None else server.url


def running_inputs(name: str) -> tuple[str, ...]:
    """Return what a running server's model takes, where only we know it; empty without such a server."""
    server = _find(name)
    return () if server is None else server.inputs


def running_at(port: int) -> ServerRecord | None:
    """Return the running server that has a port of this machine."""
    return next((server for server in list_running() if port in server.ports.values()), None)


def stop_running(server: ServerRecord) -> None:
    """End a server and all of its processes, and forget it.

    Raises:
        RunFailed: it could not be ended.
    """
    forget(server)
    deadline = monotonic() + _STOP_TIME
    with suppress(ProcessLookupError):
        if server.runs:
            os.kill(server.pid, signal.SIGTERM)
    while server.runs and monotonic() < deadline:
        time.sleep(_POLL)
    if server.runs:
        for pid in reversed(list_process_tree(server.pid)):
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_POLL)
        if server.runs:
            raise RunFailed(f"The server '{server.name}' (pid {server.pid}) does not end.")


def forget(server: ServerRecord) -> None:
    """Remove the file of a server, unless it is of another that took the name."""
    if is_recorded(server):
        with suppress(OSError):
            (state_folder() / f"{server.name}.json").unlink()


def is_recorded(server: ServerRecord) -> bool:
    """Return whether a server is still among those that were not stopped by name."""
    recorded = _load(state_folder() / f"{server.name}.json")
    return recorded is not None and (recorded.pid, recorded.ticks) == (server.pid, server.ticks)


def _find(name: str) -> ServerRecord | None:
    return _read(state_folder() / f"{name}.json") if _NAME.fullmatch(name) else None


def _read(path: Path) -> ServerRecord | None:
    """Read a file; remove it and return None if its server is gone, or if it is none of ours."""
    server = _load(path)
    if server is not None and server.runs:
        return server
    if server is not None:
        forget(server)
    return None


def _load(path: Path) -> ServerRecord | None:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        field_names = {field.name for field in fields(ServerRecord)}
        document["inputs"] = tuple(document.get("inputs", ()))
        return ServerRecord(**{name: value for name, value in document.items() if name in field_names})
    except (OSError, ValueError, TypeError, AttributeError):
        return None
