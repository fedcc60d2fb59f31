"""Plays a moment of a load again: ``python -m modeldyno.serving.loadgen.calibration_server``.

It reads a line of JSON on standard input (see `calibration.PlaybackServer`), prints its port, and answers
``GET /N`` with the pieces of answer N at the times of the score, counted from the first request. At the end
of its input it writes when that request came, and when it wrote each event of the score: int64, in
nanoseconds of the monotonic clock; below 0 for one that waited for its request, 0 for one that it did not
write.

One thread, no event loop and nothing but the standard library, so that it takes little of the machine that
the client needs, and reads the clock right before each write.
"""

from __future__ import annotations

import gc
import json
import os
import select
import selectors
import signal
import socket
import sys
from array import array
from contextlib import suppress

from modeldyno.base.clock import monotonic_ns
from modeldyno.base.system.process_tree import end_with_parent

_HOST = "127.0.0.1"
_BACKLOG = 4096
_AT_ONCE = 16
"""Writes after which it looks for requests."""
_CHUNK = 1 << 16
_HEAD = "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nTransfer-Encoding: chunked\r\n\r\n"
_END = b"0\r\n\r\n"


class _Connection:
    """A connection, and what its client has not taken yet."""

    __slots__ = ("received", "rest", "socket")

    def __init__(self, accepted: socket.socket) -> None:
        self.socket = accepted
        self.received = b""
        self.rest = b""


class _Player:
    """Plays a score to whoever asks for its answers."""

    def __init__(self, playback: dict[str, str], events: list[tuple[int, int, int, bool]]) -> None:
        self.events = events
        self.begin = 0
        """When the first request came."""
        self.written = array("q", bytes(8 * len(events)))
        self.at = 0
        """Number of the next event."""
        self.ended = False
        self.head, self.piece, self.end = (
            playback[name].encode("latin-1") for name in ("head", "piece", "end")
        )
        self.asked: dict[int, _Connection] = {}
        """Answers that have been asked for, and not ended."""
        self.headed: set[int] = set()
        self.overdue: dict[int, list[int]] = {}
        """Events of answers that have not been asked for yet."""
        self.selector = selectors.DefaultSelector()

    def listen(self) -> int:
        """Listen on a free port, and return it."""
        listening = socket.create_server((_HOST, 0), backlog=_BACKLOG)
        listening.setblocking(False)
        self.selector.register(listening, selectors.EVENT_READ, listening)
        self.selector.register(0, selectors.EVENT_READ)
        port: int = listening.getsockname()[1]
        return port

    def play(self) -> None:
        """Play until the input ends."""
        while not self.ended:
            self.wait(self.write_due())

    def write_due(self) -> float | None:
        """Write some of what is due; return the seconds until more is due, None if nothing is."""
        for _ in range(_AT_ONCE if self.begin else 0):
            if self.at == len(self.events):
                return None
            left = self.begin + self.events[self.at][0] - monotonic_ns()
            if left > 0:
                return left / 1e9
            self.write(self.at)
            self.at += 1
        return 0.0 if self.begin else None

    def wait(self, seconds: float | None) -> None:
        """Take what comes within some seconds; select is finer than the milliseconds of other calls."""
        if seconds != 0.0 and not select.select([self.selector.fileno()], [], [], seconds)[0]:
            return
        for key, mask in self.selector.select(0):
            if key.fd == 0:
                self.ended = not os.read(0, _CHUNK)
            elif isinstance(key.data, _Connection):
                self.exchange(key.data, mask)
            else:
                self.accept(key.data)

    def accept(self, listening: socket.socket) -> None:
        """Accept all connections that have come."""
        with suppress(BlockingIOError):
            while True:
                accepted, _ = listening.accept()
                accepted.setblocking(False)
                accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self.selector.register(accepted, selectors.EVENT_READ, _Connection(accepted))

    def exchange(self, connection: _Connection, mask: int) -> None:
        """Send what is left, and read requests."""
        if mask & selectors.EVENT_WRITE:
            rest, connection.rest = connection.rest, b""
            self.send(connection, rest)
        if not mask & selectors.EVENT_READ:
            return
        try:
            received = connection.socket.recv(_CHUNK)
        except BlockingIOError:
            return
        except OSError:
            received = b""
        if not received:
            self.selector.unregister(connection.socket)
            connection.socket.close()
            return
        connection.received += received
        while b"\r\n\r\n" in connection.received:
            head, _, connection.received = connection.received.partition(b"\r\n\r\n")
            self.answer(int(head.split(b" ", 2)[1].removeprefix(b"/")), connection)

    def answer(self, number: int, connection: _Connection) -> None:
        """Begin an answer, with what it should have by now."""
        self.begin = self.begin or monotonic_ns()
        self.asked[number] = connection
        for at in self.overdue.pop(number, ()):
            self.write(at)
            self.written[at] = -self.written[at]

    def write(self, at: int) -> None:
        """Write an event of the score, if its answer has been asked for."""
        _, number, pieces, is_last = self.events[at]
        connection = self.asked.get(number)
        if connection is None:
            self.overdue.setdefault(number, []).append(at)
            return
        text = self.piece * pieces + (self.end if is_last else b"")
        data = b"%x\r\n%b\r\n" % (len(text), text)
        if number not in self.headed:
            self.headed.add(number)
            data = self.head + data
        if is_last:
            del self.asked[number]
            data += _END
        self.written[at] = monotonic_ns()
        self.send(connection, data)

    def send(self, connection: _Connection, data: bytes) -> None:
        """Send data after what is left, and keep what the client does not take now."""
        if connection.rest:
            connection.rest += data
            return
        try:
            sent = connection.socket.send(data)
        except BlockingIOError:
            sent = 0
        except OSError:  # the client has gone
            return
        connection.rest = data[sent:]
        waits = selectors.EVENT_WRITE if connection.rest else 0
        if waits != self.selector.get_key(connection.socket).events & selectors.EVENT_WRITE:
            self.selector.modify(connection.socket, selectors.EVENT_READ | waits, connection)


def main() -> None:
    """Play what comes on standard input, until that ends or the process that started this one does."""
    end_with_parent()
    for number in (signal.SIGINT, signal.SIGTERM):  # meant for the starter
        signal.signal(number, signal.SIG_IGN)
    line = bytearray()
    while not line.endswith(b"\n"):
        data = os.read(0, _CHUNK)
        if not data:
            return
        line += data
    playback = json.loads(line)
    events = [(due, number, pieces, bool(last)) for due, number, pieces, last in playback["events"]]
    player = _Player(
        {"head": _HEAD.format(kind=playback["kind"]), "piece": playback["piece"], "end": playback["end"]},
        events,
    )
    port = player.listen()
    gc.freeze()
    gc.disable()
    sys.stdout.write(f"{port}\n")
    sys.stdout.flush()
    player.play()
    sys.stdout.buffer.write(array("q", [player.begin]).tobytes() + player.written.tobytes())
    sys.stdout.flush()


if __name__ == "__main__":
    main()
