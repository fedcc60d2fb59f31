"""``http``: any HTTP request, built from a method, a path, headers and a body.

The options are ``method`` (POST by default with a body and GET without) and ``content_type`` (of the
body). The body is the only input of a payload: one text, or its bytes. Without it the request has no body.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.adapters.clients import messages as clients_messages
from modeldyno.adapters.clients import tensors
from modeldyno.core.load.request_target import Transport
from modeldyno.errors import RequestError, UnknownName

if TYPE_CHECKING:
    from collections.abc import Sequence

    from modeldyno.core.load.request_target import Endpoint, Reply, ServerInfo, Target
    from modeldyno.core.spec.input_spec import InputSpec
    from modeldyno.interfaces.loader import Feed

requires: tuple[str, ...] = ()
transport = Transport.HTTP

NAME = "http"
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
_BODY = "body"


def target(feeds: Sequence[Feed], endpoint: Endpoint) -> Target:
    """Turn each payload into a request.

    Raises:
        RequestError: a payload is not a single body, or the method is unknown.
    """
    return clients_messages.http_target(NAME, endpoint, [_message(endpoint, feed) for feed in feeds])


def _message(endpoint: Endpoint, feed: Feed) -> bytes:
    body = _body(feed) if feed else None
    method = str(endpoint.options.get("method") or ("GET" if body is None else "POST")).upper()
    if method not in METHODS:
        raise UnknownName.among("method", method, METHODS)
    if body is None and method in {"POST", "PUT", "PATCH"}:
        body = b""
    kind = str(endpoint.options.get("content_type") or clients_messages.JSON)
    headers = {"Content-Type": kind} if body else {}
    return clients_messages.http_request(endpoint, method, endpoint.path or "/", body, headers)


def _body(feed: Feed) -> bytes:
    name, array = tensors.single_input(feed, "A plain request")
    if tensors.dtype_name(array) == tensors.TEXT and array.size == 1:
        return tensors.to_elements(name, array)[0]
    if array.dtype.name == "uint8":
        return tensors.to_raw(array)
    raise RequestError(
        f"The body of a plain request must be one text, not {array.size:,} values of "
        f"{tensors.dtype_name(array)}."
    )


def arrays(reply: Reply) -> Feed:
    """Return the body of the reply as bytes."""
    clients_messages.check_http_status(reply)
    return {_BODY: tensors.from_raw(_BODY, reply.body, "uint8", (len(reply.body),))}


tokens = clients_messages.no_tokens


def greeting(endpoint: Endpoint) -> None:
    """Return None: every HTTP server accepts such requests, so there is nothing to probe."""
    del endpoint


def recognised(reply: Reply) -> ServerInfo | None:
    """Return None: a plain HTTP reply does not identify the server."""
    del reply
    return None


def described(endpoint: Endpoint) -> None:
    """Return None: no request asks a plain HTTP server what the body should be."""
    del endpoint


def inputs(reply: Reply | None, endpoint: Endpoint) -> tuple[InputSpec, ...]:
    """Return no inputs: the body is optional."""
    del reply, endpoint
    return ()
