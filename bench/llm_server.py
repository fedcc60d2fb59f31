"""A server that streams chats at known times and stamps each token when it writes it; nothing of ModelDyno.

One thread: the first token of an answer leaves `first` seconds after its request has arrived, then one every
`gap` seconds, as many as the request asks for; without a gap all leave in one write. ``GET /stamps`` returns
of each answer when its request arrived and when each token was written, in nanoseconds of the monotonic
clock, which all processes of a machine share; ``DELETE /stamps`` forgets them.

    python bench/llm_server.py --first 0.05 --gap 0.01
"""

from __future__ import annotations

import argparse
import heapq
import json
import selectors
import socket
from array import array
from time import monotonic_ns

MODEL = "truth"
_EVENT = b'data: {"id":"t","object":"%s","created":1,"model":"truth","choices":[{"index":0,%s}]%s}\n\n'
_USAGE = b',"usage":{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d}'
_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunk(body: bytes) -> bytes:
    """Frame bytes as a chunk of HTTP/1.1."""
    return b"%x\r\n%b\r\n" % (len(body), body)


def event(kind: bytes, part: bytes, usage: bytes = b"") -> bytes:
    """Build an event of a chat or of a completion."""
    return chunk(_EVENT % (kind, part, usage))


CHAT, TEXT = b"chat.completion.chunk", b"text_completion"
TOKENS = {
    CHAT: event(CHAT, b'"delta":{"content":" word"},"finish_reason":null'),
    TEXT: event(TEXT, b'"text":" word","finish_reason":null'),
}
ENDS = {CHAT: b'"delta":{},"finish_reason":"length"', TEXT: b'"text":"","finish_reason":"length"'}
ROLE = event(CHAT, b'"delta":{"role":"assistant","content":""},"finish_reason":null')


class Stream:
    """A connection, and the answer that it is being given."""

    def __init__(self, server: Server, peer: socket.socket) -> None:
        self.server, self.peer, self.buffer = server, peer, b""
        self.row = array("q")

    def read(self) -> None:
        """Read what came, and begin an answer once a request is whole."""
        data = self.peer.recv(1 << 16)
        if not data:
            self.server.selector.unregister(self.peer)
            self.peer.close()
            return
        self.buffer += data
        head, separator, rest = self.buffer.partition(b"\r\n\r\n")
        if not separator:
            return
        length = next(
            (
                int(line.split(b":")[1])
                for line in head.split(b"\r\n")
                if line.lower().startswith(b"content-length")
            ),
            0,
        )
        if len(rest) >= length:
            self.buffer = rest[length:]
            self.answer(head, rest[:length], monotonic_ns())

    def answer(self, head: bytes, body: bytes, now: int) -> None:
        """Answer a request, or begin to."""
        if not head.startswith(b"POST"):
            self.plain(self.server.plain_answer(head))
            return
        request = json.loads(body)
        self.kind = CHAT if "messages" in request else TEXT
        self.left = int(request.get("max_completion_tokens") or request.get("max_tokens") or 16)
        self.prompt, self.count = (
            len(str(request.get("messages") or request.get("prompt")).split()),
            self.left,
        )
        if not request.get("stream"):
            usage = _USAGE % (self.prompt, self.count, self.prompt + self.count)
            words = b" word" * self.count
            part = (
                b'"message":{"role":"assistant","content":"%b"}' % words
                if self.kind is CHAT
                else b'"text":"%b"' % words
            )
            self.plain(
                b'{"id":"t","object":"x","choices":[{"index":0,%b,"finish_reason":"length"}]%b}'
                % (part, usage)
            )
            return
        self.row = array("q", (now,))
        self.peer.send(_HEAD + (ROLE if self.kind is CHAT else b""))
        self.server.due(now + self.server.first, self)

    def plain(self, body: bytes) -> None:
        """Send a whole answer."""
        self.peer.setblocking(True)
        self.peer.sendall(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
            + body
        )
        self.peer.setblocking(False)

    def token(self, due: int) -> None:
        """Write a token, and what ends the answer after the last one."""
        together = self.left if not self.server.gap else 1
        data = TOKENS[self.kind] * together
        self.left -= together
        if not self.left:
            usage = _USAGE % (self.prompt, self.count, self.prompt + self.count)
            data += event(self.kind, ENDS[self.kind], usage) + chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"
        self.row.extend([monotonic_ns()] * together)
        try:
            self.peer.setblocking(together > 1)
            self.peer.sendall(data)
            self.peer.setblocking(False)
        except OSError:
            return
        if self.left:
            self.server.due(due + self.server.gap, self)
        else:
            self.server.stamps.append(self.row)


class Server:
    """Streams to all connections from one thread."""

    def __init__(self, port: int, first: float, gap: float) -> None:
        self.first, self.gap = int(first * 1e9), int(gap * 1e9)
        self.stamps: list[array[int]] = []
        self.timers: list[tuple[int, int, Stream]] = []
        self.number = 0
        self.selector = selectors.DefaultSelector()
        self.listener = socket.create_server(("127.0.0.1", port), backlog=4096)
        self.listener.setblocking(False)
        self.selector.register(self.listener, selectors.EVENT_READ)

    def due(self, when: int, stream: Stream) -> None:
        """Let a stream write its next token at a time."""
        self.number += 1
        heapq.heappush(self.timers, (when, self.number, stream))

    def plain_answer(self, head: bytes) -> bytes:
        """Answer what is no request for a text."""
        if b" /stamps" in head.split(b"\r\n", 1)[0]:
            if head.startswith(b"DELETE"):
                self.stamps.clear()
            return json.dumps([row.tolist() for row in self.stamps]).encode()
        return b'{"object":"list","data":[{"id":"truth","object":"model","created":1,"owned_by":"bench"}]}'

    def run(self) -> None:
        """Serve until a signal ends it."""
        while True:
            now = monotonic_ns()
            while self.timers and self.timers[0][0] <= now:
                when, _, stream = heapq.heappop(self.timers)
                stream.token(when)
                now = monotonic_ns()
            wait = max(0.0, (self.timers[0][0] - now) / 1e9) if self.timers else None
            for key, _ in self.selector.select(wait):
                if key.data is None:
                    peer, _ = self.listener.accept()
                    peer.setblocking(False)
                    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    self.selector.register(peer, selectors.EVENT_READ, Stream(self, peer))
                else:
                    key.data.read()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="streams chats at known times")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--first", type=float, default=0.05, help="seconds to the first token")
    parser.add_argument("--gap", type=float, default=0.01, help="seconds from one token to the next")
    options = parser.parse_args()
    server = Server(options.port, options.first, options.gap)
    print(server.listener.getsockname()[1], flush=True)
    server.run()
