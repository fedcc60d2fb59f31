"""Builds HTTP/1.1 messages and gRPC calls for an endpoint, and reads replies."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from modeldyno.base.errors import RequestError
from modeldyno.engine.interfaces.request_target import COMPRESSIONS, Target, Transport, compress, decompress

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from modeldyno.engine.interfaces.request_target import Endpoint, Reply

JSON = "application/json"
OCTETS = "application/octet-stream"

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_METADATA_NAME = re.compile(r"[0-9a-z_.-]+")
_RESERVED_HEADERS = {
    "content-length", "transfer-encoding", "connection", "upgrade", "inference-header-content-length",
}  # fmt: skip
"""Headers that frame the message; the user may not set them."""
_RESERVED_METADATA = {"content-type", "te", "host", *_RESERVED_HEADERS}
_DEFAULT_PORTS = {False: 80, True: 443}
_SUCCESS, _REDIRECTION, _CLIENT_ERROR = 200, 300, 400
_MESSAGE_LIMIT = 200
"""Characters of a server's error message that are quoted."""
_READ_LIMIT = 10_000
"""Characters of it that are read: it may be a compressed gigabyte."""
_NO_HEADERS: Mapping[str, str] = {}


# -- requests ------------------------------------------------------------------------------------


def http_target(
    protocol: str,
    endpoint: Endpoint,
    messages: Iterable[bytes],
    *,
    stream: bool = False,
    counted: bool = False,
    marks: Iterable[int] = (),
) -> Target:
    """Return the target that sends messages over HTTP."""
    return Target(
        protocol=protocol,
        transport=Transport.HTTP,
        host=endpoint.host,
        port=endpoint.port,
        messages=tuple(messages),
        tls=endpoint.tls,
        stream=stream,
        counted=counted,
        marks=tuple(marks),
    )


def get_target(protocol: str, endpoint: Endpoint, path: str) -> Target:
    """Return the target that GETs a path below the endpoint's."""
    return http_target(protocol, endpoint, [http_request(endpoint, "GET", path_below(endpoint, path))])


def path_below(endpoint: Endpoint, path: str) -> str:
    """Return a path below the endpoint's."""
    return endpoint.path.rstrip("/") + path


def model_path(endpoint: Endpoint, before: str, version: str = "/versions/") -> str:
    """Return the model's path: `before`, its name, and its version if the endpoint has one."""
    tail = version + quote(endpoint.version, safe="") if endpoint.version else ""
    return before + quote(require_model(endpoint), safe="") + tail


def require_model(endpoint: Endpoint) -> str:
    """Return the model's name.

    Raises:
        RequestError: the endpoint names no model.
    """
    if not endpoint.model:
        raise RequestError("The URL names no model; write it after #, such as http://host:8000#resnet.")
    return endpoint.model


def http_request(
    endpoint: Endpoint,
    method: str,
    path: str,
    body: bytes | None = None,
    headers: Mapping[str, str] = _NO_HEADERS,
) -> bytes:
    """Build a request, head and body; the endpoint's own headers override `headers`.

    Raises:
        RequestError: a header cannot be sent.
    """
    lines = {"host": ("Host", _host(endpoint)), "user-agent": ("User-Agent", "modeldyno")}
    lines |= {"accept": ("Accept", "*/*")}
    lines |= {name.lower(): (name, value) for name, value in headers.items()}
    for name, value in endpoint.headers:
        if name.lower() in _RESERVED_HEADERS:
            raise RequestError(f"ModelDyno sets the header {name} itself; leave it out.")
        lines[name.lower()] = (name, value)
    if body is not None:
        lines["content-length"] = ("Content-Length", str(len(body)))
    head = "".join(
        f"{_checked_name(name)}: {_checked_value(name, value)}\r\n" for name, value in lines.values()
    )
    return f"{method} {_quoted_path(path)} HTTP/1.1\r\n{head}\r\n".encode("latin-1") + (body or b"")


def post_request(
    endpoint: Endpoint, path: str, body: bytes, *, kind: str = JSON, headers: Mapping[str, str] = _NO_HEADERS
) -> bytes:
    """Build a request that POSTs a body, compressed if the endpoint says so, to a path below its own."""
    if compression := str(endpoint.options.get("compression", "")):
        body = compress(body, compression)
        headers = {**headers, "Content-Encoding": compression, "Accept-Encoding": compression}
    return http_request(endpoint, "POST", path_below(endpoint, path), body, {"Content-Type": kind, **headers})


def grpc_target(protocol: str, endpoint: Endpoint, method: str, messages: Iterable[bytes]) -> Target:
    """Return the target that calls a gRPC method with messages.

    Raises:
        RequestError: the endpoint has a path or a header that gRPC cannot carry.
    """
    if endpoint.path.strip("/"):
        raise RequestError(f"A gRPC URL takes no path, but this one has {endpoint.path}; leave it out.")
    compression = str(endpoint.options.get("compression", ""))
    metadata = tuple((name.lower(), value) for name, value in endpoint.headers)
    for name, value in metadata:
        if name in _RESERVED_METADATA or name.startswith("grpc-") or not _METADATA_NAME.fullmatch(name):
            raise RequestError(f"The header {name!r} cannot be sent with gRPC; leave it out.")
        if not (value.isascii() and value.isprintable()):
            raise RequestError(f"The value of the header {name} is not ASCII text, which gRPC requires.")
    return Target(
        protocol=protocol,
        transport=Transport.GRPC,
        host=endpoint.host,
        port=endpoint.port,
        messages=tuple(compress(message, compression) if compression else message for message in messages),
        compression=compression,
        method=method,
        metadata=metadata,
        tls=endpoint.tls,
    )


def encode_json(value: Any, *, instead: str) -> bytes:
    """Encode a value as compact JSON.

    Raises:
        RequestError: a number is not finite, or text is invalid Unicode; `instead` says what to do.
    """
    try:
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
    except ValueError:
        raise RequestError(
            f"An input holds values that JSON cannot carry (not finite, or invalid Unicode): {instead}."
        ) from None


def _host(endpoint: Endpoint) -> str:
    host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
    return host if endpoint.port == _DEFAULT_PORTS[endpoint.tls is not None] else f"{host}:{endpoint.port}"


def _quoted_path(path: str) -> str:
    if not path.isascii() or not path.isprintable() or " " in path:
        return quote(path or "/", safe="/%?&=:@+,;!$'()*~[]")
    return path or "/"


def _checked_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise RequestError(f"'{ascii(name)[1:-1]}' is not a valid header name; write Name: value.")
    return name


def _checked_value(name: str, value: str) -> str:
    """Return the stripped value if it is a single line; it may be a secret, so errors do not quote it."""
    try:
        value.encode("latin-1")
    except UnicodeEncodeError:
        raise RequestError(
            f"The value of the header {name} is not Latin-1 text; write it in Latin-1."
        ) from None
    if _CONTROL.search(value):
        raise RequestError(f"The value of the header {name} holds a control character; remove it.")
    return value.strip()


# -- replies -------------------------------------------------------------------------------------


def header_value(reply: Reply, name: str) -> str:
    """Return the value of an HTTP header or a gRPC metadata entry; empty if absent."""
    lowered = name.lower().encode()
    for line in reply.head.splitlines():
        key, _, value = line.partition(b":")
        if key.strip().lower() == lowered:
            return value.strip().decode("latin-1")
    return ""


def plain_body(reply: Reply) -> bytes:
    """Return the body of a reply, decompressed if its head says so; raise ValueError (a phrase) as that."""
    coding = header_value(reply, "content-encoding").lower()
    return decompress(reply.body) if coding in COMPRESSIONS else reply.body


def no_tokens(reply: Reply) -> int:
    """Return -1: the protocol does not say how many tokens a reply holds."""
    del reply
    return -1


def check_http_status(reply: Reply) -> None:
    """Raise ValueError (a phrase) unless the HTTP status is a success."""
    if _SUCCESS <= reply.status < _REDIRECTION:
        return
    if reply.status < _CLIENT_ERROR:
        where = _shorten(header_value(reply, "location")) or "another place"
        raise ValueError(
            f"the server redirects ({reply.status}) to {where}, and redirects are not followed; use that URL"
        )
    message = error_message(plain_body(reply))
    raise ValueError(f"the server answered {reply.status}{message and f': {message}'}")


def check_grpc_status(reply: Reply) -> None:
    """Raise ValueError (a phrase) unless the gRPC status is OK."""
    if reply.status:
        message = _shorten(unquote(header_value(reply, "grpc-message")))
        raise ValueError(f"the server answered with gRPC status {reply.status}{message and f': {message}'}")


def read_json(reply: Reply) -> Any:
    """Return the JSON of a reply; raise ValueError (a phrase) if there is none."""
    check_http_status(reply)
    return parse_json(plain_body(reply))


def read_json_object(reply: Reply) -> dict[str, Any]:
    """Return the JSON object of a reply; raise ValueError (a phrase) if it is not an object."""
    value = read_json(reply)
    if not isinstance(value, dict):
        raise ValueError("the answer is not a JSON object")  # noqa: TRY004 - bad data, not a bad argument
    return value


def parse_json(body: bytes) -> Any:
    """Decode JSON; raise ValueError (a phrase) if it is invalid."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise ValueError(f"the answer is not JSON: {_shorten(_start_of(body))}") from None


def json_object_or_empty(reply: Reply) -> dict[str, Any]:
    """Return the JSON object of a reply; empty if there is none."""
    try:
        return read_json_object(reply)
    except ValueError:
        return {}


def error_message(body: bytes) -> str:
    """Return the error message in the body of an error reply."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return _shorten(_start_of(body))
    for name in ("response", "error", "message", "detail"):
        while isinstance(value, dict) and value.get(name):
            value = value[name]
    return _shorten(value if isinstance(value, str) else json.dumps(value))


def _start_of(body: bytes) -> str:
    return body[: 4 * _READ_LIMIT].decode(errors="replace")


def _shorten(text: str) -> str:
    text = text[:_READ_LIMIT]
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())[:_MESSAGE_LIMIT].rstrip(".")
