"""MLServer: one that we start, with a runtime of ours that runs the model's file in it."""

from __future__ import annotations

import json
import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from modeldyno import plugins
from modeldyno.backends import deployed, serving
from modeldyno.backends.serving import Counted, Session
from modeldyno.core.knob import BATCH_SIZE, Knob
from modeldyno.core.target import Endpoint
from modeldyno.engines import install, ports, prometheus, tally
from modeldyno.engines.control import Control
from modeldyno.engines.places import INSIDE
from modeldyno.engines.server import Launch, http_ready, running
from modeldyno.errors import RequestError
from modeldyno.ports import Form

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

_USUAL = {"http": 8080, "grpc": 8081, "metrics": 8082}
knobs = (
    Knob(
        name="protocol",
        kind=str,
        default="http-json",
        choices=("http-json", "grpc"),
        sentence="What requests are sent by: tensors as JSON over HTTP, or gRPC.",
    ),
    Knob(
        name="max_batch",
        kind=int,
        default=0,
        low=0,
        high=1 << 20,
        sentence="Requests that are gathered into one call of the model at most; below 2 none are.",
        aliases=("max_batch_size",),
    ),
    Knob(
        name="queue_delay",
        kind=int,
        default=None,
        low=1,
        sentence="Microseconds that a request may wait for others to share a call; needs max_batch.",
    ),
    Knob(
        name="workers",
        kind=int,
        default=0,
        low=0,
        high=1024,
        sentence="Processes that run the model beside the one that answers; 0 runs it in that one.",
        aliases=("parallel_workers", "instances"),
    ),
    serving.DEVICE,
    serving.THREADS,
    Knob(
        name="config",
        kind=str,
        default=None,
        family=True,
        sentence="Any setting of the server, such as config.gzip_enabled=false.",
    ),
    serving.ports_knob(_USUAL),
    serving.STARTUP_TIME,
    BATCH_SIZE,
)

_CLIENTS = {"http-json": "kserve-http", "grpc": "kserve-grpc"}
_MICRO = 1e-6
_DELAY = 2000
"""Microseconds, where batches are asked for and nobody says."""


def check(config: Mapping[str, KnobValue]) -> None:
    """Refuse knobs that exclude each other."""
    serving.device_of(config)
    ports.chosen(str(config.get("ports", "free")), _USUAL)
    if "queue_delay" in config and int(config.get("max_batch", 0)) < 2:  # noqa: PLR2004 - one is no batch
        raise RequestError(
            "The knob queue_delay has no effect without max_batch of 2 or more; set both, or neither."
        )


@contextmanager
def open(model: Model, config: Mapping[str, KnobValue]) -> Iterator[Session]:  # noqa: A001 - the port's word
    """Start a server for the model.

    Raises:
        RequestError: the model or the knobs cannot be brought into MLServer's form.
        MissingExtra: MLServer is not installed.
        ServerFailed: it does not start, or does not load the model.
    """
    engine = install.need("mlserver")
    if model.form == Form.TORCH and "torch" not in engine.versions:
        raise RequestError(
            "This MLServer has no torch to run the module; install it with: "
            "modeldyno engine install mlserver --with torch, or export the module to ONNX."
        )
    name = serving.name_of(model)
    written: dict[str, str] = {}
    places: dict[str, Path] = {}

    def command(folder: Path, chosen: Ports) -> list[str]:
        found = deployed.deploy(model, folder)
        _check(found, config)
        places["tally"] = folder / "tally"
        places["tally"].mkdir()
        written.update(_files(name, found, config, chosen, places["tally"]))
        for file, text in written.items():
            (folder / file).write_text(text, encoding="utf-8")
        for program in ("mlserver_runtime.py", "runner.py"):
            shutil.copyfile(INSIDE / program, folder / program)
        return [engine.command("python"), engine.command("mlserver"), "start", str(folder)]

    launch = Launch(
        name="mlserver",
        command=command,
        ports=ports.chosen(str(config.get("ports", "free")), _USUAL),
        ready=lambda chosen: http_ready(chosen["http"], f"/v2/models/{name}/ready"),
        environment={**engine.environment, "PYTHONDONTWRITEBYTECODE": "1"},
        patience=serving.startup_time(config),
    )
    with running(launch) as server:
        control = Control(port=server.ports["metrics"])
        grpc = config["protocol"] == "grpc"
        try:
            yield Counted(
                client=plugins.client(_CLIENTS[str(config["protocol"])]),
                endpoint=Endpoint(
                    host=ports.LOOPBACK,
                    port=server.ports["grpc" if grpc else "http"],
                    model=name,
                    options={} if grpc else {"binary": False},
                    protocol=_CLIENTS[str(config["protocol"])],
                ),
                control=control,
                counters=lambda: _account(control, places["tally"], name),
                server=server,
                pid=server.pid,
                software={
                    package: version for package, version in engine.versions.items() if package != "python"
                },
                files=tuple(written.items()),
            )
        finally:
            control.close()


def _check(found: Deployed, config: Mapping[str, KnobValue]) -> None:
    if int(config.get("max_batch", 0)) > 1 and not found.batched:
        raise RequestError(
            "Requests for this model cannot be gathered into batches, for not every input and output has a "
            "free first axis; export it with one, or leave max_batch out."
        )


def _files(
    name: str, found: Deployed, config: Mapping[str, KnobValue], chosen: Ports, counted: Path
) -> dict[str, str]:
    server: dict[str, Any] = {
        "debug": False,
        "host": ports.LOOPBACK,
        "http_port": chosen["http"],
        "grpc_port": chosen["grpc"],
        "metrics_port": chosen["metrics"],
        "parallel_workers": int(config["workers"]),
        "grpc_max_message_length": -1,
    }
    for path, value in config.items():
        if path.startswith("config."):
            server[path.removeprefix("config.")] = _value(str(value))
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
                "device": serving.device_of(config),
                "samples": int(config.get("batch_size", 1)),
                "tally": str(counted),
            }
        },
    }
    return {"settings.json": json.dumps(server, indent=2), "model-settings.json": json.dumps(model, indent=2)}


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
    told, inside, whole = prometheus.mlserver(prometheus.parse(control.text("GET", "/metrics")), name)
    worked = tally.account(counted)
    busy = (worked.compute_input or 0.0) + (worked.compute or 0.0) + (worked.compute_output or 0.0)
    return tally.completed(worked, told, queue=max(0.0, inside - busy), whole=whole)
