"""Servers that stay: start one, list those that run, stop them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, Unpack

from modeldyno.engine.environment import running_servers as running
from modeldyno.engine.environment.running_servers import ServerRecord
from modeldyno.engine.environment.server_usage import read_usage
from modeldyno.profiling.api.error_wording import reference_of, reword_errors
from modeldyno.profiling.api.profile import as_tuple, check_settings
from modeldyno.serving.serve import serve_model

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from modeldyno.base.job.input_spec import InputSpec
    from modeldyno.profiling.api.options import ServeOptions


@dataclass(frozen=True, slots=True)
class Server:
    """A server that `serve` has started; as a context manager it is stopped at the end of the block."""

    record: ServerRecord
    """What is recorded of it: model, backend, ports, process id, log."""

    @property
    def name(self) -> str:
        """Its name, for `load`, `sweep`, `Profiler` and `servers.stop`."""
        return self.record.name

    @property
    def url(self) -> str:
        """The URL that `load` and its like take, as they take the server itself."""
        return self.record.url

    def stop(self) -> None:
        """End it with all of its processes; nothing if it has ended.

        Raises:
            RunFailed: it could not be ended.
        """
        running.stop_running(self.record)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()


@reword_errors
def serve(
    model: str | Path,
    *,
    backend: str | None = None,
    device: str | None = None,
    name: str | None = None,
    ports: str | None = None,
    inputs: str | Sequence[str | InputSpec] = (),
    trust: bool = False,
    detach: bool = False,
    **settings: Unpack[ServeOptions],
) -> Server:
    """Start a server for a model and leave it running, as ``modeldyno serve`` does.

    It ends with the block of ``with``, by ``stop()``, or with this process, however that ends.

    Args:
        model: a path or reference as for `profile`.
        backend: what serves it: ``"triton"`` (if None), ``"torchserve"``, ``"mlserver"``, ``"openai"``,
            ``"llamacpp"`` (if None, of a GGUF file), or ``"tensorflow"`` (TensorFlow Serving, in a
            container).
        device: where the server runs the model: ``"cpu"``, ``"cuda"``, ``"cuda:1"``.
        name: by which it is found again; if None, that of the model, with a number if it is taken.
        ports: ``"free"``, ``"conventional"`` or numbers, such as ``"8000,8001,8002"``.
        inputs: shapes, ranges or files, as ``--input`` takes them, for a model that does not declare them.
        trust: allow files that run code when loaded (in a child process).
        detach: leave it running when this process ends; `servers.stop` stops it.
        settings: the server's knobs, such as ``instances=2``.

    Returns:
        The server, which has answered a request: ``.url``, ``.name``, ``.stop()``.

    Raises:
        RequestError: the request is invalid, or the name is taken.
        MissingExtra: the engine is not installed.
        RunFailed: the server does not start, or does not answer.
    """
    knobs = check_settings(settings)
    started = serve_model(
        reference_of(model),
        backend=backend,
        settings=knobs,
        device=device,
        ports=ports,
        inputs=as_tuple(inputs, "inputs"),
        name=name,
        trust=trust,
        detach=detach,
    )
    return Server(started)


def list_servers(*, stats: bool = False) -> tuple[Any, ...]:
    """Return the servers that run, as ``modeldyno servers`` does.

    Args:
        stats: also measure for half a second what the processes of each use.

    Returns:
        A `ServerRecord` each, in the order of their start: ``.name``, ``.url``, ``.model``, ``.backend``,
        ``.ports``, ``.started``. With `stats` pairs of that and a `ServerUsage`: cores used, memory, disk and
        network traffic in bytes, and threads; a figure that cannot be read is None.
    """
    servers = running.list_running()
    return tuple(zip(servers, read_usage(servers), strict=True)) if stats else servers


def list_containers(*, stats: bool = False) -> tuple[Any, ...]:
    """Return the other servers that ``modeldyno servers`` lists: containers that publish a port.

    Args:
        stats: also measure for half a second what the processes of each use.

    Returns:
        A `Container` of Docker or Podman each, without those of `servers.list`: ``.name``, ``.image``,
        ``.url``, ``.ports``, ``.started``. With `stats` pairs of that and a `ServerUsage`.
    """
    containers = running.list_other_containers(running.list_running())
    return tuple(zip(containers, read_usage(containers), strict=True)) if stats else containers


def stop_server(*names: str | Server, all_servers: bool = False) -> None:
    """Stop servers by name, as ``modeldyno servers stop`` does.

    Args:
        names: of servers that run, or what `serve` returned.
        all_servers: stop every server of this user on this machine.

    Raises:
        RequestError: no server that runs has such a name, it is that of a container, none is named, or names
            come with `all_servers`; nothing was stopped.
        RunFailed: a server could not be ended.
    """
    texts = [name if isinstance(name, str) else name.name for name in names]
    for server in running.named(texts, all_servers=all_servers):
        running.stop_running(server)
