"""Further servers of the same model, to which the requests of a load go in turn."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from modeldyno.base.clock import monotonic, sleep
from modeldyno.base.errors import RequestError
from modeldyno.serving.backends.generation_server import NO_METRICS
from modeldyno.serving.backends.request_knobs import REPLICAS_KNOB, SERVER_METRICS
from modeldyno.serving.backends.shared_regions import SHARED_MEMORY
from modeldyno.serving.load.endpoint_url import parse_endpoint, unknown_model
from modeldyno.serving.loadgen.single_request import STATISTICS_TIMEOUT, send_once

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from modeldyno.base.job.knob import KnobValue
    from modeldyno.engine.interfaces.request_target import Endpoint
    from modeldyno.serving.interfaces.client import Client

_SEPARATOR = re.compile(r"[\s,]+(?=[a-z]+://)")
"""Between URLs, which have commas of their own."""
_PAUSE = 0.2
"""Seconds between two questions to a replica that is starting."""


def find_replicas(client: Client, endpoint: Endpoint, config: Mapping[str, KnobValue]) -> Iterator[Endpoint]:
    """Yield the further servers that the knob names.

    Raises:
        RequestError: one is no URL of a server that has the model, too, or is there twice.
    """
    if REPLICAS_KNOB.name not in config:
        return
    if str(config.get(SERVER_METRICS, NO_METRICS)) != NO_METRICS:
        raise RequestError("The knob server_metrics is of one server; leave it out, or replicas.")
    if endpoint.options.get(SHARED_MEMORY):
        raise RequestError("Inputs in shared memory are of one server; leave out shared_memory, or replicas.")
    places = {(endpoint.host, endpoint.port, endpoint.path)}
    for url in _SEPARATOR.split(str(config[REPLICAS_KNOB.name]).strip()):
        other, transport = parse_endpoint(url)
        where = f"{other.host}:{other.port}"
        if transport is not client.transport or other.protocol not in {"", endpoint.protocol}:
            raise RequestError(
                f"The replica {where} is not spoken to in {endpoint.protocol}, as {endpoint.host}:"
                f"{endpoint.port} is; requests are the same for all servers."
            )
        if other.model not in {"", endpoint.model}:
            raise RequestError(
                f"The replica {where} is of {other.model}, not of {endpoint.model}; load another model with "
                "`beside`."
            )
        if other.version not in {"", endpoint.version}:
            raise RequestError(
                f"The replica {where} is of version {other.version}, not of {endpoint.version or 'any'}; all "
                "servers have the same one."
            )
        other = _endpoint_at(endpoint, other)
        if (place := (other.host, other.port, other.path)) in places:
            raise RequestError(f"The server {where}{other.path} is there twice; leave it out of replicas.")
        places.add(place)
        _check(client, other)
        yield other


def _check(client: Client, endpoint: Endpoint) -> None:
    """Raise RequestError if a server does not answer in its time, or lists other models than this one."""
    where, request = f"{endpoint.host}:{endpoint.port}", client.greeting(endpoint)
    if request is None:
        return
    deadline = monotonic() + endpoint.wait
    while True:
        try:
            server, reason = client.recognised(send_once(request, timeout=STATISTICS_TIMEOUT)), ""
        except OSError as error:
            server, reason = None, f": {error}"
        if server is not None or monotonic() >= deadline:
            break
        sleep(_PAUSE)
    if server is None:
        how = reason or f" in {endpoint.protocol}"
        raise RequestError(f"The replica {where} does not answer{how}; check its URL.")
    if server.models and endpoint.model not in {"", *server.models}:
        missing = unknown_model(endpoint.model, endpoint.version, server.models)
        raise RequestError(f"The replica {where}: {missing}.")


def at_replicas(client: Client, endpoint: Endpoint, replicas: Sequence[Endpoint]) -> Iterator[Endpoint]:
    """Yield the servers of another model for one that is co-hosted with it on each, below the same path.

    Raises:
        RequestError: one does not have it.
    """
    for replica in replicas:
        other = replace(_endpoint_at(endpoint, replica), path=endpoint.path)
        _check(client, other)
        yield other


def _endpoint_at(endpoint: Endpoint, place: Endpoint) -> Endpoint:
    """Return a model's endpoint at another place."""
    return replace(
        endpoint,
        host=place.host,
        port=place.port,
        path=place.path,
        tls=place.tls,
        wait=max(endpoint.wait, place.wait),
    )
