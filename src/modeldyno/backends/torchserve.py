"""TorchServe: one that we start, with a handler of ours that runs the model's file in it."""

from __future__ import annotations

import json
import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING

from modeldyno import plugins
from modeldyno.backends import deployed, serving
from modeldyno.backends.serving import Counted, Session
from modeldyno.core.knob import BATCH_SIZE, Knob
from modeldyno.core.target import Endpoint
from modeldyno.engines import install, ports, prometheus, tally
from modeldyno.engines.control import Control
from modeldyno.engines.places import INSIDE
from modeldyno.engines.server import Launch, running
from modeldyno.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from modeldyno.backends.deployed import Deployed
    from modeldyno.core.account import Account
    from modeldyno.core.knob import KnobValue
    from modeldyno.engines.server import Ports
    from modeldyno.ports import Model

requires: tuple[str, ...] = ()
accepts = deployed.accepts
serves = True

_USUAL = {"http": 8080, "management": 8081, "metrics": 8082, "grpc": 7070, "grpc_management": 7071}
knobs = (
    Knob(
        name="workers",
        kind=int,
        default=1,
        low=1,
        high=1024,
        sentence="Processes that run the model.",
        aliases=("instances",),
    ),
    Knob(
        name="max_batch",
        kind=int,
        default=1,
        low=1,
        high=1 << 20,
        sentence="Requests that are gathered into one call of the model at most.",
        aliases=("max_batch_size",),
    ),
    Knob(
        name="queue_delay",
        kind=int,
        default=None,
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
    serving.DEVICE,
    serving.THREADS,
    Knob(
        name="config",
        kind=str,
        default=None,
        family=True,
        sentence="Any line of config.properties, such as config.netty_client_threads=2.",
    ),
    Knob(name="jvm", kind=str, default=None, sentence="Options of Java, such as -Xmx2g."),
    serving.ports_knob(_USUAL),
    serving.STARTUP_TIME,
    BATCH_SIZE,
)

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
    serving.device_of(config)
    ports.chosen(str(config.get("ports", "free")), _USUAL)
    if "queue_delay" in config and int(config.get("max_batch", 1)) < 2:  # noqa: PLR2004 - one is no batch
        raise RequestError(
            "The knob queue_delay has no effect without max_batch of 2 or more; set both, or neither."
        )


@contextmanager
def open(model: Model, config: Mapping[str, KnobValue]) -> Iterator[Session]:  # noqa: A001 - the port's word
    """Start a server for the model.

    Raises:
        RequestError: the model or the knobs cannot be brought into TorchServe's form.
        MissingExtra: TorchServe or Java is not installed.
        ServerFailed: it does not start, or does not load the model.
    """
    engine = install.need("torchserve")
    java = install.java()
    name = serving.name_of(model)
    written: dict[str, str] = {}
    places: dict[str, Path] = {}

    def command(folder: Path, chosen: Ports) -> list[str]:
        archive = folder / "store" / name
        found = deployed.deploy(model, archive)
        places["tally"] = folder / "tally"
        for made in (archive / "MAR-INF", places["tally"], folder / "temporary"):
            made.mkdir()
        written.update(_files(name, found, config, chosen, folder))
        for file, text in written.items():
            (folder / file).write_text(text, encoding="utf-8")
        shutil.copyfile(INSIDE / "torchserve_handler.py", archive / "handler.py")
        shutil.copyfile(INSIDE / "runner.py", archive / "runner.py")
        return [
            java, *str(config.get("jvm", "")).split(), f"-Dmodel_server_home={engine.site}",
            f"-Djava.io.tmpdir={folder / 'temporary'}",
            f"-Dlog4j.configurationFile=file://{folder / 'log4j2.xml'}",
            "-cp", f".:{engine.site / 'ts' / 'frontend'}/*", "org.pytorch.serve.ModelServer",
            "--python", engine.command("python"), "-f", str(folder / "config.properties"), "-ncs",
        ]  # fmt: skip

    workers = int(config["workers"])
    launch = Launch(
        name="torchserve",
        command=command,
        ports=ports.chosen(str(config.get("ports", "free")), _USUAL),
        ready=lambda chosen: _ready(chosen["management"], name, workers),
        environment={
            **engine.environment,
            "TS_CONFIG_FILE": "",
            "LOG_LOCATION": "logs",
            "METRICS_LOCATION": "logs",
        },
        patience=serving.startup_time(config),
    )
    with running(launch) as server:
        control = Control(port=server.ports["metrics"])
        try:
            yield Counted(
                client=plugins.client("torchserve"),
                endpoint=Endpoint(
                    host=ports.LOOPBACK, port=server.ports["http"], model=name, protocol="torchserve"
                ),
                control=control,
                counters=lambda: _account(control, places["tally"], name),
                server=server,
                pid=server.pid,
                software={
                    package: version for package, version in engine.versions.items() if package in _TOLD
                },
                files=tuple(written.items()),
            )
        finally:
            control.close()


_TOLD = {"torchserve", "torch", "onnxruntime"}


def _files(
    name: str, found: Deployed, config: Mapping[str, KnobValue], chosen: Ports, folder: Path
) -> dict[str, str]:
    """Give the files of the server's directory: path to text."""
    serves = {
        "defaultVersion": True,
        "marName": name,
        "minWorkers": int(config["workers"]),
        "maxWorkers": int(config["workers"]),
        "batchSize": int(config["max_batch"]),
        "maxBatchDelay": -(-int(config.get("queue_delay", _DELAY)) // 1000),
        "responseTimeout": 120,
    }
    lines = {
        "inference_address": f"http://{ports.LOOPBACK}:{chosen['http']}",
        "management_address": f"http://{ports.LOOPBACK}:{chosen['management']}",
        "metrics_address": f"http://{ports.LOOPBACK}:{chosen['metrics']}",
        "grpc_inference_address": ports.LOOPBACK,
        "grpc_management_address": ports.LOOPBACK,
        "grpc_inference_port": str(chosen["grpc"]),
        "grpc_management_port": str(chosen["grpc_management"]),
        "enable_model_api": "true",
        "disable_token_authorization": "true",
        "metrics_mode": "prometheus",
        "model_store": str(folder / "store"),
        "load_models": name,
        "models": json.dumps({name: {"1.0": serves}}),
        **({"job_queue_size": str(config["queue_size"])} if "queue_size" in config else {}),
        **({"number_of_gpu": "0"} if serving.device_of(config) == "cpu" else {}),
    }
    for path, value in config.items():
        if path.startswith("config."):
            lines[path.removeprefix("config.")] = str(value)
    settings = {
        "file": found.file,
        "inputs": {each.name: each.dtype for each in found.inputs},
        "outputs": [each.name for each in found.outputs],
        "threads": int(config.get("threads", 0)),
        "device": serving.device_of(config),
        "tally": str(folder / "tally"),
    }
    manifest = {
        "runtime": "python",
        "model": {"modelName": name, "modelVersion": "1.0", "handler": "handler.py"},
        "archiverVersion": "0.12.0",
    }
    return {
        "config.properties": "".join(f"{key}={value}\n" for key, value in lines.items()),
        "log4j2.xml": _LOGS,
        f"store/{name}/settings.json": json.dumps(settings, indent=2),
        f"store/{name}/MAR-INF/MANIFEST.json": json.dumps(manifest, indent=2),
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
    told, whole = prometheus.torchserve(prometheus.parse(control.text("GET", "/metrics")), name)
    return tally.completed(tally.account(counted), told, queue=told.queue or 0.0, whole=whole)
