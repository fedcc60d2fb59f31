"""The process that sends: ``python -m modeldyno.loadgen.driver_main FD``.

Its order comes on standard input, and after it the lines ``go NANOSECONDS`` and ``stop SECONDS``; frames of
what happened go to the file descriptor FD several times a second. It ends with the process that started it.
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

from modeldyno.core.load.request_target import Transport
from modeldyno.environment.process_tree import end_with_parent
from modeldyno.errors import ModelDynoError
from modeldyno.loadgen import driver_protocol, record_frames, tls
from modeldyno.loadgen.connection_pool import Pool
from modeldyno.loadgen.kernel_timer import timer
from modeldyno.loadgen.load_loop import Drive

if TYPE_CHECKING:
    from typing import Any

    from modeldyno.core.load.request_target import Target
    from modeldyno.interfaces import Client
    from modeldyno.loadgen.driver_protocol import Order
    from modeldyno.loadgen.request import Carrier

_TELL = 0.1
"""Seconds between two blocks."""
_SHARE = 8
"""Calls at a time on one connection of HTTP/2, see docs/decisions/0012."""
_SWEEP = 2000
"""Connections made between two collections of garbage, which only they leave."""


def main(descriptor: int) -> None:
    """Drive until told to stop, or until nobody listens."""
    end_with_parent()
    for number in (signal.SIGINT, signal.SIGTERM):  # they are for those who started us
        signal.signal(number, signal.SIG_IGN)
    _allow_connections()
    loop = _new_loop()
    asyncio.set_event_loop(loop)
    told = driver_protocol.read(lambda size: _take(0, size))
    loop.run_until_complete(_drive(told, descriptor, loop))


async def _drive(told: Order, descriptor: int, loop: asyncio.AbstractEventLoop) -> None:
    drive = Drive(told.load, told.share, len(told.target.messages), loop, seed=told.seed)
    drive.carrier = carrier(told, drive, loop)
    drive.timer = timer(loop, drive.ring)
    drive.count_tokens = getattr(_reader(told.target), "tokens", None)
    transport, pipe = await loop.connect_write_pipe(_Pipe, os.fdopen(descriptor, "wb", buffering=0))
    over = loop.create_future()
    drive.finished = lambda: over.set_result(None)
    _obey(drive, loop)
    gc.collect()
    gc.freeze()
    gc.disable()
    transport.write(record_frames.frame(record_frames.READY))
    _tell(drive, transport, loop)
    await over
    transport.write(record_frames.of_block(drive.block()))
    for end, reply in drive.answers():
        transport.write(record_frames.of_answer(record_frames.ANSWER, end, reply))
    for end, reply in drive.faults():
        transport.write(record_frames.of_answer(record_frames.FAULT, end, reply))
    transport.write(record_frames.frame(record_frames.END))
    transport.close()
    await pipe.closed
    # The loop's own tidying up would wait for connections that nobody needs any more.
    os._exit(0)


class _Pipe(asyncio.BaseProtocol):
    """Knows when all has been read, or nobody reads."""

    def __init__(self) -> None:
        self.closed = asyncio.get_running_loop().create_future()

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is not None:
            os._exit(1)
        self.closed.set_result(None)


def _tell(drive: Drive, transport: asyncio.WriteTransport, loop: asyncio.AbstractEventLoop) -> None:
    """Write a block, and again after a while."""
    swept = 0

    def tell() -> None:
        nonlocal swept
        transport.write(record_frames.of_block(drive.block()))
        if drive.carrier.opened - swept > _SWEEP:
            swept = drive.carrier.opened
            gc.collect()
        loop.call_later(_TELL, tell)

    loop.call_later(_TELL, tell)


def _obey(drive: Drive, loop: asyncio.AbstractEventLoop) -> None:
    """Follow the lines on standard input; its end is that of the one who wrote them."""
    line = bytearray()

    def hear() -> None:
        data = os.read(0, 4096)
        if not data:
            os._exit(1)
        line.extend(data)
        while b"\n" in line:
            word, _, value = line[: line.index(b"\n")].decode().partition(" ")
            del line[: line.index(b"\n") + 1]
            if word == "go":
                drive.start(int(value))
            else:
                drive.stop(float(value))

    loop.add_reader(0, hear)


def carrier(told: Order, drive: Drive, loop: asyncio.AbstractEventLoop) -> Carrier:
    """Give the way to the server that the target asks for."""
    target = told.target
    place = {"host": told.address, "port": target.port}
    if target.transport is Transport.GRPC:
        from modeldyno.loadgen.http2 import Channel  # noqa: PLC0415 - the other transport needs none
        from modeldyno.loadgen.http2_sender import Script  # noqa: PLC0415 - see above

        script = Script(target, told.load.timeout)
        place |= tls.options(target, protocols=("h2",))
        return Pool(loop, drive.done, lambda owner: Channel(owner, script, _SHARE), place, share=_SHARE)
    from modeldyno.loadgen.http1 import Connection  # noqa: PLC0415 - the other transport needs none

    bearing = getattr(_reader(target), "bearing", None)
    place |= tls.options(target)
    return Pool(loop, drive.done, lambda owner: Connection(owner, target, bearing), place)


def _reader(target: Target) -> Client | None:
    """Give the client that reads streams and counts tokens; None where there are none, or it is no plugin."""
    if not (target.stream or target.counted):
        return None
    from modeldyno import plugins  # noqa: PLC0415 - only they need it

    with suppress(ModelDynoError):
        return plugins.client(target.protocol)
    return None


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop  # noqa: PLC0415 - not on every system
    except ImportError:
        return asyncio.new_event_loop()
    made: Any = uvloop.new_event_loop()
    return made  # type: ignore[no-any-return]


def _allow_connections() -> None:
    """Have as many open files as we may."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _take(descriptor: int, size: int) -> bytes:
    taken = bytearray()
    while len(taken) < size:
        data = os.read(descriptor, size - len(taken))
        if not data:
            os._exit(1)
        taken += data
    return bytes(taken)


if __name__ == "__main__":
    main(int(sys.argv[1]))
