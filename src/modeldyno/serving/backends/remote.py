"""Backend for a model on a running server: sends requests, and loads, unloads or configures nothing.

If the server reports statistics (such as Triton's), they are read; they include requests of other clients
in the same period.
"""

from __future__ import annotations

import os
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from modeldyno.base import plugins
from modeldyno.base.errors import RequestError
from modeldyno.base.job.knob import BATCH_SIZE, Knob
from modeldyno.base.job.prompt_lengths import (
    OUTPUT_TOKENS,
    PROMPT_TOKENS,
    SHARED_PREFIX,
    TOKENIZER,
    lengths_of_knobs,
)
from modeldyno.base.system.process_tree import ancestors
from modeldyno.engine.environment.listening import serving_process
from modeldyno.engine.interfaces.request_target import Endpoint
from modeldyno.engine.interfaces.session import RequestSession
from modeldyno.models.interface import Form
from modeldyno.serving.backends.request_knobs import COMPRESSION_KNOB, SHARED_MEMORY_KNOB
from modeldyno.serving.backends.shared_regions import SharedRegions
from modeldyno.serving.interfaces.client import (
    Client,
)
from modeldyno.serving.load.endpoint_url import unknown_model
from modeldyno.serving.loadgen.single_request import send_once

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from modeldyno.base.job.knob import KnobValue
    from modeldyno.engine.interfaces.request_target import Reply, Target
    from modeldyno.engine.interfaces.server_stats import ServerCounters
    from modeldyno.models.interface import Feed, Model

requires: tuple[str, ...] = ()
accepts = frozenset({Form.REMOTE})
serves = True

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
            name="endpoint", choices=("completions", "chat", "embeddings"), sentence="API endpoint to call."
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
        Knob(name="max_tokens", kind=int, low=1, sentence="Maximum number of tokens to generate."),
        Knob(name="temperature", kind=float, low=0, sentence="Sampling temperature; 0 is greedy decoding."),
        Knob(
            name="extra",
            sentence='A JSON object that is merged into each request, such as {"ignore_eos": true}.',
        ),
    ),
    ("openai", "http"): (
        Knob(
            name="stream",
            kind=bool,
            sentence="Time the pieces of the answer as they are generated; by default with openai alone.",
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
_STATISTICS_TIMEOUT = 10.0
"""Seconds that a server may take to return its statistics or its list of models."""
_NOT_FOUND = 404
_METRICS_PORT = {"kserve-http": 2, "kserve-grpc": 1}
"""Protocol to how far the port of Triton's metrics is above its own: 8000, 8001 and 8002."""
_OURS = 8
"""Generations of processes above this one that are taken for this program, which may serve in a thread."""

common: frozenset[str] = frozenset()
knobs = (*(knob for group in _KNOBS.values() for knob in group), BATCH_SIZE)


def check(config: Mapping[str, KnobValue]) -> None:
    """Refuse body and bodies together, files that cannot be read, and lengths that are none."""
    lengths_of_knobs(config)
    if all(name in config for name in _BODIES):
        raise RequestError("The knobs body and bodies exclude each other; give one of them.")
    _bodies(config)


@contextmanager
def open(model: Model, config: Mapping[str, KnobValue]) -> Iterator[_Session]:
    """Open a session that sends requests.

    Raises:
        RequestError: a knob does not apply to the server's protocol.
    """
    endpoint: Endpoint = model.value
    for name in config:
        if name in _PROTOCOLS_OF_KNOB and endpoint.protocol not in _PROTOCOLS_OF_KNOB[name]:
            raise RequestError(
                f"The knob {name} is for {' and '.join(_PROTOCOLS_OF_KNOB[name])}, but {model.identity.name} "
                f"speaks {endpoint.protocol}; leave it out."
            )
    options = {
        name: value for name, value in config.items() if name in _PROTOCOLS_OF_KNOB and name not in _BODIES
    }
    client = plugins.client(endpoint.protocol)
    endpoint = replace(endpoint, options={**endpoint.options, **options})
    pid = serving_process(endpoint.host, endpoint.port)
    session = _Session(
        client=client,
        endpoint=endpoint,
        bodies=_bodies(config),
        pid=None if pid in {os.getpid(), *ancestors(_OURS)} else pid,
        device_metrics=_device_metrics(model, endpoint) if pid is None else "",
        has_statistics=_has_statistics(client, endpoint),
    )
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
    bodies: tuple[bytes, ...] = ()
    """Bodies to send instead of the payloads."""
    pid: int | None = None
    """Of the server, if it runs on this machine and is not this program."""
    regions: SharedRegions = field(default_factory=SharedRegions)
    """Inputs in shared memory."""
    device_metrics: str = ""
    """Where a server on another machine reports its devices."""
    has_statistics: bool = False

    def target(self, feeds: Sequence[Feed]) -> Target:
        """Turn each payload into a request."""
        feeds = [_feed(body) for body in self.bodies] or feeds
        return self.regions.target(self.client, feeds, self.endpoint)

    def sequence_target(self, feeds: Sequence[Feed]) -> Target:
        """Turn each payload into a request of a sequence."""
        return self.regions.target(self.client, feeds, self.endpoint, make=self.client.sequence_target)

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
        """Read the model's counters."""
        return _read_statistics(self.client, self.endpoint)

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
