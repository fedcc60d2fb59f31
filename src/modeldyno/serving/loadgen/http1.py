"""HTTP/1.1 for the load loop: prepared messages over kept-alive connections, one request at a time on each.

If a server closes a kept-alive connection in an orderly way before any byte of the answer, the request is
sent again, once, on a new connection, and counted as a retry: a server may close idle connections (RFC 9112,
9.5). If the connection is reset, the request has failed.
"""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING

from modeldyno.base.clock import monotonic_ns
from modeldyno.base.result.request_outcome import RequestOutcome
from modeldyno.engine.interfaces.request_target import insert_history, request_id, start_of
from modeldyno.serving.loadgen.event_stream import PieceCounter
from modeldyno.serving.loadgen.http1_parser import (
    CHUNKED,
    HEAD_LIMIT,
    TO_THE_END,
    ChunkDecoder,
    Malformed,
    read_head,
)

if TYPE_CHECKING:
    from typing import Any

    from modeldyno.engine.interfaces.request_target import Target
    from modeldyno.serving.loadgen.event_stream import IsReasoning, TextStart
    from modeldyno.serving.loadgen.http1_parser import AnswerHead
    from modeldyno.serving.loadgen.request import Call, ConnectionOwner, Raw

_EVENT_CHUNK = re.compile(rb"([0-9a-fA-F]{1,6})\r\ndata: ?").match
"""Matches the beginning of a chunk (RFC 9112, 7.1) with a server-sent event; its size is the group."""
KEPT_BODY = 1 << 26
"""Bytes; a longer body is counted but not kept."""


class Http1Connection(asyncio.Protocol):
    """An HTTP/1.1 connection with at most one request on it."""

    def __init__(
        self,
        owner: ConnectionOwner,
        target: Target,
        text_start: TextStart | None = None,
        is_reasoning: IsReasoning | None = None,
    ) -> None:
        self.call: Call | None = None
        self.full = False
        self._owner = owner
        self._messages = target.messages
        self._start = target.start.encode("latin-1")
        self._marks = target.marks
        self._numbered = target.numbered
        self._is_chat = bool(target.turn_ends)
        self._stream = target.stream
        self._text_start, self._is_reasoning = text_start, is_reasoning
        self._transport: Any = None
        self._used = False
        self._clear_answer()

    def _clear_answer(self) -> None:
        """Clear the state of the answer being read."""
        self._head: AnswerHead | None = None
        self._head_bytes = b""
        self._rest = b""
        self._body: list[bytes] = []
        self._left = 0
        self._chunks: ChunkDecoder | None = None
        self._counter: PieceCounter | None = None

    def connection_made(self, transport: Any) -> None:
        """Register the connection; disable write buffering."""
        self._transport = transport
        transport.set_write_buffer_limits(high=0)
        self._owner.connection_ready(self)

    def send(self, call: Call) -> None:
        """Write a request; the connection must be idle."""
        self.call = call
        self.full = True
        call.carrier = self
        call.sent = monotonic_ns()
        message = self._messages[call.message]
        if mark := request_id(call.sent) if self._numbered else call.mark:
            at = self._marks[call.message]
            if self._is_chat:
                message = insert_history(message, at, mark)
            else:
                message = b"".join((message[:at], mark, message[at + len(mark) :]))
        if self._start:
            message = self._start + message[len(start_of(message)) :]
        self._transport.write(message)

    def drop(self, call: Call) -> None:  # noqa: ARG002
        """Abandon the request, and close the connection."""
        self.close()

    def close(self) -> None:
        """Close the connection without reporting its request."""
        self.call = None
        self.full = True
        if self._transport is not None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """Read an answer; fast path: most answers come whole, with a head that was seen before."""
        now = monotonic_ns()
        call = self.call
        if call is None:  # data without a request
            self._owner.connection_closed(self)
            self.close()
            return
        try:
            if self._head is None and not self._rest:
                if not call.first:
                    call.first = now
                head_end = data.find(b"\r\n\r\n")
                if head_end > 0:
                    head = read_head(data[:head_end])
                    size = len(data) - head_end - 4
                    if head.length == size and not self._stream and not head.interim:
                        call.received = size
                        self._end(
                            call,
                            head.outcome,
                            now,
                            (head.status, data[:head_end], data[head_end + 4 :]),
                            head.stays,
                        )
                        return
            if call.pieces:
                data = self._read_events(call, data, now)
            if data:
                self._read(call, data, now)
        except Malformed:
            self._end(call, RequestOutcome.MALFORMED, now, None, stays=False)

    def _read(self, call: Call, data: bytes, now: int) -> None:
        """Read an answer that comes in pieces."""
        head = self._head
        while head is None:
            self._rest += data
            before, empty, data = self._rest.partition(b"\r\n\r\n")
            if not empty:
                if len(self._rest) > HEAD_LIMIT or self._rest[:7] != b"HTTP/1."[: len(self._rest)]:
                    raise Malformed("it does not start like an HTTP answer")
                return
            self._rest = b""
            head = read_head(before)
            if head.interim:
                head = None
                if not data:
                    return
                continue
            self._begin(head, before)
        self._read_body(call, head, data, now)

    def _begin(self, head: AnswerHead, head_bytes: bytes) -> None:
        self._head, self._head_bytes = head, head_bytes
        self._left = head.length
        if head.length == CHUNKED:
            self._chunks = ChunkDecoder()
        if head.decoder is not None:
            self._counter = PieceCounter(head.decoder(), self._text_start, self._is_reasoning)

    def _read_body(self, call: Call, head: AnswerHead, data: bytes, now: int) -> None:
        """Read a part of the body."""
        if self._chunks is not None:
            pieces = self._chunks.feed(data)
            done = self._chunks.done
        else:
            pieces = [data] if data else []
            done = False
            if head.length != TO_THE_END:
                self._left -= len(data)
                done = self._left <= 0
                if self._left < 0:
                    raise Malformed("it is longer than its content-length")
        for piece in pieces:
            call.received += len(piece)
            if call.received <= KEPT_BODY:
                self._body.append(piece)
            if self._stream and not head.whole:
                call.pieces += [now] * (1 if self._counter is None else self._counter.feed(piece))
                if call.begun is not None and call.pieces:
                    call.begun(call)
        if done:
            self._end_body(call, now)
            self._end(call, self._outcome_of(head), now, self._raw(call, head), head.stays)

    def _read_events(self, call: Call, data: bytes, now: int) -> bytes:
        """Read chunks that are an event each, as most of a stream are, and return what follows them.

        The two decoders do the same at twice the time, and the rest.
        """
        counter, chunks = self._counter, self._chunks
        if counter is None or chunks is None or not (chunks.between and counter.between):
            return data
        position, end = 0, len(data)
        while position < end and (begin := _EVENT_CHUNK(data, position)) is not None:
            first = begin.end(1) + 2
            last = first + int(begin[1], 16)
            text = data[begin.end() : last - 2]
            if data[last - 2 : last + 2] != b"\n\n\r\n" or b"\n" in text or b"\r" in text:
                break
            call.received += last - first
            if call.received <= KEPT_BODY:
                self._body.append(data[first:last])
            if counter.is_piece(b"", text):
                call.pieces.append(now)
            position = last + 2
        return data[position:] if position else data

    def _end_body(self, call: Call, now: int) -> None:
        """Count the piece that the end of a body completes."""
        if self._stream and self._counter is not None:
            call.pieces += [now] * self._counter.finish()
            call.reasoning = self._counter.reasoning

    def _outcome_of(self, head: AnswerHead) -> RequestOutcome:
        failed = self._counter is not None and self._counter.failed
        return RequestOutcome.SERVER_ERROR if failed else head.outcome

    def _raw(self, call: Call, head: AnswerHead) -> Raw | None:
        if call.received > KEPT_BODY:
            return None
        return head.status, self._head_bytes, tuple(self._body)

    def _end(self, call: Call, outcome: RequestOutcome, now: int, raw: Raw | None, stays: bool) -> None:
        """Report the outcome; the connection may have a new request when this returns."""
        self.call = None
        if self._head is not None or self._rest:
            self._clear_answer()
        # If the answer came before the whole request was sent, the server would not read the rest.
        if stays and not self._transport.get_write_buffer_size():
            self._used = True
            self.full = False
            self._owner.connection_free(self)
        else:
            self._transport.abort()
        self._owner.done(call, outcome, now, raw)

    def eof_received(self) -> None:
        """Abort: the server will not read what is still to be sent."""
        if self._transport is not None:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Report or resend the request of a closed connection."""
        now = monotonic_ns()
        self._transport = None
        call, self.call = self.call, None
        head = self._head
        if call is None:
            self._owner.connection_closed(self)
        elif exc is None and head is not None and head.length == TO_THE_END:
            self._end_body(call, now)
            self._owner.done(call, self._outcome_of(head), now, self._raw(call, head))
        elif self._used and not call.first and (exc is None or isinstance(exc, BrokenPipeError)):
            self._owner.resend(call)
        else:
            self._owner.done(
                call, RequestOutcome.TRUNCATED if exc is None else RequestOutcome.RESET, now, None
            )
