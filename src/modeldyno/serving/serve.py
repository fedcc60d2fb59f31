"""Start a server for a model that stays: what was asked -> Job -> server."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from modeldyno.base import plugins
from modeldyno.base.errors import RequestError, RunFailed, UnknownName
from modeldyno.base.job.devices import is_cpu
from modeldyno.base.metrics.measurement_plan import Plan
from modeldyno.engine.environment.devices import read_devices
from modeldyno.engine.environment.running_servers import check_name
from modeldyno.models.interface import Form
from modeldyno.profiling.request import SERVER, Request
from modeldyno.profiling.resolve_model import resolve_model
from modeldyno.serving.serve_worker import start_server

if TYPE_CHECKING:
    from collections.abc import Mapping

    from modeldyno.base.job.input_spec import InputSpec
    from modeldyno.base.job.knob import KnobValue
    from modeldyno.engine.environment.running_servers import ServerRecord

_SERVERS = {"tensorflow": "tensorflow-serving", "tfs": "tensorflow-serving"}
"""What is meant where a server is asked for: the backend ``tensorflow`` calls a model in a process."""
_ATTACHES = ("remote", "inspector")
"""Backends that call a server which somebody else has started."""
_DROPPED = re.compile(r"[^A-Za-z0-9_-]+")


def _starting_backends() -> list[str]:
    """Return the backends that start a server, those of plugins too."""
    backends = (name for name, _ in plugins.usable("backend") if name not in _ATTACHES)
    return [name for name in backends if plugins.serves(name)]


def serve_model(
    model: str,
    *,
    backend: str | None,
    settings: Mapping[str, KnobValue],
    device: str | None = None,
    ports: str | None = None,
    inputs: tuple[str | InputSpec, ...] = (),
    name: str | None = None,
    trust: bool = False,
    detach: bool = False,
) -> ServerRecord:
    """Start a server as a load does, check that it answers, and leave it running.

    It ends with this process, or with `detach` when it is stopped.

    Raises:
        RequestError: the request is invalid, or the name is taken.
        MissingExtra: the engine is not installed.
        RunFailed: the server does not start, or does not answer.
    """
    resolved = resolve_model(model)
    ref = resolved.ref
    own = plugins.loader(ref.scheme).backend
    if own == Form.REMOTE:
        raise RequestError(f"{model} is on a server already; load it by its URL.")
    backend = backend or (own if plugins.serves(own) else SERVER)
    backend = _SERVERS.get(backend, backend)
    if backend not in plugins.names("backend"):
        raise UnknownName.among("backend that starts a server", backend, _starting_backends())
    if backend in _ATTACHES or not plugins.serves(backend):
        *others, last = _starting_backends()
        raise RequestError(f"The backend '{backend}' starts no server; choose {', '.join(others)} or {last}.")
    chosen = check_name(name) if name is not None else _name_of(resolved.name or ref.locator)
    knobs = {"device": device, "ports": ports}
    for knob, value in knobs.items():
        if value is not None and knob in settings:
            raise RequestError(f"The knob {knob} is set twice: {value} and {settings[knob]}.")
    request = Request(
        model=model,
        backend=backend,
        settings={**settings, **{knob: value for knob, value in knobs.items() if value is not None}},
        inputs=inputs,
        probes=("load",),
        plan=Plan(),
        trust=trust,
    )
    owner = None if detach else os.getpid()
    try:
        return start_server(request.job(), chosen, numbered=name is None, owner=owner)
    except RunFailed as error:
        device_name = str(request.settings.get("device", "cpu"))
        reading = None if is_cpu(device_name) else read_devices()
        if reading is None or reading.devices:
            raise
        raise RunFailed(f"{error} No device was seen for {device_name}. {reading.source}") from error


def _name_of(locator: str) -> str:
    """Return the name of a server from a model's locator: ``models/digits.onnx`` -> ``digits``."""
    word = locator.rpartition("#")[2] or locator
    word = word.rpartition(":")[2] if ":" in Path(word).name else Path(word).stem
    return _DROPPED.sub("-", word).strip("-")[:60] or "model"
