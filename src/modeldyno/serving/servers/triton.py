"""Triton Inference Server: finds the program, and builds the command line that starts it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from modeldyno.base.errors import MissingExtra, RequestError
from modeldyno.serving.servers import install
from modeldyno.serving.servers.container_options import HOST, option_words
from modeldyno.serving.servers.tcp_ports import LOOPBACK

if TYPE_CHECKING:
    from collections.abc import Sequence

    from modeldyno.serving.servers.server_process import Ports

IMAGE = "nvcr.io/nvidia/tritonserver:24.10-py3"
"""The container image of the packaged server's release."""
CONTAINERS = ("docker", "podman")
"""Container programs; both take the same options."""
IN_PROCESS = "in-process"
"""The launch within the process that sends the requests."""
_DEFAULT_DIRECTORY = Path("/opt/tritonserver")


@dataclass(frozen=True, slots=True, kw_only=True)
class TritonProgram:
    """A tritonserver on this machine."""

    path: str
    backends: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    packages: Mapping[str, str] = field(default_factory=dict)
    """Known packages of its environment, to their versions."""

    def has(self, backend: str) -> bool:
        """Return whether it has a backend, such as ``onnxruntime``."""
        return any((self.backends / backend).glob("*.so"))


def find_tritonserver(path: str = "") -> TritonProgram:
    """Return the tritonserver at a path, or else the one that ModelDyno installed, or else any other here.

    Raises:
        RequestError: there is no program at the path.
        MissingExtra: no tritonserver was found.
    """
    if path:
        executable = shutil.which(path)
        if executable is None:
            raise RequestError(f"There is no program '{path}'; give the path of tritonserver.")
        return _program_at(executable)
    installed = install.find_installed("triton")
    if installed is not None:
        packaged = installed.site / "pytriton" / "tritonserver"
        libraries = (
            installed.library,
            str(installed.site / "nvidia_pytriton.libs"),
            os.environ.get("LD_LIBRARY_PATH"),
        )
        return TritonProgram(
            path=str(packaged / "bin" / "tritonserver"),
            backends=installed.folder / "backends",
            # The Python library of the installation must be found before any other of the same version.
            environment={**installed.environment, "LD_LIBRARY_PATH": ":".join(filter(None, libraries))},
            packages=installed.versions,
        )
    other = find_other_tritonserver()
    if other is None:
        raise MissingExtra(
            "Triton is not installed; install it with: modeldyno engine install triton, or name a running "
            "server with server=http://host:8000"
        )
    return _program_at(other)


def find_other_tritonserver() -> str | None:
    """Return the path of a tritonserver that ModelDyno did not install; None if there is none."""
    default = _DEFAULT_DIRECTORY / "bin" / "tritonserver"
    return shutil.which("tritonserver") or (str(default) if os.access(default, os.X_OK) else None)


def tritonserver_command(
    tritonserver: TritonProgram, repository: Path, name: str, ports: Ports, flags: Sequence[str] = ()
) -> list[str]:
    """Return the command line of a server with one model, which exits if it cannot load the model.

    The shared memory of its Python backend is named after the directory of the repository.
    """
    return [
        tritonserver.path,
        f"--model-repository={repository}",
        f"--backend-directory={tritonserver.backends}",
        f"--backend-config=python,shm-region-prefix-name={repository.parent.name}",
        *_flags(name),
        *_listening(ports),
        *flags,
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class TritonContainer:
    """A container that runs Triton."""

    image: str
    label: str
    """Its name, for later container commands."""
    device: str
    """cpu, cuda or cuda:1."""
    program: str = "docker"
    """One of `CONTAINERS`."""
    options: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Further options of the program, see `container_options`."""


def container_command(
    spec: TritonContainer, repository: Path, name: str, ports: Ports, flags: Sequence[str] = ()
) -> list[str]:
    """Return the command line that starts the same server in a container."""
    gpus = {} if spec.device == "cpu" else {"gpus": (gpu_option(spec.device),)}
    options = {"shm-size": ("1g",), **gpus, **spec.options}
    if options.get("network") == (HOST,):
        published, listening = [], _listening(ports)
    else:
        published = [f"--publish={LOOPBACK}:{ports[part]}:{port}" for part, port in _PORTS_INSIDE.items()]
        listening = []
    return [
        spec.program, "run", "--rm", "--init", "--name", spec.label, *option_words(options),
        "--volume", f"{repository}:/models:ro", *published,
        spec.image, "tritonserver", "--model-repository=/models", *_flags(name), *listening, *flags,
    ]  # fmt: skip


_PORTS_INSIDE = {"http": 8000, "grpc": 8001, "metrics": 8002}


def _listening(ports: Ports) -> list[str]:
    """Return the flags of a server that listens on the loopback at these ports."""
    return [
        *(f"--{part}-address={LOOPBACK}" for part in _PORTS_INSIDE),
        *(f"--{part}-port={ports[part]}" for part in _PORTS_INSIDE),
    ]


def _program_at(path: str) -> TritonProgram:
    real = Path(path).resolve()
    return TritonProgram(path=str(real), backends=real.parent.parent / "backends")


def _flags(name: str) -> tuple[str, ...]:
    return (
        "--model-control-mode=explicit", f"--load-model={name}", "--exit-on-error=true",
        "--disable-auto-complete-config",
    )  # fmt: skip


def gpu_option(device: str) -> str:
    """Return the value of ``--gpus`` for cuda or cuda:N."""
    _, _, index = device.partition(":")
    return f"device={index}" if index else "all"
