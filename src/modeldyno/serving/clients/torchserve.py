"""``torchserve``: TorchServe's REST inference.

The option ``content`` selects the body. ``json``, the default, is an object of the inputs by name, each as
nested lists with the batch first: ``{"x": [[1, 2], [3, 4]]}``. ``raw`` is the bytes of the only input: for
example an image as a vector of uint8, or one text. TorchServe batches requests itself; how a body is read is
up to the handler.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from modeldyno.base.errors import RequestError, UnknownName
from modeldyno.engine.interfaces.request_target import ServerInfo, Transport
from modeldyno.serving.clients import messages as clients_messages
from modeldyno.serving.clients import tensors

if TYPE_CHECKING:
    from collections.abc import Sequence

    from modeldyno.base.job.input_spec import InputSpec
    from modeldyno.engine.interfaces.request_target import Endpoint, Reply, Target
    from modeldyno.models.interface import Feed

requires: tuple[str, ...] = ()
transport = Transport.HTTP

NAME = "torchserve"
CONTENTS = ("json", "raw")
_EXAMPLE = "`inputs=data=1x3x224x224`"
_INSTEAD = "set content=raw, or other data"
_STATES = ("Healthy", "Partial Healthy", "Unhealthy")
_OUTPUT = "output"
"""Name given to an unnamed output."""


def target(feeds: Sequence[Feed], endpoint: Endpoint) -> Target:
    """Turn each payload into a prediction request.

    Raises:
        RequestError: an input cannot be put into such a body.
    """
    path = clients_messages.model_path(endpoint, "/predictions/", "/")
    content = str(endpoint.options.get("content", "json"))
    if content not in CONTENTS:
        raise UnknownName.among("content", content, CONTENTS)
    make = _raw_request if content == "raw" else _json_request
    return clients_messages.http_target(NAME, endpoint, [make(endpoint, path, feed) for feed in feeds])


def _json_request(endpoint: Endpoint, path: str, feed: Feed) -> bytes:
    values = {
        name: tensors.to_lists(name, array) for name, array in tensors.require_inputs(feed, _EXAMPLE).items()
    }
    return clients_messages.post_request(
        endpoint, path, clients_messages.encode_json(values, instead=_INSTEAD)
    )


def _raw_request(endpoint: Endpoint, path: str, feed: Feed) -> bytes:
    name, array = tensors.single_input(tensors.require_inputs(feed, _EXAMPLE), "content=raw")
    if tensors.dtype_name(array) == tensors.TEXT and array.size == 1:
        (body,) = tensors.to_elements(name, array)
        return clients_messages.post_request(endpoint, path, body, kind="text/plain; charset=utf-8")
    if array.dtype.name == "uint8":
        return clients_messages.post_request(
            endpoint, path, tensors.to_raw(array), kind=clients_messages.OCTETS
        )
    raise RequestError(
        f"content=raw sends the bytes of one text, or of uint8, and the input '{name}' is "
        f"{tensors.dtype_name(array)} of {array.size:,}; set content=json."
    )


def arrays(reply: Reply) -> Feed:
    """Return an object of outputs, a list or a number; anything else as bytes."""
    clients_messages.check_http_status(reply)
    try:
        response = clients_messages.parse_json(reply.body)
    except ValueError:
        return {_OUTPUT: tensors.from_raw(_OUTPUT, reply.body, "uint8", (len(reply.body),))}
    outputs = response if isinstance(response, dict) and response else {_OUTPUT: response}
    return {str(name): _array(str(name), values) for name, values in outputs.items()}


def _array(name: str, values: Any) -> Any:
    return tensors.from_values(name, values, None, None)


tokens = clients_messages.no_tokens


def greeting(endpoint: Endpoint) -> Target:
    """Return the health request."""
    return clients_messages.get_target(NAME, endpoint, "/ping")


def recognised(reply: Reply) -> ServerInfo | None:
    """Return TorchServe if the reply is one of its health states."""
    health = clients_messages.json_object_or_empty(reply)
    if health.get("status") not in _STATES:
        return None
    return ServerInfo(name="torchserve")


def described(endpoint: Endpoint) -> None:
    """Return None: TorchServe does not describe its models' inputs."""
    del endpoint


def inputs(reply: Reply | None, endpoint: Endpoint) -> tuple[InputSpec, ...]:
    """Return no inputs: what a handler takes is unknown."""
    del reply, endpoint
    return ()
