"""A model on a server that someone else runs: it is sent requests, and left as it was found.

Nothing is loaded, unloaded or configured. Where the server tells what it did (Triton's statistics), its
account is read; requests of others over the same time are in it, too.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from modeldyno import plugins
from modeldyno.core.load.endpoint_url import unknown_model
from modeldyno.core.load.request_target import Endpoint
from modeldyno.core.spec.knob import BATCH_SIZE, Knob
from modeldyno.errors import RequestError
from modeldyno.interfaces import Client, CountsPrompts, CountsWork, Form
from modeldyno.loadgen.single_request import once

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from modeldyno.core.load.request_target import Reply, Target
    from modeldyno.core.load.server_stats import Account
    from modeldyno.core.spec.knob import KnobValue
    from modeldyno.interfaces import Feed, Model

requires: tuple[str, ...] = ()
accepts = frozenset({Form.REMOTE})
serves = True

_PLAIN = "http"
_OPTIONS: tuple[tuple[tuple[str, ...], Knob], ...] = (
    (
        ("kserve-http",),
        Knob(
            name="binary",
            kind=bool,
            default=None,
            sentence="Send and ask for tensors as raw bytes, not as JSON; as the server says that it can.",
        ),
    ),
    (
        ("tensorflow-http",),
        Knob(
            name="format",
            kind=str,
            default=None,
            choices=("row", "columnar"),
            sentence="Send a list of instances (row), or a list for each input (columnar).",
        ),
    ),
    (
        ("tensorflow-http", "tensorflow-grpc"),
        Knob(
            name="signature",
            kind=str,
            default=None,
            sentence="Which signature of a model of TensorFlow to call.",
        ),
    ),
    (
        ("torchserve",),
        Knob(
            name="content",
            kind=str,
            default=None,
            choices=("json", "raw"),
            sentence="Send the inputs by name as JSON, or the bytes of the only one as they are.",
        ),
    ),
    (
        ("openai",),
        Knob(
            name="endpoint",
            kind=str,
            default=None,
            choices=("completions", "chat", "embeddings"),
            sentence="What to ask for.",
        ),
    ),
    (
        ("openai",),
        Knob(
            name="stream",
            kind=bool,
            default=None,
            sentence="Have the answer come in pieces, as they are generated.",
        ),
    ),
    (
        ("openai",),
        Knob(name="max_tokens", kind=int, default=None, low=1, sentence="Tokens to generate at most."),
    ),
    (
        ("openai",),
        Knob(
            name="temperature",
            kind=float,
            default=None,
            low=0,
            sentence="How much chance has a part in the text; at 0 it has none.",
        ),
    ),
    (
        ("openai",),
        Knob(
            name="extra",
            kind=str,
            default=None,
            sentence='An object of JSON that is added to each request, such as {"ignore_eos": true}.',
        ),
    ),
    (
        (_PLAIN,),
        Knob(
            name="method",
            kind=str,
            default=None,
            choices=("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"),
            sentence="Of HTTP; POST with a body, GET without.",
        ),
    ),
    (
        (_PLAIN,),
        Knob(
            name="content_type",
            kind=str,
            default=None,
            sentence="What the body is; application/json where nobody says.",
        ),
    ),
    (
        (_PLAIN,),
        Knob(name="body", kind=str, default=None, sentence="What to send: text, or @file."),
    ),
    (
        (_PLAIN,),
        Knob(
            name="bodies",
            kind=str,
            default=None,
            sentence="A file of what to send, a body on each line.",
        ),
    ),
)
"""The protocols that heed a knob, and the knob: an option of their Endpoint, but for the bodies."""
_HEEDED = {knob.name: protocols for protocols, knob in _OPTIONS}
_BODIES = ("body", "bodies")
_LOOK_TIME = 10.0
"""Seconds that a server may take to tell what it did, or what it has."""
_NOT_FOUND = 404

common: frozenset[str] = frozenset()
knobs = (*(knob for _, knob in _OPTIONS), BATCH_SIZE)


def check(config: Mapping[str, KnobValue]) -> None:
    """Refuse two kinds of bodies, and files of them that are not there."""
    if all(name in config for name in _BODIES):
        raise RequestError("The knobs body and bodies both say what to send; give one of them.")
    _bodies(config)


@contextmanager
def open(model: Model, config: Mapping[str, KnobValue]) -> Iterator[_Session]:  # noqa: A001 - the port's word
    """Make ready to send.

    Raises:
        RequestError: a knob is not one of the protocol that the server speaks.
    """
    endpoint: Endpoint = model.value
    for name in config:
        if name in _HEEDED and endpoint.protocol not in _HEEDED[name]:
            raise RequestError(
                f"The knob {name} is for {' and '.join(_HEEDED[name])}, and {model.identity.name} speaks "
                f"{endpoint.protocol}; leave it out."
            )
    given = {name: value for name, value in config.items() if name in _HEEDED and name not in _BODIES}
    client = plugins.client(endpoint.protocol)
    endpoint = replace(endpoint, options={**endpoint.options, **given})
    session = _Session(client=client, endpoint=endpoint, bodies=_bodies(config))
    yield _counted(session) or session


@dataclass(frozen=True, slots=True, kw_only=True)
class _Session:
    client: Client
    endpoint: Endpoint
    bodies: tuple[bytes, ...] = ()
    """What to send in place of the payloads."""
    pid: int | None = None
    """The server is not ours."""

    def target(self, feeds: Sequence[Feed]) -> Target:
        """Make each payload a request."""
        return self.client.target([_feed(body) for body in self.bodies] or feeds, self.endpoint)

    def arrays(self, output: Reply) -> Feed:
        """Read an answer; one that says that there is no such model, with those that there are."""
        try:
            return self.client.arrays(output)
        except ValueError as error:
            place = self.endpoint
            if output.status != _NOT_FOUND or not place.model or place.model in (known := self._models()):
                raise
            said = unknown_model(place.model, place.version, known)
            raise ValueError(said if known else f"{error}; perhaps {said}") from error

    @contextmanager
    def host(self, model: Model, config: Mapping[str, KnobValue]) -> Iterator[_Session]:
        """Send to another model of the server as well.

        Raises:
            RequestError: it is of another server.
        """
        there, here = model.value, self.endpoint
        if (there.host, there.port) != (here.host, here.port):
            raise RequestError(
                f"{model.identity.name} is at {there.host}:{there.port}, and not on the server that is "
                f"measured, {here.host}:{here.port}; models are put side by side on one server."
            )
        with open(model, config) as session:
            yield session

    def prompt_tokens(self, reply: Reply) -> int:
        """Give the tokens of the prompts that an answer is of; -1 where nobody tells."""
        return self.client.prompt_tokens(reply) if isinstance(self.client, CountsPrompts) else -1

    def _models(self) -> tuple[str, ...]:
        """Ask the server for the models that it has."""
        question = self.client.greeting(self.endpoint)
        try:
            server = None if question is None else self.client.recognised(once(question, timeout=_LOOK_TIME))
        except OSError:
            return ()
        return () if server is None else server.models


@dataclass(frozen=True, slots=True, kw_only=True)
class _Counted(_Session):
    """Of a server that tells what it did."""

    counts: CountsWork

    def account(self) -> Account:
        """Look at the model's counters."""
        reply = once(self.counts.statistics(self.endpoint), timeout=_LOOK_TIME)
        try:
            return self.counts.account(reply, self.endpoint)
        except ValueError as error:
            raise OSError(f"{self.endpoint.host}:{self.endpoint.port}: {error}") from error


def _counted(session: _Session) -> _Counted | None:
    """Add the account where the server gives one."""
    if not isinstance(session.client, CountsWork):
        return None
    found = _Counted(
        client=session.client, endpoint=session.endpoint, bodies=session.bodies, counts=session.client
    )
    try:
        found.account()
    except OSError:
        return None
    return found


def _feed(body: bytes) -> Feed:
    import numpy as np  # noqa: PLC0415 - dear at start-up

    return {"body": np.frombuffer(body, np.uint8)}


def _bodies(config: Mapping[str, KnobValue]) -> tuple[bytes, ...]:
    """Read what to send.

    Raises:
        RequestError: a file cannot be read, or has no line.
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
        raise RequestError(f"'{path}' has no line to send.")
    return lines


def _read(path: str) -> bytes:
    try:
        return Path(path).expanduser().read_bytes()
    except OSError as error:
        raise RequestError(
            f"'{path}' cannot be read: {error.strerror}; check the file of the body."
        ) from error
