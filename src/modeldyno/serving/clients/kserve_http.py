"""``kserve-http``: the Open Inference Protocol (version 2) over HTTP, for Triton, MLServer and KServe.

The option ``binary`` (default true) sends and requests tensors as raw bytes after the JSON, an extension that
Triton and KServe support; MLServer needs ``binary=false``, which puts tensors into the JSON as numbers.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from modeldyno.base.errors import RequestError
from modeldyno.engine.interfaces.request_target import ServerInfo, Transport
from modeldyno.serving.clients import kserve, tensors
from modeldyno.serving.clients import messages as clients_messages
from modeldyno.serving.interfaces.client import SINGLE_SEQUENCE
from modeldyno.serving.servers import triton_stats

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy import ndarray

    from modeldyno.base.job.input_spec import InputSpec
    from modeldyno.engine.interfaces.request_target import Endpoint, Reply, Target
    from modeldyno.engine.interfaces.server_stats import ServerCounters
    from modeldyno.models.interface import Feed

requires: tuple[str, ...] = ()
transport = Transport.HTTP

NAME = "kserve-http"
JSON_LENGTH = "Inference-Header-Content-Length"
"""Header with the length of the JSON; the raw bytes follow it."""
_BINARY = "binary_tensor_data"
"""Name of the raw bytes extension in a server's metadata."""
_INSTEAD = "set binary=true if the server supports it"


def target(feeds: Sequence[Feed], endpoint: Endpoint) -> Target:
    """Turn each payload into an inference request.

    Raises:
        RequestError: the protocol cannot carry an input.
    """
    return clients_messages.http_target(NAME, endpoint, _messages(feeds, endpoint))


def _messages(feeds: Sequence[Feed], endpoint: Endpoint, mark: bytes = b"") -> list[bytes]:
    path = clients_messages.model_path(endpoint, "/v2/models/") + "/infer"
    if region := str(endpoint.options.get("region", "")):
        return [
            _shared_request(endpoint, path, feed, kserve.region_parameters(region, places), mark, number)
            for number, (feed, places) in enumerate(kserve.places_in_region(feeds))
        ]
    make = _binary_request if endpoint.options.get("binary", True) else _json_request
    return [make(endpoint, path, feed, mark) for feed in feeds]


numbered_target = partial(kserve.numbered_target, target)


def sequence_target(feeds: Sequence[Feed], endpoint: Endpoint) -> Target:
    """Turn each payload into an inference request with the mark of a sequence.

    Raises:
        RequestError: the protocol cannot carry an input.
    """
    kserve.check_sequences(endpoint)
    mark = sequence_mark(SINGLE_SEQUENCE, first=True, last=True)
    messages = _messages(feeds, endpoint, mark)
    return clients_messages.http_target(
        NAME, endpoint, messages, marks=[message.index(mark) for message in messages]
    )


def sequence_mark(number: int, *, first: bool, last: bool) -> bytes:
    """Return the parameters of a request in a sequence, padded to a constant length."""
    start, end = (json.dumps(flag).ljust(5) for flag in (first, last))
    return f'"sequence_id":{number:10},"sequence_start":{start},"sequence_end":{end}'.encode()


def _json_request(endpoint: Endpoint, path: str, feed: Feed, mark: bytes = b"") -> bytes:
    inputs = [
        {**_tensor_header(name, array), "data": _json_data(name, array)}
        for name, array in tensors.require_inputs(feed, kserve.EXAMPLE).items()
    ]
    return clients_messages.post_request(
        endpoint, path, _encode({**_id(endpoint), "inputs": inputs}, {}, mark)
    )


def _encode(request: dict[str, Any], parameters: dict[str, Any], mark: bytes) -> bytes:
    """Encode a request; its parameters begin with the mark, if there is any."""
    if not (mark or parameters):
        return clients_messages.encode_json(request, instead=_INSTEAD)
    fields = json.dumps(parameters, separators=(",", ":")).encode()[1:-1]
    request_bytes = clients_messages.encode_json(request, instead=_INSTEAD)[1:]
    return b'{"parameters":{%s},%s' % (b",".join(filter(None, (mark, fields))), request_bytes)


def _binary_request(endpoint: Endpoint, path: str, feed: Feed, mark: bytes = b"") -> bytes:
    raw = {
        name: kserve.to_bytes(name, array)
        for name, array in tensors.require_inputs(feed, kserve.EXAMPLE).items()
    }
    inputs = [
        {**_tensor_header(name, array), "parameters": {"binary_data_size": len(raw[name])}}
        for name, array in feed.items()
    ]
    head = _encode({**_id(endpoint), "inputs": inputs}, {"binary_data_output": True}, mark)
    return clients_messages.post_request(
        endpoint,
        path,
        b"".join((head, *raw.values())),
        kind=clients_messages.OCTETS,
        headers={JSON_LENGTH: str(len(head))},
    )


def _shared_request(
    endpoint: Endpoint, path: str, feed: Feed, parameters: Mapping[str, Any], mark: bytes, number: int
) -> bytes:
    inputs = [{**_tensor_header(name, array), "parameters": parameters[name]} for name, array in feed.items()]
    request: dict[str, Any] = {**_id(endpoint), "inputs": inputs}
    output: dict[str, Any] = {}
    if places := kserve.output_parameters(endpoint, number):
        request["outputs"] = [{"name": name, "parameters": place} for name, place in places.items()]
    elif endpoint.options.get("binary", True):
        output = {"binary_data_output": True}
    return clients_messages.post_request(endpoint, path, _encode(request, output, mark))


def _id(endpoint: Endpoint) -> dict[str, str]:
    return {"id": str(endpoint.options["id"])} if "id" in endpoint.options else {}


def memory_arrays(reply: Reply, endpoint: Endpoint, memory: memoryview) -> Feed:
    """Return the outputs of a reply that the server wrote into a region."""
    entries, _ = _entries(reply)
    try:
        outputs = [
            (str(entry["name"]), entry["datatype"], [int(size) for size in entry["shape"]])
            for entry in entries
        ]
    except (KeyError, TypeError, AttributeError):
        raise ValueError("an output lacks name, datatype or shape") from None
    return kserve.region_arrays(outputs, kserve.output_places(endpoint, reply.message), memory)


memory_content = kserve.region_content


def register_memory(endpoint: Endpoint, region: str, key: str, size: int) -> Target:
    """Return the request that registers a region of system shared memory, a Triton extension."""
    body = json.dumps({"key": key, "offset": 0, "byte_size": size}).encode()
    return _region_request(endpoint, f"{region}/register", body)


def unregister_memory(endpoint: Endpoint, region: str) -> Target:
    """Return the request that unregisters a region."""
    return _region_request(endpoint, f"{region}/unregister", b"")


def _region_request(endpoint: Endpoint, path: str, body: bytes) -> Target:
    plain = replace(endpoint, options={})
    message = clients_messages.post_request(plain, f"/v2/systemsharedmemory/region/{path}", body)
    return clients_messages.http_target(NAME, plain, [message])


check_memory = clients_messages.check_http_status


def _tensor_header(name: str, array: ndarray) -> dict[str, Any]:
    return {"name": name, "shape": list(array.shape), "datatype": kserve.datatype(name, array)}


def _json_data(name: str, array: ndarray) -> Any:
    if tensors.dtype_name(array) == tensors.BFLOAT16:
        raise RequestError(f"The input '{name}' is bfloat16, which JSON cannot carry: {_INSTEAD}.")
    return tensors.to_lists(name, array.reshape(-1))


def arrays(reply: Reply) -> Feed:
    """Return the outputs of a reply, from JSON or from the bytes after it."""
    entries, raw = _entries(reply)
    try:
        return dict(_outputs(entries, raw))
    except (KeyError, TypeError, AttributeError):
        raise ValueError("an output lacks name, datatype, shape or data") from None


def _entries(reply: Reply) -> tuple[list[Any], memoryview]:
    """Return what the JSON of a reply says of its outputs, and the bytes after it."""
    clients_messages.check_http_status(reply)
    answer = clients_messages.plain_body(reply)
    length = clients_messages.header_value(reply, JSON_LENGTH)
    if length and not (length.isdigit() and int(length) <= len(answer)):
        raise ValueError(f"the header {JSON_LENGTH} is {length!r}, but the answer has {len(answer):,} bytes")
    end = int(length) if length else len(answer)
    head = clients_messages.parse_json(answer[:end])
    entries = head.get("outputs") if isinstance(head, dict) else None
    if not isinstance(entries, list) or not entries:
        raise ValueError("the answer has no outputs")
    return entries, memoryview(answer)[end:]


def _outputs(entries: list[Any], raw: memoryview) -> Iterator[tuple[str, ndarray]]:
    position = 0
    for entry in entries:
        name, kind, shape = str(entry["name"]), entry["datatype"], [int(size) for size in entry["shape"]]
        size = (entry.get("parameters") or {}).get("binary_data_size")
        if size is None:
            yield name, tensors.from_values(name, entry["data"], kserve.dtype_of(name, kind), shape)
            continue
        if not 0 <= size <= len(raw) - position:
            left = len(raw) - position
            raise ValueError(f"output '{name}' should have {size:,} bytes, but only {left:,} are left")
        yield name, kserve.from_bytes(name, raw[position : position + size], kind, shape)
        position += size
    if position != len(raw):
        raise ValueError(f"{len(raw) - position:,} bytes of the answer belong to no output")


tokens = clients_messages.no_tokens


def greeting(endpoint: Endpoint) -> Target:
    """Return the request for the server's metadata."""
    return clients_messages.get_target(NAME, endpoint, "/v2")


def recognised(reply: Reply) -> ServerInfo | None:
    """Return the server's name and version, and whether it supports raw bytes."""
    metadata = clients_messages.json_object_or_empty(reply)
    if not isinstance(metadata.get("name"), str) or "version" not in metadata:
        return None
    options = {"binary": _BINARY in (metadata.get("extensions") or ())}
    return ServerInfo(name=f"{metadata['name']} {metadata['version']}", options=options)


def listing(endpoint: Endpoint) -> Target:
    """Return the request for the list of ready models, an extension of Triton and MLServer."""
    return clients_messages.http_target(
        NAME, endpoint, [clients_messages.post_request(endpoint, "/v2/repository/index", b'{"ready":true}')]
    )


def listed(reply: Reply) -> tuple[str, ...]:
    """Return the model names in the reply; the index has one entry for each version of a model."""
    try:
        return kserve.model_names(clients_messages.read_json(reply))
    except (ValueError, TypeError, AttributeError):
        return ()


def described(endpoint: Endpoint) -> Target:
    """Return the request for the model's metadata."""
    return clients_messages.get_target(NAME, endpoint, clients_messages.model_path(endpoint, "/v2/models/"))


def inputs(reply: Reply | None, endpoint: Endpoint) -> tuple[InputSpec, ...]:
    """Return the inputs in the model's metadata."""
    del endpoint
    if reply is None:
        return ()
    return kserve.declared_inputs(clients_messages.read_json_object(reply).get("inputs") or ())


def statistics(endpoint: Endpoint) -> Target:
    """Return the request for the model's statistics, a Triton extension."""
    return clients_messages.get_target(
        NAME, endpoint, clients_messages.model_path(endpoint, "/v2/models/") + "/stats"
    )


def account(reply: Reply, endpoint: Endpoint) -> ServerCounters:
    """Return the server's counters from its statistics."""
    del endpoint
    return triton_stats.parse_statistics(clients_messages.read_json_object(reply))
