"""``torchserve``: TorchServe's REST inference.

The option ``content`` says what the body is. ``json``, the default, is an object of the inputs by name, each
as nested lists with the batch first: ``{"x": [[1, 2], [3, 4]]}``. ``raw`` is the bytes of the only input: an
image, say, as a vector of uint8, or one text. TorchServe batches requests itself; what a handler makes of a
body is its own affair.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from modeldyno.adapters.clients import messages as clients_messages
from modeldyno.adapters.clients import tensors
from modeldyno.core.load.request_target import Server, Transport
from modeldyno.errors import RequestError, UnknownName

if TYPE_CHECKING:
    from collections.abc import Sequence

    from modeldyno.core.load.request_target import Endpoint, Reply, Target
    from modeldyno.core.spec.input_spec import InputSpec
    from modeldyno.interfaces import Feed

requires: tuple[str, ...] = ()
transport = Transport.HTTP

NAME = "torchserve"
CONTENTS = ("json", "raw")
_EXAMPLE = "--input data=1x3x224x224"
_INSTEAD = "set content=raw, or other data"
_STATES = ("Healthy", "Partial Healthy", "Unhealthy")
_OUTPUT = "output"
"""Name of an output that comes without one."""


def target(feeds: Sequence[Feed], endpoint: Endpoint) -> Target:
    """Make each payload a request for a prediction.

    Raises:
        RequestError: an input cannot go in such a body.
    """
    path = clients_messages.model_path(endpoint, "/predictions/", "/")
    content = str(endpoint.options.get("content", "json"))
    if content not in CONTENTS:
        raise UnknownName.among("content", content, CONTENTS)
    make = _raw if content == "raw" else _json
    return clients_messages.http(NAME, endpoint, [make(endpoint, path, feed) for feed in feeds])


def _json(endpoint: Endpoint, path: str, feed: Feed) -> bytes:
    values = {name: tensors.lists(name, array) for name, array in tensors.named(feed, _EXAMPLE).items()}
    return clients_messages.post(endpoint, path, clients_messages.written(values, instead=_INSTEAD))


def _raw(endpoint: Endpoint, path: str, feed: Feed) -> bytes:
    name, array = tensors.only(tensors.named(feed, _EXAMPLE), "content=raw")
    if tensors.kind(array) == tensors.TEXT and array.size == 1:
        (body,) = tensors.elements(name, array)
        return clients_messages.post(endpoint, path, body, kind="text/plain; charset=utf-8")
    if array.dtype.name == "uint8":
        return clients_messages.post(endpoint, path, tensors.raw(array), kind=clients_messages.OCTETS)
    raise RequestError(
        f"content=raw sends the bytes of one text, or of uint8, and the input '{name}' is "
        f"{tensors.kind(array)} of {array.size:,}; set content=json."
    )


def arrays(reply: Reply) -> Feed:
    """Read an object of outputs, a list, a number, or whatever else as bytes."""
    clients_messages.check(reply)
    try:
        found = clients_messages.parsed(reply.body)
    except ValueError:
        return {_OUTPUT: tensors.from_raw(_OUTPUT, reply.body, "uint8", (len(reply.body),))}
    named = found if isinstance(found, dict) and found else {_OUTPUT: found}
    return {str(name): _array(str(name), values) for name, values in named.items()}


def _array(name: str, values: Any) -> Any:
    return tensors.from_values(name, values, None, None)


def tokens(reply: Reply) -> int:
    """Tell nothing: the protocol has no tokens."""
    del reply
    return -1


def greeting(endpoint: Endpoint) -> Target:
    """Ask how it is."""
    return clients_messages.get(NAME, endpoint, "/ping")


def recognised(reply: Reply) -> Server | None:
    """Read that it is well, or partly, or not: any of these is TorchServe's word."""
    found = clients_messages.quiet(reply)
    if found.get("status") not in _STATES:
        return None
    return Server(name="torchserve")


def described(endpoint: Endpoint) -> None:
    """Ask nothing: it does not tell what its models take."""
    del endpoint


def inputs(reply: Reply | None, endpoint: Endpoint) -> tuple[InputSpec, ...]:
    """Tell none: what a handler takes is its own affair."""
    del reply, endpoint
    return ()
