"""MLServer backend: starts a server with our custom runtime, which runs the model's file."""

from __future__ import annotations

import json
import shutil
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modeldyno.base import plugins
from modeldyno.base.system.prometheus_samples import parse_samples
from modeldyno.engine.interfaces.request_target import Endpoint
from modeldyno.models.interface import Form
from modeldyno.serving.backends import base, export_cache, model_files
from modeldyno.serving.backends.base import ServerSession, SessionWithStats
from modeldyno.serving.servers import install, prometheus_text, tcp_ports
from modeldyno.serving.servers.paths import INSIDE
from modeldyno.serving.servers.server_process import Launch, http_ready
from modeldyno.serving.servers.triton_config import DTYPES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from modeldyno.base.job.input_spec import InputSpec
    from modeldyno.base.job.knob import KnobValue
    from modeldyno.engine.interfaces.server_stats import ServerCounters
    from modeldyno.models.interface import Model
    from modeldyno.serving.backends.model_files import DeployedModel
    from modeldyno.serving.servers.admin_client import AdminClient
    from modeldyno.serving.servers.server_process import Ports, ServerProcess

requires: tuple[str, ...] = ()
accepts = model_files.accepts
serves = True
recall = export_cache.recall

_INTERFACES = ("http", "grpc", "metrics")
_conventional = partial(base.conventional_ports, "onnx", _INTERFACES)
knobs = (
    base.knob("protocol"),
    base.knob(
        "max_batch",
        default=0,
        low=0,
        sentence="Maximum number of requests that are batched into one call; no batching below 2.",
    ),
    base.knob("queue_delay"),
    base.knob(
        "workers",
        default=0,
        low=0,
        sentence="Worker processes that run the model; 0 runs it in the process that answers requests.",
        aliases=("parallel_workers", "instances"),
    ),
    base.knob("device"),
    base.knob("threads"),
    base.knob("config", sentence="Any setting of the server, such as config.gzip_enabled=false."),
    base.ports_knob(_conventional({})),
    base.knob("env"),
    base.knob("startup_time"),
    base.knob("batch_size"),
)

_CLIENTS = {"http-json": "kserve-http", "grpc": "kserve-grpc"}
_SERVER, _MODEL, _TALLY = "settings.json", "model-settings.json", "tally"
"""Files in the server's directory, and the folder of the runtime's counters."""
_MICRO = 1e-6
_DEFAULT_DELAY = 2000
"""Microseconds, if batching is on and no delay is set."""


def check(config: Mapping[str, KnobValue]) -> None:
    """Refuse knobs that exclude each other."""
    base.check(config, _conventional(config))


def check_torch(_config: Mapping[str, KnobValue]) -> None:
    """Refuse a module if MLServer lacks torch."""
    base.need_torch(Form.TORCH, "mlserver", "MLServer", install.require_installed("mlserver").versions)


@contextmanager
def open(model: Model, config: Mapping[str, KnobValue]) -> Iterator[ServerSession]:
    """Start a server for the model.

    Raises:
        RequestError: the model or the knobs cannot be expressed for MLServer.
        MissingExtra: MLServer is not installed.
        ServerFailed: the server does not start, or does not load the model.
    """
    engine = install.require_installed("mlserver")
    base.need_torch(model.form, "mlserver", "MLServer", engine.versions)
    name = base.servable_name(model)

    def command(folder: Path, ports: Ports) -> list[str]:
        _write_files(folder, model_files.deploy(model, folder), config, ports, name)
        return [engine.command("python"), engine.command("mlserver"), "start", str(folder)]

    launch = Launch(
        name="mlserver",
        command=command,
        ports=base.choose_ports(config, _conventional(config)),
        ready=lambda ports: http_ready(ports["http"], f"/v2/models/{name}/ready"),
        environment=base.environment(config, {**engine.environment, "PYTHONDONTWRITEBYTECODE": "1"}),
        patience=base.startup_time(config),
    )
    versions = {package: version for package, version in engine.versions.items() if package != "python"}
    with base.open_server_session(launch, "metrics", partial(_session, config, name, versions)) as session:
        yield session


def _write_files(
    folder: Path, deployed: DeployedModel, config: Mapping[str, KnobValue], ports: Ports, name: str
) -> None:
    """Write the files that the server reads."""
    base.check_batchable(deployed, config)
    (folder / _TALLY).mkdir()
    for file, text in _files(name, deployed, config, ports, folder / _TALLY).items():
        (folder / file).write_text(text, encoding="utf-8")
    for program in ("mlserver_runtime.py", "runner.py"):
        shutil.copyfile(INSIDE / program, folder / program)


def _session(
    config: Mapping[str, KnobValue],
    name: str,
    versions: dict[str, str],
    server: ServerProcess,
    control: AdminClient,
) -> ServerSession:
    protocol = str(config["protocol"])
    return SessionWithStats(
        client=plugins.client(_CLIENTS[protocol]),
        endpoint=Endpoint(
            host=tcp_ports.LOOPBACK,
            port=server.ports["grpc" if protocol == "grpc" else "http"],
            model=name,
            options={} if protocol == "grpc" else {"binary": False},
            protocol=_CLIENTS[protocol],
        ),
        control=control,
        instances={"": int(config["workers"]) or 1},
        counters=lambda: _read_counters(control, Path(server.folder) / _TALLY, name),
        server=server,
        pid=server.pid,
        software=versions,
        files=base.read_config_files(server, _SERVER, _MODEL),
    )


def _files(
    name: str, deployed: DeployedModel, config: Mapping[str, KnobValue], ports: Ports, tally: Path
) -> dict[str, str]:
    server: dict[str, Any] = {
        "debug": False,
        "host": tcp_ports.LOOPBACK,
        "http_port": ports["http"],
        "grpc_port": ports["grpc"],
        "metrics_port": ports["metrics"],
        "parallel_workers": int(config["workers"]),
        "grpc_max_message_length": -1,
    }
    server |= {path: _parse_setting(text) for path, text in base.engine_settings(config).items()}
    model = {
        "name": name,
        "implementation": "mlserver_runtime.Runtime",
        "inputs": [_describe_input(spec) for spec in deployed.inputs],  # so that clients can ask for them
        "max_batch_size": int(config["max_batch"]),
        "max_batch_time": int(config.get("queue_delay", _DEFAULT_DELAY)) * _MICRO,
        "parameters": {
            "extra": {
                "file": deployed.file,
                "inputs": {spec.name: _numpy_dtype(spec.dtype) for spec in deployed.inputs},
                "outputs": [spec.name for spec in deployed.outputs],
                "threads": int(config.get("threads", 0)),
                "device": base.device_of(config),
                "samples": int(config.get("batch_size", 1)),
                "tally": str(tally),
            }
        },
    }
    return {_SERVER: json.dumps(server, indent=2), _MODEL: json.dumps(model, indent=2)}


def _parse_setting(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _describe_input(spec: InputSpec) -> dict[str, Any]:
    """Describe an input as the Open Inference Protocol does; -1 is a size that is free."""
    datatype = "BYTES" if spec.dtype == "string" else DTYPES[str(spec.dtype)].removeprefix("TYPE_")
    shape = [size if isinstance(size, int) else -1 for size in spec.shape or ()]
    return {"name": spec.name, "datatype": datatype, "shape": shape}


def _numpy_dtype(dtype: str | None) -> str:
    return "object" if dtype == "string" else str(dtype)


def _read_counters(control: AdminClient, tally: Path, name: str) -> ServerCounters:
    """Merge the server's request metrics with the runtime's counters of its work.

    Time of a request within the model server beyond that work is queueing: for the model, or to be batched.
    """
    reported, inside, total = prometheus_text.mlserver_counters(
        parse_samples(control.text("GET", "/metrics")), name
    )
    worker = prometheus_text.sum_worker_counters(tally)
    busy = (worker.compute_input or 0.0) + (worker.compute or 0.0) + (worker.compute_output or 0.0)
    return prometheus_text.merge_server_counters(worker, reported, queue=max(0.0, inside - busy), total=total)
