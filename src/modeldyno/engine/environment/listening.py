"""Which process of this machine listens on a TCP port."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from modeldyno.base.system.process_tree import stat_fields
from modeldyno.engine.environment.containers import find_container_at

if TYPE_CHECKING:
    from collections.abc import Iterator

_LOOPBACK = re.compile(r"localhost|127(\.\d+){3}|::1")
_LISTENS = "0A"
"""State of a listening socket in the kernel's table."""
_FORWARDERS = frozenset({"docker-proxy", "rootlessport", "slirp4netns", "pasta", "pasta.avx2", "conmon"})
"""Processes that listen in place of one in a container."""


def is_here(host: str) -> bool:
    """Return whether a host is this machine, by the names that it has for itself."""
    return _LOOPBACK.fullmatch(host) is not None


def serving_process(host: str, port: int, root: Path = Path("/proc")) -> int | None:
    """Return the process that serves a port of this machine; None for another machine, or if it is not seen.

    Of several processes that share the socket it is the one that started the others. If a container engine
    forwards the port, it is the first process of the container. Processes of other users are not seen.
    """
    if not is_here(host):
        return None
    owners = set(_owners(root, set(_sockets(root, port))))
    oldest = next((pid for pid in sorted(owners) if not owners & set(_ancestry(pid))), None)
    if oldest is None:
        return None
    if _name(root, oldest) in _FORWARDERS:
        container = find_container_at(port)
        return None if container is None else container.pid
    return oldest


def _sockets(root: Path, port: int) -> Iterator[str]:
    """Yield the numbers of the sockets that listen on a port."""
    for table in ("tcp", "tcp6"):
        with suppress(OSError):
            for line in (root / "net" / table).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == _LISTENS and int(fields[1].rpartition(":")[2], 16) == port:
                    yield fields[9]


def _owners(root: Path, sockets: set[str]) -> Iterator[int]:
    """Yield the processes that hold one of the sockets."""
    links = {f"socket:[{number}]" for number in sockets}
    for entry in root.iterdir() if links and root.is_dir() else ():
        if not entry.name.isdecimal():
            continue
        with suppress(OSError):
            for file in (entry / "fd").iterdir():
                with suppress(OSError):
                    if str(file.readlink()) in links:
                        yield int(entry.name)
                        break


def _ancestry(pid: int) -> Iterator[int]:
    """Yield the parent of a process, its parent, and so on."""
    while pid > 1 and (fields := stat_fields(pid)):
        pid = int(fields[1])
        yield pid


def _name(root: Path, pid: int) -> str:
    try:
        return (root / str(pid) / "comm").read_text().strip()
    except OSError:
        return ""
