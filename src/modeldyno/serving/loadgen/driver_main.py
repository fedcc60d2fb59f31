"""The driver process that sends requests: ``python -m modeldyno.serving.loadgen.driver_main FD``.

Its command comes on standard input, followed by the lines ``go NANOSECONDS`` and ``stop SECONDS``; frames
with records go to the file descriptor FD several times a second. It ends with the process that started it.
"""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import signal
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from modeldyno.base.errors import ModelDynoError
from modeldyno.base.system.process_tree import end_with_parent
from modeldyno.engine.interfaces.request_target import Transport
from modeldyno.serving.loadgen import driver_protocol, record_frames, tls
from modeldyno.serving.loadgen.connection_pool import ConnectionPool
from modeldyno.serving.loadgen.fresh_prompts import FreshWords
from modeldyno.serving.loadgen.kernel_timer import make_timer
from modeldyno.serving.loadgen.load_loop import LoadLoop

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from modeldyno.base.job.load_spec import Load
    from modeldyno.engine.interfaces.request_target import Reply, Target
    from modeldyno.serving.interfaces.client import Client
    from modeldyno.serving.loadgen.driver_protocol import DriverCommand
    from modeldyno.serving.loadgen.request import Carrier
    from modeldyno.serving.loadgen.sequences import OpenSequences

_REPORT_INTERVAL = 0.1
"""Seconds between two blocks."""
_PAUSE, _PAUSES = 0.002, 10
"""Seconds that a block waits for tokens to be counted, and how often at most."""
_CALLS_PER_CONNECTION = 8
"""Concurrent calls on one HTTP/2 connection, see docs/decisions/0012."""
_COLLECT_EVERY = 2000
"""Connections opened between two garbage collections; only connections leave cyclic garbage."""


def main(descriptor: int) -> None:
    """Send the load until told to stop, or until the starter is gone."""
    end_with_parent()
    for number in (signal.SIGINT, signal.SIGTERM):  # meant for the starter
        signal.signal(number, signal.SIG_IGN)
    _raise_file_limit()
    loop = _new_loop()
    asyncio.set_event_loop(loop)
    command = driver_protocol.read_command(lambda size: _read_exactly(0, size))
    loop.run_until_complete(_run(command, descriptor, loop))


async def _run(command: DriverCommand, descriptor: int, loop: asyncio.AbstractEventLoop) -> None:
    load_loop = LoadLoop(command.load, command.share, len(command.target.messages), loop, seed=command.seed)
    load_loop.carrier = make_carrier(command, load_loop, loop)
    load_loop.timer = make_timer(loop, load_loop.ring)
    load_loop.count_tokens = _token_counter(command.target)
    load_loop.streamed = command.target.stream
    if command.target.word_groups:
        load_loop.fresh_words = FreshWords(command.target, command.share).next
    elif command.target.marks and not command.target.numbered:
        load_loop.sequences = _sequences(command)
    transport, pipe = await loop.connect_write_pipe(_Pipe, os.fdopen(descriptor, "wb", buffering=0))
    finished = loop.create_future()
    load_loop.finished = lambda: finished.set_result(None)
    _read_commands(load_loop, loop)
    gc.collect()
    gc.freeze()
    gc.disable()
    transport.write(record_frames.frame(record_frames.READY))
    _report_regularly(load_loop, transport, loop)
    await finished
    transport.write(record_frames.encode_block(load_loop.block()))
    for end, reply in load_loop.answers():
        transport.write(record_frames.encode_answer(record_frames.ANSWER, end, reply))
    for end, reply in load_loop.faults():
        transport.write(record_frames.encode_answer(record_frames.FAULT, end, reply))
    transport.write(record_frames.frame(record_frames.END))
    transport.close()
    await pipe.closed
    # The event loop's cleanup would wait for connections that are no longer needed.
    os._exit(0)


class _Pipe(asyncio.BaseProtocol):
    """Notices when all output has been read, or the reader is gone."""

    def __init__(self) -> None:
        self.closed = asyncio.get_running_loop().create_future()

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is not None:
            os._exit(1)
        self.closed.set_result(None)


def _report_regularly(
    load_loop: LoadLoop, transport: asyncio.WriteTransport, loop: asyncio.AbstractEventLoop
) -> None:
    """Write a block of records, and again at intervals."""
    collected_at = waited = 0

    def report() -> None:
        nonlocal collected_at, waited
        if load_loop.uncounted and waited < _PAUSES:  # to count them all now would delay what arrives
            waited += 1
            loop.call_later(_PAUSE, report)
            return
        waited = 0
        transport.write(record_frames.encode_block(load_loop.block()))
        if load_loop.carrier.opened - collected_at > _COLLECT_EVERY:
            collected_at = load_loop.carrier.opened
            gc.collect()
        loop.call_later(_REPORT_INTERVAL, report)

    loop.call_later(_REPORT_INTERVAL, report)


def _read_commands(load_loop: LoadLoop, loop: asyncio.AbstractEventLoop) -> None:
    """Follow the lines on standard input; its end means that the starter is gone."""
    line = bytearray()

    def on_input() -> None:
        data = os.read(0, 4096)
        if not data:
            os._exit(1)
        line.extend(data)
        while b"\n" in line:
            word, _, value = line[: line.index(b"\n")].decode().partition(" ")
            del line[: line.index(b"\n") + 1]
            if word == "go":
                load_loop.start(int(value))
            else:
                load_loop.stop(float(value))

    loop.add_reader(0, on_input)


def make_carrier(command: DriverCommand, load_loop: LoadLoop, loop: asyncio.AbstractEventLoop) -> Carrier:
    """Return the connection pool of the target's server, or of each of its servers."""
    pools = [
        _pool(target, address, command.load, load_loop, loop)
        for target, address in zip(command.target.servers, command.addresses, strict=True)
    ]
    if len(pools) == 1:
        return pools[0]
    from modeldyno.serving.loadgen.round_robin import RoundRobin  # few loads have several

    return RoundRobin(pools, first=command.share.index)


def _pool(
    target: Target, address: str, load: Load, load_loop: LoadLoop, loop: asyncio.AbstractEventLoop
) -> ConnectionPool:
    options = {"host": address, "port": target.port}
    if target.transport is Transport.GRPC:
        from modeldyno.serving.loadgen.http2 import Http2Connection  # the other transport needs none
        from modeldyno.serving.loadgen.http2_sender import CallTemplate  # see above

        script = CallTemplate(target, load.timeout)
        options |= tls.tls_options(target, protocols=("h2",))
        return ConnectionPool(
            loop,
            load_loop.done,
            lambda owner: Http2Connection(owner, script, _CALLS_PER_CONNECTION),
            options,
            share=_CALLS_PER_CONNECTION,
        )
    from modeldyno.serving.loadgen.http1 import Http1Connection  # the other transport needs none

    client = _stream_client(target)
    looked_for = [getattr(client, name, None) for name in ("text_start", "is_reasoning")]
    options |= tls.tls_options(target)
    return ConnectionPool(
        loop,
        load_loop.done,
        lambda owner: Http1Connection(owner, target, *looked_for),
        options,
        keeps=load.sequence is not None,
    )


def _sequences(command: DriverCommand) -> OpenSequences:
    from modeldyno.base import plugins  # only they need it
    from modeldyno.serving.loadgen.sequences import Chat, OpenSequences  # see above

    target = command.target
    client = plugins.client(target.protocol)
    chat = Chat(target=target, client=client) if target.turn_ends else None
    return OpenSequences(
        command.load,
        command.share,
        target.streams or (len(target.messages),),
        client.sequence_mark,
        first=command.first_sequence if chat is None else 0,
        seed=command.seed,
        chat=chat,
    )


def _token_counter(target: Target) -> Callable[[Reply], int] | None:
    client = _stream_client(target)
    if client is None or not target.tokenizer:
        return getattr(client, "tokens", None)
    from modeldyno.serving.loadgen.token_counter import TokenCounter  # few targets have a tokenizer

    return TokenCounter(client, target.tokenizer)


def _stream_client(target: Target) -> Client | None:
    """Return the client that reads streams and counts tokens; None if not needed, or if it is no plugin."""
    if not (target.stream or target.counted):
        return None
    from modeldyno.base import plugins  # only they need it

    with suppress(ModelDynoError):
        return plugins.client(target.protocol)
    return None


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop  # not on every system
    except ImportError:
        return asyncio.new_event_loop()
    loop: Any = uvloop.new_event_loop()
    return loop  # type: ignore[no-any-return]


def _raise_file_limit() -> None:
    """Raise the limit of open files to the maximum allowed."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _read_exactly(descriptor: int, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        data = os.read(descriptor, size - len(received))
        if not data:
            os._exit(1)
        received += data
    return bytes(received)


if __name__ == "__main__":
    main(int(sys.argv[1]))
