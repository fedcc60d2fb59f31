"""``tensorflow-grpc``: TensorFlow Serving's Predict over gRPC, with tensors as raw bytes.

The option ``signature`` selects a signature other than the model's default.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from modeldyno.base.errors import RequestError
from modeldyno.engine.interfaces.request_target import ServerInfo, Transport
from modeldyno.serving.clients import messages as clients_messages
from modeldyno.serving.clients import protobuf, tensorflow, tensors

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy import ndarray

    from modeldyno.base.job.input_spec import InputSpec
    from modeldyno.engine.interfaces.request_target import Endpoint, Reply, Target
    from modeldyno.models.interface import Feed
    from modeldyno.serving.clients.protobuf import Schema

requires: tuple[str, ...] = ()
transport = Transport.GRPC
SERVICE = "/tensorflow.serving.PredictionService/"

NAME = "tensorflow-grpc"
DIMENSION: Schema = {1: ("size", "int64"), 2: ("name", "string")}
SHAPE: Schema = {2: ("dim", [DIMENSION]), 3: ("unknown_rank", "bool")}
TENSOR: Schema = {
    1: ("dtype", "int32"),
    2: ("tensor_shape", SHAPE),
    4: ("tensor_content", "bytes"),
    5: ("float_val", ["float"]),
    6: ("double_val", ["double"]),
    7: ("int_val", ["int32"]),
    8: ("string_val", ["bytes"]),
    10: ("int64_val", ["int64"]),
    11: ("bool_val", ["bool"]),
    13: ("half_val", ["int32"]),
    16: ("uint32_val", ["uint32"]),
    17: ("uint64_val", ["uint64"]),
}
NAMED: Schema = {1: ("key", "string"), 2: ("value", TENSOR)}
MODEL: Schema = {
    1: ("name", "string"),
    2: ("version", {1: ("value", "int64")}),
    3: ("signature_name", "string"),
}
REQUEST: Schema = {1: ("model_spec", MODEL), 2: ("inputs", [NAMED])}
RESPONSE: Schema = {1: ("outputs", [NAMED])}
METADATA_REQUEST: Schema = {1: ("model_spec", MODEL), 2: ("metadata_field", ["string"])}
ANY: Schema = {1: ("type_url", "string"), 2: ("value", "bytes")}
METADATA: Schema = {2: ("metadata", [{1: ("key", "string"), 2: ("value", ANY)}])}
INFO: Schema = {2: ("dtype", "int32"), 3: ("tensor_shape", SHAPE)}
SIGNATURE: Schema = {1: ("inputs", [{1: ("key", "string"), 2: ("value", INFO)}])}
SIGNATURES: Schema = {1: ("signature_def", [{1: ("key", "string"), 2: ("value", SIGNATURE)}])}
_HALVES = {"float16", "bfloat16"}
_NOT_FOUND = 5
_REPEAT_LIMIT = 1 << 26
"""Maximum number of elements that a single value is repeated for."""


def target(feeds: Sequence[Feed], endpoint: Endpoint) -> Target:
    """Turn each payload into a predict request.

    Raises:
        RequestError: the protocol cannot carry an input, or the version is not a number.
    """
    model = _model(endpoint, str(endpoint.options.get("signature", "")))
    messages = [
        protobuf.encode(
            REQUEST,
            {
                "model_spec": model,
                "inputs": [
                    {"key": name, "value": _tensor(name, array)}
                    for name, array in tensors.require_inputs(feed, tensorflow.EXAMPLE).items()
                ],
            },
        )
        for feed in feeds
    ]
    return clients_messages.grpc_target(NAME, endpoint, f"{SERVICE}Predict", messages)


def _model(endpoint: Endpoint, signature: str = "") -> dict[str, Any]:
    version = endpoint.version
    if version and not version.isdecimal():
        raise RequestError(f"TensorFlow Serving's model versions are numbers, but this one is '{version}'.")
    return {
        "name": clients_messages.require_model(endpoint),
        "version": {"value": int(version)} if version else None,
        "signature_name": signature,
    }


def _tensor(name: str, array: ndarray) -> dict[str, Any]:
    text = tensors.dtype_name(array) == tensors.TEXT
    return {
        "dtype": tensorflow.dtype_number(name, array),
        "tensor_shape": {"dim": [{"size": size} for size in array.shape]},
        **(
            {"string_val": tensors.to_elements(name, array)}
            if text
            else {"tensor_content": tensors.to_raw(array)}
        ),
    }


def arrays(reply: Reply) -> Feed:
    """Return the outputs of a reply, from raw bytes or from typed values."""
    clients_messages.check_grpc_status(reply)
    outputs = protobuf.decode(RESPONSE, reply.body)["outputs"]
    if not outputs:
        raise ValueError("the answer has no outputs")
    return {entry["key"]: _array(entry["key"], entry["value"] or {}) for entry in outputs}


def _array(name: str, tensor: dict[str, Any]) -> ndarray:
    dtype = tensorflow.BY_NUMBER.get(tensor.get("dtype", 0))
    if dtype is None:
        raise ValueError(f"output '{name}' has the unknown dtype number {tensor.get('dtype', 0)}")
    shape = [dim["size"] for dim in (tensor["tensor_shape"] or {"dim": ()})["dim"]]
    if tensor["tensor_content"] and dtype != tensors.TEXT:
        return tensors.from_raw(name, tensor["tensor_content"], dtype, shape)
    return _from_values(name, tensor, dtype, shape)


def _from_values(name: str, tensor: dict[str, Any], dtype: str, shape: list[int]) -> ndarray:
    """Decode values from the list of their type; the last value is repeated for missing ones."""
    values: list[Any] = next(
        (tensor[field] for field in tensor if field.endswith("_val") and tensor[field]), []
    )
    missing = math.prod(shape) - len(values)
    if missing > 0 and values and missing < _REPEAT_LIMIT:
        values = [*values, *values[-1:] * missing]
    if dtype == tensors.TEXT:
        return tensors.from_elements(name, values, shape)
    if dtype in _HALVES:
        data = b"".join((value & 0xFFFF).to_bytes(2, "little") for value in values)
        return tensors.from_raw(name, data, dtype, shape)
    return tensors.from_values(name, values, dtype, shape)


tokens = clients_messages.no_tokens


def greeting(endpoint: Endpoint) -> Target | None:
    """Return the request for the model's signatures, the only one that the service answers cheaply."""
    return described(endpoint) if endpoint.model else None


def recognised(reply: Reply) -> ServerInfo | None:
    """Return TensorFlow Serving if the reply holds signatures or its error mentions a servable."""
    unknown = reply.status == _NOT_FOUND and "Servable" in clients_messages.header_value(
        reply, "grpc-message"
    )
    try:
        return ServerInfo(name="tensorflow serving") if unknown or _signatures(reply) else None
    except ValueError:
        return None


def described(endpoint: Endpoint) -> Target:
    """Return the request for the model's signatures."""
    request = {"model_spec": _model(endpoint), "metadata_field": ["signature_def"]}
    body = protobuf.encode(METADATA_REQUEST, request)
    return clients_messages.grpc_target(NAME, endpoint, f"{SERVICE}GetModelMetadata", [body])


def inputs(reply: Reply | None, endpoint: Endpoint) -> tuple[InputSpec, ...]:
    """Return the inputs of the signature."""
    if reply is None:
        return ()
    return tensorflow.signature_inputs(_signatures(reply), str(endpoint.options.get("signature", "")))


def _signatures(reply: Reply) -> dict[str, Any]:
    clients_messages.check_grpc_status(reply)
    metadata = {
        entry["key"]: entry["value"] or {} for entry in protobuf.decode(METADATA, reply.body)["metadata"]
    }
    data = metadata.get("signature_def", {}).get("value", b"")
    return {
        entry["key"]: {
            "inputs": {
                item["key"]: item["value"] or {} for item in (entry["value"] or {"inputs": ()})["inputs"]
            }
        }
        for entry in protobuf.decode(SIGNATURES, data)["signature_def"]
    }
