"""TensorFlow Serving backend: starts its container for a SavedModel.

There is no package of the server outside of its image, so that Docker or Podman is needed.
"""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from modeldyno.base import plugins
from modeldyno.base.errors import MissingExtra, RequestError
from modeldyno.base.job.knob import Knob
from modeldyno.engine.environment.containers import PROGRAMS, find_container
from modeldyno.engine.interfaces.request_target import Endpoint
from modeldyno.models.interface import Form
from modeldyno.serving.backends import base
from modeldyno.serving.servers import tcp_ports
from modeldyno.serving.servers.container_options import HOST, container_options, option_words
from modeldyno.serving.servers.server_process import Launch, http_ready
from modeldyno.serving.servers.triton import gpu_option

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from modeldyno.base.job.knob import KnobValue
    from modeldyno.models.interface import Model
    from modeldyno.serving.backends.base import ServerSession
    from modeldyno.serving.servers.admin_client import AdminClient
    from modeldyno.serving.servers.server_process import Ports, ServerProcess

requires: tuple[str, ...] = ()
accepts = frozenset({Form.TENSORFLOW})
serves = True

_IMAGE = "tensorflow/serving:2.18.0"
_CLIENTS = {"http-json": "tensorflow-http", "grpc": "tensorflow-grpc"}
_PORTS_INSIDE = {"http": 8501, "grpc": 8500}
_conventional = partial(base.conventional_ports, "tfs", _PORTS_INSIDE)
_GRACE = 10.0
"""Seconds that the container has to stop by itself."""
_BATCHING = "batching.pbtxt"

knobs = (
    base.knob("protocol"),
    base.knob("max_batch"),
    base.knob("queue_delay"),
    base.knob(
        "workers", sentence="Batches that are computed at the same time; needs max_batch.", default=None
    ),
    base.knob("threads", sentence="Threads inside one operator; TensorFlow's default if not set."),
    base.knob("device"),
    base.knob("config", sentence="Any flag of the server, such as config.enable_model_warmup=false."),
    Knob(
        name="launch",
        choices=PROGRAMS,
        sentence="What starts the container; docker, or else podman, if not set.",
    ),
    Knob(name="image", sentence=f"The image to start; {_IMAGE} if not set, with -gpu for device=cuda."),
    base.knob("container"),
    base.ports_knob(_conventional({})),
    base.knob("startup_time"),
    base.knob("batch_size"),
)


def check(config: Mapping[str, KnobValue]) -> None:
    """Refuse knobs that exclude each other."""
    base.check(config, _conventional(config))
    if container_options(config).get("network") == (HOST,):
        raise RequestError(
            "TensorFlow Serving listens on fixed ports in its container; omit container.network=host."
        )


@contextmanager
def open(model: Model, config: Mapping[str, KnobValue]) -> Iterator[ServerSession]:
    """Start a server for the model.

    Raises:
        RequestError: the model is no SavedModel in a folder.
        MissingExtra: neither Docker nor Podman is installed.
        ServerFailed: the server does not start, or does not load the model.
    """
    source = getattr(model.value, "folder", None)
    if source is None:
        raise RequestError(
            "TensorFlow Serving takes a SavedModel in a folder; write one with modeldyno convert MODEL --to "
            "savedmodel, and give savedmodel:FOLDER."
        )
    program, name = _program(config), base.servable_name(model)

    def command(folder: Path, ports: Ports) -> list[str]:
        (folder / _BATCHING).write_text(_batching(config), encoding="utf-8")
        return _command(program, Path(source).resolve(), folder, config, ports, name)

    launch = Launch(
        name="tensorflow-serving",
        command=command,
        ports=base.choose_ports(config, _conventional(config)),
        ready=lambda ports: http_ready(ports["http"], f"/v1/models/{name}/metadata"),
        patience=base.startup_time(config),
        grace=_GRACE,
    )
    signature = str(getattr(model.value, "name", ""))
    with base.open_server_session(launch, "http", partial(_session, config, name, signature)) as session:
        yield session


def _program(config: Mapping[str, KnobValue]) -> str:
    """Return the command that starts containers.

    Raises:
        MissingExtra: it is not installed.
    """
    programs = [str(config["launch"])] if config.get("launch") else PROGRAMS
    installed = next((program for program in programs if shutil.which(program)), None)
    if installed is None:
        raise MissingExtra(
            f"TensorFlow Serving runs in a container, and {' or '.join(programs)} is not installed; install "
            "it, or load a running server by its URL."
        )
    return installed


def _command(
    program: str, source: Path, folder: Path, config: Mapping[str, KnobValue], ports: Ports, name: str
) -> list[str]:
    """Return the command line of the container; its name is that of the server's own directory."""
    device = base.device_of(config)
    gpus = {} if device == "cpu" else {"gpus": (gpu_option(device),)}
    options = {**gpus, **container_options(config)}
    image = str(config.get("image") or (_IMAGE if device == "cpu" else f"{_IMAGE}-gpu"))
    threads = {"tensorflow_intra_op_parallelism": config["threads"]} if config.get("threads") else {}
    flags = {**threads, **base.engine_settings(config)}
    if int(config.get("max_batch", 1)) > 1:
        flags |= {"enable_batching": "true", "batching_parameters_file": f"/batching/{_BATCHING}"}
    return [
        program, "run", "--rm", "--init", "--name", folder.name, *option_words(options),
        "--volume", f"{source}:/models/{name}/1:ro", "--volume", f"{folder}:/batching:ro",
        "--env", f"MODEL_NAME={name}",
        *(f"--publish={tcp_ports.LOOPBACK}:{ports[part]}:{port}" for part, port in _PORTS_INSIDE.items()),
        image, *(f"--{flag}={value}" for flag, value in flags.items()),
    ]  # fmt: skip


def _batching(config: Mapping[str, KnobValue]) -> str:
    """Return the server's parameters of batching."""
    values = {
        "max_batch_size": config.get("max_batch"),
        "batch_timeout_micros": config.get("queue_delay"),
        "num_batch_threads": config.get("workers"),
    }
    return "".join(f"{name} {{ value: {value} }}\n" for name, value in values.items() if value is not None)


def _session(
    config: Mapping[str, KnobValue], name: str, signature: str, server: ServerProcess, control: AdminClient
) -> ServerSession:
    protocol = _CLIENTS[str(config["protocol"])]
    container = find_container(Path(server.folder).name)
    return base.ServerSession(
        client=plugins.client(protocol),
        endpoint=Endpoint(
            host=tcp_ports.LOOPBACK,
            port=server.ports["grpc" if protocol.endswith("grpc") else "http"],
            model=name,
            protocol=protocol,
            options={"signature": signature} if signature else {},
        ),
        control=control,
        server=server,
        pid=None if container is None else container.pid,
        software={},
        files=base.read_config_files(server, _BATCHING),
    )
