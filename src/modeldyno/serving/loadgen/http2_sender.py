"""The sending half of an HTTP/2 connection: prepared calls, as fast as flow control allows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from modeldyno.serving.loadgen import hpack
from modeldyno.serving.loadgen.grpc import PREFIX, call_headers
from modeldyno.serving.loadgen.http2_frames import (
    DATA,
    DEFAULT_FRAME_SIZE,
    DEFAULT_WINDOW_SIZE,
    END_HEADERS,
    END_STREAM,
    HEADER_TABLE_SIZE,
    HEADERS,
    INITIAL_WINDOW_SIZE,
    MAX_FRAME_SIZE,
    STREAM_AT,
    frame,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from modeldyno.engine.interfaces.request_target import Target


class CallTemplate:
    """The prepared parts of the calls to a target."""

    def __init__(self, target: Target, timeout: float) -> None:
        fields = call_headers(target, timeout)
        self.messages = target.messages
        self.marks = target.marks
        self.numbered = target.numbered
        self.stream = target.stream
        flag = b"\1" if target.compression else b"\0"
        self.prefixes = [flag + len(message).to_bytes(4) for message in self.messages]
        self.compressed = bool(target.compression)
        self.table_size = sum(map(hpack.size_of, fields))
        self.full = hpack.encode_literal(fields, learn=False)
        self.first = hpack.encode_literal(fields, learn=True)
        self.later = hpack.encode_learned(len(fields))
        """Header blocks: in full without, and with adding to the table; and by table index afterwards."""

    def opening(self, block: bytes) -> tuple[bytes, list[bytes]]:
        """Return the bytes before the stream number, and per message the bytes after it."""
        before = frame(HEADERS, END_HEADERS, 0, size=len(block))[:STREAM_AT]
        return before, [
            block + frame(DATA, END_STREAM, 0, size=PREFIX + len(message))[:STREAM_AT]
            for message in self.messages
        ]


@dataclass(slots=True, kw_only=True)
class _Unsent:
    """The rest of a message that flow control holds back."""

    left: memoryview
    window: int
    """The stream's window: bytes that may be sent now."""


class Http2Sender:
    """The sending state of a connection: unsent data, windows, settings."""

    def __init__(self, script: CallTemplate, write: Callable[[bytes], None]) -> None:
        self.unsent: dict[int, _Unsent] = {}
        """The rest of each stream that is not sent completely."""
        self._script = script
        self._write = write
        self._window = DEFAULT_WINDOW_SIZE
        self._initial = DEFAULT_WINDOW_SIZE
        self._frame = DEFAULT_FRAME_SIZE
        self._table = hpack.TABLE_SIZE
        self._calls = 0
        self._block = b""
        self._before = b""
        self._after: list[bytes] = []

    def call(self, number: int, index: int, mark: bytes = b"") -> None:
        """Write a call with the message at this index, and what is marked in it, on a stream."""
        self._calls += 1
        if self._calls <= 2:
            self._use_block(
                self._script.first if self._calls == 1 and self._uses_table else self._later_block
            )
        script = self._script
        message = script.messages[index]
        if mark:
            at = script.marks[index]
            message = b"".join((message[:at], mark, message[at + len(mark) :]))
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
            self.send_pending()

    def send_pending(self) -> None:
        """Send as much pending data as flow control allows."""
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
        """Enlarge the window of a stream, or of the connection, which has the number 0."""
        if number == 0:
            self._window += added
        elif number in self.unsent:
            self.unsent[number].window += added
        if self.unsent:
            self.send_pending()

    def apply_settings(self, settings: Mapping[int, int]) -> None:
        """Apply the server's settings; if its header table is smaller than the default, use none."""
        if INITIAL_WINDOW_SIZE in settings:
            for unsent in self.unsent.values():
                unsent.window += settings[INITIAL_WINDOW_SIZE] - self._initial
            self._initial = settings[INITIAL_WINDOW_SIZE]
        self._frame = settings.get(MAX_FRAME_SIZE, self._frame)
        used_table = self._uses_table and self._calls > 0
        self._table = min(self._table, settings.get(HEADER_TABLE_SIZE, self._table))
        if used_table and not self._uses_table:
            self._use_block(self._later_block)
        if self.unsent:
            self.send_pending()

    @property
    def _uses_table(self) -> bool:
        """Whether our headers are in the server's header table."""
        return self._table >= hpack.TABLE_SIZE >= self._script.table_size

    @property
    def _later_block(self) -> bytes:
        if self._uses_table:
            return self._script.later
        smaller = hpack.NO_TABLE if self._table < hpack.TABLE_SIZE else b""
        return smaller + self._script.full

    def _use_block(self, block: bytes) -> None:
        """Start calls with this header block from now on."""
        self._block = block
        self._before, self._after = self._script.opening(block)
