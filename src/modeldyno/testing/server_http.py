"""Connections of the ground-truth server: HTTP/1.1, one request at a time on each."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast

from modeldyno.base.clock import monotonic_ns
from modeldyno.testing.server_faults import FAULTS, NUMBERS, set_to_reset
from modeldyno.testing.server_metrics import write_metrics
from modeldyno.testing.server_protocols import RequestHead, Site
from modeldyno.testing.server_queue import COLUMNS, Ledger, Workers
from modeldyno.testing.server_response import END, ServerResponse, chunk, problem
from modeldyno.testing.server_sessions import describe_sessions

_CACHE_SIZE = 1024
"""Heads and answers that are cached, because a load repeats its requests."""
_CACHED_BYTES = 1 << 16
"""Bytes of a request from which on it is read again each time, as one with images."""
_NANOSECONDS = 1e9
NOTHING = -1


@dataclass(slots=True, kw_only=True)
class ServerState:
    """State shared by all connections."""

    site: Site
    workers: Workers
    ledger: Ledger = field(default_factory=Ledger)
    full: int = 503
    """Status of a request that is refused because the queue is full."""
    faults: Mapping[str, float] = field(default_factory=dict)
    """Fault to the share of requests that it hits."""
    slow: float = 0.05
    """Seconds between the bytes of a slow answer."""
    idle: float | None = None
    """Seconds after which a connection without a request is closed; None for never."""
    heads: dict[bytes, RequestHead] = field(default_factory=dict)
    answers: dict[tuple[str, bytes], ServerResponse] = field(default_factory=dict)
    metrics: str = ""
    """The server whose metrics it writes, of `generation_metrics.SERVERS`; empty: none."""
    chance: random.Random = field(default_factory=lambda: random.Random(0))

    def head(self, raw: bytes) -> RequestHead:
        """Parse the head of a request; raises ValueError."""
        head = self.heads.get(raw)
        if head is None:
            head = read_head(raw)
            if len(self.heads) < _CACHE_SIZE:
                self.heads[raw] = head
        return head

    def answer(self, head: RequestHead, body: bytes) -> ServerResponse | None:
        """Answer an inference request; None for any other."""
        key = (head.path, body)
        answer = self.answers.get(key)
        if answer is None:
            answer = self.site.answer(head, body)
            generation = self.site.generation
            changes = (
                generation.prefixes is not None or generation.sessions is not None
            )  # with what was asked
            small = len(self.answers) < _CACHE_SIZE and len(body) < _CACHED_BYTES
            if answer is not None and not changes and small:
                self.answers[key] = answer
        return answer

    def fault(self) -> str:
        """Draw a fault for a request; empty for none."""
        at = self.chance.random()
        for name, share in self.faults.items():
            if at < share:
                return name
            at -= share
        return ""

    def describe(self, head: RequestHead) -> ServerResponse:
        """Answer a request about the server."""
        if head.path == "/truth":
            return self._truth(head)
        if head.path == "/reset_prefix_cache" and (prefixes := self.site.generation.prefixes) is not None:
            prefixes.clear()
            return ServerResponse()
        if head.path == "/sessions" and (sessions := self.site.generation.sessions) is not None:
            return ServerResponse(json.dumps(describe_sessions(sessions)).encode())
        if head.path == f"/v2/models/{self.site.model}/stats":
            counters = {"model_stats": [self.ledger.statistics(self.site.model)]}
            return ServerResponse(json.dumps(counters).encode())
        if head.path == "/metrics" and self.metrics:
            text = write_metrics(self.metrics, self.ledger, self.workers, self.site.generation)
            return ServerResponse(text, kind=b"text/plain; version=0.0.4")
        return self.site.describe(head.path)

    def _truth(self, head: RequestHead) -> ServerResponse:
        rows = self.ledger.rows
        if head.method == "DELETE":
            del rows[:]
            self.workers.epoch = 0
            if (sessions := self.site.generation.sessions) is not None:
                sessions.forget()
            return ServerResponse()
        if head.query == "binary":
            return ServerResponse(rows.tobytes(), kind=b"application/octet-stream")
        columns = {name: rows[at :: len(COLUMNS)].tolist() for at, name in enumerate(COLUMNS)}
        return ServerResponse(json.dumps(columns).encode())


def read_head(raw: bytes) -> RequestHead:
    """Parse the head of a request, without its empty line; raises ValueError."""
    first, *lines = raw.decode("latin-1").split("\r\n")
    method, target, _ = first.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    path, _, query = target.partition("?")
    fault = headers.get("x-fault", "")
    if path.startswith("/fault/"):
        fault, _, path = path.removeprefix("/fault/").partition("/")
        path = "/" + path
    if fault and fault not in FAULTS:
        raise ValueError(f"there is no fault {fault}")
    return RequestHead(
        method=method,
        path=path,
        query=query,
        headers=headers,
        length=int(headers.get("content-length", 0)),
        fault=fault,
        id=int(headers.get("x-id", NOTHING)),
    )


class ServerConnection(asyncio.Protocol):
    """A connection, and its current request."""

    __slots__ = (
        "answer", "arrival", "batch", "buffer", "busy", "fault", "first", "head", "headed", "left", "queued",
        "server", "start", "stream", "transport", "used",
    )  # fmt: skip

    def __init__(self, server: ServerState) -> None:
        """Serve a new connection."""
        self.server = server
        self.buffer = b""
        self.busy = False
        self.used = 0
        self.left: list[bytes] = []
        self.fault = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Disable write buffering, so that every write reaches the system at once."""
        self.transport = cast("asyncio.Transport", transport)
        self.transport.set_write_buffer_limits(high=0)

    def data_received(self, data: bytes) -> None:
        """Receive bytes of a request."""
        self.buffer = self.buffer + data if self.buffer else data
        if not self.busy:
            self._start_next()

    def _start_next(self) -> None:
        """Start the next request if it is complete."""
        end = self.buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        try:
            head = self.server.head(self.buffer[:end])
        except ValueError as error:
            self.write(problem(400, f"no head of a request: {error}").raw)
            self.transport.close()
            return
        request_end = end + 4 + head.length
        if len(self.buffer) < request_end:
            return
        body, self.buffer = self.buffer[end + 4 : request_end], self.buffer[request_end:]
        self.busy = True
        self.used += 1
        self._serve(head, body)

    def _serve(self, head: RequestHead, body: bytes) -> None:
        self.arrival = monotonic_ns()
        answer = self.server.answer(head, body)
        if answer is None:
            self.write(self.server.describe(head).raw)
            self.over()
            return
        self.head, self.answer = head, answer
        if answer.turn and (sessions := self.server.site.generation.sessions) is not None:
            sessions.arrive(answer.turn, self.arrival, id(self))
        self.fault = head.fault or (self.server.fault() if self.server.faults else "")
        self.first = self.start = self.queued = self.batch = self.stream = 0
        self.headed = False
        if answer.pieces and not self.fault:
            tokens = sum(count for count, _ in answer.pieces) - answer.pieces[0][0]
            self.stream = round(tokens * self.server.site.generation.pace * _NANOSECONDS)
        if not self.server.workers.take(self):
            self._note(monotonic_ns(), "429" if self.server.full == 429 else "503")
            self.write(problem(self.server.full, "too many requests wait").raw)
            self.over()

    # -- called by the workers ------------------------------------------------------------------------

    def begin(self, first: int) -> None:
        """Schedule the pieces of a stream for their due times."""
        if not self.answer.pieces or self.fault:
            return
        if self.answer.begin:
            self.headed = True
            self.write(self.answer.head + chunk(self.answer.begin))
        pace, made = self.server.site.generation.pace * _NANOSECONDS, 0
        start, now = self.answer.pieces[0][0], monotonic_ns()
        for tokens, text in self.answer.pieces[:-1]:
            made += tokens
            due = first + round((made - start) * pace)
            if due <= now:  # the alarm would come after the end when there is no pace
                self._piece(text)
            else:
                self.server.workers.alarm.at(due, self._piece, text)

    def _piece(self, text: bytes) -> None:
        head = b"" if self.headed else self.answer.head
        self.first, self.headed = self.first or monotonic_ns(), True
        self.write(head + chunk(text))

    def finish(self) -> None:
        """Send the answer."""
        worked, fault = monotonic_ns(), self.fault
        if fault:
            self._note(worked, fault)
            FAULTS[fault].act(self, self.answer)
            return
        if self.answer.pieces:
            last = chunk(self.answer.pieces[-1][1]) + END
            raw = last if self.headed else self.answer.head + last
        else:
            raw = self.answer.raw
        now = monotonic_ns()
        self._note(now, "")
        if self.answer.turn and (sessions := self.server.site.generation.sessions) is not None:
            sessions.end(self.answer.turn, now)
        self.server.ledger.count_call(self, worked, now)
        self.server.ledger.count_phases(self.start, self.first or worked, worked)
        self.write(raw)
        self.over()

    def _note(self, end: int, fault: str) -> None:
        number = NUMBERS[fault] if fault else NOTHING
        if fault:
            self.server.ledger.failed += 1
        row = (self.head.id, self.arrival, self.start or end, self.first or end, end, self.batch, number)
        self.server.ledger.rows.extend(row)

    # -- called by faults -----------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        """Send data, unless the connection is closing."""
        if not self.transport.is_closing():
            self.transport.write(data)

    def close(self) -> None:
        """Close in an orderly way, after what was written."""
        self.transport.close()

    def reset(self) -> None:
        """Reset the connection, after what was written has been sent."""
        set_to_reset(self.transport)
        self.transport.close()

    def dribble(self, data: bytes) -> None:
        """Send byte by byte."""
        self.left = [data[at : at + 1] for at in range(len(data))][::-1]
        self._send_next_byte()

    def _send_next_byte(self) -> None:
        if not self.left:
            self.over()
        elif not self.transport.is_closing():
            self.write(self.left.pop())
            due = monotonic_ns() + round(self.server.slow * _NANOSECONDS)
            self.server.workers.alarm.at(due, self._send_next_byte)

    def over(self) -> None:
        """Go on to the next request."""
        self.busy = False
        if self.buffer:
            self._start_next()
        elif self.server.idle is not None:
            asyncio.get_running_loop().call_later(self.server.idle, self._close_if_idle, self.used)

    def _close_if_idle(self, used: int) -> None:
        if self.used == used and not self.busy:
            self.transport.close()
