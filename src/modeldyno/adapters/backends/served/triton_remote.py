"""A Triton that runs elsewhere: it loads our model for the while, and is left as it was found."""

from __future__ import annotations

import base64
import json
import os
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from modeldyno import plugins
from modeldyno.adapters.backends.served import base, model_files, triton_knobs
from modeldyno.adapters.backends.served.base import Counted, Session
from modeldyno.core.load import endpoint_url
from modeldyno.core.load.request_target import Tls
from modeldyno.core.metrics.doubt import Doubt
from modeldyno.errors import RequestError
from modeldyno.servers import admin_client, triton_config, triton_repository_writer, triton_stats

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from modeldyno.adapters.backends.served.model_files import Deployed
    from modeldyno.core.load.server_stats import Account
    from modeldyno.core.spec.knob import KnobValue
    from modeldyno.interfaces import Model
    from modeldyno.servers.admin_client import Control
    from modeldyno.servers.triton_config import Config

_GRPC_PORT = 8001


@contextmanager
def elsewhere(model: Model, config: Mapping[str, KnobValue]) -> Iterator[Session]:
    """Have it load the model, and unload it in the end.

    Raises:
        RequestError: nobody answers, or it does not load the model.
    """
    with closing(_reached(config)) as beside:
        name = f"modeldyno-{base.name_of(model)}-{model.identity.digest.rpartition(':')[2][:8]}"
        try:
            foreign = _loaded(beside)
        except OSError as error:
            raise RequestError(f"No Triton answers at {config['server']}: {error}.") from error
        with TemporaryDirectory(prefix="modeldyno-") as folder:
            found = model_files.deploy(model, Path(folder) / name / "1")
            written = _upload(beside, Path(folder), _candidates(name, found, config))
        try:
            yield _guest(beside, written, config, foreign)
        finally:
            with suppress(OSError):
                beside.post(f"/v2/repository/models/{name}/unload")


def _reached(config: Mapping[str, KnobValue]) -> Control:
    """Reach the server, with the headers of requests: they may hold a token."""
    given = endpoint_url.parse_headers(os.environ.get(endpoint_url.HEADERS_VARIABLE, ""))
    beside = admin_client.Control.at(str(config["server"]), dict(given))
    beside.timeout = base.startup_time(config)
    return beside


def _guest(beside: Control, written: Config, config: Mapping[str, KnobValue], foreign: list[str]) -> Counted:
    """Give a session of a model that the server loaded for us."""
    name = str(written["name"])
    at = {"http": beside.port, "grpc": int(config.get("grpc_port", _GRPC_PORT))}
    endpoint = replace(
        triton_knobs.endpoint(config, beside.host, at, name),
        headers=tuple(beside.headers.items()),
        path="" if config["protocol"] == "grpc" else beside.path,
        tls=Tls() if beside.secure else None,
    )
    return Counted(
        client=plugins.client(endpoint.protocol),
        endpoint=endpoint,
        control=beside,
        server=None,
        pid=None,
        software=version(beside),
        doubts=_foreign(foreign),
        counters=lambda: account(beside, name),
        files=(("config.pbtxt", triton_config.text(written)),),
        flat=triton_knobs.flat(written),
    )


def _candidates(name: str, found: Deployed, config: Mapping[str, KnobValue]) -> list[Config]:
    """Give what to try: a server does not tell which backends it has."""
    natives = {"onnxruntime": [True], "python": [False]}.get(str(config.get("runtime")), [True, False])
    return [
        triton_knobs.configuration(name, found, config, native=native)
        for native in natives
        if found.runtime != "torch" or not native
    ]


def _upload(beside: Control, folder: Path, candidates: list[Config]) -> Config:
    """Send the model's files with its configuration; the server keeps them until it unloads the model."""
    error: OSError = OSError("there is nothing to load")
    for written in candidates:
        version = triton_repository_writer.write(folder, written)
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


def account(beside: Control, name: str) -> Account:
    """Look at the statistics of a model."""
    return triton_stats.account(beside.get(f"/v2/models/{name}/stats"))


def version(beside: Control) -> dict[str, str]:
    """Ask for the version."""
    try:
        return {"triton": str(beside.get("/v2")["version"])}
    except (OSError, KeyError, TypeError):
        return {}
