"""Row 6 of the reliability table, beyond the faults of the ground-truth server: what no server should say."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import pytest

from modeldyno.base.job.load_spec import Load
from modeldyno.base.result.request_outcome import RequestOutcome
from modeldyno.engine.interfaces.request_target import Target, Transport

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.serving.loadgen.conftest import Driven

Answer = Callable[[asyncio.StreamWriter], Awaitable[None]]
TIMEOUT = 1.0
HEAD = b"HTTP/1.1 200 OK\r\n"
COUNTS = [32, pytest.param(1000, marks=pytest.mark.slow)]


def says(*pieces: bytes, close: bool = False, pause: float = 0.0) -> Answer:
    """Write these, one after the other; keep the connection open, or close it."""

    async def answer(writer: asyncio.StreamWriter) -> None:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(pause)
        if close:
            writer.close()

    return answer


async def drips(writer: asyncio.StreamWriter) -> None:
    """Write a byte now and then, without end."""
    writer.write(HEAD + b"Content-Length: 100000\r\n\r\n")
    while not writer.is_closing():
        writer.write(b"x")
        await asyncio.sleep(0.2)


async def endless_head(writer: asyncio.StreamWriter) -> None:
    """Write one header after the other, without end."""
    writer.write(HEAD)
    while not writer.is_closing():
        writer.write(b"X-More: " + b"x" * 4000 + b"\r\n")
        await writer.drain()
        await asyncio.sleep(0.001)


BROKEN = {RequestOutcome.MALFORMED, RequestOutcome.TRUNCATED, RequestOutcome.RESET}
HOSTILE: dict[str, tuple[Answer, set[RequestOutcome]]] = {
    "drips without end": (drips, {RequestOutcome.TIMEOUT}),
    "a head without end": (endless_head, {RequestOutcome.TIMEOUT, RequestOutcome.MALFORMED}),
    "stalls within the head": (says(HEAD + b"Content-Le"), {RequestOutcome.TIMEOUT}),
    "stalls within the body": (says(HEAD + b"Content-Length: 10\r\n\r\nhalf"), {RequestOutcome.TIMEOUT}),
    "stalls within a chunk": (
        says(HEAD + b"Transfer-Encoding: chunked\r\n\r\nff\r\nhalf"),
        {RequestOutcome.TIMEOUT},
    ),
    "promises more than it sends": (says(HEAD + b"Content-Length: 10\r\n\r\nhalf", close=True), BROKEN),
    "ends within a chunk": (
        says(HEAD + b"Transfer-Encoding: chunked\r\n\r\nff\r\nhalf", close=True),
        BROKEN,
    ),
    "never ends its chunks": (
        says(HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n", close=True),
        BROKEN,
    ),
    "ends within the head": (says(HEAD + b"Content-Le", close=True), BROKEN),
    "a length that is negative": (says(HEAD + b"Content-Length: -1\r\n\r\n"), {RequestOutcome.MALFORMED}),
    "a length that is no number": (says(HEAD + b"Content-Length: ten\r\n\r\n"), {RequestOutcome.MALFORMED}),
    "a length beyond all memory": (
        says(HEAD + b"Content-Length: 99999999999999999999\r\n\r\nx"),
        {RequestOutcome.TIMEOUT, RequestOutcome.MALFORMED},
    ),
    "two lengths": (
        says(HEAD + b"Content-Length: 2\r\nContent-Length: 5\r\n\r\nok"),
        {RequestOutcome.MALFORMED, RequestOutcome.TIMEOUT},
    ),
    "a chunk of negative size": (
        says(HEAD + b"Transfer-Encoding: chunked\r\n\r\n-5\r\nok\r\n"),
        {RequestOutcome.MALFORMED},
    ),
    "a status that is no number": (says(b"HTTP/1.1 abc OK\r\n\r\n"), {RequestOutcome.MALFORMED}),
    "another protocol": (
        says(b"SSH-2.0-OpenSSH_9.6\r\n"),
        {RequestOutcome.MALFORMED, RequestOutcome.TIMEOUT},
    ),
    "nothing but zeros": (says(b"\0" * 4096, close=True), BROKEN),
    "interim answers without end": (
        says(*[b"HTTP/1.1 100 Continue\r\n\r\n"] * 50, close=True, pause=0.001),
        BROKEN,
    ),
    "an end by closing, without a length": (
        says(b"HTTP/1.0 200 OK\r\n\r\nok", close=True),
        {RequestOutcome.OK, *BROKEN},
    ),
    "429 with words": (
        says(b"HTTP/1.1 429 Slow\r\nRetry-After: 3600\r\nContent-Length: 2\r\n\r\nno"),
        {RequestOutcome.REJECTED},
    ),
    "a status of its own": (
        says(b"HTTP/1.1 599 X\r\nContent-Length: 0\r\n\r\n"),
        {RequestOutcome.SERVER_ERROR},
    ),
    "another place": (
        says(b"HTTP/1.1 307 X\r\nLocation: /\r\nContent-Length: 0\r\n\r\n"),
        {RequestOutcome.CLIENT_ERROR, RequestOutcome.MALFORMED},
    ),
}


@contextmanager
def serving(answer: Answer) -> Iterator[int]:
    """Answer each request like that, in a thread of its own; give the port."""
    loop = asyncio.new_event_loop()
    ports: list[int] = []
    writers: list[asyncio.StreamWriter] = []
    servers: list[asyncio.Server] = []
    started = threading.Event()

    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            while not writer.is_closing():
                await reader.readuntil(b"\r\n\r\nhi")
                await answer(writer)

    async def listen() -> None:
        server = await asyncio.start_server(respond, "127.0.0.1", 0, backlog=1024)
        servers.append(server)
        ports.append(server.sockets[0].getsockname()[1])
        started.set()

    def work() -> None:
        loop.set_exception_handler(lambda *_: None)
        loop.run_until_complete(listen())
        loop.run_forever()
        servers[0].close()
        for writer in writers:
            writer.transport.abort()
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0.01))
        loop.close()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    assert started.wait(10)
    try:
        yield ports[0]
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("name", HOSTILE)
def test_each_request_to_a_hostile_server_ends_in_one_way(
    name: str, count: int, driven: Callable[..., Driven]
) -> None:
    """Every request is called one thing that suits it, within the timeout and a second."""
    answer, outcomes = HOSTILE[name]
    with serving(answer) as port:
        target = Target(
            protocol="http",
            transport=Transport.HTTP,
            host="127.0.0.1",
            port=port,
            messages=(b"POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 2\r\n\r\nhi",),
        )
        # Where nothing is to time out, a busy machine must not have it do so.
        timeout = TIMEOUT if RequestOutcome.TIMEOUT in outcomes else 10 * TIMEOUT
        load = Load(concurrency=32, requests=count, timeout=timeout)
        records = driven(target, load, seconds=300).records
    assert len(records) == count
    assert {RequestOutcome(outcome) for outcome in records.outcome} <= outcomes
    assert (records.end - records.sent).max() < (timeout + 1) * 1e9
