"""HTTP/2 for the load loop (RFC 9113): many calls at a time on a connection, their headers written once.

A call that the server surely did not begin - it came after the last one that GOAWAY names, or was refused by
name - is sent again on another connection, and counted as a retry.
"""

from __future__ import annotations

import asyncio
from time import monotonic_ns
from typing import TYPE_CHECKING, ClassVar

from modeldyno.core.load.request_log import Outcome
from modeldyno.loadgen import hpack
from modeldyno.loadgen.grpc import NO_TRAILERS, Answer, told
from modeldyno.loadgen.http1_parser import Malformed
from modeldyno.loadgen.http2_frames import (
    ACK,
    AWAY,
    BLOCK_LIMIT,
    CALM,
    CANCEL,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    HEAD_SIZE,
    HEADERS,
    HELLO,
    LAST_STREAM,
    LONGEST,
    MOST,
    PADDED,
    PING,
    PROMISE,
    REFUSED,
    RESET,
    SETTING,
    SETTINGS,
    STREAMS,
    WHOLE,
    WINDOW,
    bare,
    frame,
    read_head,
)
from modeldyno.loadgen.http2_sender import Sending

if TYPE_CHECKING:
    from typing import Any

    from modeldyno.loadgen.grpc import Told
    from modeldyno.loadgen.http2_sender import Script
    from modeldyno.loadgen.request import Call, Owner


class Channel(asyncio.Protocol):
    """One connection, with some calls on it."""

    def __init__(self, owner: Owner, script: Script, share: int) -> None:
        self.full = True
        """Until the server has told its settings."""
        self._owner = owner
        self._script = script
        self._share = share
        self._transport: Any = None
        self._ready = False
        self._retired = False
        self._rest = b""
        self._answers: dict[int, Answer] = {}
        self._next = 1
        self._consumed = 0
        self._headers: tuple[int, int, bytes] | None = None
        """Stream, flags, and the beginning of a block that goes on."""
        self._decode = hpack.Decoder(told)

    def connection_made(self, transport: Any) -> None:
        """Say hello."""
        self._transport = transport
        self._sending = Sending(self._script, transport.write)
        transport.set_write_buffer_limits(high=0)
        transport.write(HELLO)

    def send(self, call: Call) -> None:
        """Write a call."""
        number = self._next
        self._next = number + 2
        self._answers[number] = Answer(call, stream=self._script.stream)
        call.carrier = self
        call.sent = monotonic_ns()
        self._sending.call(number, call.message)
        if len(self._answers) >= self._share:
            self.full = True
        if number + 2 > LAST_STREAM:
            self._retire()

    def drop(self, call: Call) -> None:
        """Give up a call."""
        for number, answer in self._answers.items():
            if answer.call is call:
                self._transport.write(frame(RESET, 0, number, CANCEL.to_bytes(4)))
                self._forget(number)
                break

    def close(self) -> None:
        """Break the connection."""
        self.full = self._retired = True
        self._answers.clear()
        if self._transport is not None:
            self._transport.abort()

    def _retire(self) -> None:
        """Take no more calls; leave after the last one."""
        self.full = self._retired = True
        self._owner.gone(self)
        if not self._answers:
            self.close()

    def _forget(self, number: int) -> Answer:
        """Have one call less."""
        answer = self._answers.pop(number)
        self._sending.unsent.pop(number, None)
        if self._retired:
            if not self._answers:
                self.close()
        elif self.full and len(self._answers) < self._share:
            self.full = False
            self._owner.free(self)
        return answer

    def data_received(self, data: bytes) -> None:
        """Read on; nearly all frames are of the two kinds that answers are made of."""
        now = monotonic_ns()
        if self._rest:
            data = self._rest + data
        at, end = 0, len(data)
        try:
            while end - at >= HEAD_SIZE:
                high, low, kind, flags, number = read_head(data, at)
                at += HEAD_SIZE
                stop = at + (high << 16 | low)
                if stop > end:
                    at -= HEAD_SIZE
                    if high > LONGEST >> 16:
                        raise _too_long()
                    break
                body = data[at:stop]
                at = stop
                if self._headers is not None and kind != CONTINUATION:
                    raise _cut_off()
                if kind == HEADERS and flags | END_STREAM == WHOLE:
                    self._said(flags, number, body, now)
                elif kind == DATA:
                    self._data(flags, number, body, now)
                else:
                    self._other(kind, flags, number & LAST_STREAM, body, now)
        except (Malformed, hpack.BadBlock):
            self._broken(now)
            return
        self._rest = data[at:] if at < end else b""

    def _other(self, kind: int, flags: int, number: int, body: bytes, now: int) -> None:
        """Act on a frame that is seldom."""
        if kind == PROMISE:
            raise Malformed("a server pushes what nobody asked for")
        if kind == HEADERS:
            block = bare(flags, body)
            if flags & END_HEADERS:
                self._said(flags, number, block, now)
            else:
                self._headers = number, flags, block
        elif kind in self._ACTS:
            self._ACTS[kind](self, flags, number, body, now)

    def _data(self, flags: int, number: int, body: bytes, now: int) -> None:
        size = len(body)
        self._consumed += size
        if self._consumed >= MOST // 2:
            self._consumed = self._told_window(0, self._consumed)
        answer = self._answers.get(number)
        if answer is None:  # one that was given up
            return
        if flags & PADDED:
            body = bare(PADDED, body)
        if body:
            try:
                answer.take(body, now)
            except Malformed:
                self._reset_and_end(number, now)
                return
        answer.consumed += size
        if flags & END_STREAM:
            self._end(number, answer, NO_TRAILERS, now)
        elif answer.consumed >= MOST // 2:
            answer.consumed = self._told_window(number, answer.consumed)

    def _told_window(self, number: int, consumed: int) -> int:
        """Let the server send on; give what it was not told."""
        self._transport.write(frame(WINDOW, 0, number, consumed.to_bytes(4)))
        return 0

    def _continuation(self, flags: int, number: int, body: bytes, now: int) -> None:
        if self._headers is None or self._headers[0] != number:
            raise Malformed("a block of headers goes on that has not begun")
        _, first_flags, block = self._headers
        block += body
        if len(block) > BLOCK_LIMIT:
            raise Malformed("a block of headers is too long")
        self._headers = number, first_flags, block
        if flags & END_HEADERS:
            self._headers = None
            self._said(first_flags, number, block, now)

    def _said(self, flags: int, number: int, block: bytes, now: int) -> None:
        """Read a whole block of headers."""
        said = self._decode(block)  # always: the table of headers is that of the connection
        answer = self._answers.get(number)
        if answer is None:
            return
        if not answer.call.first:
            answer.call.first = now
        if flags & END_STREAM:
            self._end(number, answer, said, now)
        elif not 100 <= said.status < 200:  # noqa: PLR2004 - interim, as RFC 9110 has it
            answer.status, answer.lines = said.status, said.lines

    def _end(self, number: int, answer: Answer, trailers: Told, now: int) -> None:
        """Tell how a call ended."""
        if number in self._sending.unsent:  # it was answered before it was whole
            self._transport.write(frame(RESET, 0, number, CANCEL.to_bytes(4)))
        outcome, raw = answer.end(trailers)
        self._forget(number)
        self._owner.done(answer.call, outcome, now, raw)

    def _reset_and_end(self, number: int, now: int) -> None:
        self._transport.write(frame(RESET, 0, number, CANCEL.to_bytes(4)))
        self._owner.done(self._forget(number).call, Outcome.MALFORMED, now, None)

    def _reset(self, _flags: int, number: int, body: bytes, now: int) -> None:
        if number not in self._answers:
            return
        call = self._forget(number).call
        code = int.from_bytes(body[:4])
        if code == REFUSED:
            self._owner.unanswered(call)
        else:
            self._owner.done(call, Outcome.REJECTED if code == CALM else Outcome.RESET, now, None)

    def _settings(self, flags: int, _number: int, body: bytes, _now: int) -> None:
        if flags & ACK:
            return
        if len(body) % SETTING.size:
            raise Malformed("settings have a wrong length")
        said: dict[int, int] = dict(SETTING.iter_unpack(body))
        self._share = min(self._share, said.get(STREAMS, self._share))
        self._transport.write(frame(SETTINGS, ACK, 0))
        self._sending.settle(said)
        if not self._ready:
            self._ready = True
            self.full = self._retired or self._share < 1
            self._owner.ready(self)

    def _ping(self, flags: int, _number: int, body: bytes, _now: int) -> None:
        if not flags & ACK:
            self._transport.write(frame(PING, ACK, 0, body))

    def _away(self, _flags: int, _number: int, body: bytes, _now: int) -> None:
        last = int.from_bytes(body[:4]) & LAST_STREAM
        self._retired = True
        unseen = [number for number in self._answers if number > last]
        calls = [self._answers.pop(number).call for number in unseen]
        for number in unseen:
            self._sending.unsent.pop(number, None)
        if self._ready:
            self._retire()
        for call in calls:
            self._owner.unanswered(call)

    def _more(self, _flags: int, number: int, body: bytes, _now: int) -> None:
        self._sending.widen(number, int.from_bytes(body[:4]) & LAST_STREAM)

    def _broken(self, now: int) -> None:
        """Leave a connection that makes no sense."""
        calls = [answer.call for answer in self._answers.values()]
        ready, self._ready = self._ready, True  # or its end would be told twice
        self._retired = True
        self.close()
        if ready:
            self._owner.gone(self)
        else:
            self._owner.stillborn(Outcome.MALFORMED)
        for call in calls:
            self._owner.done(call, Outcome.MALFORMED, now, None)

    def eof_received(self) -> None:
        """Leave with the server."""
        if self._transport is not None:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Say what the end of the connection means for its calls."""
        now = monotonic_ns()
        self._transport = None
        answers, self._answers = self._answers, {}
        self.full = self._retired = True
        if not self._ready:
            self._ready = True
            self._owner.stillborn(Outcome.REFUSED)
            return
        self._owner.gone(self)
        for answer in answers.values():
            self._owner.done(answer.call, Outcome.TRUNCATED if exc is None else Outcome.RESET, now, None)

    _ACTS: ClassVar = {
        RESET: _reset, SETTINGS: _settings, PING: _ping, AWAY: _away, WINDOW: _more,
        CONTINUATION: _continuation,
    }  # fmt: skip


def _too_long() -> Malformed:
    return Malformed("a frame is longer than we take")


def _cut_off() -> Malformed:
    return Malformed("a block of headers does not go on")
