"""Test suite that every protocol client must pass.

Inherit, name the client, and provide payloads and an answer of a real server::

    from modeldyno.testing.clients import ClientSuite

    class TestMyProtocol(ClientSuite):
        name = "myprotocol"
        answer = Reply(message=0, status=200, head=b"Content-Type: application/json", body=b"[1, 2]")

        def feed(self, seed: int) -> Feed:
            return {"x": np.random.default_rng(seed).random((2, 4), dtype="float32")}
"""

from __future__ import annotations

import socket
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pytest

from modeldyno.base import plugins
from modeldyno.base.errors import RequestError
from modeldyno.base.job.input_spec import DTYPES, InputSpec
from modeldyno.engine.interfaces.request_target import Endpoint, Reply, ServerInfo, Target, Transport
from modeldyno.testing.loaders import imported_frameworks, is_one_sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from modeldyno.models.interface import Feed
    from modeldyno.serving.interfaces.client import Client

SECRET = "Bearer s3cr3t"
_DAMAGED = 200
"""Damaged answers that are tried."""
_FOREIGN = (b"", b"{}", b"[]", b"null", b"<html></html>", b'{"name": 1}', b"\x00\x01\xff")


class ClientSuite:
    """Inherit, set `name` and `answer`, and provide `feed`; override the rest if needed."""

    name: ClassVar[str]
    """The name of the client's entry point."""
    answer: ClassVar[Reply]
    """A real answer to a payload."""
    description: ClassVar[Reply | None] = None
    """A real answer to the request for a model's inputs; None if the protocol has none."""
    options: ClassVar[Mapping[str, str | int | float | bool]] = {}
    numbers: ClassVar[bool] = True
    """Whether it accepts numbers of the usual dtypes by name."""

    def feed(self, seed: int) -> Feed:
        """Return a payload that depends on the seed."""
        raise NotImplementedError

    @pytest.fixture
    def client(self) -> Client:
        """Return the plugin, by its entry point."""
        return plugins.client(self.name)

    @pytest.fixture
    def endpoint(self) -> Endpoint:
        """Return the address of a server."""
        return Endpoint(host="model.example", port=8123, model="net", options=self.options)

    @pytest.fixture(autouse=True)
    def _offline(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Forbid network access, which a client must not use."""

        def refuse(*_: object, **__: object) -> None:
            raise AssertionError("a client does no input or output")

        monkeypatch.setattr(socket, "socket", refuse)
        monkeypatch.setattr(socket, "create_connection", refuse)

    def test_importing_it_is_cheap(self) -> None:
        """Importing the plugin imports no framework."""
        assert imported_frameworks("client", self.name) == []

    def test_says_what_it_is(self, client: Client) -> None:
        """A client names its modules and its transport."""
        assert all(isinstance(name, str) for name in client.requires)
        assert client.transport in set(Transport)

    def test_each_payload_is_a_request(self, client: Client, endpoint: Endpoint) -> None:
        """There is a message for each payload, in their order; unlike payloads have unlike messages."""
        feeds = [self.feed(0), self.feed(1), self.feed(0)]
        made = client.target(feeds, endpoint)
        assert (made.protocol, made.transport) == (self.name, client.transport)
        assert (made.host, made.port) == ("model.example", 8123)
        assert len(made.messages) == 3
        assert made.messages[0] == made.messages[2] != made.messages[1]
        assert made == client.target(feeds, endpoint)

    def test_messages_are_ready_for_the_wire(self, client: Client, endpoint: Endpoint) -> None:
        """Over HTTP a message has a head and a body of the length that it says; over gRPC it has a method."""
        for request in _all_requests(client, endpoint, self.feed(0)):
            if request.transport is Transport.GRPC:
                assert request.method.startswith("/")
                assert request.method.count("/") == 2
                continue
            for message in request.messages:
                line, fields, body = _parse_request(message)
                method, path, version = line.split(" ")
                assert method.isupper()
                assert path.startswith("/")
                assert version == "HTTP/1.1"
                assert fields["host"] == "model.example:8123"
                assert int(fields.get("content-length", "0")) == len(body)

    def test_the_payload_is_left_as_it_was(self, client: Client, endpoint: Endpoint) -> None:
        """Writing a request changes no array, whatever lies between its rows."""
        feed = self.feed(0)
        strided = {name: np.repeat(array, 2, axis=0)[::2] for name, array in feed.items()}
        assert client.target([strided], endpoint).messages == client.target([feed], endpoint).messages
        assert all(np.array_equal(feed[name], array) for name, array in self.feed(0).items())

    def test_headers_are_sent_with_every_request(self, client: Client, endpoint: Endpoint) -> None:
        """A header of the endpoint goes with each request, and nothing else of the target shows it."""
        secret = replace(endpoint, headers=(("Authorization", SECRET),))
        for request in _all_requests(client, secret, self.feed(0)):
            if request.transport is Transport.GRPC:
                assert ("authorization", SECRET) in request.metadata
            else:
                assert all(
                    _parse_request(message)[1]["authorization"] == SECRET for message in request.messages
                )
            text = repr(replace(request, messages=(), metadata=()))
            assert SECRET not in text

    @pytest.mark.parametrize("header", [("X", f"{SECRET}\r\nHost: b"), ("X\r\nY", SECRET), ("", SECRET)])
    def test_headers_that_end_a_line_are_refused(
        self, client: Client, endpoint: Endpoint, header: tuple[str, str]
    ) -> None:
        """A header that would begin another line is refused in a sentence that does not tell its value."""
        with pytest.raises(RequestError) as caught:
            client.target([self.feed(0)], replace(endpoint, headers=(header,)))
        assert is_one_sentence(str(caught.value))
        assert SECRET not in str(caught.value)

    def test_what_it_cannot_carry_is_refused(self, client: Client, endpoint: Endpoint) -> None:
        """Complex numbers are refused in one sentence that names the input."""
        with pytest.raises(RequestError) as caught:
            client.target([{"odd": np.zeros((2, 2), "complex64")}], endpoint)
        assert is_one_sentence(str(caught.value))
        assert not self.numbers or "odd" in str(caught.value)

    def test_an_answer_is_read(self, client: Client) -> None:
        """A real answer gives named arrays of numpy, the same each time."""
        first, second = client.arrays(self.answer), client.arrays(self.answer)
        assert first
        assert all(isinstance(array, np.ndarray) for array in first.values())
        assert all(np.array_equal(array, second[name]) for name, array in first.items())
        assert client.tokens(self.answer) >= -1

    def test_failures_are_told_in_a_phrase(self, client: Client) -> None:
        """A status that tells of a failure is a ValueError that names it, in a phrase."""
        statuses = (13, 5, 99) if client.transport is Transport.GRPC else (500, 404, 302, 429)
        for status in statuses:
            for body in (b"", b'{"error": "no\\nway"}', b"\xff\x1b[31m"):
                with pytest.raises(ValueError, match=str(status)) as caught:
                    client.arrays(replace(self.answer, status=status, body=body))
                assert str(caught.value).isprintable()
                assert not str(caught.value).endswith(".")

    def test_damage_is_told_in_a_phrase(self, client: Client, endpoint: Endpoint) -> None:
        """Whatever an answer holds, it is read, or it is a ValueError."""
        for reply in _damaged(self.answer):
            _allow_value_error(lambda reply=reply: client.arrays(reply))  # type: ignore[misc]
            _allow_value_error(lambda reply=reply: client.tokens(reply))  # type: ignore[misc]
            assert isinstance(client.recognised(reply), ServerInfo | None)
        for reply in _damaged(self.description) if self.description else ():
            _allow_value_error(lambda reply=reply: client.inputs(reply, endpoint))  # type: ignore[misc]

    def test_other_servers_are_not_recognised(self, client: Client) -> None:
        """An answer that says nothing of the protocol is not taken for one of it."""
        for body in _FOREIGN:
            status = 12 if client.transport is Transport.GRPC else 200
            assert client.recognised(Reply(message=0, status=status, head=b"", body=body)) is None

    def test_inputs_are_declared(self, client: Client, endpoint: Endpoint) -> None:
        """What a model takes is read from a real description, or is what the protocol says."""
        assert (client.described(endpoint) is None) == (self.description is None)
        for spec in client.inputs(self.description, endpoint):
            assert isinstance(spec, InputSpec)
            assert spec.name
            assert spec.dtype in DTYPES
            assert all(isinstance(d, str) or d > 0 for d in spec.shape or ())


def _all_requests(client: Client, endpoint: Endpoint, feed: Feed) -> Iterator[Target]:
    """Yield all requests that a client makes."""
    yield client.target([feed], endpoint)
    others = (client.greeting(endpoint), client.described(endpoint), client.statistics(endpoint))
    yield from filter(None, others)


def _parse_request(message: bytes) -> tuple[str, dict[str, str], bytes]:
    head, _, body = message.partition(b"\r\n\r\n")
    line, *fields = head.decode("latin-1").split("\r\n")
    pairs = [field.split(": ", 1) for field in fields]
    assert len({name.lower() for name, _ in pairs}) == len(pairs)
    return line, {name.lower(): value for name, value in pairs}, body


def _damaged(reply: Reply) -> Iterator[Reply]:
    """Yield truncated answers, and answers with changed bytes."""
    random = Random(0)
    for size in sorted(random.sample(range(len(reply.body)), min(_DAMAGED, len(reply.body)))):
        yield replace(reply, body=reply.body[:size])
    for _ in range(_DAMAGED if reply.body else 0):
        body = bytearray(reply.body)
        for _ in range(random.randint(1, 4)):
            body[random.randrange(len(body))] = random.choice(
                b'\x00\xff"{}[]:,0-' + bytes([random.randrange(256)])
            )
        yield replace(reply, body=bytes(body))


def _allow_value_error(read: Callable[[], object]) -> None:
    try:
        read()
    except ValueError as error:
        message = str(error)
    else:
        return
    assert message
    assert "\n" not in message
