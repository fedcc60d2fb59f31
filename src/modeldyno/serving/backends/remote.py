"""Backend for a model on a running server: sends requests, and loads, unloads or configures nothing.

If the server reports statistics (such as Triton's), they are read; they include requests of other clients
in the same period.
"""

from __future__ import annotations

import os
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING

from modeldyno.base import plugins
from modeldyno.base.errors import RequestError
from modeldyno.base.job.knob import BATCH_SIZE
from modeldyno.base.job.prompt_images import images_of_knobs
from modeldyno.base.job.prompt_lengths import TOKENIZER, lengths_of_knobs
from modeldyno.base.system.process_tree import ancestors
from modeldyno.engine.data.token_prompts import find_tokenizer, open_tokenizer
from modeldyno.engine.environment.listening import serving_process
from modeldyno.engine.interfaces.request_target import Endpoint, Replica, Transport, start_of
from modeldyno.engine.interfaces.server_stats import ServerCounters
from modeldyno.engine.interfaces.session import RequestSession
from modeldyno.models.interface import Form
from modeldyno.serving.backends.generation_server import (
    find_metrics,
    metrics_place,
    read_metrics,
    reset_cache,
)
from modeldyno.serving.backends.request_knobs import (
    PROTOCOL_KNOBS,
    REPLICAS_KNOB,
    RESET_CACHE,
    SERVER_METRICS,
)
from modeldyno.serving.backends.server_replicas import at_replicas, find_replicas
from modeldyno.serving.backends.shared_regions import SharedRegions
from modeldyno.serving.interfaces.client import (
    Client,
)
from modeldyno.serving.load.endpoint_url import unknown_model
from modeldyno.serving.loadgen.single_request import STATISTICS_TIMEOUT, send_once

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from modeldyno.base.job.knob import KnobValue
    from modeldyno.engine.interfaces.request_target import Reply, Target
    from modeldyno.models.interface import Feed, Model

requires: tuple[str, ...] = ()
accepts = frozenset({Form.REMOTE})
serves = True

_PROTOCOLS_OF_KNOB = {knob.name: protocols for protocols, group in PROTOCOL_KNOBS.items() for knob in group}
_BODIES = ("body", "bodies")
_NOT_FOUND = 404
_METRICS_PORT = {"kserve-http": 2, "kserve-grpc": 1}
"""Protocol to how far the port of Triton's metrics is above its own: 8000, 8001 and 8002."""
_OURS = 8
"""Generations of processes above this one that are taken for this program, which may serve in a thread."""

common: frozenset[str] = frozenset()
knobs = (*(knob for group in PROTOCOL_KNOBS.values() for knob in group), REPLICAS_KNOB, BATCH_SIZE)


def check(config: Mapping[str, KnobValue]) -> None:
    """Refuse both bodies, files that are missing or cannot be read, lengths and images that are none."""
    lengths_of_knobs(config)
    images_of_knobs(config)
    if TOKENIZER in config:
        find_tokenizer(str(config[TOKENIZER]))
    if all(name in config for name in _BODIES):
        raise RequestError("The knobs body and bodies exclude each other; give one of them.")
    _bodies(config)
    metrics_place(config)


@contextmanager
def open(
    model: Model, config: Mapping[str, KnobValue], *, others: Sequence[Endpoint] = ()
) -> Iterator[_Session]:
    """Open a session that sends requests.

    Args:
        model: an endpoint.
        config: the knobs.
        others: further servers, of another model, which have this one, too.

    Raises:
        RequestError: a knob does not apply to the server's protocol, there are no metrics where it says, or
            no tokenizer that can be read.
    """
    endpoint: Endpoint = model.value
    for name in config:
        if name in _PROTOCOLS_OF_KNOB and endpoint.protocol not in _PROTOCOLS_OF_KNOB[name]:
            raise RequestError(
                f"The knob {name} is for {' and '.join(_PROTOCOLS_OF_KNOB[name])}, but {model.identity.name} "
                f"speaks {endpoint.protocol}; leave it out."
            )
    options = {
        name: value
        for name, value in config.items()
        if name in _PROTOCOLS_OF_KNOB and name not in {*_BODIES, SERVER_METRICS, RESET_CACHE}
    }
    client = plugins.client(endpoint.protocol)
    endpoint = replace(endpoint, options={**endpoint.options, **options})
    if TOKENIZER in config:
        open_tokenizer(find_tokenizer(str(config[TOKENIZER])))  # fail here rather than in a driver
    replicas = (*find_replicas(client, endpoint, config), *at_replicas(client, endpoint, others))
    pid = None if replicas else serving_process(endpoint.host, endpoint.port)
    metrics = [find_metrics(each, config) for each in (endpoint, *replicas)]
    session = _Session(
        client=client,
        endpoint=endpoint,
        replicas=replicas,
        bodies=_bodies(config),
        pid=None if pid in {os.getpid(), *ancestors(_OURS)} else pid,
        device_metrics="" if pid is not None or replicas else _device_metrics(model, endpoint),
        metrics=() if None in metrics else tuple(filter(None, metrics)),
        has_statistics=None not in metrics or all(_has_statistics(client, e) for e in (endpoint, *replicas)),
    )
    for each in (endpoint, *replicas) if RESET_CACHE in config else ():
        reset_cache(each, str(config[RESET_CACHE]))
    with closing(session.regions):
        yield session


def _device_metrics(model: Model, endpoint: Endpoint) -> str:
    """Return where a Triton reports its devices, by its usual distance between ports; else an empty text."""
    distance = _METRICS_PORT.get(endpoint.protocol)
    if distance is None or endpoint.tls is not None or "triton" not in model.identity.framework.lower():
        return ""
    host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
    return f"http://{host}:{endpoint.port + distance}/metrics"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Session(RequestSession):
    client: Client
    endpoint: Endpoint
    replicas: tuple[Endpoint, ...] = ()
    """Further servers of the same model."""
    bodies: tuple[bytes, ...] = ()
    """Bodies to send instead of the payloads."""
    pid: int | None = None
    """Of the server, if it runs on this machine and is not this program."""
    regions: SharedRegions = field(default_factory=SharedRegions)
    """Inputs in shared memory."""
    device_metrics: str = ""
    """Where a server on another machine reports its devices."""
    has_statistics: bool = False
    metrics: tuple[Target, ...] = ()
    """The requests for the metrics of servers of language models; empty if one has none."""

    def target(self, feeds: Sequence[Feed]) -> Target:
        """Turn each payload into a request."""
        feeds = [_feed(body) for body in self.bodies] or feeds
        return self._with_replicas(self.regions.target(self.client, feeds, self.endpoint), feeds)

    def sequence_target(self, feeds: Sequence[Feed]) -> Target:
        """Turn each payload into a request of a sequence."""
        return self._with_replicas(
            self.regions.target(self.client, feeds, self.endpoint, make=self.client.sequence_target), feeds
        )

    def _with_replicas(self, target: Target, feeds: Sequence[Feed]) -> Target:
        """Send to the further servers, too: what differs is how the messages begin."""
        if not self.replicas:
            return target
        starts = [self.client.target(feeds[:1], endpoint).messages[0] for endpoint in self.replicas]
        is_http = target.transport is Transport.HTTP
        replicas = tuple(
            Replica(
                host=endpoint.host,
                port=endpoint.port,
                tls=endpoint.tls,
                start=start_of(start).decode("latin-1") if is_http else "",
            )
            for endpoint, start in zip(self.replicas, starts, strict=True)
        )
        return replace(target, replicas=replicas)

    def arrays(self, output: Reply) -> Feed:
        """Parse an answer; if it says that there is no such model, name those that there are."""
        try:
            return self.regions.arrays(self.client, output, self.endpoint)
        except ValueError as error:
            endpoint = self.endpoint
            if (
                output.status != _NOT_FOUND
                or not endpoint.model
                or endpoint.model in (names := self._models())
            ):
                raise
            message = unknown_model(endpoint.model, endpoint.version, names)
            raise ValueError(message if names else f"{error}; perhaps {message}") from error

    @contextmanager
    def host(self, model: Model, config: Mapping[str, KnobValue]) -> Iterator[_Session]:
        """Open a session for another model on the same server.

        Raises:
            RequestError: the model is on another server, or not on all of them.
        """
        other, own = model.value, self.endpoint
        if (other.host, other.port) != (own.host, own.port):
            raise RequestError(
                f"{model.identity.name} is at {other.host}:{other.port}, not on the measured server "
                f"{own.host}:{own.port}; co-hosted models must be on one server."
            )
        with open(model, config, others=self.replicas) as session:
            yield session

    def prompt_tokens(self, reply: Reply) -> int:
        """Return the number of prompt tokens that an answer reports; -1 if unknown."""
        return self.client.prompt_tokens(reply)

    def cached_tokens(self, reply: Reply) -> int:
        """Return how many prompt tokens the server had from earlier requests; -1 if unknown."""
        return self.client.cached_tokens(reply)

    def finish_reason(self, reply: Reply) -> str:
        """Return why a generated text ended; empty if unknown."""
        return self.client.finish_reason(reply)

    def account(self) -> ServerCounters:
        """Read the model's counters, the sum of those of all servers."""
        if self.metrics:
            return reduce(ServerCounters.plus, map(read_metrics, self.metrics))
        endpoints = (self.endpoint, *self.replicas)
        return reduce(ServerCounters.plus, (_read_statistics(self.client, each) for each in endpoints))

    def _models(self) -> tuple[str, ...]:
        """Query the server for its models."""
        request = self.client.greeting(self.endpoint)
        try:
            server = (
                None
                if request is None
                else self.client.recognised(send_once(request, timeout=STATISTICS_TIMEOUT))
            )
        except OSError:
            return ()
        return () if server is None else server.models


def _has_statistics(client: Client, endpoint: Endpoint) -> bool:
    """Ask whether the server reports statistics."""
    if client.statistics(endpoint) is None:
        return False
    try:
        _read_statistics(client, endpoint)
    except OSError:
        return False
    return True


def _read_statistics(client: Client, endpoint: Endpoint) -> ServerCounters:
    request = client.statistics(endpoint)
    assert request is not None
    reply = send_once(request, timeout=STATISTICS_TIMEOUT)
    try:
        return client.account(reply, endpoint)
    except ValueError as error:
        raise OSError(f"{endpoint.host}:{endpoint.port}: {error}") from error


def _feed(body: bytes) -> Feed:
    import numpy as np  # slow to import

    return {"body": np.frombuffer(body, np.uint8)}


def _bodies(config: Mapping[str, KnobValue]) -> tuple[bytes, ...]:
    """Read the bodies to send.

    Raises:
        RequestError: a file cannot be read, or is empty.
    """
    body = config.get("body")
    if body is not None:
        text = str(body)
        return (_read(text[1:]) if text.startswith("@") else text.encode(),)
    if "bodies" not in config:
        return ()
    path = str(config["bodies"]).removeprefix("@")
    lines = tuple(line for line in _read(path).splitlines() if line.strip())
    if not lines:
        raise RequestError(f"'{path}' has no lines to send; put one body on each line.")
    return lines


def _read(path: str) -> bytes:
    try:
        return Path(path).expanduser().read_bytes()
    except OSError as error:
        raise RequestError(f"Cannot read '{path}': {error.strerror}; check the path of the body.") from error
