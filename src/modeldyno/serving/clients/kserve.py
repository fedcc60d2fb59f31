"""Shared parts of the Open Inference Protocol (version 2) clients, for HTTP and gRPC."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from modeldyno.base.errors import RequestError
from modeldyno.base.job.input_spec import InputSpec
from modeldyno.engine.interfaces.request_target import request_id
from modeldyno.serving.clients import tensors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from numpy import ndarray

    from modeldyno.engine.interfaces.request_target import Endpoint, Target
    from modeldyno.models.interface import Feed

DATATYPES = {
    "bool": "BOOL", "uint8": "UINT8", "uint16": "UINT16", "uint32": "UINT32", "uint64": "UINT64",
    "int8": "INT8", "int16": "INT16", "int32": "INT32", "int64": "INT64", "float16": "FP16",
    "bfloat16": "BF16", "float32": "FP32", "float64": "FP64", "string": "BYTES",
}  # fmt: skip
"""ModelDyno's dtype name to the protocol's."""
DTYPES = {datatype: dtype for dtype, datatype in DATATYPES.items()}
EXAMPLE = "`inputs=name=1x4:float32`"
_LENGTH = 4
"""Bytes of the length prefix of each BYTES element."""


_ANY_ID = str((1 << 64) - 1)
"""Stands in a message where the client writes an id, and nowhere else."""
assert len(_ANY_ID) == len(request_id(0))


def numbered_target(
    target: Callable[[Sequence[Feed], Endpoint], Target], feeds: Sequence[Feed], endpoint: Endpoint
) -> Target:
    """Turn each payload into an inference request with a place for its id.

    Raises:
        RequestError: the protocol cannot carry an input.
    """
    plain = target(feeds, replace(endpoint, options={**endpoint.options, "id": _ANY_ID}))
    places = tuple(message.index(_ANY_ID.encode()) for message in plain.messages)
    return replace(plain, marks=places, numbered=True)


def check_sequences(endpoint: Endpoint) -> None:
    """Refuse compressed requests of sequences.

    Raises:
        RequestError: requests are to be compressed.
    """
    if endpoint.options.get("compression"):
        raise RequestError(
            "Requests are compressed before the load, and those of sequences are written while it runs; "
            "leave out compression or `sequence`."
        )


def datatype(name: str, array: ndarray) -> str:
    """Return the protocol's name for an input's type.

    Raises:
        RequestError: the protocol has no such type.
    """
    protocol_type = DATATYPES.get(tensors.dtype_name(array))
    if protocol_type is None:
        raise RequestError(
            f"The input '{name}' is {array.dtype}, which the Open Inference Protocol cannot carry."
        )
    return protocol_type


def to_bytes(name: str, array: ndarray) -> bytes:
    """Encode a tensor as raw bytes."""
    if tensors.dtype_name(array) != tensors.TEXT:
        return tensors.to_raw(array)
    items = tensors.to_elements(name, array)
    return b"".join(part for item in items for part in (len(item).to_bytes(_LENGTH, "little"), item))


def region_content(feeds: Sequence[Feed]) -> bytes:
    """Return all inputs of all payloads as raw bytes, one after the other."""
    return b"".join(to_bytes(name, array) for feed in feeds for name, array in feed.items())


def places_in_region(feeds: Sequence[Feed]) -> Iterator[tuple[Feed, dict[str, tuple[int, int]]]]:
    """Yield each payload with the offset and the size of its inputs in `region_content`."""
    offset = 0
    for feed in feeds:
        places = {}
        for name, array in tensors.require_inputs(feed, EXAMPLE).items():
            places[name] = offset, len(to_bytes(name, array))
            offset += places[name][1]
        yield feed, places


def region_parameters(region: str, places: Mapping[str, tuple[int, int]]) -> dict[str, dict[str, str | int]]:
    """Return the parameters of each input that lies in a region; an offset of 0 is left out."""
    return {
        name: {
            "shared_memory_region": region,
            "shared_memory_byte_size": size,
            **({"shared_memory_offset": offset} if offset else {}),
        }
        for name, (offset, size) in places.items()
    }


OUTPUT_REGION, OUTPUT_SIZES = "output_region", "output_sizes"
"""Options of an Endpoint: the region that holds the outputs, and JSON of the bytes that each may have."""


def output_places(endpoint: Endpoint, message: int) -> dict[str, tuple[int, int]]:
    """Return the offset and the size of each output of a message; empty if they come with the answer."""
    if not endpoint.options.get(OUTPUT_REGION):
        return {}
    sizes: dict[str, int] = json.loads(str(endpoint.options[OUTPUT_SIZES]))
    offset, places = message * sum(sizes.values()), {}
    for name, size in sizes.items():
        places[name] = offset, size
        offset += size
    return places


def output_parameters(endpoint: Endpoint, message: int) -> dict[str, dict[str, str | int]]:
    """Return the parameters of each output of a message that the server is to write into the region."""
    return region_parameters(str(endpoint.options.get(OUTPUT_REGION, "")), output_places(endpoint, message))


def region_arrays(
    outputs: Iterable[tuple[str, Any, Sequence[int]]],
    places: Mapping[str, tuple[int, int]],
    memory: memoryview,
) -> Feed:
    """Decode outputs (name, type, shape) from a region; raise ValueError (a phrase) if they do not fit."""
    arrays = {}
    for name, kind, shape in outputs:
        if name not in places:
            raise ValueError(f"output '{name}' was not asked for in shared memory")
        offset, most = places[name]
        size = tensors.raw_size(name, dtype_of(name, kind), shape)
        if size > most:
            raise ValueError(f"output '{name}' has {size:,} bytes, but only {most:,} were set aside")
        arrays[name] = from_bytes(name, bytes(memory[offset : offset + size]), kind, shape)
    return arrays


def from_bytes(name: str, data: bytes | memoryview, kind: Any, shape: Sequence[int]) -> ndarray:
    """Decode a tensor from raw bytes; raise ValueError (a phrase) if they do not fit the shape."""
    dtype = dtype_of(name, kind)
    if dtype != tensors.TEXT:
        return tensors.from_raw(name, data, dtype, shape)
    items, position = [], 0
    while position < len(data):
        length = int.from_bytes(data[position : position + _LENGTH], "little")
        position += _LENGTH + length
        if position > len(data):
            raise ValueError(f"output '{name}' ends in the middle of an element")
        items.append(bytes(data[position - length : position]))
    return tensors.from_elements(name, items, shape)


def dtype_of(name: str, kind: Any) -> str:
    """Return ModelDyno's name for a protocol type; raise ValueError (a phrase) if the type is unknown."""
    if kind not in DTYPES:
        raise ValueError(f"'{name}' has the type {kind!r}, which the Open Inference Protocol does not define")
    return DTYPES[kind]


def model_names(index: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return the distinct model names in a repository index."""
    return tuple(dict.fromkeys(str(entry["name"]) for entry in index if entry.get("name")))


def declared_inputs(metadata: Iterable[Mapping[str, Any]]) -> tuple[InputSpec, ...]:
    """Return the inputs in a model's metadata; raise ValueError (a phrase) if they cannot be read."""
    try:
        return tuple(
            InputSpec(
                name=str(entry["name"]),
                shape=tensors.shape_of(str(entry["name"]), entry["shape"]),
                dtype=dtype_of(str(entry["name"]), entry["datatype"]),
            )
            for entry in metadata
        )
    except (KeyError, TypeError):
        raise ValueError("the server's description of the model lacks name, datatype or shape") from None
