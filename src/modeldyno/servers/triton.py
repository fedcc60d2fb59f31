"""Triton Inference Server: where it is, and the command line that starts it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from modeldyno.errors import MissingExtra, RequestError
from modeldyno.servers import install
from modeldyno.servers.tcp_ports import LOOPBACK

if TYPE_CHECKING:
    from collections.abc import Sequence

    from modeldyno.servers.server_process import Ports

IMAGE = "nvcr.io/nvidia/tritonserver:24.10-py3"
"""The container of the same release as the packaged server."""
CONTAINERS = ("docker", "podman")
"""What runs them; both take the same words."""
_USUAL = Path("/opt/tritonserver")


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A tritonserver that can be started here."""

    path: str
    backends: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    packages: Mapping[str, str] = field(default_factory=dict)
    """What is known of its environment: package to version."""

    def has(self, backend: str) -> bool:
        """Whether it has a backend, such as ``onnxruntime``."""
        return any((self.backends / backend).glob("*.so"))


def program(path: str = "") -> Program:
    """Give the tritonserver at a path, or the one that we installed, or one that is here anyway.

    Raises:
        RequestError: there is none at the path.
        MissingExtra: there is none.
    """
    if path:
        found = shutil.which(path)
        if found is None:
            raise RequestError(f"There is no program '{path}'; give the path of tritonserver.")
        return _foreign(found)
    ours = install.find("triton")
    if ours is not None:
        packaged = ours.site / "pytriton" / "tritonserver"
        libraries = (ours.library, str(ours.site / "nvidia_pytriton.libs"), os.environ.get("LD_LIBRARY_PATH"))
        return Program(
            path=str(packaged / "bin" / "tritonserver"),
            backends=ours.folder / "backends",
            # The library of the very Python that runs models must be found before any other of its version.
            environment={**ours.environment, "LD_LIBRARY_PATH": ":".join(filter(None, libraries))},
            packages=ours.versions,
        )
    other = elsewhere()
    if other is None:
        raise MissingExtra(
            "Triton is not installed; install it with: modeldyno engine install triton, or name a server "
            "that runs with server=http://host:8000"
        )
    return _foreign(other)


def elsewhere() -> str | None:
    """Find a tritonserver that somebody else installed."""
    usual = _USUAL / "bin" / "tritonserver"
    return shutil.which("tritonserver") or (str(usual) if os.access(usual, os.X_OK) else None)


def command(
    found: Program, repository: Path, name: str, ports: Ports, flags: Sequence[str] = ()
) -> list[str]:
    """Give the command line of a server that has one model of a repository, and ends if it cannot load it.

    What it shares with the processes that run the model is named after the directory of the repository.
    """
    return [
        found.path,
        f"--model-repository={repository}",
        f"--backend-directory={found.backends}",
        f"--backend-config=python,shm-region-prefix-name={repository.parent.name}",
        *_flags(name),
        *(f"--{part}-address={LOOPBACK}" for part in ("http", "grpc", "metrics")),
        *(f"--{part}-port={ports[part]}" for part in ("http", "grpc", "metrics")),
        *flags,
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """A container with a Triton in it."""

    image: str
    label: str
    """Its name, by which it can be asked about."""
    device: str
    """cpu, cuda or cuda:1."""
    program: str = "docker"
    """Of `CONTAINERS`."""


def container(
    made: Container, repository: Path, name: str, ports: Ports, flags: Sequence[str] = ()
) -> list[str]:
    """Give the command line that starts the same in a container."""
    inside = {"http": 8000, "grpc": 8001, "metrics": 8002}
    gpus = () if made.device == "cpu" else ("--gpus", _gpus(made.device))
    return [
        made.program, "run", "--rm", "--init", "--name", made.label, "--shm-size", "1g", *gpus,
        "--volume", f"{repository}:/models:ro",
        *(f"--publish={LOOPBACK}:{ports[part]}:{port}" for part, port in inside.items()),
        made.image, "tritonserver", "--model-repository=/models", *_flags(name), *flags,
    ]  # fmt: skip


def _foreign(path: str) -> Program:
    real = Path(path).resolve()
    return Program(path=str(real), backends=real.parent.parent / "backends")


def _flags(name: str) -> tuple[str, ...]:
    return (
        "--model-control-mode=explicit", f"--load-model={name}", "--exit-on-error=true",
        "--disable-auto-complete-config",
    )  # fmt: skip


def _gpus(device: str) -> str:
    _, _, index = device.partition(":")
    return f"device={index}" if index else "all"
