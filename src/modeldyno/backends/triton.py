"""Triton Inference Server: one that we start for the model, or one elsewhere that loads it for us."""

from __future__ import annotations

import base64
import json
import shlex
import subprocess
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from modeldyno import plugins
from modeldyno.backends import deployed, serving
from modeldyno.backends.serving import Counted, Session
from modeldyno.core.doubt import Doubt
from modeldyno.core.knob import BATCH_SIZE, Knob
from modeldyno.core.target import Endpoint
from modeldyno.engines import control, ports, triton, triton_config, triton_repository, triton_stats
from modeldyno.engines.server import Launch, Server, http_ready, running
from modeldyno.errors import RequestError
from modeldyno.ports import Form

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from modeldyno.backends.deployed import Deployed
    from modeldyno.core.account import Account
    from modeldyno.core.knob import KnobValue
    from modeldyno.engines.control import Control
    from modeldyno.engines.server import Ports
    from modeldyno.engines.triton_config import Config
    from modeldyno.ports import Model

requires: tuple[str, ...] = ()
accepts = deployed.accepts
serves = True

_USUAL = ports.CONVENTIONAL["trt", False]
knobs = (
    Knob(
        name="protocol",
        kind=str,
        default="http-binary",
        choices=("http-binary", "http-json", "grpc"),
        sentence="What requests are sent by: tensors as bytes or as JSON over HTTP, or gRPC.",
    ),
    Knob(
        name="instances",
        kind=int,
        default=None,
        low=1,
        high=1024,
        sentence="Copies of the model that work at the same time; Triton has one.",
        aliases=("instance_count",),
    ),
    Knob(
        name="max_batch",
        kind=int,
        default=None,
        low=0,
        high=1 << 20,
        sentence="Samples in one call of the model at most; 8, or those of a request if more; 0: no batches.",
        aliases=("max_batch_size",),
    ),
    Knob(
        name="dynamic_batching",
        kind=bool,
        default=False,
        sentence="Gather requests that wait into one call of the model.",
        aliases=("batching",),
    ),
    Knob(
        name="queue_delay",
        kind=int,
        default=None,
        low=0,
        sentence="Microseconds that a request may wait to share a call; turns dynamic_batching on.",
        aliases=("max_queue_delay_microseconds",),
    ),
    Knob(
        name="preferred_batch",
        kind=str,
        default=None,
        sentence="Sizes of batches to wait for, such as 4,8; turns dynamic_batching on.",
        aliases=("preferred_batch_size",),
    ),
    serving.DEVICE,
    serving.THREADS,
    Knob(
        name="runtime",
        kind=str,
        default="auto",
        choices=("auto", "onnxruntime", "python"),
        sentence="Triton's backend: its own for ONNX Runtime where it has one, or Python.",
    ),
    Knob(
        name="config",
        kind=str,
        default=None,
        family=True,
        sentence="Any field of config.pbtxt by its path: config.dynamic_batching.priority_levels=2.",
    ),
    Knob(
        name="version",
        kind=str,
        default=None,
        sentence="Version of the model to ask for; the server's newest if not set.",
    ),
    Knob(
        name="launch",
        kind=str,
        default="local",
        choices=("local", "docker"),
        sentence="Start the server as a program, or in a container (a command line that we have never run).",
    ),
    Knob(
        name="program",
        kind=str,
        default=None,
        sentence="The tritonserver to start; else that of `modeldyno engine install`, or one found here.",
    ),
    Knob(name="image", kind=str, default=triton.IMAGE, sentence="The container to start with launch=docker."),
    Knob(
        name="flags",
        kind=str,
        default=None,
        sentence="More words for tritonserver's command line, such as --log-verbose=1.",
    ),
    serving.ports_knob(_USUAL),
    serving.STARTUP_TIME,
    Knob(
        name="server",
        kind=str,
        default=None,
        sentence="Address of a running Triton that loads models on request, such as http://host:8000.",
    ),
    Knob(
        name="grpc_port",
        kind=int,
        default=8001,
        low=1,
        high=65535,
        sentence="Port of gRPC of the running Triton.",
    ),
    BATCH_SIZE,
)

_MAX_BATCH = 8
_CLIENTS = {"http-binary": "kserve-http", "http-json": "kserve-http", "grpc": "kserve-grpc"}
_LOCAL_ONLY = ("program", "flags")


def check(config: Mapping[str, KnobValue]) -> None:
    """Refuse knobs that exclude each other."""
    serving.device_of(config)
    _ports(config)
    _sizes(config)
    gathers = config.get("queue_delay") is not None or config.get("preferred_batch") is not None
    if config.get("max_batch") == 0 and (gathers or config.get("dynamic_batching")):
        raise RequestError(
            "max_batch=0 turns batches off, so nothing can be gathered; leave one of them out."
        )
    if 0 < int(config.get("max_batch", 0)) < int(config.get("batch_size", 1)):
        raise RequestError(
            f"Requests of batch_size={config['batch_size']} are larger than max_batch={config['max_batch']}, "
            "which counts samples; raise that."
        )
    if "server" in config:
        control.Control.at(str(config["server"]))
        for name in _LOCAL_ONLY:
            if name in config:
                raise RequestError(
                    f"The knob {name} is for a server that we start, and server= names another."
                )
    triton_config.changed({}, _paths(config))


@contextmanager
def open(model: Model, config: Mapping[str, KnobValue]) -> Iterator[Session]:  # noqa: A001 - the port's word
    """Have a server load the model.

    Raises:
        RequestError: the model or the knobs cannot be brought into Triton's form.
        MissingExtra: there is no Triton here.
        ServerFailed: it does not start, or does not load the model.
    """
    with (_elsewhere if "server" in config else _started)(model, config) as session:
        try:
            yield session
        finally:
            session.control.close()


# -- a server that we start ----------------------------------------------------------------------


@contextmanager
def _started(model: Model, config: Mapping[str, KnobValue]) -> Iterator[Session]:
    name = serving.name_of(model)
    contained = config["launch"] == "docker"
    program = None if contained else triton.program(str(config.get("program", "")))
    if program is not None:
        _check_packages(program, model)
    native = contained if program is None else program.has("onnxruntime")
    flags = shlex.split(str(config.get("flags", "")))
    written: Config = {}

    def command(folder: Path, chosen: Ports) -> list[str]:
        repository = folder / "repository"
        found = deployed.deploy(model, repository / name / "1")
        written.update(_config(name, found, config, native=native))
        triton_repository.write(repository, written)
        if program is not None:
            return triton.command(program, repository, name, chosen, flags)
        made = triton.Container(
            image=str(config["image"]), label=folder.name, device=serving.device_of(config)
        )
        return triton.container(made, repository, name, chosen, flags)

    launch = Launch(
        name="triton",
        command=command,
        ports=_ports(config),
        ready=lambda chosen: http_ready(chosen["http"], f"/v2/models/{name}/ready"),
        environment={} if program is None else program.environment,
        patience=float(config["startup_time"]),
    )
    with running(launch) as server:
        beside = control.Control(port=server.ports["http"])
        yield Counted(
            client=plugins.client(_CLIENTS[str(config["protocol"])]),
            endpoint=_endpoint(config, ports.LOOPBACK, server.ports, name),
            control=beside,
            server=server,
            pid=_inside(server) if contained else server.pid,
            software={**_version(beside), **_packages(program, written)},
            counters=lambda: _account(beside, name),
            files=(("config.pbtxt", triton_config.text(written)),),
            flat=_flat(written),
        )


def _account(beside: Control, name: str) -> Account:
    return triton_stats.account(beside.get(f"/v2/models/{name}/stats"))


def _check_packages(program: triton.Program, model: Model) -> None:
    if model.form == Form.TORCH and program.packages and "torch" not in program.packages:
        raise RequestError(
            "This Triton has no torch to run the module; install it with: "
            "modeldyno engine install triton --with torch, or export the module to ONNX."
        )


def _packages(program: triton.Program | None, written: Config) -> dict[str, str]:
    """Give the version of what runs the model, where the Python backend does."""
    runtime = "torch" if ".pt" in _file(written) else "onnxruntime"
    if program is None or written["backend"] != triton_repository.PYTHON or runtime not in program.packages:
        return {}
    return {f"triton {runtime}": program.packages[runtime]}


def _file(written: Config) -> str:
    return str(written.get("parameters", {}).get("file", {}).get("string_value", ""))


def _inside(server: Server) -> int | None:
    """Ask for the first process of the container, which is no descendant of ours."""
    label = Path(server.folder).name
    asked = subprocess.run(
        ["docker", "inspect", "--format", "{{.State.Pid}}", label],  # noqa: S607 - as the user calls it
        capture_output=True,
        text=True,
        check=False,
    )
    return int(asked.stdout) if asked.stdout.strip().isdigit() else None


# -- a server that runs --------------------------------------------------------------------------


@contextmanager
def _elsewhere(model: Model, config: Mapping[str, KnobValue]) -> Iterator[Session]:
    beside = control.Control.at(str(config["server"]))
    beside.timeout = float(config["startup_time"])
    name = f"modeldyno-{serving.name_of(model)}-{model.identity.digest.rpartition(':')[2][:8]}"
    try:
        foreign = _loaded(beside)
    except OSError as error:
        raise RequestError(f"No Triton answers at {config['server']}: {error}.") from error
    if name in foreign:
        raise RequestError(
            f"{config['server']} has the model '{name}' already, as if another profile of it were under way; "
            "wait for that, or unload it."
        )
    with TemporaryDirectory(prefix="modeldyno-") as folder:
        version = Path(folder) / name / "1"
        found = deployed.deploy(model, version)
        written = _upload(beside, Path(folder), _candidates(name, found, config))
    try:
        address = {"http": beside.port, "grpc": int(config["grpc_port"])}
        yield Counted(
            client=plugins.client(_CLIENTS[str(config["protocol"])]),
            endpoint=_endpoint(config, beside.host, address, name),
            control=beside,
            server=None,
            pid=None,
            software=_version(beside),
            doubts=_foreign(foreign),
            counters=lambda: _account(beside, name),
            files=(("config.pbtxt", triton_config.text(written)),),
            flat=_flat(written),
        )
    finally:
        with suppress(OSError):
            beside.post(f"/v2/repository/models/{name}/unload")


def _candidates(name: str, found: Deployed, config: Mapping[str, KnobValue]) -> list[Config]:
    """Give what to try: a server does not tell which backends it has."""
    natives = {"onnxruntime": [True], "python": [False]}.get(str(config["runtime"]), [True, False])
    return [
        _config(name, found, config, native=native)
        for native in natives
        if found.runtime != "torch" or not native
    ]


def _upload(beside: Control, folder: Path, candidates: list[Config]) -> Config:
    """Send the model's files with its configuration; the server keeps them until it unloads the model."""
    error: OSError = OSError("there is nothing to load")
    for written in candidates:
        version = triton_repository.write(folder, written)
        files = {
            f"file:1/{path.name}": base64.b64encode(path.read_bytes()).decode()
            for path in sorted(version.iterdir())
        }
        try:
            beside.post(
                f"/v2/repository/models/{written['name']}/load",
                {"parameters": {"config": json.dumps(written), **files}},
            )
        except OSError as refused:
            error = refused
        else:
            return written
    raise RequestError(
        f"The Triton at {beside.host}:{beside.port} does not load the model ({error}); it must run with "
        "--model-control-mode=explicit."
    )


def _loaded(beside: Control) -> list[str]:
    index = beside.post("/v2/repository/index", {"ready": True}) or ()
    return sorted({str(each["name"]) for each in index if each.get("state", "READY") == "READY"})


def _foreign(names: list[str]) -> tuple[Doubt, ...]:
    if not names:
        return ()
    return (
        Doubt(
            code="foreign-models",
            seen=f"the server also has {', '.join(names[:4])}{' ...' if len(names) > 4 else ''}",  # noqa: PLR2004
            advice="measure on a server that has nothing else to do, or compare with one that has the same",
        ),
    )


# -- the configuration ---------------------------------------------------------------------------


def _config(name: str, found: Deployed, config: Mapping[str, KnobValue], *, native: bool) -> Config:
    asked = str(config["runtime"])
    if asked == "onnxruntime" and (found.runtime == "torch" or not native):
        what = "a torch module" if found.runtime == "torch" else "this Triton, which has no such backend"
        raise RequestError(f"runtime=onnxruntime is not for {what}; use runtime=python.")
    backend = (
        "onnxruntime"
        if native and asked != "python" and found.runtime != "torch"
        else triton_repository.PYTHON
    )
    written = triton_repository.configuration(
        name, backend, found.inputs, found.outputs, max_batch=_max_batch(found, config)
    )
    written["instance_group"] = [_instances(config)]
    if gathered := _gathering(config):
        written["dynamic_batching"] = gathered[0]
    written["parameters"] = {
        name: {"string_value": value} for name, value in _parameters(backend, found, config).items()
    }
    return triton_config.changed(written, _paths(config))


def _max_batch(found: Deployed, config: Mapping[str, KnobValue]) -> int:
    """Triton's batch is the first axis of every tensor, and no tensor's only one."""
    possible = found.batched and all(len(each.shape or ()) > 1 for each in found.inputs)
    if possible:
        return int(config.get("max_batch", max(_MAX_BATCH, int(config.get("batch_size", 1)))))
    if config.get("max_batch") or _gathering(config):
        tensors = ", ".join(
            f"{each.name} {'x'.join(map(str, each.shape or ())) or 'scalar'}"
            for each in (*found.inputs, *found.outputs)
        )
        raise RequestError(
            "Requests for this model cannot be gathered into batches: it takes a free first axis of every "
            f"tensor, and another of every input ({tensors}); export it so, or leave max_batch and "
            "dynamic_batching out."
        )
    return 0


def _instances(config: Mapping[str, KnobValue]) -> Config:
    kind, _, index = serving.device_of(config).partition(":")
    group: Config = {
        "count": int(config.get("instances", 1)),
        "kind": "KIND_CPU" if kind == "cpu" else "KIND_GPU",
    }
    return group if kind == "cpu" else {**group, "gpus": [int(index or 0)]}


def _gathering(config: Mapping[str, KnobValue]) -> list[Config]:
    """Give the part on dynamic batching, if there is to be one; it may be empty."""
    sizes = _sizes(config)
    delay = config.get("queue_delay")
    if not (config.get("dynamic_batching") or sizes or delay is not None):
        return []
    return [
        {
            **({"preferred_batch_size": sizes} if sizes else {}),
            **({} if delay is None else {"max_queue_delay_microseconds": int(delay)}),
        }
    ]


def _parameters(backend: str, found: Deployed, config: Mapping[str, KnobValue]) -> dict[str, str]:
    threads = str(config.get("threads", ""))
    if backend != triton_repository.PYTHON:
        return {"intra_op_thread_count": threads} if threads else {}
    return {"file": found.file, "threads": threads or "0"}


def _flat(written: Config) -> frozenset[str]:
    return frozenset(str(each["name"]) for each in written["output"] if "reshape" in each)


def _sizes(config: Mapping[str, KnobValue]) -> list[int]:
    text = str(config.get("preferred_batch", "")).strip()
    parts = [part.strip() for part in text.split(",")] if text else []
    if not all(part.isdigit() and int(part) for part in parts):
        raise RequestError(f"The knob preferred_batch takes sizes such as 4,8, not '{text}'.")
    return [int(part) for part in parts]


def _paths(config: Mapping[str, KnobValue]) -> dict[str, str]:
    prefix = "config."
    return {
        name.removeprefix(prefix): str(value) for name, value in config.items() if name.startswith(prefix)
    }


def _ports(config: Mapping[str, KnobValue]) -> Ports:
    return ports.chosen(str(config.get("ports", "free")), _USUAL)


# -- what both have in common --------------------------------------------------------------------


def _endpoint(config: Mapping[str, KnobValue], host: str, address: Mapping[str, int], name: str) -> Endpoint:
    grpc = config["protocol"] == "grpc"
    return Endpoint(
        host=host,
        port=address["grpc" if grpc else "http"],
        model=name,
        version=str(config.get("version", "")),
        options={} if grpc else {"binary": config["protocol"] == "http-binary"},
        protocol=_CLIENTS[str(config["protocol"])],
    )


def _version(beside: Control) -> dict[str, str]:
    try:
        return {"triton": str(beside.get("/v2")["version"])}
    except (OSError, KeyError, TypeError):
        return {}
