"""TorchServe backend: starts a server with our handler, which runs the model's file."""

from __future__ import annotations

import json
import re
import shutil
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from modeldyno.base import plugins
from modeldyno.base.job.knob import Knob
from modeldyno.base.system.prometheus_samples import parse_samples
from modeldyno.engine.interfaces.request_target import Endpoint
from modeldyno.serving.backends import base, export_cache, model_files
from modeldyno.serving.backends.base import ServerSession, SessionWithStats
from modeldyno.serving.servers import install, prometheus_text, tcp_ports
from modeldyno.serving.servers.admin_client import AdminClient
from modeldyno.serving.servers.paths import INSIDE
from modeldyno.serving.servers.server_process import Launch

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from modeldyno.base.job.knob import KnobValue
    from modeldyno.engine.interfaces.server_stats import ServerCounters
    from modeldyno.models.interface import Model
    from modeldyno.serving.backends.model_files import DeployedModel
    from modeldyno.serving.servers.install import InstalledServer
    from modeldyno.serving.servers.server_process import Ports, ServerProcess

requires: tuple[str, ...] = ()
accepts = model_files.accepts
serves = True
recall = export_cache.recall

_INTERFACES = ("http", "management", "metrics", "grpc", "grpc_management")
_conventional = partial(base.conventional_ports, "torchscript", _INTERFACES)
knobs = (
    base.knob("workers"),
    base.knob("max_batch"),
    base.knob(
        "queue_delay",
        low=1000,
        sentence="Microseconds (whole milliseconds) that a request may wait for a batch; 100000 if not set.",
    ),
    Knob(
        name="queue_size",
        kind=int,
        low=1,
        sentence="Queue length; TorchServe's default is 100, and it answers 503 to further requests.",
        aliases=("job_queue_size",),
    ),
    base.knob("device"),
    base.knob("threads"),
    base.knob("config", sentence="Any property of config.properties, such as config.netty_client_threads=2."),
    Knob(name="jvm", sentence="Options of the JVM, such as -Xmx2g."),
    base.ports_knob(_conventional({})),
    base.knob("env"),
    base.knob("startup_time"),
    base.knob("batch_size"),
)

_PROPERTIES, _TALLY = "config.properties", "tally"
"""The server's settings file, and the folder of the handler's counters."""
_REPORTED_PACKAGES = ("torchserve", "torch", "onnxruntime")
_HOPELESS = re.compile(r"Load model failed|Auto recovery failed again")
"""Log lines after which start-up is given up: TorchServe restarts a failing worker forever."""
_DEFAULT_DELAY = 100_000
_LOG4J = """<?xml version="1.0" encoding="UTF-8"?>
<Configuration>
  <Appenders>
    <Console name="STDOUT" target="SYSTEM_OUT">
      <PatternLayout pattern="%d{ISO8601} [%-5p] %t %c - %m%n"/>
    </Console>
  </Appenders>
  <Loggers>
    <Logger name="ACCESS_LOG" level="off"/>
    <Logger name="MODEL_METRICS" level="off"/>
    <Logger name="TS_METRICS" level="off"/>
    <Logger name="org.apache" level="off"/>
    <Logger name="io.netty" level="error"/>
    <Root level="info"><AppenderRef ref="STDOUT"/></Root>
  </Loggers>
</Configuration>
"""
"""Logging configuration: the default writes four files and several lines for each request."""


def check(config: Mapping[str, KnobValue]) -> None:
    """Refuse knobs that exclude each other."""
    base.check(config, _conventional(config))


_OWN_VARIABLES = {"TS_CONFIG_FILE": "", "LOG_LOCATION": "logs", "METRICS_LOCATION": "logs"}


@contextmanager
def open(model: Model, config: Mapping[str, KnobValue]) -> Iterator[ServerSession]:
    """Start a server for the model.

    Raises:
        RequestError: the model or the knobs cannot be expressed for TorchServe.
        MissingExtra: TorchServe or Java is not installed.
        ServerFailed: the server does not start, or does not load the model.
    """
    engine, java = install.require_installed("torchserve"), install.find_java()
    name, workers = base.servable_name(model), int(config["workers"])

    def command(folder: Path, ports: Ports) -> list[str]:
        _write_files(folder, model_files.deploy(model, folder / "store" / name), config, ports, name)
        return _command(folder, [java, *str(config.get("jvm", "")).split()], engine)

    launch = Launch(
        name="torchserve",
        command=command,
        ports=base.choose_ports(config, _conventional(config)),
        ready=lambda ports: _is_ready(ports["management"], name, workers),
        environment=base.environment(config, {**engine.environment, **_OWN_VARIABLES}),
        hopeless=_HOPELESS,
        patience=base.startup_time(config),
    )
    versions = {
        package: engine.versions[package] for package in _REPORTED_PACKAGES if package in engine.versions
    }
    with base.open_server_session(launch, "metrics", partial(_session, name, versions, workers)) as session:
        yield session


def _write_files(
    folder: Path, deployed: DeployedModel, config: Mapping[str, KnobValue], ports: Ports, name: str
) -> None:
    """Write the files that the server reads."""
    archive = folder / "store" / name
    for directory in (archive / "MAR-INF", folder / _TALLY, folder / "temporary"):
        directory.mkdir()
    for file, text in _files(name, deployed, config, ports, folder).items():
        (folder / file).write_text(text, encoding="utf-8")
    shutil.copyfile(INSIDE / "torchserve_handler.py", archive / "handler.py")
    shutil.copyfile(INSIDE / "runner.py", archive / "runner.py")


def _command(folder: Path, java: list[str], engine: InstalledServer) -> list[str]:
    return [
        *java, f"-Dmodel_server_home={engine.site}", f"-Djava.io.tmpdir={folder / 'temporary'}",
        f"-Dlog4j.configurationFile=file://{folder / 'log4j2.xml'}",
        "-cp", f".:{engine.site / 'ts' / 'frontend'}/*", "org.pytorch.serve.ModelServer",
        "--python", engine.command("python"), "-f", str(folder / _PROPERTIES), "-ncs",
    ]  # fmt: skip


def _session(
    name: str, versions: dict[str, str], workers: int, server: ServerProcess, control: AdminClient
) -> ServerSession:
    return SessionWithStats(
        client=plugins.client("torchserve"),
        endpoint=Endpoint(
            host=tcp_ports.LOOPBACK, port=server.ports["http"], model=name, protocol="torchserve"
        ),
        control=control,
        instances={"": workers},
        counters=lambda: _read_counters(control, Path(server.folder) / _TALLY, name),
        server=server,
        pid=server.pid,
        software=versions,
        files=base.read_config_files(server, _PROPERTIES),
    )


def _files(
    name: str, deployed: DeployedModel, config: Mapping[str, KnobValue], ports: Ports, folder: Path
) -> dict[str, str]:
    """Return the files of the server's directory: path to text."""
    lines = {**_addresses(ports), **_model_settings(name, config, folder), **base.engine_settings(config)}
    settings = {
        "file": deployed.file,
        "inputs": {spec.name: spec.dtype for spec in deployed.inputs},
        "outputs": [spec.name for spec in deployed.outputs],
        "threads": int(config.get("threads", 0)),
        "device": base.device_of(config),
        "tally": str(folder / _TALLY),
    }
    manifest = {
        "runtime": "python",
        "model": {"modelName": name, "modelVersion": "1.0", "handler": "handler.py"},
        "archiverVersion": "0.12.0",
    }
    return {
        _PROPERTIES: "".join(f"{key}={value}\n" for key, value in lines.items()),
        "log4j2.xml": _LOG4J,
        f"store/{name}/settings.json": json.dumps(settings, indent=2),
        f"store/{name}/MAR-INF/MANIFEST.json": json.dumps(manifest, indent=2),
    }


def _addresses(ports: Ports) -> dict[str, str]:
    """Return the settings that make the server listen on the loopback interface only."""
    return {
        "inference_address": f"http://{tcp_ports.LOOPBACK}:{ports['http']}",
        "management_address": f"http://{tcp_ports.LOOPBACK}:{ports['management']}",
        "metrics_address": f"http://{tcp_ports.LOOPBACK}:{ports['metrics']}",
        "grpc_inference_address": tcp_ports.LOOPBACK,
        "grpc_management_address": tcp_ports.LOOPBACK,
        "grpc_inference_port": str(ports["grpc"]),
        "grpc_management_port": str(ports["grpc_management"]),
    }


def _model_settings(name: str, config: Mapping[str, KnobValue], folder: Path) -> dict[str, str]:
    """Return the settings of the served model."""
    version = {
        "defaultVersion": True,
        "marName": name,
        "minWorkers": int(config["workers"]),
        "maxWorkers": int(config["workers"]),
        "batchSize": int(config["max_batch"]),
        "maxBatchDelay": -(-int(config.get("queue_delay", _DEFAULT_DELAY)) // 1000),
        "responseTimeout": 120,
        "startupTimeout": int(base.startup_time(config)),  # else it gives up on a worker before we do
    }
    return {
        "enable_model_api": "true",
        "disable_token_authorization": "true",
        "metrics_mode": "prometheus",
        "model_store": str(folder / "store"),
        "load_models": name,
        "models": json.dumps({name: {"1.0": version}}),
        **({"job_queue_size": str(config["queue_size"])} if "queue_size" in config else {}),
        **({"number_of_gpu": "0"} if base.device_of(config) == "cpu" else {}),
    }


def _is_ready(port: int, name: str, workers: int) -> bool:
    """Check whether all workers have loaded the model."""
    control = AdminClient(port=port, timeout=5)
    try:
        (description,) = control.get(f"/models/{name}")
        return [worker["status"] for worker in description["workers"]].count("READY") >= workers
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _read_counters(control: AdminClient, tally: Path, name: str) -> ServerCounters:
    """Merge the server's metrics of requests and queueing with the handler's counters of its work."""
    reported, total = prometheus_text.torchserve_counters(
        parse_samples(control.text("GET", "/metrics")), name
    )
    return prometheus_text.merge_server_counters(
        prometheus_text.sum_worker_counters(tally), reported, queue=reported.queue or 0.0, total=total
    )
