"""Triton Inference Server backend: starts a server for the model, or has a running one load it."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from modeldyno.base import plugins
from modeldyno.base.errors import MissingExtra, RequestError
from modeldyno.base.job.knob import REQUEST_TRACE
from modeldyno.base.metrics.doubt import Doubt
from modeldyno.engine.interfaces.session import ThreadSession
from modeldyno.models.interface import Form
from modeldyno.serving.backends import base, export_cache, model_files, triton_ensembles, triton_knobs
from modeldyno.serving.backends.base import SessionWithStats
from modeldyno.serving.backends.triton_remote import (
    count_instances,
    open_remote_triton,
    read_model_stats,
    server_version,
    sum_model_stats,
)
from modeldyno.serving.servers import (
    pbtxt,
    tcp_ports,
    triton,
    triton_repository_reader,
    triton_repository_writer,
)
from modeldyno.serving.servers.admin_client import AdminClient
from modeldyno.serving.servers.container_options import container_options
from modeldyno.serving.servers.server_process import Launch, http_ready
from modeldyno.serving.servers.triton_config import Config
from modeldyno.serving.servers.triton_in_process import InProcessTriton, run_in_process
from modeldyno.serving.servers.triton_trace import TritonTrace, trace_flags

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from modeldyno.base.job.knob import KnobValue
    from modeldyno.engine.interfaces.request_target import Target
    from modeldyno.engine.interfaces.server_stats import ServerCounters
    from modeldyno.models.interface import Feed, Model
    from modeldyno.serving.backends.base import ServerSession
    from modeldyno.serving.servers.server_process import Ports, ServerProcess

requires: tuple[str, ...] = ()
accepts = model_files.accepts | {Form.REPOSITORY}
serves = True
recall = export_cache.recall
knobs = triton_knobs.knobs
space = triton_knobs.space
common = triton_knobs.COMMON
_CONTAINER_GRACE = 10.0
"""Seconds that a container has to stop by itself."""
_TRANSIENT_FAILURE = re.compile("boost::interprocess::lock_exception|unrecognized option.*trace-config")
"""After which the start is tried again: a transient crash of Triton's Python backend on busy machines
(triton-inference-server/server issues 5949 and 8882), and a server that was built without tracing."""


def check(config: Mapping[str, KnobValue]) -> None:
    """Refuse knobs that exclude each other, also those of composing models."""
    triton_knobs.check(config)
    for knobs in triton_ensembles.composing_knobs(config).values():
        triton_knobs.check(knobs)


def serves_within(config: Mapping[str, KnobValue]) -> bool:
    """Return whether the server runs in the process that opens a session."""
    return config.get("launch") == triton.IN_PROCESS


def check_torch(config: Mapping[str, KnobValue]) -> None:
    """Refuse a module if the Triton that would be started is known to lack torch."""
    if "server" in config or config.get("launch") in triton.CONTAINERS:
        return
    if packages := triton.find_tritonserver(str(config.get("program", ""))).packages:
        base.need_torch(Form.TORCH, "triton", "Triton", packages)


@contextmanager
def open(model: Model, config: Mapping[str, KnobValue]) -> Iterator[ServerSession | InProcessSession]:
    """Have a server load the model and open a session on it.

    Raises:
        RequestError: the model or the knobs cannot be expressed for Triton.
        MissingExtra: Triton is not installed.
        ServerFailed: the server does not start, or does not load the model.
    """
    if "server" in config and model.form == Form.REPOSITORY:
        raise RequestError(
            "A repository cannot be used with server=: name a model of the running Triton by its URL, "
            f"such as {config['server']}#{model.value.name}."
        )
    if serves_within(config):
        with open_in_process(model, config) as in_process:
            yield in_process
        return
    start = open_remote_triton if "server" in config else _start_server
    with start(model, config) as session, closing(session.regions):
        yield session


def deploy(model: Model, configuration: str, folder: Path) -> None:
    """Copy the model's file and its runner next to a ``config.pbtxt``, as a repository for any Triton.

    The files are copies, so the user's own are safe from changes.

    Raises:
        RequestError: the model cannot be written.
    """
    if model.form == Form.REPOSITORY:
        triton_repository_reader.copy_files(model.value, folder, pbtxt.parse_pbtxt(configuration))
        return
    with TemporaryDirectory(prefix="modeldyno-", dir=folder) as temporary:
        model_files.deploy(model, Path(temporary))
        version_folder = folder / "1"
        version_folder.mkdir(exist_ok=True)
        for path in Path(temporary).iterdir():
            shutil.copyfile(path, version_folder / path.name)
    if pbtxt.parse_pbtxt(configuration).get("backend") == triton_repository_writer.PYTHON:
        triton_repository_writer.add_our_runner(folder)


def configuration(model: Model, config: Mapping[str, KnobValue]) -> str:
    """Return the ``config.pbtxt`` with which Triton calls a model as a process did with these knobs.

    No call has more samples than `batch_size`, and requests are gathered up to it. The server is taken to
    have the backend ONNX Runtime, as those of NVIDIA have.

    Raises:
        RequestError: the model or the knobs cannot be expressed for Triton.
    """
    with TemporaryDirectory(prefix="modeldyno-") as folder:
        model_config, *_ = triton_ensembles.write_models(model, Path(folder), config, native=True)
    batch = int(config.get("batch_size", 1))
    if model_config["max_batch_size"]:
        model_config["max_batch_size"] = batch
        if batch > 1:
            model_config["dynamic_batching"] = {"preferred_batch_size": [batch]}
    return pbtxt.to_pbtxt(model_config)


@contextmanager
def _start_server(model: Model, config: Mapping[str, KnobValue]) -> Iterator[ServerSession]:
    """Start a server, as a program or in a container."""
    name = triton_ensembles.triton_model_name(model)
    contained = config.get("launch") in triton.CONTAINERS
    if contained and not shutil.which(str(config["launch"])):
        raise MissingExtra(f"{config['launch']} is not installed; install it, or omit launch.")
    program = None if contained else triton.find_tritonserver(str(config.get("program", "")))
    if program is not None and program.backends.is_dir() and model.form == Form.REPOSITORY:
        _need_backends(model.value, program)
    if program is not None and program.packages:
        base.need_torch(model.form, "triton", "Triton", program.packages)
    native = program is None or program.has("onnxruntime")
    flags = shlex.split(str(config.get("flags", "")))
    flags += [f"--load-model={model_name}" for model_name in triton_ensembles.called_models(config)]
    configs: list[Config] = []
    starts: list[Path] = []

    def command(folder: Path, ports: Ports) -> list[str]:
        repository = folder / "repository"
        configs[:] = triton_ensembles.write_models(model, repository, config, native=native)
        if program is not None:
            traced = trace_flags(folder) if config.get(REQUEST_TRACE.name) and not starts else []
            starts.append(folder)  # a second one is without: the first may have been refused for these flags
            return triton.tritonserver_command(program, repository, name, ports, traced + flags)
        container = triton.TritonContainer(
            image=str(config.get("image", triton.IMAGE)),
            label=folder.name,
            device=base.device_of(config),
            program=str(config["launch"]),
            options=_container_options(config),
        )
        return triton.container_command(container, repository, name, ports, flags)

    launch = Launch(
        name="triton",
        command=command,
        ports=triton_knobs.choose_ports(config),
        ready=lambda ports: http_ready(ports["http"], f"/v2/models/{name}/ready"),
        environment={} if program is None else base.environment(config, program.environment),
        passing=_TRANSIENT_FAILURE,
        patience=base.startup_time(config),
        # A container is stopped through its client. The program is killed: its shutdown takes three seconds.
        grace=_CONTAINER_GRACE if program is None else 0.0,
    )
    with base.open_server_session(
        launch, "http", partial(_session, model, config, program, configs)
    ) as session:
        yield session


def _container_options(config: Mapping[str, KnobValue]) -> dict[str, tuple[str, ...]]:
    """Return the options of the container, with the variables of its server."""
    options = container_options(config)
    variables = tuple(f"{name}={value}" for name, value in base.variables(config).items())
    return {**options, "env": (*options.get("env", ()), *variables)} if variables else options


def _need_backends(
    repository: triton_repository_reader.TritonRepository, program: triton.TritonProgram
) -> None:
    """Refuse a model whose backend the server lacks, before it fails to start; our runner runs ONNX files.

    Raises:
        RequestError: the server lacks a backend; the message says what to do.
    """
    by_us = triton_ensembles.lacking_runtime(repository)
    for name, config in repository.configs.items():
        backend = triton_repository_reader.backend_of(config)
        library = f"libtriton_{backend}.so"  # a backend may be in the model's directory
        if not backend or program.has(backend) or any((repository.folder / name).rglob(library)):
            continue
        if name in by_us:
            continue
        raise RequestError(
            f"'{name}' needs the backend '{backend}', which {program.path} lacks; choose another Triton with "
            "`program=PATH`, `launch=docker` or `server=URL`."
        )


def _session(
    model: Model,
    config: Mapping[str, KnobValue],
    program: triton.TritonProgram | None,
    configs: list[Config],
    server: ServerProcess,
    control: AdminClient,
) -> ServerSession:
    config_of_model, name = configs[0], str(configs[0]["name"])
    return CohostingSession(
        **_of_models(config, configs, server, control),
        pid=_container_pid(str(config["launch"]), server) if program is None else server.pid,
        software={**server_version(control), **_runtime_version(program, config_of_model)},
        doubts=triton_ensembles.repository_doubts(model, configs),
        native=program is None or program.has("onnxruntime"),
        packages={} if program is None else program.packages,
        patience=base.startup_time(config),
        trace=TritonTrace(control=control, model=name, folder=Path(server.folder))
        if config.get(REQUEST_TRACE.name)
        else None,
    )


def _of_models(
    config: Mapping[str, KnobValue], configs: Sequence[Config], server: ServerProcess, control: AdminClient
) -> dict[str, Any]:
    """Return the fields of a session on a model, given with those that it is made of, of a server of ours."""
    name = str(configs[0]["name"])
    return {
        "client": plugins.client(triton_knobs.CLIENTS[str(config["protocol"])]),
        "endpoint": triton_knobs.request_endpoint(config, tcp_ports.LOOPBACK, server.ports, name),
        "control": control,
        "server": server,
        "counters": lambda: read_model_stats(control, configs),
        "instances": count_instances(control, configs),
        "files": tuple(("config.pbtxt", pbtxt.to_pbtxt(entry)) for entry in configs),
        "flat": triton_knobs.flat_outputs(configs[0]),
    }


def _runtime_version(program: triton.TritonProgram | None, model_config: Config) -> dict[str, str]:
    """Return the version of the runtime if the Python backend runs the model."""
    runtime = (
        "torch"
        if ".pt" in str(model_config.get("parameters", {}).get("file", {}).get("string_value", ""))
        else "onnxruntime"
    )
    if (
        program is None
        or model_config.get("backend") != triton_repository_writer.PYTHON
        or runtime not in program.packages
    ):
        return {}
    return {f"triton {runtime}": program.packages[runtime]}


def _container_pid(program: str, server: ServerProcess) -> int | None:
    """Return the pid of the container's first process, which is not a descendant of ours."""
    label = Path(server.folder).name
    result = subprocess.run(
        [program, "inspect", "--format", "{{.State.Pid}}", label],
        capture_output=True,
        text=True,
        check=False,
    )
    return int(result.stdout) if result.stdout.strip().isdigit() else None


@dataclass(frozen=True, slots=True, kw_only=True)
class InProcessSession(ThreadSession):
    """A model of a server in this process."""

    server: InProcessTriton
    configs: tuple[Config, ...]
    """Of the model, and of those that it is made of."""
    software: Mapping[str, str]
    files: tuple[tuple[str, str], ...]
    pid: int | None
    samples: int | None = None
    """As many in a request as in a payload."""
    doubts: tuple[Doubt, ...] = ()

    def calls(self, feeds: Sequence[Feed]) -> Sequence[Callable[[], Any]]:
        """Return a function for each payload that sends it and returns the outputs by name."""
        return [self.server.prepare(str(self.configs[0]["name"]), feed) for feed in feeds]

    def arrays(self, output: Feed) -> Feed:
        """Return the outputs by name."""
        return output

    def account(self) -> ServerCounters:
        """Read the counters of the model."""
        return sum_model_stats(self.server.statistics, self.configs)


@contextmanager
def open_in_process(model: Model, config: Mapping[str, KnobValue]) -> Iterator[InProcessSession]:
    """Start Triton in this process with the model, and open a session on it.

    Raises:
        RequestError: the model or the knobs cannot be expressed for Triton.
        MissingExtra: Triton is not installed, or without its library.
        RuntimeError: the server does not start.
    """
    program = triton.find_tritonserver(str(config.get("program", "")))
    if program.packages:
        base.need_torch(model.form, "triton", "Triton", program.packages)
    with TemporaryDirectory(prefix="modeldyno-") as folder:
        repository = Path(folder) / "repository"
        configs = triton_ensembles.write_models(model, repository, config, native=program.has("onnxruntime"))
        with run_in_process(program, repository) as server:
            for part in reversed(configs):
                server.load(str(part["name"]))
            yield InProcessSession(
                server=server,
                configs=tuple(configs),
                software={"triton": server.version()},
                files=tuple(("config.pbtxt", pbtxt.to_pbtxt(entry)) for entry in configs),
                pid=os.getpid(),
                doubts=triton_ensembles.repository_doubts(model, configs),
            )


@dataclass(slots=True, kw_only=True)
class CohostingSession(SessionWithStats):
    """A session on a Triton that we started."""

    native: bool
    """Whether the server has the ONNX Runtime backend."""
    packages: Mapping[str, str] = field(default_factory=dict)
    """Packages in the environment of its Python backend, if known."""
    patience: float = 180.0
    """Seconds until a model must be loaded."""
    trace: TritonTrace | None = None

    def target(self, feeds: Sequence[Feed]) -> Target:
        """Turn each payload into a request, which bears an id if it may be traced."""
        make = self.client.target if self.trace is None else self.client.numbered_target
        return self.regions.target(self.client, feeds, self.endpoint, make=make)

    @contextmanager
    def host(self, model: Model, config: Mapping[str, KnobValue]) -> Iterator[SessionWithStats]:
        """Load another model into the server; unload it on exit.

        Raises:
            RequestError: the model or the knobs cannot be expressed for Triton.
            ServerFailed: the server does not load the model.
        """
        assert self.server is not None
        if self.packages:
            base.need_torch(model.form, "triton", "Triton", self.packages)
        name, repository = triton_ensembles.triton_model_name(model), Path(self.server.folder) / "repository"
        if name == self.endpoint.model:
            raise RequestError(f"The server already has a model '{name}'; give one of them another name.")
        # It may have been loaded before with other knobs.
        shutil.rmtree(repository / name, ignore_errors=True)
        configs = triton_ensembles.write_models(model, repository, config, native=self.native)
        control = AdminClient(port=self.server.ports["http"], timeout=self.patience)
        url_path = f"/v2/repository/models/{name}"
        try:
            control.post(f"{url_path}/load")
        except OSError as error:
            raise self.server.failed(f"does not load {name}: {error}") from error
        try:
            fields = _of_models(config, configs, self.server, control)
            yield SessionWithStats(**fields, pid=self.pid, regions=self.regions, software={})
        finally:
            if not self.server.ended():
                control.post(f"{url_path}/unload")
