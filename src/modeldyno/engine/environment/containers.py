"""Running containers of Docker or Podman: by name, or by the port that one publishes.

They are asked through their own commands, so that a remote daemon, a socket elsewhere and rootless Podman are
found as the user's shell finds them. A command that is missing, fails or takes too long finds nothing.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

PROGRAMS = ("docker", "podman")
"""Both take the same words here, and answer in the same form."""
_TIMEOUT = 5.0
"""Seconds that a command may take; one without its daemon may wait for it."""
_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.-]*")
_EVERYWHERE = {"", "0.0.0.0", "::"}  # noqa: S104 - as an engine reports it
_HTTP_PORTS = (8501, 8000, 8080)
"""Ports inside containers where TensorFlow Serving; Triton and vLLM; TorchServe and MLServer speak HTTP."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """A running container."""

    name: str
    program: str
    """The command that knows it: one of `PROGRAMS`."""
    pid: int | None
    """Its first process, as this machine numbers it; None if it runs elsewhere."""
    ports: Mapping[int, tuple[str, int]]
    """TCP port inside to the host and port outside."""
    environment: Mapping[str, str]
    image: str = ""
    started: str = ""
    """Time in UTC, in ISO 8601."""

    @property
    def reference_text(self) -> str | None:
        """What stands for it where a model is taken; None if it publishes no port."""
        return self.url

    @property
    def url(self) -> str | None:
        """The URL of its server, as `load` takes it; None if it publishes no port.

        Of several ports it is that where a known server speaks HTTP, else the first. The model is named where
        the environment of TensorFlow Serving names it, as that server does not list its models.
        """
        inside = next((port for port in (*_HTTP_PORTS, *sorted(self.ports)) if port in self.ports), None)
        if inside is None:
            return None
        host, port = self.ports[inside]
        model = self.environment.get("MODEL_NAME", "")
        return f"http://{f'[{host}]' if ':' in host else host}:{port}{f'#{model}' if model else ''}"


def find_container(name: str) -> Container | None:
    """Return the running container of a name; None if there is none, or no engine to ask."""
    if not _NAME.fullmatch(name):
        return None
    return next((one for program in PROGRAMS for one in _inspect(program, name)), None)


def list_containers() -> tuple[Container, ...]:
    """Return the running containers that publish a port, in the order of their start; none without an engine.

    One that both commands know, as where one is the other, is listed once.
    """
    containers: dict[tuple[str, int | None], Container] = {}
    for program in PROGRAMS:
        identities = _ask(program, "ps", "--quiet").split()
        for container in _inspect(program, *identities) if identities else ():
            containers.setdefault((container.name, container.pid), container)
    published = (container for container in containers.values() if container.ports)
    return tuple(sorted(published, key=lambda container: container.started))


def find_container_at(port: int) -> Container | None:
    """Return the running container that publishes a TCP port of this machine; None if none does."""
    for program in PROGRAMS:
        listed = _ask(program, "ps", "--quiet", "--filter", f"publish={port}/tcp").split()
        for identity in listed:
            container = next(_inspect(program, identity), None)
            if container is not None and any(outside == port for _, outside in container.ports.values()):
                return container
    return None


def _inspect(program: str, *names: str) -> Iterator[Container]:
    """Yield those of the containers that run."""
    try:
        documents = list(json.loads(_ask(program, "inspect", "--type", "container", *names) or "[]"))
    except (ValueError, TypeError):
        return
    for document in documents:
        with suppress(ValueError, TypeError, KeyError, AttributeError):
            container = _parse(program, document)
            if container is not None:
                yield container


def _ask(program: str, *arguments: str) -> str:
    """Return what a command prints; empty if it is missing or takes too long.

    Of one that fails as well: of several containers, one may have ended meanwhile.
    """
    if shutil.which(program) is None:
        return ""
    try:
        done = subprocess.run(
            [program, *arguments], capture_output=True, text=True, timeout=_TIMEOUT, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout


def _parse(program: str, document: Mapping[str, Any]) -> Container | None:
    """Read the answer of ``inspect``; None for a container that does not run."""
    state = document["State"]
    if not state["Running"]:
        return None
    config = document.get("Config") or {}
    return Container(
        name=str(document["Name"]).removeprefix("/"),
        program=program,
        pid=int(state.get("Pid") or 0) or None,
        ports=dict(_published_ports(document)),
        environment=dict(entry.split("=", 1) for entry in config.get("Env") or () if "=" in entry),
        image=str(config.get("Image") or ""),
        started=str(state.get("StartedAt") or ""),
    )


def _published_ports(document: Mapping[str, Any]) -> Iterator[tuple[int, tuple[str, int]]]:
    """Yield the TCP ports; of a container in the network of the host, those that its image declares."""
    if ((document.get("HostConfig") or {}).get("NetworkMode") or "") == "host":
        declared = (document.get("Config") or {}).get("ExposedPorts") or {}
        for port in sorted(_tcp_ports(declared)):
            yield port, ("127.0.0.1", port)
        return
    published = (document.get("NetworkSettings") or {}).get("Ports") or {}
    for entry, bindings in published.items():
        number, _, kind = entry.partition("/")
        for binding in (bindings or ())[:1] if kind in {"", "tcp"} else ():
            host = binding.get("HostIp") or ""
            yield int(number), ("127.0.0.1" if host in _EVERYWHERE else host, int(binding["HostPort"]))


def _tcp_ports(declared: Mapping[str, Any]) -> Iterator[int]:
    for entry in declared:
        number, _, kind = entry.partition("/")
        if kind in {"", "tcp"}:
            yield int(number)
