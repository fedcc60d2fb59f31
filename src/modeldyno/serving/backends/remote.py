"""Backend for a model on a running server: sends requests, and loads, unloads or configures nothing.

If the server reports statistics (such as Triton's), they are read; they include requests of other clients
in the same period.
"""

from __future__ import annotations

import http.client
import os
import re
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from modeldyno.base import plugins
from modeldyno.base.clock import monotonic, sleep
from modeldyno.base.errors import RequestError
from modeldyno.base.job.knob import BATCH_SIZE, Knob
from modeldyno.base.job.prompt_images import IMAGE_SIZE, IMAGES, images_of_knobs
from modeldyno.base.job.prompt_lengths import (
    OUTPUT_TOKENS,
    PROMPT_TOKENS,
    SHARED_PREFIX,
    TOKENIZER,
    lengths_of_knobs,
)
from modeldyno.base.system.process_tree import ancestors
from modeldyno.base.system.prometheus_samples import parse_samples
from modeldyno.engine.data.token_prompts import find_tokenizer, open_tokenizer
from modeldyno.engine.environment.listening import serving_process
from modeldyno.engine.interfaces.request_target import Endpoint, Replica, Tls, Transport, start_of
from modeldyno.engine.interfaces.server_stats import ServerCounters
from modeldyno.engine.interfaces.session import RequestSession
from modeldyno.models.interface import Form
from modeldyno.serving.backends.request_knobs import COMPRESSION_KNOB, SHARED_MEMORY_KNOB
from modeldyno.serving.backends.shared_regions import SHARED_MEMORY, SharedRegions
from modeldyno.serving.clients import messages as clients_messages
from modeldyno.serving.interfaces.client import (
    Client,
)
from modeldyno.serving.load.endpoint_url import parse_endpoint, unknown_model
from modeldyno.serving.loadgen.single_request import send_once
from modeldyno.serving.servers import generation_metrics

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from modeldyno.base.job.knob import KnobValue
    from modeldyno.engine.interfaces.request_target import Reply, Target
    from modeldyno.models.interface import Feed, Model

requires: tuple[str, ...] = ()
accepts = frozenset({Form.REMOTE})
serves = True

_METRICS, _RESET = "server_metrics", "reset_cache"
_KNOBS: dict[tuple[str, ...], tuple[Knob, ...]] = {
    ("kserve-http",): (
        Knob(
            name="binary",
            kind=bool,
            sentence="Send and request tensors as raw bytes, not as JSON; as the server supports if not set.",
        ),
    ),
    ("kserve-http", "kserve-grpc"): (COMPRESSION_KNOB, SHARED_MEMORY_KNOB),
    ("tensorflow-http",): (
        Knob(
            name="format",
            choices=("row", "columnar"),
            sentence="Send a list of instances (row), or a list for each input (columnar).",
        ),
    ),
    ("tensorflow-http", "tensorflow-grpc"): (
        Knob(name="signature", sentence="Signature of the TensorFlow model to call."),
    ),
    ("torchserve",): (
        Knob(
            name="content",
            choices=("json", "raw"),
            sentence="Send the inputs by name as JSON, or the raw bytes of the only input.",
        ),
    ),
    ("openai",): (
        Knob(
            name="endpoint",
            choices=("completions", "chat", "responses", "messages", "embeddings"),
            sentence="API endpoint to call: OpenAI's, or Anthropic's messages.",
        ),
        Knob(
            name=PROMPT_TOKENS,
            sentence="Tokens of each random prompt: 512, 512~64 (normal), 512~x1.5, 256..1024, @pairs.csv.",
            aliases=("isl", "input_tokens"),
        ),
        Knob(
            name=OUTPUT_TOKENS,
            sentence="Most tokens of each answer, drawn in the same way; `max_tokens` is one number for all.",
            aliases=("osl",),
        ),
        Knob(
            name=SHARED_PREFIX,
            kind=int,
            low=0,
            sentence="Tokens at the beginning of prompt_tokens that are the same in all, as a system prompt.",
        ),
        Knob(
            name=TOKENIZER,
            sentence="The model's tokenizer.json, or its folder; else that beside a local model.",
        ),
        Knob(
            name=IMAGES,
            sentence="Random images in each chat, response or message: 1, 1..3, 2~1; 1 if a size is set.",
        ),
        Knob(
            name=IMAGE_SIZE,
            sentence="Width and height of images in pixels: 512x512 if not set; 256..1024 is of each side.",
        ),
        Knob(name="max_tokens", kind=int, low=1, sentence="Maximum number of tokens to generate."),
        Knob(
            name="token_limit",
            choices=("max_tokens", "max_completion_tokens"),
            sentence="Field of a request that has this number; models of OpenAI that reason know the second.",
        ),
        Knob(name="temperature", kind=float, low=0, sentence="Sampling temperature; 0 is greedy decoding."),
        Knob(
            name="extra",
            sentence='A JSON object that is merged into each request, such as {"ignore_eos": true}; null '
            "leaves a field out.",
        ),
    ),
    ("openai", "http"): (
        Knob(
            name="stream",
            kind=bool,
            sentence="Time the pieces of the answer as they are generated; by default with openai alone.",
        ),
        Knob(
            name=_METRICS,
            sentence="URL of the server's metrics, of vLLM, SGLang, llama.cpp or TGI; /metrics of the server "
            "if not set, none for none.",
        ),
        Knob(
            name=_RESET,
            sentence="Path that empties the server's prefix cache, which is POSTed to before the load, such "
            "as /reset_prefix_cache of vLLM or /flush_cache of SGLang.",
        ),
    ),
    ("http",): (
        Knob(
            name="method",
            choices=("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"),
            sentence="HTTP method; POST with a body, GET without.",
        ),
        Knob(name="content_type", sentence="Content type of the body; application/json if not set."),
        Knob(name="body", sentence="Body to send: text, or @file."),
        Knob(name="bodies", sentence="File of bodies to send, one on each line."),
    ),
}
"""The knobs of some protocols; all but the bodies become options of the Endpoint."""
_PROTOCOLS_OF_KNOB = {knob.name: protocols for protocols, group in _KNOBS.items() for knob in group}
_BODIES = ("body", "bodies")
_REPLICAS = Knob(
    name="replicas",
    sentence="URLs of further servers of the same model, separated by commas; requests go to each in turn.",
)
_SEPARATOR = re.compile(r"[\s,]+(?=[a-z]+://)")
"""Between URLs, which have commas of their own."""
_NO_METRICS = "none"
"""The knob server_metrics of a server whose metrics are not to be read."""
_STATISTICS_TIMEOUT = 10.0
"""Seconds that a server may take to return its statistics or its list of models."""
_PAUSE = 0.2
"""Seconds between two questions to a replica that is starting."""
_NOT_FOUND = 404
_METRICS_PORT = {"kserve-http": 2, "kserve-grpc": 1}
"""Protocol to how far the port of Triton's metrics is above its own: 8000, 8001 and 8002."""
_OURS = 8
"""Generations of processes above this one that are taken for this program, which may serve in a thread."""

common: frozenset[str] = frozenset()
knobs = (*(knob for group in _KNOBS.values() for knob in group), _REPLICAS, BATCH_SIZE)


def check(config: Mapping[str, KnobValue]) -> None:
    """Refuse both bodies, files that are missing or cannot be read, lengths and images that are none."""
    lengths_of_knobs(config)
    images_of_knobs(config)
    if TOKENIZER in config:
        find_tokenizer(str(config[TOKENIZER]))
    if all(name in config for name in _BODIES):
        raise RequestError("The knobs body and bodies exclude each other; give one of them.")
    _bodies(config)
    _metrics_place(config)


@contextmanager
def open(model: Model, config: Mapping[str, KnobValue]) -> Iterator[_Session]:
    """Open a session that sends requests.

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
        if name in _PROTOCOLS_OF_KNOB and name not in {*_BODIES, _METRICS, _RESET}
    }
    client = plugins.client(endpoint.protocol)
    endpoint = replace(endpoint, options={**endpoint.options, **options})
    if TOKENIZER in config:
        open_tokenizer(find_tokenizer(str(config[TOKENIZER])))  # fail here rather than in a driver
    replicas = tuple(_replicas(client, endpoint, config))
    pid = None if replicas else serving_process(endpoint.host, endpoint.port)
    metrics = [_find_metrics(each, config) for each in (endpoint, *replicas)]
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
    for each in (endpoint, *replicas) if _RESET in config else ():
        _reset_cache(each, str(config[_RESET]))
    with closing(session.regions):
        yield session


def _replicas(client: Client, endpoint: Endpoint, config: Mapping[str, KnobValue]) -> Iterator[Endpoint]:
    """Yield the further servers that the knob names.

    Raises:
        RequestError: one is no URL of a server that has the model, too, or is there twice.
    """
    if _REPLICAS.name not in config:
        return
    if str(config.get(_METRICS, _NO_METRICS)) != _NO_METRICS:
        raise RequestError("The knob server_metrics is of one server; leave it out, or replicas.")
    if endpoint.options.get(SHARED_MEMORY):
        raise RequestError("Inputs in shared memory are of one server; leave out shared_memory, or replicas.")
    places = {(endpoint.host, endpoint.port, endpoint.path)}
    for url in _SEPARATOR.split(str(config[_REPLICAS.name]).strip()):
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
        other = replace(
            endpoint,
            host=other.host,
            port=other.port,
            path=other.path,
            tls=other.tls,
            wait=max(endpoint.wait, other.wait),
        )
        if (place := (other.host, other.port, other.path)) in places:
            raise RequestError(f"The server {where}{other.path} is there twice; leave it out of replicas.")
        places.add(place)
        _check_replica(client, other)
        yield other


def _check_replica(client: Client, endpoint: Endpoint) -> None:
    """Raise RequestError if a server does not answer in its time, or lists other models than this one."""
    where, request = f"{endpoint.host}:{endpoint.port}", client.greeting(endpoint)
    if request is None:
        return
    deadline = monotonic() + endpoint.wait
    while True:
        try:
            server, reason = client.recognised(send_once(request, timeout=_STATISTICS_TIMEOUT)), ""
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


def _reset_cache(endpoint: Endpoint, path: str) -> None:
    """Empty a server's prefix cache; raise RequestError if the server does not."""
    place = replace(endpoint, path=_root(endpoint))
    request = clients_messages.http_request(place, "POST", clients_messages.path_below(place, path), b"")
    where = f"{endpoint.host}:{endpoint.port}"
    try:
        reply = send_once(
            clients_messages.http_target(endpoint.protocol, place, [request]), timeout=_STATISTICS_TIMEOUT
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
            RequestError: the model is on another server.
        """
        other, own = model.value, self.endpoint
        if (other.host, other.port) != (own.host, own.port):
            raise RequestError(
                f"{model.identity.name} is at {other.host}:{other.port}, not on the measured server "
                f"{own.host}:{own.port}; co-hosted models must be on one server."
            )
        with open(model, config) as session:
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
            return reduce(ServerCounters.plus, map(_read_metrics, self.metrics))
        endpoints = (self.endpoint, *self.replicas)
        return reduce(ServerCounters.plus, (_read_statistics(self.client, each) for each in endpoints))

    def _models(self) -> tuple[str, ...]:
        """Query the server for its models."""
        request = self.client.greeting(self.endpoint)
        try:
            server = (
                None
                if request is None
                else self.client.recognised(send_once(request, timeout=_STATISTICS_TIMEOUT))
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


def _find_metrics(endpoint: Endpoint, config: Mapping[str, KnobValue]) -> Target | None:
    """Return the request for the metrics of a server of language models, if it has any that are known.

    Raises:
        RequestError: there are none where the knob says.
    """
    named, place = config.get(_METRICS), _metrics_place(config)
    if named is None:
        if not endpoint.options.get("stream", endpoint.protocol == "openai"):
            return None  # perhaps no language model
        place = replace(endpoint, path=f"{_root(endpoint)}/metrics")
    if place is None:
        return None
    target = clients_messages.get_target(endpoint.protocol, place, "")
    try:
        _read_metrics(target)
    except OSError as error:
        if named is None:
            return None
        raise RequestError(f"The metrics cannot be read: {error}; check the knob server_metrics.") from error
    return target


def _metrics_place(config: Mapping[str, KnobValue]) -> Endpoint | None:
    """Return where the knob says that the metrics are; None if it is not set, or they are not to be read.

    Raises:
        RequestError: it is no URL.
    """
    named = str(config.get(_METRICS, _NO_METRICS))
    if named == _NO_METRICS:
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


def _read_metrics(target: Target) -> ServerCounters:
    """Read the metrics of a server of language models; raise OSError if they are not there."""
    where = f"{target.host}:{target.port}"
    reply = send_once(target, timeout=_STATISTICS_TIMEOUT)
    if reply.status != http.client.OK:
        raise OSError(f"{where} answered {reply.status}")
    try:
        return generation_metrics.read_counters(parse_samples(reply.body.decode(errors="replace")))
    except ValueError as error:
        raise OSError(f"{where}: {error}") from error


def _read_statistics(client: Client, endpoint: Endpoint) -> ServerCounters:
    request = client.statistics(endpoint)
    assert request is not None
    reply = send_once(request, timeout=_STATISTICS_TIMEOUT)
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
