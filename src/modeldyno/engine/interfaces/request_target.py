"""The target of requests and the serialised requests. Held in memory, never stored."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from modeldyno.base.result.request_outcome import RequestOutcome


class Transport(StrEnum):
    """The transport protocol of a request."""

    HTTP = "http"
    """HTTP/1.1, one request at a time on each of the connections, which are kept open."""
    GRPC = "grpc"
    """Unary or server-streaming calls over HTTP/2."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """TLS options."""

    authority: str | None = None
    """File of the trusted certificates; None: those of the system."""
    verify: bool = True
    certificate: str | None = None
    key: str | None = None
    name: str | None = None
    """Expected name of the server, if it is not the host."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A model on a server."""

    host: str
    port: int
    model: str = ""
    version: str = ""
    path: str = ""
    """Prefix of every path, such as ``/proxy``; for plain HTTP the whole path with its query."""
    headers: tuple[tuple[str, str], ...] = ()
    """Sent with every request; may hold secrets."""
    tls: Tls | None = None
    options: Mapping[str, str | int | float | bool] = field(default_factory=dict)
    """Options of the protocol, such as ``binary`` or ``max_tokens``."""
    protocol: str = ""
    """Name of the client for its protocol; empty if not yet known."""
    wait: float = 0.0
    """Seconds that the server may take until it answers for the first time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerInfo:
    """What a server reports about itself."""

    name: str = ""
    """Name and version, such as ``triton 2.51.0``."""
    models: tuple[str, ...] = ()
    """Names of its models, if it lists them."""
    options: Mapping[str, str | int | float | bool] = field(default_factory=dict)
    """Protocol options that this server fixes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """A further server of the same model."""

    host: str
    port: int
    tls: Tls | None = None
    start: str = ""
    """HTTP: request line and first header, the host, in place of those of messages; empty: they stay."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """An endpoint and the messages to send to it."""

    protocol: str
    """Name of the client that wrote the messages and reads the replies."""
    transport: Transport
    host: str
    port: int
    messages: tuple[bytes, ...]
    """Sent in turn. HTTP: head and body. gRPC: the serialised message."""
    method: str = ""
    """gRPC: ``/package.Service/Method``."""
    metadata: tuple[tuple[str, str], ...] = ()
    """gRPC: sent with every call."""
    tls: Tls | None = None
    stream: bool = False
    """Whether replies are streamed, so that the times of chunks matter."""
    compression: str = ""
    """gRPC: how the messages are compressed, ``gzip`` or ``deflate``; HTTP says so in their heads."""
    marks: tuple[int, ...] = ()
    """Position in each message of what the client writes while it sends; empty if that is nothing."""
    numbered: bool = False
    """Whether that is the id of a request, see `request_id`, rather than the mark of its sequence."""
    streams: tuple[int, ...] = ()
    """Lengths of the streams that the messages are, one after the other; empty: they are one."""
    token_limits: tuple[int, ...] = ()
    """Tokens that each message asks to generate at most; 0 for one that does not say; empty: none says."""
    counted: bool = False
    """Whether the client can count the tokens of each reply; those of a stream it always can."""
    turn_ends: tuple[int, ...] = ()
    """Of chats: where that part of each message ends which says something new. It begins at the mark, where
    the history of the session is inserted. Empty: a mark takes the place of bytes of the message."""
    think_times: tuple[float, ...] = ()
    """Seconds between an answer and when each message is due after it; -1 for one that does not say; empty:
    none says."""
    links: tuple[tuple[int, ...], ...] = ()
    """Of agents' sessions: whose history each message has, -1 for none, and then which messages it waits for,
    as places in its session; empty: each extends the one before, and waits for that."""
    word_groups: tuple[tuple[str, ...], ...] = ()
    """Words that may take each other's place at the mark of a message, see `FreshWords`; empty: none may."""
    word_groups_of: tuple[tuple[int, ...], ...] = ()
    """Of each message the groups of the words there, one after the other."""
    replicas: tuple[Replica, ...] = ()
    """Further servers, which take requests in turn with the first one."""
    start: str = ""
    """HTTP: see `Replica`."""
    tokenizer: str = ""
    """Of the model: what the tokens of an answer are counted by if the server does not count them."""

    @property
    def servers(self) -> tuple[Target, ...]:
        """The target of each server, the first one included."""
        first = replace(self, replicas=())
        others = [{name: getattr(each, name) for name in _OF_A_SERVER} for each in self.replicas]
        return first, *(replace(first, **fields) for fields in others)


_OF_A_SERVER = ("host", "port", "tls", "start")


def request_id(sent: int) -> bytes:
    """Return the id by which a server's trace names a request: when it was sent, in 20 digits."""
    return b"%020d" % sent


def insert_history(message: bytes, at: int, history: bytes) -> bytes:
    """Return an HTTP message with more in its body; the length of that must be its last header line."""
    head_end = message.index(b"\r\n\r\n")
    value = message.rindex(b":", 0, head_end) + 1
    length = b" %d" % (len(message) - head_end - 4 + len(history))
    return b"".join((message[:value], length, message[head_end:at], history, message[at:]))


def start_of(message: bytes) -> bytes:
    """Return the request line and the first header line of an HTTP message."""
    return message[: message.index(b"\r\n", message.index(b"\r\n") + 2) + 2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A complete answer."""

    message: int
    """Index of the target's message that it answers."""
    status: int
    """Status of HTTP, or of gRPC (0 is OK)."""
    head: bytes
    """HTTP: the header lines. gRPC: ``name: value`` lines of the metadata."""
    body: bytes
    """Decoded from chunks. gRPC: the serialised message, or the concatenated messages of a stream."""


class BrokenStream(ValueError):
    """An answer whose status is OK, but whose stream reports an error; its text is a phrase."""

    def __init__(self, outcome: RequestOutcome, phrase: str) -> None:
        """Store how the request really ended."""
        super().__init__(phrase)
        self.outcome = outcome


COMPRESSIONS = ("gzip", "deflate")
_WRAPPERS = {"gzip": 31, "deflate": 15}
_ANY_WRAPPER = 47
_MOST = 1 << 31
"""Bytes that an answer may have when decompressed."""


def compress(data: bytes, name: str) -> bytes:
    """Compress data as ``gzip`` or ``deflate``."""
    compressor = zlib.compressobj(wbits=_WRAPPERS[name])
    return compressor.compress(data) + compressor.flush()


def decompress(data: bytes) -> bytes:
    """Return decompressed data; raise ValueError (a phrase) if it is neither, incomplete or too large."""
    decompressor = zlib.decompressobj(wbits=_ANY_WRAPPER)
    try:
        plain = decompressor.decompress(data, _MOST)
    except zlib.error:
        raise ValueError("the answer is not what gzip or deflate make") from None
    if not decompressor.eof:
        raise ValueError("the answer is compressed and incomplete, or too large")
    return plain
