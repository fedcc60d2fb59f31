"""HTTP/1.1 messages and gRPC calls from an endpoint, and what a reply says."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from modeldyno.core.load.request_target import Target, Transport
from modeldyno.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from modeldyno.core.load.request_target import Endpoint, Reply

JSON = "application/json"
OCTETS = "application/octet-stream"

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_METADATA_NAME = re.compile(r"[0-9a-z_.-]+")
_OURS = {"content-length", "transfer-encoding", "connection", "upgrade", "inference-header-content-length"}
"""Headers that say how the message is cut; nobody else may set them."""
_OURS_IN_GRPC = {"content-type", "te", "host", *_OURS}
_USUAL_PORTS = {False: 80, True: 443}
_FINE, _REDIRECTS, _WRONG = 200, 300, 400
_SHOWN = 200
"""Characters of a server's own words that are repeated."""
_NOTHING: Mapping[str, str] = {}


# -- requests ------------------------------------------------------------------------------------


def http(
    protocol: str,
    endpoint: Endpoint,
    messages: Iterable[bytes],
    *,
    stream: bool = False,
    counted: bool = False,
) -> Target:
    """Send messages over HTTP."""
    return Target(
        protocol=protocol,
        transport=Transport.HTTP,
        host=endpoint.host,
        port=endpoint.port,
        messages=tuple(messages),
        tls=endpoint.tls,
        stream=stream,
        counted=counted,
    )


def get(protocol: str, endpoint: Endpoint, path: str) -> Target:
    """Ask for a path below that of the endpoint."""
    return http(protocol, endpoint, [request(endpoint, "GET", below(endpoint, path))])


def below(endpoint: Endpoint, path: str) -> str:
    """Give a path on the server."""
    return endpoint.path.rstrip("/") + path


def model_path(endpoint: Endpoint, before: str, version: str = "/versions/") -> str:
    """Give the path of the model: `before` and its name, and its version where one is asked for."""
    tail = version + quote(endpoint.version, safe="") if endpoint.version else ""
    return before + quote(model(endpoint), safe="") + tail


def model(endpoint: Endpoint) -> str:
    """Give the name of the model.

    Raises:
        RequestError: the endpoint names none.
    """
    if not endpoint.model:
        raise RequestError("The URL names no model; write it after #, such as http://host:8000#resnet.")
    return endpoint.model


def request(
    endpoint: Endpoint,
    method: str,
    path: str,
    body: bytes | None = None,
    headers: Mapping[str, str] = _NOTHING,
) -> bytes:
    """Write a request, head and body; the endpoint's own headers win over `headers`.

    Raises:
        RequestError: a header cannot be sent.
    """
    lines = {"host": ("Host", _host(endpoint)), "user-agent": ("User-Agent", "modeldyno")}
    lines |= {"accept": ("Accept", "*/*")}
    lines |= {name.lower(): (name, value) for name, value in headers.items()}
    for name, value in endpoint.headers:
        if name.lower() in _OURS:
            raise RequestError(f"The header {name} is written by ModelDyno itself; leave it out.")
        lines[name.lower()] = (name, value)
    if body is not None:
        lines["content-length"] = ("Content-Length", str(len(body)))
    head = "".join(f"{_checked(name)}: {_value(name, value)}\r\n" for name, value in lines.values())
    return f"{method} {_path(path)} HTTP/1.1\r\n{head}\r\n".encode("latin-1") + (body or b"")


def post(
    endpoint: Endpoint, path: str, body: bytes, *, kind: str = JSON, headers: Mapping[str, str] = _NOTHING
) -> bytes:
    """Write a request that sends a body to a path below that of the endpoint."""
    return request(endpoint, "POST", below(endpoint, path), body, {"Content-Type": kind, **headers})


def grpc(protocol: str, endpoint: Endpoint, method: str, messages: Iterable[bytes]) -> Target:
    """Call a method with messages.

    Raises:
        RequestError: the endpoint has what gRPC cannot carry.
    """
    if endpoint.path.strip("/"):
        raise RequestError(f"gRPC knows no paths, and the URL has one: {endpoint.path}; leave it out.")
    metadata = tuple((name.lower(), value) for name, value in endpoint.headers)
    for name, value in metadata:
        if name in _OURS_IN_GRPC or name.startswith("grpc-") or not _METADATA_NAME.fullmatch(name):
            raise RequestError(f"The header {name!r} cannot be sent with gRPC; leave it out.")
        if not (value.isascii() and value.isprintable()):
            raise RequestError(f"The value of the header {name} cannot be sent with gRPC; write it in ASCII.")
    return Target(
        protocol=protocol,
        transport=Transport.GRPC,
        host=endpoint.host,
        port=endpoint.port,
        messages=tuple(messages),
        method=method,
        metadata=metadata,
        tls=endpoint.tls,
    )


def written(value: Any, *, instead: str) -> bytes:
    """Write JSON, as tightly as it goes.

    Raises:
        RequestError: a number is not finite; `instead` says what to do about it.
    """
    try:
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
    except ValueError:
        raise RequestError(
            f"An input holds values that are not finite, or no Unicode, which JSON cannot carry: {instead}."
        ) from None


def _host(endpoint: Endpoint) -> str:
    host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
    return host if endpoint.port == _USUAL_PORTS[endpoint.tls is not None] else f"{host}:{endpoint.port}"


def _path(path: str) -> str:
    if not path.isascii() or not path.isprintable() or " " in path:
        return quote(path or "/", safe="/%?&=:@+,;!$'()*~[]")
    return path or "/"


def _checked(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise RequestError(f"'{ascii(name)[1:-1]}' is no name of a header; write Name: value.")
    return name


def _value(name: str, value: str) -> str:
    """Give a value that ends no line: it may be a secret, and is not repeated."""
    try:
        value.encode("latin-1")
    except UnicodeEncodeError:
        raise RequestError(f"The value of the header {name} cannot be sent; write it in Latin-1.") from None
    if _CONTROL.search(value):
        raise RequestError(f"The value of the header {name} holds a control character; leave it out.")
    return value.strip()


# -- replies -------------------------------------------------------------------------------------


def header(reply: Reply, name: str) -> str:
    """Give the value of a header, or of gRPC's metadata; empty where it is absent."""
    wanted = name.lower().encode()
    for line in reply.head.splitlines():
        key, _, value = line.partition(b":")
        if key.strip().lower() == wanted:
            return value.strip().decode("latin-1")
    return ""


def check(reply: Reply) -> None:
    """Raise ValueError, in a phrase, where the status of HTTP tells that there is no answer."""
    if _FINE <= reply.status < _REDIRECTS:
        return
    if reply.status < _WRONG:
        where = _shown(header(reply, "location")) or "another place"
        raise ValueError(
            f"the server redirects ({reply.status}) to {where}, which is not followed; give that URL itself"
        )
    words = complaint(reply.body)
    raise ValueError(f"the server answered {reply.status}{words and f': {words}'}")


def check_grpc(reply: Reply) -> None:
    """Raise ValueError, in a phrase, where the status of gRPC tells that there is no answer."""
    if reply.status:
        words = _shown(unquote(header(reply, "grpc-message")))
        raise ValueError(f"the server answered with status {reply.status} of gRPC{words and f': {words}'}")


def content(reply: Reply) -> Any:
    """Give the JSON of an answer; raise ValueError, in a phrase, where there is none."""
    check(reply)
    return parsed(reply.body)


def table(reply: Reply) -> dict[str, Any]:
    """Give the object of JSON that an answer is; raise ValueError, in a phrase, where it is none."""
    found = content(reply)
    if not isinstance(found, dict):
        raise ValueError("the answer is no object of JSON")  # noqa: TRY004 - of data, as all of these
    return found


def parsed(body: bytes) -> Any:
    """Read JSON; raise ValueError, in a phrase, where it is none."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise ValueError(f"the answer is no JSON: {_shown(body.decode(errors='replace'))}") from None


def quiet(reply: Reply) -> dict[str, Any]:
    """Give the object of JSON that an answer is, empty where it is none."""
    try:
        return table(reply)
    except ValueError:
        return {}


def complaint(body: bytes) -> str:
    """Find the server's own words in the body of an error."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return _shown(body.decode(errors="replace"))
    for name in ("error", "message", "detail"):
        while isinstance(found, dict) and found.get(name):
            found = found[name]
    return _shown(found if isinstance(found, str) else json.dumps(found))


def _shown(text: str) -> str:
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())[:_SHOWN].rstrip(".")
