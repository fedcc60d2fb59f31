"""Has a running Triton load our model for the measurement, and unload it afterwards."""

from __future__ import annotations

import base64
import json
import os
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from modeldyno.base import plugins
from modeldyno.base.errors import RequestError
from modeldyno.base.metrics.doubt import Doubt
from modeldyno.engine.interfaces.request_target import Tls
from modeldyno.serving.backends import base, model_files, triton_knobs
from modeldyno.serving.backends.base import ServerSession, SessionWithStats
from modeldyno.serving.load import endpoint_url
from modeldyno.serving.servers import (
    admin_client,
    pbtxt,
    triton_repository_reader,
    triton_repository_writer,
    triton_stats,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from modeldyno.base.job.knob import KnobValue
    from modeldyno.engine.interfaces.server_stats import ServerCounters
    from modeldyno.models.interface import Model
    from modeldyno.serving.backends.model_files import DeployedModel
    from modeldyno.serving.servers.admin_client import AdminClient
    from modeldyno.serving.servers.triton_config import Config

_GRPC_PORT = 8001


@contextmanager
def open_remote_triton(model: Model, config: Mapping[str, KnobValue]) -> Iterator[ServerSession]:
    """Load the model into a running Triton; unload it on exit.

    Raises:
        RequestError: no server answers, or it does not load the model.
    """
    control = _connect(config)
    name = f"modeldyno-{base.servable_name(model)}-{model.identity.digest.rpartition(':')[2][:8]}"
    try:
        others = _loaded_models(control)
    except OSError as error:
        raise RequestError(f"No Triton answers at {config['server']}: {error}.") from error
    with TemporaryDirectory(prefix="modeldyno-") as folder:
        deployed = model_files.deploy(model, Path(folder) / name / "1")
        model_config = _upload(control, Path(folder), _candidate_configs(name, deployed, config))
    try:
        yield _session(control, model_config, config, others)
    finally:
        with suppress(OSError):
            control.post(f"/v2/repository/models/{name}/unload")


def _connect(config: Mapping[str, KnobValue]) -> AdminClient:
    """Connect to the server with the headers of requests, which may hold a token."""
    headers = endpoint_url.parse_headers(os.environ.get(endpoint_url.HEADERS_VARIABLE, ""))
    control = admin_client.AdminClient.at(str(config["server"]), dict(headers))
    control.timeout = base.startup_time(config)
    return control


def _session(
    control: AdminClient, model_config: Config, config: Mapping[str, KnobValue], others: list[str]
) -> SessionWithStats:
    """Return a session on the model that the server loaded for us."""
    name = str(model_config["name"])
    ports = {"http": control.port, "grpc": int(config.get("grpc_port", _GRPC_PORT))}
    endpoint = replace(
        triton_knobs.request_endpoint(config, control.host, ports, name),
        headers=tuple(control.headers.items()),
        path="" if config["protocol"] == "grpc" else control.path,
        tls=Tls() if control.secure else None,
    )
    return SessionWithStats(
        client=plugins.client(endpoint.protocol),
        endpoint=endpoint,
        control=control,
        server=None,
        pid=None,
        software=server_version(control),
        doubts=_foreign_model_doubts(others),
        counters=lambda: read_model_stats(control, [model_config]),
        instances=count_instances(control, [model_config]),
        files=(("config.pbtxt", pbtxt.to_pbtxt(model_config)),),
        flat=triton_knobs.flat_outputs(model_config),
    )


def _candidate_configs(name: str, deployed: DeployedModel, config: Mapping[str, KnobValue]) -> list[Config]:
    """Return the configurations to try: a server does not report its backends."""
    natives = {"onnxruntime": [True], "python": [False]}.get(str(config.get("runtime")), [True, False])
    return [
        triton_knobs.configuration(name, deployed, config, native=native)
        for native in natives
        if deployed.runtime != "torch" or not native
    ]


def _upload(control: AdminClient, folder: Path, candidates: list[Config]) -> Config:
    """Upload the model's files with its configuration; the server keeps them until it unloads the model."""
    error: OSError = OSError("there is nothing to load")
    for model_config in candidates:
        version_folder = triton_repository_writer.write_model_entry(folder, model_config)
        files = {
            f"file:1/{path.name}": base64.b64encode(path.read_bytes()).decode()
            for path in sorted(version_folder.iterdir())
        }
        try:
            control.post(
                f"/v2/repository/models/{model_config['name']}/load",
                {"parameters": {"config": json.dumps(model_config), **files}},
            )
        except OSError as refused:
            error = refused
        else:
            return model_config
    raise RequestError(
        f"The Triton at {control.host}:{control.port} does not load the model ({error}); it must run with "
        "--model-control-mode=explicit."
    )


def _loaded_models(control: AdminClient) -> list[str]:
    index = control.post("/v2/repository/index", {"ready": True}) or ()
    return sorted({str(model["name"]) for model in index if model.get("state", "READY") == "READY"})


def _foreign_model_doubts(names: list[str]) -> tuple[Doubt, ...]:
    if not names:
        return ()
    return (
        Doubt(
            code="foreign-models",
            seen=f"the server also has {', '.join(names[:4])}{' ...' if len(names) > 4 else ''}",
            advice="measure on a server without other models, or compare with one that has the same models",
        ),
    )


def read_model_stats(control: AdminClient, configs: Sequence[Config]) -> ServerCounters:
    """Read the statistics of a model, and of those that it is made of; its configuration is the first."""
    return sum_model_stats(
        lambda name: control.get(f"/v2/models/{name}/stats" if name else "/v2/models/stats"), configs
    )


def sum_model_stats(read: Callable[[str], Mapping[str, Any]], configs: Sequence[Config]) -> ServerCounters:
    """Read the statistics as `read_model_stats`; `read` returns those of a model, of all for an empty name.

    Triton adds the compute times of the models of an ensemble to it, but not their queues.
    """
    name, *parts = (str(config["name"]) for config in configs)
    if not parts:
        return triton_stats.parse_statistics(read(name))
    counters = triton_stats.parse_statistics(read(""), name, parts)
    if not triton_repository_reader.is_ensemble(configs[0]):
        return counters
    return replace(counters, queue=sum(each.queue or 0.0 for each in (counters, *counters.models.values())))


def count_instances(control: AdminClient, configs: Sequence[Config]) -> dict[str, int]:
    """Return the instances of each model that answers a request, as the server tells, and "" for all."""
    counts: dict[str, int] = {}
    with suppress(OSError, KeyError, TypeError, ValueError):
        for config in configs:
            live_config = control.get(f"/v2/models/{config['name']}/config")
            groups = live_config.get("instance_group") or ()
            if groups:
                counts[str(config["name"])] = sum(
                    int(group["count"]) * max(1, len(group.get("gpus") or ())) for group in groups
                )
    return {"": sum(counts.values()), **(counts if len(counts) > 1 else {})} if counts else {}


def server_version(control: AdminClient) -> dict[str, str]:
    """Return the server's version, empty if it does not tell."""
    try:
        return {"triton": str(control.get("/v2")["version"])}
    except (OSError, KeyError, TypeError):
        return {}
