"""Triton Inference Server: one that we start for the model, or one elsewhere that loads it for us."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from modeldyno import plugins
from modeldyno.adapters.backends.served import base, model_files, triton_ensembles, triton_knobs
from modeldyno.adapters.backends.served.triton_cohosting import Hosting
from modeldyno.adapters.backends.served.triton_remote import account, elsewhere, version
from modeldyno.errors import MissingExtra, RequestError
from modeldyno.interfaces import Form
from modeldyno.servers import (
    tcp_ports,
    triton,
    triton_config,
    triton_repository_reader,
    triton_repository_writer,
)
from modeldyno.servers.server_process import Launch, http_ready

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from modeldyno.adapters.backends.served.base import Session
    from modeldyno.core.spec.knob import KnobValue
    from modeldyno.interfaces import Model
    from modeldyno.servers.admin_client import Control
    from modeldyno.servers.server_process import Ports, Server
    from modeldyno.servers.triton_config import Config

requires: tuple[str, ...] = ()
accepts = model_files.accepts | {Form.REPOSITORY}
serves = True
knobs = triton_knobs.knobs
space = triton_knobs.space
common = triton_knobs.COMMON
_GRACE = 10.0
"""Seconds that a container has to end by itself."""
_PASSING = re.compile("boost::interprocess::lock_exception")
"""What its Python backend now and then dies of when a machine is busy, with the same files, and known to its
makers (triton-inference-server/server issues 5949 and 8882)."""


def check(config: Mapping[str, KnobValue]) -> None:
    """Refuse knobs that exclude each other, and those of other models that are none."""
    triton_knobs.check(config)
    for knobs in triton_ensembles.composing(config).values():
        triton_knobs.check(knobs)


@contextmanager
def open(model: Model, config: Mapping[str, KnobValue]) -> Iterator[Session]:  # noqa: A001 - the port's word
    """Have a server load the model.

    Raises:
        RequestError: the model or the knobs cannot be brought into Triton's form.
        MissingExtra: there is no Triton here.
        ServerFailed: it does not start, or does not load the model.
    """
    if "server" in config and model.form == Form.REPOSITORY:
        raise RequestError(
            "A repository is served by a Triton that we start; a model of one that runs is named by its URL, "
            f"such as {config['server']}#{model.value.name}."
        )
    with (elsewhere if "server" in config else _started)(model, config) as session:
        yield session


def deploy(model: Model, configuration: str, folder: Path) -> None:
    """Put the model's file, and what runs it, beside a ``config.pbtxt``: then any Triton can be given both.

    They are copies: nothing of the user's is changed with them.

    Raises:
        RequestError: the model cannot be written.
    """
    if model.form == Form.REPOSITORY:
        triton_repository_reader.copy_files(model.value, folder)
        return
    with TemporaryDirectory(prefix="modeldyno-", dir=folder) as made:
        model_files.deploy(model, Path(made))
        if f'backend: "{triton_repository_writer.PYTHON}"' in configuration.splitlines():
            for source, target in triton_repository_writer.programs().items():
                shutil.copyfile(source, Path(made) / target)
        version = folder / "1"
        version.mkdir(exist_ok=True)
        for path in Path(made).iterdir():
            shutil.copyfile(path, version / path.name)


@contextmanager
def _started(model: Model, config: Mapping[str, KnobValue]) -> Iterator[Session]:
    """Start one, as a program or in a container."""
    name = triton_ensembles.name_of(model)
    contained = config.get("launch") in triton.CONTAINERS
    if contained and not shutil.which(str(config["launch"])):
        raise MissingExtra(f"There is no {config['launch']} here; install it, or leave launch away.")
    program = None if contained else triton.program(str(config.get("program", "")))
    if program is not None and program.backends.is_dir() and model.form == Form.REPOSITORY:
        _need_backends(model.value, program)
    if program is not None and program.packages:
        base.need_torch(model, "triton", "Triton", program.packages)
    native = program is None or program.has("onnxruntime")
    flags = shlex.split(str(config.get("flags", "")))
    flags += [f"--load-model={each}" for each in triton_ensembles.called(config)]
    written: list[Config] = []

    def command(folder: Path, chosen: Ports) -> list[str]:
        repository = folder / "repository"
        written[:] = triton_ensembles.put(model, repository, config, native=native)
        if program is not None:
            return triton.command(program, repository, name, chosen, flags)
        made = triton.Container(
            image=str(config.get("image", triton.IMAGE)),
            label=folder.name,
            device=base.device_of(config),
            program=str(config["launch"]),
        )
        return triton.container(made, repository, name, chosen, flags)

    launch = Launch(
        name="triton",
        command=command,
        ports=triton_knobs.chosen_ports(config),
        ready=lambda chosen: http_ready(chosen["http"], f"/v2/models/{name}/ready"),
        environment={} if program is None else program.environment,
        passing=_PASSING,
        patience=base.startup_time(config),
        # A container is ended by asking its client. The program would take three seconds, to save nothing.
        grace=_GRACE if program is None else 0.0,
    )
    with base.served(launch, "http", partial(_session, config, program, written)) as session:
        yield session


def _need_backends(found: triton_repository_reader.Repository, program: triton.Program) -> None:
    """Refuse a model whose backend the server does not have, rather than have it fail to start.

    Raises:
        RequestError: it does not have it, with what to do.
    """
    for name, config in found.configs.items():
        backend = triton_repository_reader.backend_of(config)
        own = f"libtriton_{backend}.so"  # a backend may lie beside its model
        if not backend or program.has(backend) or any((found.folder / name).rglob(own)):
            continue
        file = next(iter(sorted((found.folder / name).glob("*/model.onnx"))), None)
        hint = f"; its file can be served otherwise, by: modeldyno sweep {file}" if file else ""
        raise RequestError(
            f"'{name}' asks for the backend '{backend}', which {program.path} does not have{hint}; "
            "or name another Triton with --set program=PATH, --set launch=docker or --set server=URL."
        )


def _session(
    config: Mapping[str, KnobValue],
    program: triton.Program | None,
    entries: list[Config],
    server: Server,
    beside: Control,
) -> Session:
    written, name = entries[0], str(entries[0]["name"])
    return Hosting(
        client=plugins.client(triton_knobs.CLIENTS[str(config["protocol"])]),
        endpoint=triton_knobs.endpoint(config, tcp_ports.LOOPBACK, server.ports, name),
        control=beside,
        server=server,
        pid=_inside(str(config["launch"]), server) if program is None else server.pid,
        software={**version(beside), **_packages(program, written)},
        counters=lambda: account(beside, name),
        files=tuple(("config.pbtxt", triton_config.text(each)) for each in entries),
        flat=triton_knobs.flat(written),
        native=program is None or program.has("onnxruntime"),
        packages={} if program is None else program.packages,
        patience=base.startup_time(config),
    )


def _packages(program: triton.Program | None, written: Config) -> dict[str, str]:
    """Give the version of what runs the model, where the Python backend does."""
    runtime = "torch" if ".pt" in _file(written) else "onnxruntime"
    if (
        program is None
        or written.get("backend") != triton_repository_writer.PYTHON
        or runtime not in program.packages
    ):
        return {}
    return {f"triton {runtime}": program.packages[runtime]}


def _file(written: Config) -> str:
    return str(written.get("parameters", {}).get("file", {}).get("string_value", ""))


def _inside(program: str, server: Server) -> int | None:
    """Ask for the first process of the container, which is no descendant of ours."""
    label = Path(server.folder).name
    asked = subprocess.run(
        [program, "inspect", "--format", "{{.State.Pid}}", label],
        capture_output=True,
        text=True,
        check=False,
    )
    return int(asked.stdout) if asked.stdout.strip().isdigit() else None
