"""``kserve-grpc``: the Open Inference Protocol (version 2) over gRPC, with tensors as raw bytes."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from modeldyno.engine.interfaces.request_target import ServerInfo, Transport
from modeldyno.serving.clients import kserve, protobuf, tensors
from modeldyno.serving.clients import messages as clients_messages
from modeldyno.serving.interfaces.client import SINGLE_SEQUENCE
from modeldyno.serving.servers import triton_stats

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy import ndarray

    from modeldyno.base.job.input_spec import InputSpec
    from modeldyno.engine.interfaces.request_target import Endpoint, Reply, Target
    from modeldyno.engine.interfaces.server_stats import ServerCounters
    from modeldyno.models.interface import Feed
    from modeldyno.serving.clients.protobuf import Schema

requires: tuple[str, ...] = ()
transport = Transport.GRPC
SERVICE = "/inference.GRPCInferenceService/"

NAME = "kserve-grpc"
CONTENTS: Schema = {
    1: ("bool_contents", ["bool"]),
    2: ("int_contents", ["int32"]),
    3: ("int64_contents", ["int64"]),
    4: ("uint_contents", ["uint32"]),
    5: ("uint64_contents", ["uint64"]),
    6: ("fp32_contents", ["float"]),
    7: ("fp64_contents", ["double"]),
    8: ("bytes_contents", ["bytes"]),
}
DESCRIBED: Schema = {1: ("name", "string"), 2: ("datatype", "string"), 3: ("shape", ["int64"])}
PARAMETER: Schema = {
    1: ("key", "string"),
    2: ("value", {2: ("int64_param", "int64?"), 3: ("string_param", "string?")}),
}
TENSOR: Schema = {**DESCRIBED, 4: ("parameters", [PARAMETER]), 5: ("contents", CONTENTS)}
REQUEST: Schema = {
    1: ("model_name", "string"),
    2: ("model_version", "string"),
    3: ("id", "string"),
    5: ("inputs", [TENSOR]),
    6: ("outputs", [{1: ("name", "string"), 2: ("parameters", [PARAMETER])}]),
    7: ("raw_input_contents", ["bytes"]),
}
RESPONSE: Schema = {
    1: ("model_name", "string"),
    2: ("model_version", "string"),
    5: ("outputs", [TENSOR]),
    6: ("raw_output_contents", ["bytes"]),
}
MODEL: Schema = {1: ("name", "string"), 2: ("version", "string")}
METADATA: Schema = {1: ("name", "string"), 2: ("versions", ["string"]), 4: ("inputs", [DESCRIBED])}
SERVER: Schema = {1: ("name", "string"), 2: ("version", "string"), 3: ("extensions", ["string"])}
REGION: Schema = {
    1: ("name", "string"),
    2: ("key", "string"),
    3: ("offset", "uint64"),
    4: ("byte_size", "uint64"),
}
INDEX_OF: Schema = {2: ("ready", "bool")}
INDEX: Schema = {1: ("models", [{1: ("name", "string"), 3: ("state", "string")}])}
_READY = {"ready": True}

DURATION: Schema = {1: ("count", "uint64"), 2: ("ns", "uint64")}
STAGES: Schema = {
    1: ("success", DURATION),
    2: ("fail", DURATION),
    3: ("queue", DURATION),
    4: ("compute_input", DURATION),
    5: ("compute_infer", DURATION),
    6: ("compute_output", DURATION),
}
BATCH: Schema = {1: ("batch_size", "uint64"), 3: ("compute_infer", DURATION)}
STATISTICS: Schema = {
    1: (
        "model_stats",
        [
            {
                1: ("name", "string"),
                4: ("inference_count", "uint64"),
                5: ("execution_count", "uint64"),
                6: ("inference_stats", STAGES),
                7: ("batch_stats", [BATCH]),
            }
        ],
    )
}


def target(feeds: Sequence[Feed], endpoint: Endpoint) -> Target:
    """Turn each payload into an inference request.

    Raises:
        RequestError: the protocol cannot carry an input.
    """
    return clients_messages.grpc_target(NAME, endpoint, f"{SERVICE}ModelInfer", _messages(feeds, endpoint))


def _messages(feeds: Sequence[Feed], endpoint: Endpoint) -> list[bytes]:
    if region := str(endpoint.options.get("region", "")):
        return [
            _request(
                endpoint,
                feed,
                kserve.region_parameters(region, places),
                kserve.output_parameters(endpoint, number),
            )
            for number, (feed, places) in enumerate(kserve.places_in_region(feeds))
        ]
    return [_request(endpoint, feed) for feed in feeds]


memory_content = kserve.region_content


def register_memory(endpoint: Endpoint, region: str, key: str, size: int) -> Target:
    """Return the request that registers a region of system shared memory, a Triton extension."""
    request = protobuf.encode(REGION, {"name": region, "key": key, "byte_size": size})
    return clients_messages.grpc_target(NAME, endpoint, f"{SERVICE}SystemSharedMemoryRegister", [request])


def unregister_memory(endpoint: Endpoint, region: str) -> Target:
    """Return the request that unregisters a region."""
    request = protobuf.encode(REGION, {"name": region})
    return clients_messages.grpc_target(NAME, endpoint, f"{SERVICE}SystemSharedMemoryUnregister", [request])


check_memory = clients_messages.check_grpc_status


numbered_target = partial(kserve.numbered_target, target)


def sequence_target(feeds: Sequence[Feed], endpoint: Endpoint) -> Target:
    """Turn each payload into an inference request that ends with the mark of a sequence.

    Raises:
        RequestError: the protocol cannot carry an input.
    """
    kserve.check_sequences(endpoint)
    plain = target(feeds, endpoint)
    mark = sequence_mark(SINGLE_SEQUENCE, first=True, last=True)
    return replace(
        plain,
        messages=tuple(message + mark for message in plain.messages),
        marks=tuple(map(len, plain.messages)),
    )


def sequence_mark(number: int, *, first: bool, last: bool) -> bytes:
    """Return the parameters of a request in a sequence; numbers have a constant length, with bits of 0."""
    digits = bytes((number >> shift) & 0x7F | 0x80 for shift in range(0, 28, 7))
    return b"".join(
        _PARAMETERS + bytes((4 + len(name) + len(value),)) + b"\x0a" + bytes((len(name),)) + name
        + b"\x12" + bytes((len(value),)) + value
        for name, value in (
            (b"sequence_id", b"\x10" + digits + bytes((number >> 28,))),
            (b"sequence_start", bytes((8, first))),
            (b"sequence_end", bytes((8, last))),
        )
    )  # fmt: skip


_PARAMETERS = b"\x22"
"""Tag of an entry of the request's parameters, field 4."""


def _request(
    endpoint: Endpoint,
    feed: Feed,
    shared: Mapping[str, Mapping[str, str | int]] = MappingProxyType({}),
    outputs: Mapping[str, Mapping[str, str | int]] = MappingProxyType({}),
) -> bytes:
    tensors.require_inputs(feed, kserve.EXAMPLE)
    inputs = [
        {
            "name": name,
            "datatype": kserve.datatype(name, array),
            "shape": array.shape,
            "parameters": _parameters(shared.get(name, {})),
        }
        for name, array in feed.items()
    ]
    raw = [] if shared else [kserve.to_bytes(name, array) for name, array in feed.items()]
    request = {
        "model_name": clients_messages.require_model(endpoint),
        "model_version": endpoint.version,
        "id": endpoint.options.get("id", ""),
        "inputs": inputs,
        "outputs": [{"name": name, "parameters": _parameters(place)} for name, place in outputs.items()],
        "raw_input_contents": raw,
    }
    return protobuf.encode(REQUEST, request)


def _parameters(values: Mapping[str, str | int]) -> list[dict[str, Any]]:
    return [
        {"key": key, "value": {f"{'string' if isinstance(value, str) else 'int64'}_param": value}}
        for key, value in values.items()
    ]


def memory_arrays(reply: Reply, endpoint: Endpoint, memory: memoryview) -> Feed:
    """Return the outputs of a reply that the server wrote into a region."""
    clients_messages.check_grpc_status(reply)
    outputs = protobuf.decode(RESPONSE, reply.body)["outputs"]
    described = [(output["name"], output["datatype"], output["shape"]) for output in outputs]
    return kserve.region_arrays(described, kserve.output_places(endpoint, reply.message), memory)


def arrays(reply: Reply) -> Feed:
    """Return the outputs of a reply, from raw bytes or from typed contents."""
    clients_messages.check_grpc_status(reply)
    response = protobuf.decode(RESPONSE, reply.body)
    outputs, raw = response["outputs"], response["raw_output_contents"]
    if not outputs:
        raise ValueError("the answer has no outputs")
    if raw and len(raw) != len(outputs):
        raise ValueError(f"the answer has {len(outputs)} outputs but raw bytes for {len(raw)}")
    if not raw:
        return {output["name"]: _from_typed_contents(output) for output in outputs}
    return {
        output["name"]: kserve.from_bytes(output["name"], data, output["datatype"], output["shape"])
        for output, data in zip(outputs, raw, strict=True)
    }


def _from_typed_contents(output: dict[str, Any]) -> ndarray:
    """Decode an output from the content list of its type."""
    name, shape = output["name"], output["shape"]
    dtype = kserve.dtype_of(name, output["datatype"])
    contents = output["contents"] or {}
    if dtype == tensors.TEXT:
        return tensors.from_elements(name, contents.get("bytes_contents", ()), shape)
    values = next(filter(None, contents.values()), ())
    return tensors.from_values(name, values, dtype, shape)


tokens = clients_messages.no_tokens


def greeting(endpoint: Endpoint) -> Target:
    """Return the request for the server's metadata."""
    return clients_messages.grpc_target(NAME, endpoint, f"{SERVICE}ServerMetadata", [b""])


def recognised(reply: Reply) -> ServerInfo | None:
    """Return the server's name and version; None if the reply is not server metadata."""
    if reply.status:
        return None
    try:
        metadata = protobuf.decode(SERVER, reply.body)
    except ValueError:
        return None
    return ServerInfo(name=f"{metadata['name']} {metadata['version']}".strip())


def listing(endpoint: Endpoint) -> Target:
    """Return the request for the list of ready models, a Triton extension."""
    return clients_messages.grpc_target(
        NAME, endpoint, f"{SERVICE}RepositoryIndex", [protobuf.encode(INDEX_OF, _READY)]
    )


def listed(reply: Reply) -> tuple[str, ...]:
    """Return the model names in the reply; the index has one entry for each version of a model."""
    try:
        clients_messages.check_grpc_status(reply)
        return kserve.model_names(protobuf.decode(INDEX, reply.body)["models"])
    except ValueError:
        return ()


def described(endpoint: Endpoint) -> Target:
    """Return the request for the model's metadata."""
    request = protobuf.encode(
        MODEL, {"name": clients_messages.require_model(endpoint), "version": endpoint.version}
    )
    return clients_messages.grpc_target(NAME, endpoint, f"{SERVICE}ModelMetadata", [request])


def inputs(reply: Reply | None, endpoint: Endpoint) -> tuple[InputSpec, ...]:
    """Return the inputs in the model's metadata."""
    del endpoint
    if reply is None:
        return ()
    clients_messages.check_grpc_status(reply)
    return kserve.declared_inputs(protobuf.decode(METADATA, reply.body)["inputs"])


def statistics(endpoint: Endpoint) -> Target:
    """Return the request for the model's statistics, a Triton extension."""
    request = protobuf.encode(
        MODEL, {"name": clients_messages.require_model(endpoint), "version": endpoint.version}
    )
    return clients_messages.grpc_target(NAME, endpoint, f"{SERVICE}ModelStatistics", [request])


def account(reply: Reply, endpoint: Endpoint) -> ServerCounters:
    """Return the server's counters from its statistics."""
    del endpoint
    clients_messages.check_grpc_status(reply)
    return triton_stats.parse_statistics(protobuf.decode(STATISTICS, reply.body))
