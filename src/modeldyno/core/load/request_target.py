"""Where requests go, and the requests themselves, ready for the wire. Held in memory, never stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from modeldyno.core.load.request_log import Outcome


class Transport(StrEnum):
    """What carries a request."""

    HTTP = "http"
    """HTTP/1.1, one request at a time on each of the connections, which are kept open."""
    GRPC = "grpc"
    """A unary call, or one with a stream of answers, over HTTP/2."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """How to speak TLS."""

    authority: str | None = None
    """File of the certificates to trust; None: those of the system."""
    verify: bool = True
    certificate: str | None = None
    key: str | None = None
    name: str | None = None
    """Name of the server to expect, where it is not the host."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A model on a server."""

    host: str
    port: int
    model: str = ""
    version: str = ""
    path: str = ""
    """Beginning of every path, such as ``/proxy``; for plain HTTP the whole path with its query."""
    headers: tuple[tuple[str, str], ...] = ()
    """Sent with every request; may hold secrets."""
    tls: Tls | None = None
    options: Mapping[str, str | int | float | bool] = field(default_factory=dict)
    """What a protocol leaves open, such as ``binary`` or ``max_tokens``."""
    protocol: str = ""
    """Name of the client that speaks with it, where that is settled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """What a server says of itself."""

    name: str = ""
    """What it is, such as ``triton 2.51.0``."""
    models: tuple[str, ...] = ()
    """Their names, where it lists them."""
    options: Mapping[str, str | int | float | bool] = field(default_factory=dict)
    """What its protocol leaves open and it does not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """An endpoint and what to send it."""

    protocol: str
    """Name of the client that wrote the messages and reads the replies."""
    transport: Transport
    host: str
    port: int
    messages: tuple[bytes, ...]
    """To be cycled through. HTTP: head and body, whole. gRPC: the serialised message."""
    method: str = ""
    """gRPC: ``/package.Service/Method``."""
    metadata: tuple[tuple[str, str], ...] = ()
    """gRPC: sent with every call."""
    tls: Tls | None = None
    stream: bool = False
    """Whether replies come in pieces whose times matter."""
    counted: bool = False
    """Whether the client can tell of each reply how many tokens it has; those of a stream it always can."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """An answer, whole."""

    message: int
    """Which of the target's messages it answers."""
    status: int
    """Of HTTP, or of gRPC (0 is well)."""
    head: bytes
    """HTTP: the lines of the head after the first. gRPC: ``name: value`` lines of the metadata."""
    body: bytes
    """Decoded from chunks. gRPC: the serialised message, or that of each piece, one after the other."""


class BrokenStream(ValueError):
    """An answer whose status says that all is well, and whose pieces do not; its text is a phrase."""

    def __init__(self, outcome: Outcome, phrase: str) -> None:
        """Say how the request ended in truth."""
        super().__init__(phrase)
        self.outcome = outcome
