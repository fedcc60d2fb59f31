"""What a server of language models has beside its API: its metrics, and how to empty its prefix cache."""

from __future__ import annotations

import http.client
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from modeldyno.base.errors import RequestError
from modeldyno.base.system.prometheus_samples import parse_samples
from modeldyno.engine.interfaces.request_target import Endpoint, Tls
from modeldyno.serving.backends.request_knobs import SERVER_METRICS
from modeldyno.serving.clients import messages as clients_messages
from modeldyno.serving.loadgen.single_request import STATISTICS_TIMEOUT, send_once
from modeldyno.serving.servers import generation_metrics

if TYPE_CHECKING:
    from collections.abc import Mapping

    from modeldyno.base.job.knob import KnobValue
    from modeldyno.engine.interfaces.request_target import Target
    from modeldyno.engine.interfaces.server_stats import ServerCounters

NO_METRICS = "none"
"""The knob server_metrics of a server whose metrics are not to be read."""


def reset_cache(endpoint: Endpoint, path: str) -> None:
    """Empty a server's prefix cache; raise RequestError if the server does not."""
    place = replace(endpoint, path=_root(endpoint))
    request = clients_messages.http_request(place, "POST", clients_messages.path_below(place, path), b"")
    where = f"{endpoint.host}:{endpoint.port}"
    try:
        reply = send_once(
            clients_messages.http_target(endpoint.protocol, place, [request]), timeout=STATISTICS_TIMEOUT
        )
    except OSError as error:
        raise RequestError(f"The prefix cache was not emptied: {error}; check reset_cache.") from error
    if not http.client.OK <= reply.status < http.client.MULTIPLE_CHOICES:
        raise RequestError(
            f"The prefix cache of {where} was not emptied: POST {path} is answered with {reply.status}; "
            "check reset_cache. vLLM has it only with VLLM_SERVER_DEV_MODE=1."
        )


def _root(endpoint: Endpoint) -> str:
    """Return the path below which a server of language models has what is beside its API."""
    return endpoint.path.rstrip("/").removesuffix("/v1") if endpoint.protocol == "openai" else ""


def find_metrics(endpoint: Endpoint, config: Mapping[str, KnobValue]) -> Target | None:
    """Return the request for the metrics of a server of language models, if it has any that are known.

    Raises:
        RequestError: there are none where the knob says.
    """
    named, place = config.get(SERVER_METRICS), metrics_place(config)
    if named is None:
        if not endpoint.options.get("stream", endpoint.protocol == "openai"):
            return None  # perhaps no language model
        place = replace(endpoint, path=f"{_root(endpoint)}/metrics")
    if place is None:
        return None
    target = clients_messages.get_target(endpoint.protocol, place, "")
    try:
        read_metrics(target)
    except OSError as error:
        if named is None:
            return None
        raise RequestError(f"The metrics cannot be read: {error}; check the knob server_metrics.") from error
    return target


def metrics_place(config: Mapping[str, KnobValue]) -> Endpoint | None:
    """Return where the knob says that the metrics are; None if it is not set, or they are not to be read.

    Raises:
        RequestError: it is no URL.
    """
    named = str(config.get(SERVER_METRICS, NO_METRICS))
    if named == NO_METRICS:
        return None
    try:
        url = urlsplit(named)
        port = url.port or (443 if url.scheme == "https" else 80)
    except ValueError:
        url, port = urlsplit(""), 0
    if url.scheme not in {"http", "https"} or not url.hostname:
        raise RequestError(
            f"The knob server_metrics is '{named}', which is no URL; write http://host:8000/metrics, or none."
        )
    path = (url.path or "/metrics") + (f"?{url.query}" if url.query else "")
    return Endpoint(host=url.hostname, port=port, path=path, tls=Tls() if url.scheme == "https" else None)


def read_metrics(target: Target) -> ServerCounters:
    """Read the metrics of a server of language models; raise OSError if they are not there."""
    where = f"{target.host}:{target.port}"
    reply = send_once(target, timeout=STATISTICS_TIMEOUT)
    if reply.status != http.client.OK:
        raise OSError(f"{where} answered {reply.status}")
    try:
        return generation_metrics.read_counters(parse_samples(reply.body.decode(errors="replace")))
    except ValueError as error:
        raise OSError(f"{where}: {error}") from error
