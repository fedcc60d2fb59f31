"""MLServer: one that we start, with a runtime of ours that runs the model's file in it."""

from __future__ import annotations

import json
import shutil
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modeldyno import plugins
from modeldyno.adapters.backends.served import base, model_files
from modeldyno.adapters.backends.served.base import Counted, Session
from modeldyno.core.load.request_target import Endpoint
from modeldyno.servers import install, prometheus_text, tcp_ports, worker_counters
from modeldyno.servers.paths import INSIDE
from modeldyno.servers.server_process import Launch, http_ready

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from modeldyno.adapters.backends.served.model_files import Deployed
    from modeldyno.core.load.server_stats import Account
    from modeldyno.core.spec.knob import KnobValue
    from modeldyno.interfaces import Model
    from modeldyno.servers.admin_client import Control
    from modeldyno.servers.server_process import Ports, Server

requires: tuple[str, ...] = ()
accepts = model_files.accepts
serves = True

_USUAL = {"http": 8080, "grpc": 8081, "metrics": 8082}
knobs = (
    base.knob("protocol"),
    base.knob(
        "max_batch",
        default=0,
        low=0,
        sentence="Requests that are gathered into one call of the model at most; below 2 none are.",
    ),
    base.knob("queue_delay"),
    base.knob(
        "workers",
        default=0,
        low=0,
        sentence="Processes that run the model beside the one that answers; 0 runs it in that one.",
        aliases=("parallel_workers", "instances"),
    ),
    base.knob("device"),
    base.knob("threads"),
    base.knob("config", sentence="Any setting of the server, such as config.gzip_enabled=false."),
    base.ports_knob(_USUAL),
    base.knob("startup_time"),
    base.knob("batch_size"),
)

_CLIENTS = {"http-json": "kserve-http", "grpc": "kserve-grpc"}
_SERVER, _MODEL, _TALLY = "settings.json", "model-settings.json", "tally"
"""Files of the server's directory, and the folder in which the runtime counts."""
_MICRO = 1e-6
_DELAY = 2000
"""Microseconds, where batches are asked for and nobody says."""


def check(config: Mapping[str, KnobValue]) -> None:
    """Refuse knobs that exclude each other."""
    base.check(config, _USUAL)


@contextmanager
def open(model: Model, config: Mapping[str, KnobValue]) -> Iterator[Session]:  # noqa: A001 - the port's word
    """Start a server for the model.

    Raises:
        RequestError: the model or the knobs cannot be brought into MLServer's form.
        MissingExtra: MLServer is not installed.
        ServerFailed: it does not start, or does not load the model.
    """
    engine = install.need("mlserver")
    base.need_torch(model, "mlserver", "MLServer", engine.versions)
    name = base.name_of(model)

    def command(folder: Path, chosen: Ports) -> list[str]:
        _fill(folder, model_files.deploy(model, folder), config, chosen, name)
        return [engine.command("python"), engine.command("mlserver"), "start", str(folder)]

    launch = Launch(
        name="mlserver",
        command=command,
        ports=base.chosen_ports(config, _USUAL),
        ready=lambda chosen: http_ready(chosen["http"], f"/v2/models/{name}/ready"),
        environment={**engine.environment, "PYTHONDONTWRITEBYTECODE": "1"},
        patience=base.startup_time(config),
    )
    versions = {package: version for package, version in engine.versions.items() if package != "python"}
    with base.served(launch, "metrics", partial(_session, config, name, versions)) as session:
        yield session


def _fill(folder: Path, found: Deployed, config: Mapping[str, KnobValue], chosen: Ports, name: str) -> None:
    """Write what the server reads."""
    base.gatherable(found, config)
    (folder / _TALLY).mkdir()
    for file, text in _files(name, found, config, chosen, folder / _TALLY).items():
        (folder / file).write_text(text, encoding="utf-8")
    for program in ("mlserver_runtime.py", "runner.py"):
        shutil.copyfile(INSIDE / program, folder / program)


def _session(
    config: Mapping[str, KnobValue], name: str, versions: dict[str, str], server: Server, beside: Control
) -> Session:
    protocol = str(config["protocol"])
    return Counted(
        client=plugins.client(_CLIENTS[protocol]),
        endpoint=Endpoint(
            host=tcp_ports.LOOPBACK,
            port=server.ports["grpc" if protocol == "grpc" else "http"],
            model=name,
            options={} if protocol == "grpc" else {"binary": False},
            protocol=_CLIENTS[protocol],
        ),
        control=beside,
        counters=lambda: _account(beside, Path(server.folder) / _TALLY, name),
        server=server,
        pid=server.pid,
        software=versions,
        files=base.texts(server, _SERVER, _MODEL),
    )


def _files(
    name: str, found: Deployed, config: Mapping[str, KnobValue], chosen: Ports, counted: Path
) -> dict[str, str]:
    server: dict[str, Any] = {
        "debug": False,
        "host": tcp_ports.LOOPBACK,
        "http_port": chosen["http"],
        "grpc_port": chosen["grpc"],
        "metrics_port": chosen["metrics"],
        "parallel_workers": int(config["workers"]),
        "grpc_max_message_length": -1,
    }
    server |= {path: _value(text) for path, text in base.fields(config).items()}
    model = {
        "name": name,
        "implementation": "mlserver_runtime.Runtime",
        "max_batch_size": int(config["max_batch"]),
        "max_batch_time": int(config.get("queue_delay", _DELAY)) * _MICRO,
        "parameters": {
            "extra": {
                "file": found.file,
                "inputs": {each.name: _numpy(each.dtype) for each in found.inputs},
                "outputs": [each.name for each in found.outputs],
                "threads": int(config.get("threads", 0)),
                "device": base.device_of(config),
                "samples": int(config.get("batch_size", 1)),
                "tally": str(counted),
            }
        },
    }
    return {_SERVER: json.dumps(server, indent=2), _MODEL: json.dumps(model, indent=2)}


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _numpy(dtype: str | None) -> str:
    return "object" if dtype == "string" else str(dtype)


def _account(control: Control, counted: Path, name: str) -> Account:
    """Join what the server tells of requests with what the runtime counts of its work.

    What a request spent with the model beside that work, it waited: for the model, and for others to share a
    call.
    """
    told, inside, whole = prometheus_text.mlserver(
        prometheus_text.parse(control.text("GET", "/metrics")), name
    )
    worked = worker_counters.account(counted)
    busy = (worked.compute_input or 0.0) + (worked.compute or 0.0) + (worked.compute_output or 0.0)
    return worker_counters.completed(worked, told, queue=max(0.0, inside - busy), whole=whole)
