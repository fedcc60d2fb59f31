"""``http``: any HTTP request, built from a method, a path, headers and a body.

The options are ``method`` (POST by default with a body and GET without), ``content_type`` (of the body) and
``stream``: whether the answer is a stream of generated text, in events or JSON lines, whose pieces are timed
and whose tokens are counted, see `generated_text`. The body is the only input of a payload: one text, or its
bytes. Without it the request has no body.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from modeldyno.base.errors import RequestError, UnknownName
from modeldyno.engine.interfaces.request_target import Transport
from modeldyno.serving.clients import generated_text, tensors
from modeldyno.serving.clients import messages as clients_messages
from modeldyno.serving.loadgen.event_stream import DONE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from modeldyno.base.job.input_spec import InputSpec
    from modeldyno.engine.interfaces.request_target import Endpoint, Reply, ServerInfo, Target
    from modeldyno.models.interface import Feed

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
    return replace(
        clients_messages.http_target(
            NAME,
            endpoint,
            [_message(endpoint, feed) for feed in feeds],
            stream=bool(endpoint.options.get("stream", False)),
        ),
        token_limits=tuple(map(_asked_tokens, feeds)) if endpoint.options.get("stream") else (),
    )


def _asked_tokens(feed: Feed) -> int:
    return generated_text.asked_tokens(_body(feed)) if feed else 0


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


def tokens(reply: Reply) -> int:
    """Return the number of generated tokens that the server reports; -1 if it does not.

    Raises:
        BrokenStream: the stream reports an error.
    """
    for event in generated_text.events(reply):
        generated_text.raise_on_error(event)
    return generated_text.generated_tokens(reply)


finish_reason = generated_text.finish_reason
cached_tokens = generated_text.cached_tokens
is_reasoning = generated_text.is_reasoning


def text_start(event: bytes) -> int:
    """Return where the text begins that the data of an event holds, 0 if none; what is not JSON is text."""
    if event.lstrip()[:1] not in (b"{", b"["):
        return 0 if event.strip() == DONE else len(event)
    return generated_text.text_start(event)


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
