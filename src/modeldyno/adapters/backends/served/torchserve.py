"""TorchServe: one that we start, with a handler of ours that runs the model's file in it."""

from __future__ import annotations

import json
import re
import shutil
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from modeldyno import plugins
from modeldyno.adapters.backends.served import base, model_files
from modeldyno.adapters.backends.served.base import Counted, Session
from modeldyno.core.load.request_target import Endpoint
from modeldyno.core.spec.knob import Knob
from modeldyno.servers import install, prometheus_text, tcp_ports, worker_counters
from modeldyno.servers.admin_client import Control
from modeldyno.servers.paths import INSIDE
from modeldyno.servers.server_process import Launch

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from modeldyno.adapters.backends.served.model_files import Deployed
    from modeldyno.core.load.server_stats import Account
    from modeldyno.core.spec.knob import KnobValue
    from modeldyno.interfaces import Model
    from modeldyno.servers.install import Installed
    from modeldyno.servers.server_process import Ports, Server

requires: tuple[str, ...] = ()
accepts = model_files.accepts
serves = True

_USUAL = {"http": 8080, "management": 8081, "metrics": 8082, "grpc": 7070, "grpc_management": 7071}
knobs = (
    base.knob("workers"),
    base.knob("max_batch"),
    base.knob(
        "queue_delay",
        low=1000,
        sentence="Microseconds (whole milliseconds) that a request may wait for others; 100000 if not set.",
    ),
    Knob(
        name="queue_size",
        kind=int,
        default=None,
        low=1,
        sentence="Requests that may wait; TorchServe refuses those beyond 100 with 503.",
        aliases=("job_queue_size",),
    ),
    base.knob("device"),
    base.knob("threads"),
    base.knob("config", sentence="Any line of config.properties, such as config.netty_client_threads=2."),
    Knob(name="jvm", kind=str, default=None, sentence="Options of Java, such as -Xmx2g."),
    base.ports_knob(_USUAL),
    base.knob("startup_time"),
    base.knob("batch_size"),
)

_PROPERTIES, _TALLY = "config.properties", "tally"
"""The server's file of settings, and the folder in which the handler counts."""
_TOLD = ("torchserve", "torch", "onnxruntime")
_HOPELESS = re.compile(r"Load model failed|Auto recovery failed again")
"""A worker that cannot load the model is started again and again, for ever."""
_DELAY = 100_000
_LOGS = """<?xml version="1.0" encoding="UTF-8"?>
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
"""Its own default writes four files and several lines for each request."""


def check(config: Mapping[str, KnobValue]) -> None:
    """Refuse knobs that exclude each other."""
    base.check(config, _USUAL)


@contextmanager
def open(model: Model, config: Mapping[str, KnobValue]) -> Iterator[Session]:  # noqa: A001 - the port's word
    """Start a server for the model.

    Raises:
        RequestError: the model or the knobs cannot be brought into TorchServe's form.
        MissingExtra: TorchServe or Java is not installed.
        ServerFailed: it does not start, or does not load the model.
    """
    engine, java = install.need("torchserve"), install.java()
    name, workers = base.name_of(model), int(config["workers"])

    def command(folder: Path, chosen: Ports) -> list[str]:
        _fill(folder, model_files.deploy(model, folder / "store" / name), config, chosen, name)
        return _command(folder, [java, *str(config.get("jvm", "")).split()], engine)

    launch = Launch(
        name="torchserve",
        command=command,
        ports=base.chosen_ports(config, _USUAL),
        ready=lambda chosen: _ready(chosen["management"], name, workers),
        environment={
            **engine.environment,
            "TS_CONFIG_FILE": "",
            "LOG_LOCATION": "logs",
            "METRICS_LOCATION": "logs",
        },
        hopeless=_HOPELESS,
        patience=base.startup_time(config),
    )
    versions = {package: engine.versions[package] for package in _TOLD if package in engine.versions}
    with base.served(launch, "metrics", partial(_session, name, versions)) as session:
        yield session


def _fill(folder: Path, found: Deployed, config: Mapping[str, KnobValue], chosen: Ports, name: str) -> None:
    """Write what the server reads."""
    archive = folder / "store" / name
    for made in (archive / "MAR-INF", folder / _TALLY, folder / "temporary"):
        made.mkdir()
    for file, text in _files(name, found, config, chosen, folder).items():
        (folder / file).write_text(text, encoding="utf-8")
    shutil.copyfile(INSIDE / "torchserve_handler.py", archive / "handler.py")
    shutil.copyfile(INSIDE / "runner.py", archive / "runner.py")


def _command(folder: Path, java: list[str], engine: Installed) -> list[str]:
    return [
        *java, f"-Dmodel_server_home={engine.site}", f"-Djava.io.tmpdir={folder / 'temporary'}",
        f"-Dlog4j.configurationFile=file://{folder / 'log4j2.xml'}",
        "-cp", f".:{engine.site / 'ts' / 'frontend'}/*", "org.pytorch.serve.ModelServer",
        "--python", engine.command("python"), "-f", str(folder / _PROPERTIES), "-ncs",
    ]  # fmt: skip


def _session(name: str, versions: dict[str, str], server: Server, beside: Control) -> Session:
    return Counted(
        client=plugins.client("torchserve"),
        endpoint=Endpoint(
            host=tcp_ports.LOOPBACK, port=server.ports["http"], model=name, protocol="torchserve"
        ),
        control=beside,
        counters=lambda: _account(beside, Path(server.folder) / _TALLY, name),
        server=server,
        pid=server.pid,
        software=versions,
        files=base.texts(server, _PROPERTIES),
    )


def _files(
    name: str, found: Deployed, config: Mapping[str, KnobValue], chosen: Ports, folder: Path
) -> dict[str, str]:
    """Give the files of the server's directory: path to text."""
    lines = {**_addresses(chosen), **_serving(name, config, folder), **base.fields(config)}
    settings = {
        "file": found.file,
        "inputs": {each.name: each.dtype for each in found.inputs},
        "outputs": [each.name for each in found.outputs],
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
        "log4j2.xml": _LOGS,
        f"store/{name}/settings.json": json.dumps(settings, indent=2),
        f"store/{name}/MAR-INF/MANIFEST.json": json.dumps(manifest, indent=2),
    }


def _addresses(chosen: Ports) -> dict[str, str]:
    """Have it listen on the loopback alone."""
    return {
        "inference_address": f"http://{tcp_ports.LOOPBACK}:{chosen['http']}",
        "management_address": f"http://{tcp_ports.LOOPBACK}:{chosen['management']}",
        "metrics_address": f"http://{tcp_ports.LOOPBACK}:{chosen['metrics']}",
        "grpc_inference_address": tcp_ports.LOOPBACK,
        "grpc_management_address": tcp_ports.LOOPBACK,
        "grpc_inference_port": str(chosen["grpc"]),
        "grpc_management_port": str(chosen["grpc_management"]),
    }


def _serving(name: str, config: Mapping[str, KnobValue], folder: Path) -> dict[str, str]:
    """Say which model it is to serve, and how."""
    serves = {
        "defaultVersion": True,
        "marName": name,
        "minWorkers": int(config["workers"]),
        "maxWorkers": int(config["workers"]),
        "batchSize": int(config["max_batch"]),
        "maxBatchDelay": -(-int(config.get("queue_delay", _DELAY)) // 1000),
        "responseTimeout": 120,
        "startupTimeout": int(base.startup_time(config)),  # or it gives a worker up before we do
    }
    return {
        "enable_model_api": "true",
        "disable_token_authorization": "true",
        "metrics_mode": "prometheus",
        "model_store": str(folder / "store"),
        "load_models": name,
        "models": json.dumps({name: {"1.0": serves}}),
        **({"job_queue_size": str(config["queue_size"])} if "queue_size" in config else {}),
        **({"number_of_gpu": "0"} if base.device_of(config) == "cpu" else {}),
    }


def _ready(port: int, name: str, workers: int) -> bool:
    """Ask whether all workers have loaded the model."""
    control = Control(port=port, timeout=5)
    try:
        (told,) = control.get(f"/models/{name}")
        return [worker["status"] for worker in told["workers"]].count("READY") >= workers
    except (OSError, ValueError, KeyError, TypeError):
        return False
    finally:
        control.close()


def _account(control: Control, counted: Path, name: str) -> Account:
    """Join the requests and their wait, which the server tells, with the work that the handler counts."""
    told, whole = prometheus_text.torchserve(prometheus_text.parse(control.text("GET", "/metrics")), name)
    return worker_counters.completed(
        worker_counters.account(counted), told, queue=told.queue or 0.0, whole=whole
    )
