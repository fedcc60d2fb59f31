"""``http``: any request, as a template: a method, a path, headers and a body.

The options are ``method`` (by default POST with a body and GET without) and ``content_type`` (of the
body). The body is the only input of a payload, one text or its bytes; without one, nothing is sent along.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.adapters.clients import messages as clients_messages
from modeldyno.adapters.clients import tensors
from modeldyno.core.load.request_target import Transport
from modeldyno.errors import RequestError, UnknownName

if TYPE_CHECKING:
    from collections.abc import Sequence

    from modeldyno.core.load.request_target import Endpoint, Reply, Server, Target
    from modeldyno.core.spec.input_spec import InputSpec
    from modeldyno.interfaces import Feed

requires: tuple[str, ...] = ()
transport = Transport.HTTP

NAME = "http"
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
_BODY = "body"


def target(feeds: Sequence[Feed], endpoint: Endpoint) -> Target:
    """Make each payload a request.

    Raises:
        RequestError: a payload is no body, or the method is none.
    """
    return clients_messages.http(NAME, endpoint, [_message(endpoint, feed) for feed in feeds])


def _message(endpoint: Endpoint, feed: Feed) -> bytes:
    body = _body(feed) if feed else None
    method = str(endpoint.options.get("method") or ("GET" if body is None else "POST")).upper()
    if method not in METHODS:
        raise UnknownName.among("method", method, METHODS)
    if body is None and method in {"POST", "PUT", "PATCH"}:
        body = b""
    kind = str(endpoint.options.get("content_type") or clients_messages.JSON)
    headers = {"Content-Type": kind} if body else {}
    return clients_messages.request(endpoint, method, endpoint.path or "/", body, headers)


def _body(feed: Feed) -> bytes:
    name, array = tensors.only(feed, "A plain request")
    if tensors.kind(array) == tensors.TEXT and array.size == 1:
        return tensors.elements(name, array)[0]
    if array.dtype.name == "uint8":
        return tensors.raw(array)
    raise RequestError(
        f"The body of a plain request is one text, not {array.size:,} of {tensors.kind(array)}."
    )


def arrays(reply: Reply) -> Feed:
    """Give the body of the answer as it is."""
    clients_messages.check(reply)
    return {_BODY: tensors.from_raw(_BODY, reply.body, "uint8", (len(reply.body),))}


def tokens(reply: Reply) -> int:
    """Tell nothing: what an answer holds is not known."""
    del reply
    return -1


def greeting(endpoint: Endpoint) -> None:
    """Ask nothing: any server speaks it."""
    del endpoint


def recognised(reply: Reply) -> Server | None:
    """Recognise nothing."""
    del reply
    return None


def described(endpoint: Endpoint) -> None:
    """Ask nothing: nobody tells what the body is to be."""
    del endpoint


def inputs(reply: Reply | None, endpoint: Endpoint) -> tuple[InputSpec, ...]:
    """Tell none: there may be no body at all."""
    del reply, endpoint
    return ()
