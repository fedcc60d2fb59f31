"""``tensorflow-http``: TensorFlow Serving's REST predict, which is also KServe's protocol of version 1.

The option ``format`` is ``row`` (a list of instances, the default) or ``columnar`` (a list per input);
``signature`` selects another signature than the model's default. Bytes are sent as ``{"b64": ...}``.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from modeldyno.base.errors import RequestError, UnknownName
from modeldyno.engine.interfaces.request_target import ServerInfo, Transport
from modeldyno.serving.clients import messages as clients_messages
from modeldyno.serving.clients import tensorflow, tensors

if TYPE_CHECKING:
    from collections.abc import Sequence

    from modeldyno.base.job.input_spec import InputSpec
    from modeldyno.engine.interfaces.request_target import Endpoint, Reply, Target
    from modeldyno.models.interface import Feed

requires: tuple[str, ...] = ()
transport = Transport.HTTP

NAME = "tensorflow-http"
FORMATS = ("row", "columnar")
_INSTEAD = "use gRPC, or other data"
_NOT_FOUND = 404
_UNKNOWN = ("Could not find any versions of model", "Servable not found")
"""TensorFlow Serving's error messages for a model that it does not have."""
_OUTPUT = "output"
"""Name given to an unnamed output."""


def target(feeds: Sequence[Feed], endpoint: Endpoint) -> Target:
    """Turn each payload into a predict request.

    Raises:
        RequestError: the protocol cannot carry an input, or the format is rows without a common batch.
    """
    path = clients_messages.model_path(endpoint, "/v1/models/") + ":predict"
    return clients_messages.http_target(NAME, endpoint, [_message(endpoint, path, feed) for feed in feeds])


def _message(endpoint: Endpoint, path: str, feed: Feed) -> bytes:
    form = str(endpoint.options.get("format", "row"))
    if form not in FORMATS:
        raise UnknownName.among("format", form, FORMATS)
    for name, array in tensors.require_inputs(feed, tensorflow.EXAMPLE).items():
        tensorflow.dtype_number(name, array)
    columns = {name: tensors.to_lists(name, array, encoded=True) for name, array in feed.items()}
    signature = str(endpoint.options.get("signature", ""))
    body = {
        **({"signature_name": signature} if signature else {}),
        **({"instances": _rows(feed, columns)} if form == "row" else {"inputs": _without_name(columns)}),
    }
    return clients_messages.post_request(endpoint, path, clients_messages.encode_json(body, instead=_INSTEAD))


def _without_name(columns: dict[str, Any]) -> Any:
    """Return the values without a name if there is only one input."""
    return next(iter(columns.values())) if len(columns) == 1 else columns


def _rows(feed: Feed, columns: dict[str, Any]) -> list[Any]:
    firsts = {array.shape[0] if array.ndim else None for array in feed.values()}
    if len(firsts) > 1 or None in firsts:
        shapes = ", ".join(f"{name} {'x'.join(map(str, array.shape))}" for name, array in feed.items())
        raise RequestError(
            f"Inputs without a common batch size cannot be sent as rows ({shapes}); set format=columnar."
        )
    if len(columns) == 1:
        return list(_without_name(columns))
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def arrays(reply: Reply) -> Feed:
    """Return predictions (rows) or outputs (columns)."""
    response = clients_messages.read_json_object(reply)
    if response.get("error"):
        raise ValueError(f"the server answered: {clients_messages.error_message(reply.body)}")
    if not {"predictions", "outputs"} & response.keys():
        raise ValueError("the answer has neither predictions nor outputs")
    if "outputs" in response:
        columns = (
            response["outputs"] if isinstance(response["outputs"], dict) else {_OUTPUT: response["outputs"]}
        )
        named = columns if not _is_bytes(columns) else {_OUTPUT: columns}
        return {str(name): _array(str(name), values) for name, values in named.items()}
    rows = response["predictions"]
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
    return tensors.from_values(name, _decode_base64(name, values), None, None)


def _decode_base64(name: str, values: Any) -> Any:
    if isinstance(values, list):
        return [_decode_base64(name, value) for value in values]
    if not _is_bytes(values):
        return values
    try:
        return base64.b64decode(values["b64"], validate=True)
    except (ValueError, TypeError):
        raise ValueError(f"output '{name}' holds bytes that are not base64") from None


tokens = clients_messages.no_tokens


def greeting(endpoint: Endpoint) -> Target | None:
    """Return the request for the model's status."""
    if not endpoint.model:
        return None
    return clients_messages.get_target(NAME, endpoint, clients_messages.model_path(endpoint, "/v1/models/"))


def recognised(reply: Reply) -> ServerInfo | None:
    """Return the server by its model status: per version in TensorFlow Serving, ready or not in KServe."""
    status = clients_messages.json_object_or_empty(reply)
    if _reports_unknown_model(reply) or isinstance(status.get("model_version_status"), list):
        return ServerInfo(name="tensorflow serving")
    return ServerInfo(name="kserve") if {"name", "ready"} <= status.keys() else None


def _reports_unknown_model(reply: Reply) -> bool:
    """Return whether TensorFlow Serving reports that it has no such model."""
    message = clients_messages.error_message(reply.body)
    return reply.status == _NOT_FOUND and any(phrase in message for phrase in _UNKNOWN)


def described(endpoint: Endpoint) -> Target:
    """Return the request for the model's signatures."""
    return clients_messages.get_target(
        NAME, endpoint, clients_messages.model_path(endpoint, "/v1/models/") + "/metadata"
    )


def inputs(reply: Reply | None, endpoint: Endpoint) -> tuple[InputSpec, ...]:
    """Return the inputs of the signature; empty for KServe, which has no such path."""
    if reply is None or (reply.status == _NOT_FOUND and not _reports_unknown_model(reply)):
        return ()
    metadata = clients_messages.read_json(reply)
    try:
        signatures = metadata["metadata"]["signature_def"]["signature_def"]
    except (KeyError, TypeError):
        raise ValueError("the server's description of the model has no signatures") from None
    return tensorflow.signature_inputs(signatures, str(endpoint.options.get("signature", "")))
