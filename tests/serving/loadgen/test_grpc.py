"""Against grpcio's own server, and against frames written by hand."""

from __future__ import annotations

import subprocess
import time
from concurrent import futures
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import grpc
import numpy as np
import pytest
from tests.serving.load.test_request_log import times_of_pieces

from modeldyno.base.job.load_spec import Load
from modeldyno.base.result.request_outcome import RequestOutcome
from modeldyno.engine.interfaces.request_target import COMPRESSIONS, Target, Tls, Transport, compress
from modeldyno.serving.loadgen.single_request import send_once
from modeldyno.testing.server import serve_in_subprocess

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.serving.loadgen.conftest import Driven

HANGS = 30.0


def echo(request: bytes, _: Any) -> bytes:
    return request


def metadata(_: bytes, context: Any) -> bytes:
    context.send_initial_metadata([("early", "1"), ("long", "v" * 20_000)])
    context.set_trailing_metadata([("late", "2")])
    return repr(
        [(key, value) for key, value in context.invocation_metadata() if key.startswith("x-")]
    ).encode()


def fail(request: bytes, context: Any) -> bytes:
    code = next(each for each in grpc.StatusCode if each.value[0] == request[0])
    context.abort(code, "as asked")
    return b""


def slow(request: bytes, context: Any) -> bytes:
    began = time.monotonic()
    while context.is_active() and time.monotonic() - began < HANGS:
        time.sleep(0.01)
    return request


def stream(request: bytes, _: Any) -> Iterator[bytes]:
    for index in range(request[0]):
        yield b"x" * index


class Methods(grpc.GenericRpcHandler):  # type: ignore[misc]
    """All methods take and give bytes."""

    def service(self, details: Any) -> Any:
        """Find a method by the last part of its path."""
        name = details.method.rpartition("/")[2]
        if name == "stream":
            return grpc.unary_stream_rpc_method_handler(stream)
        method = {"echo": echo, "metadata": metadata, "fail": fail, "slow": slow}.get(name)
        return None if method is None else grpc.unary_unary_rpc_method_handler(method)


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    server = grpc.server(futures.ThreadPoolExecutor(8), handlers=[Methods()], options=options)
    bound = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield bound
    server.stop(0).wait()


def target(port: int, method: str, *messages: bytes, stream: bool = False) -> Target:
    return Target(
        protocol="bytes",
        transport=Transport.GRPC,
        host="127.0.0.1",
        port=port,
        messages=messages or (b"hello",),
        method=f"/test.Bytes/{method}",
        metadata=(("X-Token", "secret"), ("x-more", "")),
        stream=stream,
    )


@pytest.mark.parametrize("concurrency", [1, 20])
def test_calls_are_answered(concurrency: int, port: int, driven: Callable[..., Driven]) -> None:
    """Each message comes back, over as few connections as eight calls each need."""
    outcome = driven(target(port, "echo", b"one", b"", b"three"), Load(concurrency=concurrency, requests=300))
    assert len(outcome.records) == 300
    assert set(outcome.records.outcome) == {RequestOutcome.OK}
    assert {(reply.message, reply.body) for reply in outcome.replies} == {
        (0, b"one"),
        (1, b""),
        (2, b"three"),
    }
    assert outcome.records.received.sum() == 100 * (3 + 5)
    assert (outcome.records.first <= outcome.records.end).all()
    assert outcome.opened <= 1 + concurrency // 8 * 2


@pytest.mark.parametrize("size", [16_379, 16_380, 65_530, 65_536, 3_000_001])
def test_messages_of_any_size_go_there_and_back(size: int, port: int, driven: Callable[..., Driven]) -> None:
    """Beyond a frame, beyond a window, several at a time."""
    message = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    outcome = driven(target(port, "echo", message), Load(concurrency=6, requests=12))
    assert set(outcome.records.outcome) == {RequestOutcome.OK}
    assert set(outcome.records.received) == {size}
    assert outcome.replies[-1].body == message


@pytest.mark.parametrize("name", COMPRESSIONS)
def test_compressed_messages_go_there_and_back(name: str, driven: Callable[..., Driven]) -> None:
    """A server of grpc reads them, and its compressed answers are read."""
    algorithm = {"gzip": grpc.Compression.Gzip, "deflate": grpc.Compression.Deflate}[name]
    server = grpc.server(futures.ThreadPoolExecutor(2), handlers=[Methods()], compression=algorithm)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    plain = b"again and " * 1000
    compressed = replace(target(port, "echo", compress(plain, name)), compression=name)
    load_run, reply = driven(compressed, Load(requests=3)), send_once(compressed)
    server.stop(0).wait()

    assert {reply.body for reply in load_run.replies} == {plain}
    assert max(load_run.records.received) < len(plain)
    assert reply.body == plain


def test_metadata_is_sent_and_shown(port: int) -> None:
    """Ours by the lower-case name; that of the server, a long one too, before and after its answer."""
    reply = send_once(target(port, "metadata"))
    assert reply.body == b"[('x-token', 'secret'), ('x-more', '')]"
    lines = reply.head.split(b"\r\n")
    assert {b"early: 1", b"late: 2", b"grpc-status: 0", b"long: " + b"v" * 20_000} <= set(lines)


def test_the_headers_of_later_calls_say_the_same(port: int, driven: Callable[..., Driven]) -> None:
    """They are written by reference to the first call's."""
    outcome = driven(target(port, "metadata"), Load(requests=5))
    assert {reply.body for reply in outcome.replies} == {b"[('x-token', 'secret'), ('x-more', '')]"}
    assert outcome.opened == 1


@pytest.mark.parametrize(
    ("codes", "outcome"),
    [
        ((1, 3, 5, 6, 7, 9, 10, 11, 16), RequestOutcome.CLIENT_ERROR),
        ((2, 12, 13, 15), RequestOutcome.SERVER_ERROR),
        ((8, 14), RequestOutcome.REJECTED),
        ((4,), RequestOutcome.TIMEOUT),
    ],
)
def test_each_status_has_its_outcome(
    codes: tuple[int, ...], outcome: RequestOutcome, port: int, driven: Callable[..., Driven]
) -> None:
    """That of the status of HTTP that means the same."""
    load = Load(concurrency=2, requests=4 * len(codes))
    load_run = driven(target(port, "fail", *(bytes([code]) for code in codes)), load)
    assert set(load_run.records.outcome) == {outcome}
    assert not load_run.replies
    assert {reply.status for reply in load_run.faults} == set(codes)


def test_a_method_that_is_not_there_is_an_error_that_says_so(port: int) -> None:
    """The reply has the status of gRPC."""
    reply = send_once(target(port, "nothing"))
    assert reply.status == grpc.StatusCode.UNIMPLEMENTED.value[0]
    assert b"grpc-message: Method not found" in reply.head


def test_the_pieces_of_a_stream_are_timed(port: int, driven: Callable[..., Driven]) -> None:
    """One time for each message, in order, and the last one before the end."""
    load_run = driven(
        target(port, "stream", bytes([5]), bytes([0]), stream=True), Load(concurrency=3, requests=30)
    )
    records = load_run.records
    assert set(records.outcome) == {RequestOutcome.OK}
    for message, first, pieces, end in zip(
        records.message, records.first, times_of_pieces(records), records.end, strict=True
    ):
        assert len(pieces) == (5 if message == 0 else 0)
        assert list(pieces) == sorted(pieces)
        assert all(first <= piece <= end for piece in pieces)
    assert {(reply.message, len(reply.body)) for reply in load_run.replies} == {(0, 10), (1, 0)}


def test_a_call_that_hangs_is_given_up_and_the_connection_goes_on(
    port: int, driven: Callable[..., Driven]
) -> None:
    """At the timeout; the server is told, by its deadline or by us."""
    load_run = driven(target(port, "slow"), Load(concurrency=3, requests=6, timeout=0.3))
    assert set(load_run.records.outcome) == {RequestOutcome.TIMEOUT}
    assert (load_run.records.end - load_run.records.sent).max() < 1.3e9
    assert load_run.opened == 1


def test_calls_that_end_are_cancelled_when_the_load_ends(port: int, driven: Callable[..., Driven]) -> None:
    """Counted as such."""
    load_run = driven(target(port, "slow"), Load(concurrency=3), seconds=0.3, grace=0.0)
    assert [RequestOutcome(outcome) for outcome in load_run.records.outcome] == [RequestOutcome.CANCELLED] * 3


def test_a_server_that_leaves_in_peace_loses_no_call(driven: Callable[..., Driven]) -> None:
    """Connections of at most 0.2 s, say those who operate it: calls move on to the next one."""
    options = [("grpc.max_connection_age_ms", 200), ("grpc.max_connection_age_grace_ms", 2000)]
    server = grpc.server(futures.ThreadPoolExecutor(4), handlers=[Methods()], options=options)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        load_run = driven(target(port, "echo"), Load(concurrency=4), seconds=0.9)
    finally:
        server.stop(0).wait()
    assert set(load_run.records.outcome) == {RequestOutcome.OK}
    assert load_run.opened > 1
    assert np.all(load_run.records.retries <= 5)


def test_calls_are_made_over_tls(tmp_path: Path, driven: Callable[..., Driven]) -> None:
    """HTTP/2 is agreed on in the handshake; an authority that nobody trusts is refused."""
    files = [tmp_path / name for name in ("certificate.pem", "key.pem")]
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=DNS:localhost", "-out", files[0], "-keyout", files[1]],
        check=True, capture_output=True,
    )  # fmt: skip
    certificate, key = (file.read_bytes() for file in files)
    server = grpc.server(futures.ThreadPoolExecutor(4), handlers=[Methods()])
    port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([(key, certificate)]))
    server.start()
    try:
        trusted = Tls(authority=str(files[0]), name="localhost")
        secure = replace(target(port, "echo"), tls=trusted)
        assert send_once(secure).body == b"hello"
        assert set(driven(secure, Load(concurrency=3, requests=30)).records.outcome) == {RequestOutcome.OK}
        doubtful = replace(secure, tls=Tls())
        assert set(driven(doubtful, Load(requests=2)).records.outcome) == {RequestOutcome.REFUSED}
    finally:
        server.stop(0).wait()


@pytest.mark.slow
def test_a_server_of_another_protocol_is_called_malformed(driven: Callable[..., Driven]) -> None:
    """It answers in HTTP/1.1, and closes."""
    with serve_in_subprocess() as server:
        load_run = driven(target(server.port, "echo"), Load(requests=3))
        with pytest.raises(OSError, match=f"127.0.0.1:{server.port}"):
            send_once(target(server.port, "echo"))
    assert {RequestOutcome(outcome) for outcome in load_run.records.outcome} <= {
        RequestOutcome.MALFORMED,
        RequestOutcome.REFUSED,
    }
    assert len(load_run.records) == 3
