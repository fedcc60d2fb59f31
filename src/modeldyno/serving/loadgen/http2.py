"""HTTP/2 for the load loop (RFC 9113): concurrent calls on a connection, with headers that are encoded once.

A call that the server certainly did not process - it came after the last stream of GOAWAY, or was reset with
REFUSED_STREAM - is sent again on another connection, and counted as a retry.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, ClassVar

from modeldyno.base.clock import monotonic_ns
from modeldyno.base.result.request_outcome import RequestOutcome
from modeldyno.engine.interfaces.request_target import request_id
from modeldyno.serving.loadgen import hpack
from modeldyno.serving.loadgen.grpc import NO_TRAILERS, PartialAnswer, parse_headers
from modeldyno.serving.loadgen.http1_parser import Malformed
from modeldyno.serving.loadgen.http2_frames import (
    ACK,
    BLOCK_LIMIT,
    CANCEL,
    CONNECTION_PREFACE,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_OF_REQUEST,
    END_STREAM,
    ENHANCE_YOUR_CALM,
    GOAWAY,
    HEAD_SIZE,
    HEADERS,
    LARGEST_FRAME,
    LAST_STREAM,
    MAX_CONCURRENT_STREAMS,
    MAX_WINDOW_SIZE,
    PADDED,
    PING,
    PUSH_PROMISE,
    REFUSED_STREAM,
    RST_STREAM,
    SETTING,
    SETTINGS,
    WINDOW_UPDATE,
    frame,
    read_head,
    strip_padding,
)
from modeldyno.serving.loadgen.http2_sender import Http2Sender

if TYPE_CHECKING:
    from typing import Any

    from modeldyno.serving.loadgen.grpc import GrpcHeaders
    from modeldyno.serving.loadgen.http2_sender import CallTemplate
    from modeldyno.serving.loadgen.request import Call, ConnectionOwner


class Http2Connection(asyncio.Protocol):
    """An HTTP/2 connection with several calls on it."""

    def __init__(self, owner: ConnectionOwner, script: CallTemplate, share: int) -> None:
        self.full = True
        """True until the server's settings have arrived."""
        self._owner = owner
        self._script = script
        self._share = share
        self._transport: Any = None
        self._ready = False
        self._retired = False
        self._rest = b""
        self._answers: dict[int, PartialAnswer] = {}
        self._next = 1
        self._consumed = 0
        self._headers: tuple[int, int, bytes] | None = None
        """Stream, flags and first part of a header block that is continued."""
        self._decode = hpack.Decoder(parse_headers)

    def connection_made(self, transport: Any) -> None:
        """Send the connection preface."""
        self._transport = transport
        self._sending = Http2Sender(self._script, transport.write)
        transport.set_write_buffer_limits(high=0)
        transport.write(CONNECTION_PREFACE)

    def send(self, call: Call) -> None:
        """Write a call."""
        number = self._next
        self._next = number + 2
        self._answers[number] = PartialAnswer(
            call, stream=self._script.stream, compressed=self._script.compressed
        )
        call.carrier = self
        call.sent = monotonic_ns()
        mark = request_id(call.sent) if self._script.numbered else call.mark
        self._sending.call(number, call.message, mark)
        if len(self._answers) >= self._share:
            self.full = True
        if number + 2 > LAST_STREAM:
            self._retire()

    def drop(self, call: Call) -> None:
        """Abandon a call, and reset its stream."""
        for number, answer in self._answers.items():
            if answer.call is call:
                self._transport.write(frame(RST_STREAM, 0, number, CANCEL.to_bytes(4)))
                self._remove(number)
                break

    def close(self) -> None:
        """Close the connection without reporting its calls."""
        self.full = self._retired = True
        self._answers.clear()
        if self._transport is not None:
            self._transport.abort()

    def _retire(self) -> None:
        """Accept no more calls; close after the last one has ended."""
        self.full = self._retired = True
        self._owner.connection_closed(self)
        if not self._answers:
            self.close()

    def _remove(self, number: int) -> PartialAnswer:
        """Remove a call, and return its answer."""
        answer = self._answers.pop(number)
        self._sending.unsent.pop(number, None)
        if self._retired:
            if not self._answers:
                self.close()
        elif self.full and len(self._answers) < self._share:
            self.full = False
            self._owner.connection_free(self)
        return answer

    def data_received(self, data: bytes) -> None:
        """Handle frames; fast path: nearly all are the two kinds that answers consist of."""
        now = monotonic_ns()
        if self._rest:
            data = self._rest + data
        position, end = 0, len(data)
        try:
            while end - position >= HEAD_SIZE:
                high, low, kind, flags, number = read_head(data, position)
                position += HEAD_SIZE
                stop = position + (high << 16 | low)
                if stop > end:
                    position -= HEAD_SIZE
                    if high > LARGEST_FRAME >> 16:
                        raise _frame_too_long_error()
                    break
                body = data[position:stop]
                position = stop
                if self._headers is not None and kind != CONTINUATION:
                    raise _missing_continuation_error()
                if kind == HEADERS and flags | END_STREAM == END_OF_REQUEST:
                    self._header_block(flags, number, body, now)
                elif kind == DATA:
                    self._data_frame(flags, number, body, now)
                else:
                    self._rare_frame(kind, flags, number & LAST_STREAM, body, now)
        except (Malformed, hpack.BadBlock):
            self._fail_connection(now)
            return
        self._rest = data[position:] if position < end else b""

    def _rare_frame(self, kind: int, flags: int, number: int, body: bytes, now: int) -> None:
        """Handle a frame of a rare kind."""
        if kind == PUSH_PROMISE:
            raise Malformed("the server pushed a stream although push is disabled")
        if kind == HEADERS:
            block = strip_padding(flags, body)
            if flags & END_HEADERS:
                self._header_block(flags, number, block, now)
            else:
                self._headers = number, flags, block
        elif kind in self._HANDLERS:
            self._HANDLERS[kind](self, flags, number, body, now)

    def _data_frame(self, flags: int, number: int, body: bytes, now: int) -> None:
        size = len(body)
        self._consumed += size
        if self._consumed >= MAX_WINDOW_SIZE // 2:
            self._consumed = self._send_window_update(0, self._consumed)
        answer = self._answers.get(number)
        if answer is None:  # an abandoned call
            return
        if flags & PADDED:
            body = strip_padding(PADDED, body)
        if body:
            try:
                answer.take(body, now)
            except Malformed:
                self._reset_and_end(number, now)
                return
        answer.consumed += size
        if flags & END_STREAM:
            self._end(number, answer, NO_TRAILERS, now)
        elif answer.consumed >= MAX_WINDOW_SIZE // 2:
            answer.consumed = self._send_window_update(number, answer.consumed)

    def _send_window_update(self, number: int, consumed: int) -> int:
        """Let the server send more; return the new number of unreported bytes."""
        self._transport.write(frame(WINDOW_UPDATE, 0, number, consumed.to_bytes(4)))
        return 0

    def _continuation(self, flags: int, number: int, body: bytes, now: int) -> None:
        if self._headers is None or self._headers[0] != number:
            raise Malformed("a continuation frame without a header block")
        _, first_flags, block = self._headers
        block += body
        if len(block) > BLOCK_LIMIT:
            raise Malformed("a header block is too long")
        self._headers = number, first_flags, block
        if flags & END_HEADERS:
            self._headers = None
            self._header_block(first_flags, number, block, now)

    def _header_block(self, flags: int, number: int, block: bytes, now: int) -> None:
        """Handle a complete header block."""
        headers = self._decode(block)  # always, to keep the connection's header table up to date
        answer = self._answers.get(number)
        if answer is None:
            return
        if not answer.call.first:
            answer.call.first = now
        if flags & END_STREAM:
            self._end(number, answer, headers, now)
        elif not 100 <= headers.status < 200:
            answer.status, answer.lines = headers.status, headers.lines

    def _end(self, number: int, answer: PartialAnswer, trailers: GrpcHeaders, now: int) -> None:
        """Report how a call ended."""
        if number in self._sending.unsent:  # it was answered before it was completely sent
            self._transport.write(frame(RST_STREAM, 0, number, CANCEL.to_bytes(4)))
        outcome, raw = answer.end(trailers)
        self._remove(number)
        self._owner.done(answer.call, outcome, now, raw)

    def _reset_and_end(self, number: int, now: int) -> None:
        self._transport.write(frame(RST_STREAM, 0, number, CANCEL.to_bytes(4)))
        self._owner.done(self._remove(number).call, RequestOutcome.MALFORMED, now, None)

    def _reset(self, _flags: int, number: int, body: bytes, now: int) -> None:
        if number not in self._answers:
            return
        call = self._remove(number).call
        code = int.from_bytes(body[:4])
        if code == REFUSED_STREAM:
            self._owner.resend(call)
        else:
            self._owner.done(
                call,
                RequestOutcome.REJECTED if code == ENHANCE_YOUR_CALM else RequestOutcome.RESET,
                now,
                None,
            )

    def _settings(self, flags: int, _number: int, body: bytes, _now: int) -> None:
        if flags & ACK:
            return
        if len(body) % SETTING.size:
            raise Malformed("settings have a wrong length")
        settings: dict[int, int] = dict(SETTING.iter_unpack(body))
        self._share = min(self._share, settings.get(MAX_CONCURRENT_STREAMS, self._share))
        self._transport.write(frame(SETTINGS, ACK, 0))
        self._sending.apply_settings(settings)
        if not self._ready:
            self._ready = True
            self.full = self._retired or self._share < 1
            self._owner.connection_ready(self)

    def _ping(self, flags: int, _number: int, body: bytes, _now: int) -> None:
        if not flags & ACK:
            self._transport.write(frame(PING, ACK, 0, body))

    def _goaway(self, _flags: int, _number: int, body: bytes, _now: int) -> None:
        last = int.from_bytes(body[:4]) & LAST_STREAM
        self._retired = True
        unprocessed = [number for number in self._answers if number > last]
        calls = [self._answers.pop(number).call for number in unprocessed]
        for number in unprocessed:
            self._sending.unsent.pop(number, None)
        if self._ready:
            self._retire()
        for call in calls:
            self._owner.resend(call)

    def _window_update(self, _flags: int, number: int, body: bytes, _now: int) -> None:
        self._sending.widen(number, int.from_bytes(body[:4]) & LAST_STREAM)

    def _fail_connection(self, now: int) -> None:
        """Close a connection on a protocol error, and fail its calls."""
        calls = [answer.call for answer in self._answers.values()]
        ready, self._ready = self._ready, True  # or its end would be reported twice
        self._retired = True
        self.close()
        if ready:
            self._owner.connection_closed(self)
        else:
            self._owner.connection_failed(RequestOutcome.MALFORMED)
        for call in calls:
            self._owner.done(call, RequestOutcome.MALFORMED, now, None)

    def eof_received(self) -> None:
        """Abort: the server has closed the connection."""
        if self._transport is not None:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Report the calls of a closed connection."""
        now = monotonic_ns()
        self._transport = None
        answers, self._answers = self._answers, {}
        self.full = self._retired = True
        if not self._ready:
            self._ready = True
            self._owner.connection_failed(RequestOutcome.REFUSED)
            return
        self._owner.connection_closed(self)
        for answer in answers.values():
            self._owner.done(
                answer.call, RequestOutcome.TRUNCATED if exc is None else RequestOutcome.RESET, now, None
            )

    _HANDLERS: ClassVar = {
        RST_STREAM: _reset, SETTINGS: _settings, PING: _ping, GOAWAY: _goaway, WINDOW_UPDATE: _window_update,
        CONTINUATION: _continuation,
    }  # fmt: skip


def _frame_too_long_error() -> Malformed:
    return Malformed("a frame exceeds the allowed size")


def _missing_continuation_error() -> Malformed:
    return Malformed("a header block is not continued")
