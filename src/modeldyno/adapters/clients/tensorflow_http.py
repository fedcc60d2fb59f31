"""``tensorflow-http``: TensorFlow Serving's REST predict, which KServe's protocol of version 1 is, too.

The option ``format`` is ``row`` (a list of instances, by default) or ``columnar`` (a list for each input);
``signature`` names another signature than the model's default. Bytes go as ``{"b64": ...}``, text as text.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from modeldyno.adapters.clients import messages as clients_messages
from modeldyno.adapters.clients import tensorflow, tensors
from modeldyno.core.load.request_target import Server, Transport
from modeldyno.errors import RequestError, UnknownName

if TYPE_CHECKING:
    from collections.abc import Sequence

    from modeldyno.core.load.request_target import Endpoint, Reply, Target
    from modeldyno.core.spec.input_spec import InputSpec
    from modeldyno.interfaces import Feed

requires: tuple[str, ...] = ()
transport = Transport.HTTP

NAME = "tensorflow-http"
FORMATS = ("row", "columnar")
_INSTEAD = "take gRPC, or other data"
_NOT_FOUND = 404
_UNKNOWN = ("Could not find any versions of model", "Servable not found")
"""What TensorFlow Serving says of a model that it does not have."""
_OUTPUT = "output"
"""Name of an output that comes without one."""


def target(feeds: Sequence[Feed], endpoint: Endpoint) -> Target:
    """Make each payload a request to predict.

    Raises:
        RequestError: the protocol cannot carry an input, or rows were asked for where there are none.
    """
    path = clients_messages.model_path(endpoint, "/v1/models/") + ":predict"
    return clients_messages.http(NAME, endpoint, [_message(endpoint, path, feed) for feed in feeds])


def _message(endpoint: Endpoint, path: str, feed: Feed) -> bytes:
    form = str(endpoint.options.get("format", "row"))
    if form not in FORMATS:
        raise UnknownName.among("format", form, FORMATS)
    for name, array in tensors.named(feed, tensorflow.EXAMPLE).items():
        tensorflow.number(name, array)
    columns = {name: tensors.lists(name, array, encoded=True) for name, array in feed.items()}
    signature = str(endpoint.options.get("signature", ""))
    body = {
        **({"signature_name": signature} if signature else {}),
        **({"instances": _rows(feed, columns)} if form == "row" else {"inputs": _alone(columns)}),
    }
    return clients_messages.post(endpoint, path, clients_messages.written(body, instead=_INSTEAD))


def _alone(columns: dict[str, Any]) -> Any:
    """A single input needs no name."""
    return next(iter(columns.values())) if len(columns) == 1 else columns


def _rows(feed: Feed, columns: dict[str, Any]) -> list[Any]:
    firsts = {array.shape[0] if array.ndim else None for array in feed.values()}
    if len(firsts) > 1 or None in firsts:
        shapes = ", ".join(f"{name} {'x'.join(map(str, array.shape))}" for name, array in feed.items())
        raise RequestError(
            f"Inputs without a common batch cannot go in rows ({shapes}); set format=columnar."
        )
    if len(columns) == 1:
        return list(_alone(columns))
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def arrays(reply: Reply) -> Feed:
    """Read predictions (rows) or outputs (columns)."""
    found = clients_messages.table(reply)
    if found.get("error"):
        raise ValueError(f"the server answered: {clients_messages.complaint(reply.body)}")
    if not {"predictions", "outputs"} & found.keys():
        raise ValueError("the answer has neither predictions nor outputs")
    if "outputs" in found:
        columns = found["outputs"] if isinstance(found["outputs"], dict) else {_OUTPUT: found["outputs"]}
        named = columns if not _is_bytes(columns) else {_OUTPUT: columns}
        return {str(name): _array(str(name), values) for name, values in named.items()}
    rows = found["predictions"]
    if not isinstance(rows, list) or not rows:
        raise ValueError("the answer has no predictions")
    if not isinstance(rows[0], dict) or _is_bytes(rows[0]):
        return {_OUTPUT: _array(_OUTPUT, rows)}
    if any(not isinstance(row, dict) or row.keys() != rows[0].keys() for row in rows):
        raise ValueError("the predictions have different outputs")
    return {str(name): _array(str(name), [row[name] for row in rows]) for name in rows[0]}


def _is_bytes(value: Any) -> bool:
    return isinstance(value, dict) and value.keys() == {"b64"}


def _array(name: str, values: Any) -> Any:
    return tensors.from_values(name, _plain(name, values), None, None)


def _plain(name: str, values: Any) -> Any:
    if isinstance(values, list):
        return [_plain(name, value) for value in values]
    if not _is_bytes(values):
        return values
    try:
        return base64.b64decode(values["b64"], validate=True)
    except (ValueError, TypeError):
        raise ValueError(f"output '{name}' holds bytes that are no base64") from None


def tokens(reply: Reply) -> int:
    """Tell nothing: the protocol has no tokens."""
    del reply
    return -1


def greeting(endpoint: Endpoint) -> Target | None:
    """Ask for the state of the model."""
    if not endpoint.model:
        return None
    return clients_messages.get(NAME, endpoint, clients_messages.model_path(endpoint, "/v1/models/"))


def recognised(reply: Reply) -> Server | None:
    """Read the state, which TensorFlow Serving tells of each version, KServe as ready or not."""
    found = clients_messages.quiet(reply)
    if _unknown(reply) or isinstance(found.get("model_version_status"), list):
        return Server(name="tensorflow serving")
    return Server(name="kserve") if {"name", "ready"} <= found.keys() else None


def _unknown(reply: Reply) -> bool:
    """Say whether TensorFlow Serving tells that it has no such model."""
    words = clients_messages.complaint(reply.body)
    return reply.status == _NOT_FOUND and any(each in words for each in _UNKNOWN)


def described(endpoint: Endpoint) -> Target:
    """Ask for the model's signatures."""
    return clients_messages.get(
        NAME, endpoint, clients_messages.model_path(endpoint, "/v1/models/") + "/metadata"
    )


def inputs(reply: Reply | None, endpoint: Endpoint) -> tuple[InputSpec, ...]:
    """Read the inputs of the signature; KServe has no such path, and tells none."""
    if reply is None or (reply.status == _NOT_FOUND and not _unknown(reply)):
        return ()
    found = clients_messages.content(reply)
    try:
        signatures = found["metadata"]["signature_def"]["signature_def"]
    except (KeyError, TypeError):
        raise ValueError("the server's description of the model has no signatures") from None
    return tensorflow.declared(signatures, str(endpoint.options.get("signature", "")))
