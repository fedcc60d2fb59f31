"""The sending half of a connection of HTTP/2: ready-made calls, as fast as the server takes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from modeldyno.loadgen import hpack
from modeldyno.loadgen.grpc import PREFIX, asked
from modeldyno.loadgen.http2_frames import (
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    INITIAL,
    LARGEST,
    STREAM_AT,
    TABLE,
    USUAL_FRAME,
    USUAL_WINDOW,
    frame,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from modeldyno.core.load.request_target import Target


class Script:
    """What calls to a target are made of, written once."""

    def __init__(self, target: Target, timeout: float) -> None:
        fields = asked(target, timeout)
        self.messages = target.messages
        self.stream = target.stream
        self.prefixes = [b"\0" + len(message).to_bytes(4) for message in self.messages]
        self.table_size = sum(map(hpack.size_of, fields))
        self.full = hpack.literal(fields, learn=False)
        self.first = hpack.literal(fields, learn=True)
        self.later = hpack.learned(len(fields))
        """The headers in full; so that they are learned; once they have been."""

    def opening(self, block: bytes) -> tuple[bytes, list[bytes]]:
        """Give what stands before the number of a stream, and what follows it, of each message."""
        before = frame(HEADERS, END_HEADERS, 0, size=len(block))[:STREAM_AT]
        return before, [
            block + frame(DATA, END_STREAM, 0, size=PREFIX + len(message))[:STREAM_AT]
            for message in self.messages
        ]


@dataclass(slots=True, kw_only=True)
class _Unsent:
    """The rest of a message that the server did not take yet."""

    left: memoryview
    window: int
    """Bytes of it that the server takes now."""


class Sending:
    """What was sent on a connection, and what its server takes."""

    def __init__(self, script: Script, write: Callable[[bytes], None]) -> None:
        self.unsent: dict[int, _Unsent] = {}
        """Of each stream that is not sent to its end."""
        self._script = script
        self._write = write
        self._window = USUAL_WINDOW
        self._initial = USUAL_WINDOW
        self._frame = USUAL_FRAME
        self._table = hpack.TABLE_SIZE
        self._calls = 0
        self._block = b""
        self._before = b""
        self._after: list[bytes] = []

    def call(self, number: int, index: int) -> None:
        """Write a call on a stream, with the message of this index."""
        self._calls += 1
        if self._calls <= 2:  # noqa: PLR2004 - the first call, and the first after it
            self._say(self._script.first if self._calls == 1 and self._learns else self._usual)
        script = self._script
        message = script.messages[index]
        size = PREFIX + len(message)
        stream = number.to_bytes(4)
        if size <= self._window and size <= self._initial and size <= self._frame and not self.unsent:
            self._window -= size
            parts = self._before, stream, self._after[index], stream, script.prefixes[index], message
            self._write(b"".join(parts))
        else:
            self._write(self._before + stream + self._block)
            left = memoryview(script.prefixes[index] + message)
            self.unsent[number] = _Unsent(left=left, window=self._initial)
            self.go_on()

    def go_on(self) -> None:
        """Send as much as the server takes."""
        parts: list[bytes | memoryview] = []
        for number, unsent in [*self.unsent.items()]:
            while (room := min(self._window, unsent.window, self._frame, len(unsent.left))) > 0:
                part, unsent.left = unsent.left[:room], unsent.left[room:]
                self._window -= room
                unsent.window -= room
                head = frame(DATA, 0 if unsent.left else END_STREAM, number, size=room)
                parts += (head, part)
            if not unsent.left:
                del self.unsent[number]
        if parts:
            self._write(b"".join(parts))

    def widen(self, number: int, added: int) -> None:
        """Take so many bytes more: of a stream, or of the connection, which has the number 0."""
        if number == 0:
            self._window += added
        elif number in self.unsent:
            self.unsent[number].window += added
        if self.unsent:
            self.go_on()

    def settle(self, said: Mapping[int, int]) -> None:
        """Keep to what a server sets; a smaller table of headers than usual is kept to by using none."""
        if INITIAL in said:
            for unsent in self.unsent.values():
                unsent.window += said[INITIAL] - self._initial
            self._initial = said[INITIAL]
        self._frame = said.get(LARGEST, self._frame)
        learned = self._learns and self._calls > 0
        self._table = min(self._table, said.get(TABLE, self._table))
        if learned and not self._learns:
            self._say(self._usual)
        if self.unsent:
            self.go_on()

    @property
    def _learns(self) -> bool:
        """Whether the server's table of headers holds ours."""
        return self._table >= hpack.TABLE_SIZE >= self._script.table_size

    @property
    def _usual(self) -> bytes:
        if self._learns:
            return self._script.later
        smaller = hpack.NO_TABLE if self._table < hpack.TABLE_SIZE else b""
        return smaller + self._script.full

    def _say(self, block: bytes) -> None:
        """Begin calls with this block from now on."""
        self._block = block
        self._before, self._after = self._script.opening(block)
