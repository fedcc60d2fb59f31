"""``kserve-grpc``: the Open Inference Protocol (version 2) over gRPC, tensors as raw bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from modeldyno.adapters.clients import kserve, protobuf, tensors
from modeldyno.adapters.clients import messages as clients_messages
from modeldyno.core.load.request_target import Server, Transport
from modeldyno.servers import triton_stats

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy import ndarray

    from modeldyno.adapters.clients.protobuf import Schema
    from modeldyno.core.load.request_target import Endpoint, Reply, Target
    from modeldyno.core.load.server_stats import Account
    from modeldyno.core.spec.input_spec import InputSpec
    from modeldyno.interfaces import Feed

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
TENSOR: Schema = {**DESCRIBED, 5: ("contents", CONTENTS)}
REQUEST: Schema = {
    1: ("model_name", "string"),
    2: ("model_version", "string"),
    5: ("inputs", [TENSOR]),
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
    """Make each payload a request for inference.

    Raises:
        RequestError: the protocol cannot carry an input.
    """
    return clients_messages.grpc(
        NAME, endpoint, f"{SERVICE}ModelInfer", [_request(endpoint, feed) for feed in feeds]
    )


def _request(endpoint: Endpoint, feed: Feed) -> bytes:
    tensors.named(feed, kserve.EXAMPLE)
    inputs = [
        {"name": name, "datatype": kserve.datatype(name, array), "shape": array.shape}
        for name, array in feed.items()
    ]
    raw = [kserve.to_bytes(name, array) for name, array in feed.items()]
    request = {
        "model_name": clients_messages.model(endpoint),
        "model_version": endpoint.version,
        "inputs": inputs,
        "raw_input_contents": raw,
    }
    return protobuf.encode(REQUEST, request)


def arrays(reply: Reply) -> Feed:
    """Read the outputs, from raw bytes or from typed contents."""
    clients_messages.check_grpc(reply)
    found = protobuf.decode(RESPONSE, reply.body)
    outputs, raw = found["outputs"], found["raw_output_contents"]
    if not outputs:
        raise ValueError("the answer has no outputs")
    if raw and len(raw) != len(outputs):
        raise ValueError(f"the answer has {len(outputs)} outputs, and raw bytes of {len(raw)}")
    if not raw:
        return {output["name"]: _typed(output) for output in outputs}
    return {
        output["name"]: kserve.from_bytes(output["name"], data, output["datatype"], output["shape"])
        for output, data in zip(outputs, raw, strict=True)
    }


def _typed(output: dict[str, Any]) -> ndarray:
    """Read an output from the list of its own type."""
    name, shape = output["name"], output["shape"]
    dtype = kserve.dtype_of(name, output["datatype"])
    contents = output["contents"] or {}
    if dtype == tensors.TEXT:
        return tensors.from_elements(name, contents.get("bytes_contents", ()), shape)
    values = next(filter(None, contents.values()), ())
    return tensors.from_values(name, values, dtype, shape)


def tokens(reply: Reply) -> int:
    """Tell nothing: the protocol has no tokens."""
    del reply
    return -1


def greeting(endpoint: Endpoint) -> Target:
    """Ask the server what it is."""
    return clients_messages.grpc(NAME, endpoint, f"{SERVICE}ServerMetadata", [b""])


def recognised(reply: Reply) -> Server | None:
    """Read what it is."""
    if reply.status:
        return None
    try:
        found = protobuf.decode(SERVER, reply.body)
    except ValueError:
        return None
    return Server(name=f"{found['name']} {found['version']}".strip())


def listing(endpoint: Endpoint) -> Target:
    """Ask for the models that are ready, an extension that Triton has."""
    return clients_messages.grpc(
        NAME, endpoint, f"{SERVICE}RepositoryIndex", [protobuf.encode(INDEX_OF, _READY)]
    )


def listed(reply: Reply) -> tuple[str, ...]:
    """Read their names; a model has an entry for each of its versions."""
    try:
        clients_messages.check_grpc(reply)
        return kserve.names(protobuf.decode(INDEX, reply.body)["models"])
    except ValueError:
        return ()


def described(endpoint: Endpoint) -> Target:
    """Ask for the model's metadata."""
    asked = protobuf.encode(MODEL, {"name": clients_messages.model(endpoint), "version": endpoint.version})
    return clients_messages.grpc(NAME, endpoint, f"{SERVICE}ModelMetadata", [asked])


def inputs(reply: Reply | None, endpoint: Endpoint) -> tuple[InputSpec, ...]:
    """Read the inputs in the metadata."""
    del endpoint
    if reply is None:
        return ()
    clients_messages.check_grpc(reply)
    return kserve.declared(protobuf.decode(METADATA, reply.body)["inputs"])


def statistics(endpoint: Endpoint) -> Target:
    """Ask for the model's statistics, an extension that Triton has."""
    asked = protobuf.encode(MODEL, {"name": clients_messages.model(endpoint), "version": endpoint.version})
    return clients_messages.grpc(NAME, endpoint, f"{SERVICE}ModelStatistics", [asked])


def account(reply: Reply, endpoint: Endpoint) -> Account:
    """Read the statistics."""
    del endpoint
    clients_messages.check_grpc(reply)
    return triton_stats.account(protobuf.decode(STATISTICS, reply.body))
