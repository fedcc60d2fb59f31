"""Answers that never end, by name: what a peer may send so that whoever waits for it waits for ever."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True)
class EndlessAnswer:
    """What is sent once, and then again and again."""

    first: bytes = b""
    then: bytes = b""
    """Empty: nothing more is sent, and the connection stays open."""
    pause: float = 0.0
    """Seconds between two; 0 is a flood."""


_DRIP = 0.02
_OK = b"HTTP/1.1 200 OK\r\n"
_CHUNKED = _OK + b"Transfer-Encoding: chunked\r\n\r\n"
_EVENTS = _OK + b"Content-Type: text/event-stream\r\n\r\n"
_LAST = _CHUNKED + b"2\r\n{}\r\n0\r\n"
_MANY = 200
"""Repetitions in one piece of a flood."""


def _flood(first: bytes, then: bytes) -> EndlessAnswer:
    return EndlessAnswer(first, then * _MANY)


def _drip(first: bytes, then: bytes) -> EndlessAnswer:
    return EndlessAnswer(first, then, _DRIP)


HTTP1 = {
    "silence": EndlessAnswer(),
    "a dripped status": _drip(b"HTTP/1.1 200 O", b"K"),
    "a status without end": _flood(b"HTTP/1.1 200 O", b"K"),
    "empty lines": _flood(b"", b"\r\n"),
    "a dripped head": _drip(_OK, b"x"),
    "dripped headers": _drip(_OK, b"X-More: 1\r\n"),
    "headers without end": _flood(_OK, b"X-More: 1\r\n"),
    "a header without end": _flood(_OK + b"X-More: ", b"1"),
    "folded headers": _flood(_OK + b"X-More: 1\r\n", b" 1\r\n"),
    "100 without end": _flood(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "dripped 100": _drip(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "102 without end": _flood(b"", b"HTTP/1.1 102 Processing\r\n\r\n"),
    "dripped 103": _drip(b"", b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"),
    "199 without end": _flood(b"", b"HTTP/1.1 199 Soon\r\n\r\n"),
    "chunks without end": _flood(_CHUNKED, b"2\r\n{}\r\n"),
    "dripped chunks": _drip(_CHUNKED, b"1\r\n \r\n"),
    "the size of a chunk without end": _flood(_CHUNKED, b"0"),
    "an extension of a chunk without end": _flood(_CHUNKED + b"2;", b"x"),
    "a dripped chunk": _drip(_CHUNKED + b"ffffff\r\n", b" "),
    "trailers without end": _flood(_LAST, b"X-More: 1\r\n"),
    "dripped trailers": _drip(_LAST, b"X-More: 1\r\n"),
    "a trailer without end": _flood(_LAST + b"X-More: ", b"1"),
    "a body of a petabyte": _flood(_OK + b"Content-Length: 1000000000000000\r\n\r\n", b" "),
    "a dripped body": _drip(_OK + b"Content-Length: 100000\r\n\r\n", b" "),
    "a body to the end": _flood(_OK + b"\r\n", b" "),
    "a dripped body to the end": _drip(_OK + b"\r\n", b" "),
    "events without end": _flood(_EVENTS, b"data: {}\n\n"),
    "dripped comments of a stream": _drip(_EVENTS, b": still here\n\n"),
}
"""Of HTTP/1.1."""


def _frame(kind: int, flags: int, stream: int, body: bytes = b"") -> bytes:
    return len(body).to_bytes(3) + bytes((kind, flags)) + stream.to_bytes(4) + body


_SETTINGS = _frame(4, 0, 0)
_HEADERS = _frame(1, 4, 1, b"\x88")  # :status 200, from the static table
_INTERIM = _frame(1, 4, 1, b"\x08\x03103")  # :status 103, as a literal

HTTP2 = {
    "settings, and silence": EndlessAnswer(_SETTINGS),
    "dripped settings": _drip(b"\x00\x00\x06", b"\x00"),
    "pings": _flood(_SETTINGS, _frame(6, 0, 0, bytes(8))),
    "dripped pings": _drip(_SETTINGS, _frame(6, 0, 0, bytes(8))),
    "settings without end": _flood(_SETTINGS, _SETTINGS),
    "acknowledged settings without end": _flood(_SETTINGS, _frame(4, 1, 0)),
    "empty data": _flood(_SETTINGS + _HEADERS, _frame(0, 0, 1)),
    "dripped data": _drip(_SETTINGS + _HEADERS, _frame(0, 0, 1, b"\x00")),
    "data of no stream": _flood(_SETTINGS, _frame(0, 0, 7, b"x")),
    "empty continuations": _flood(_SETTINGS + _frame(1, 0, 1, b"\x88"), _frame(9, 0, 1)),
    "continuations": _flood(_SETTINGS + _frame(1, 0, 1, b"\x88"), _frame(9, 0, 1, b"\x88" * 64)),
    "window updates": _flood(_SETTINGS, _frame(8, 0, 1, b"\x00\x00\x00\x01")),
    "priorities": _flood(_SETTINGS, _frame(2, 0, 1, bytes(5))),
    "resets of no stream": _flood(_SETTINGS, _frame(3, 0, 7, bytes(4))),
    "unknown frames": _flood(_SETTINGS, _frame(0x20, 0, 0, b"x")),
    "interim headers": _flood(_SETTINGS, _INTERIM),
}
"""Of HTTP/2."""


@contextmanager
def endless_server(answer: EndlessAnswer) -> Iterator[int]:
    """Listen on the loopback and answer every connection without end; gives the port."""
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=_serve, args=(listening, answer, over), daemon=True).start()
        try:
            yield listening.getsockname()[1]
        finally:
            over.set()
            with suppress(OSError):
                listening.shutdown(socket.SHUT_RDWR)


def _serve(listening: socket.socket, answer: EndlessAnswer, over: threading.Event) -> None:
    with suppress(OSError):
        while True:
            link, _ = listening.accept()
            threading.Thread(target=_answer, args=(link, answer, over), daemon=True).start()


def _answer(link: socket.socket, answer: EndlessAnswer, over: threading.Event) -> None:
    with link, suppress(OSError):
        link.recv(1 << 16)
        link.sendall(answer.first)
        if not answer.then:
            over.wait()
        while not over.is_set():
            link.sendall(answer.then)
            time.sleep(answer.pause)
