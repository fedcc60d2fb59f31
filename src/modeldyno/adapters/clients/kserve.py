"""What the Open Inference Protocol (version 2) has in common over HTTP and gRPC."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from modeldyno.adapters.clients import tensors
from modeldyno.core.spec.input_spec import InputSpec
from modeldyno.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy import ndarray

DATATYPES = {
    "bool": "BOOL", "uint8": "UINT8", "uint16": "UINT16", "uint32": "UINT32", "uint64": "UINT64",
    "int8": "INT8", "int16": "INT16", "int32": "INT32", "int64": "INT64", "float16": "FP16",
    "bfloat16": "BF16", "float32": "FP32", "float64": "FP64", "string": "BYTES",
}  # fmt: skip
"""Our name of a dtype to the protocol's."""
DTYPES = {datatype: dtype for dtype, datatype in DATATYPES.items()}
EXAMPLE = "--input name=1x4:float32"
_LENGTH = 4
"""Bytes of the length that precedes each element of BYTES."""


def datatype(name: str, array: ndarray) -> str:
    """Name the type of an input.

    Raises:
        RequestError: the protocol has no such type.
    """
    found = DATATYPES.get(tensors.kind(array))
    if found is None:
        raise RequestError(
            f"The input '{name}' is {array.dtype}, which the Open Inference Protocol cannot carry."
        )
    return found


def to_bytes(name: str, array: ndarray) -> bytes:
    """Write a tensor as its raw bytes."""
    if tensors.kind(array) != tensors.TEXT:
        return tensors.raw(array)
    items = tensors.elements(name, array)
    return b"".join(part for item in items for part in (len(item).to_bytes(_LENGTH, "little"), item))


def from_bytes(name: str, data: bytes | memoryview, kind: Any, shape: Sequence[int]) -> ndarray:
    """Read a tensor from its raw bytes; raise ValueError, in a phrase, where they do not fit its shape."""
    dtype = dtype_of(name, kind)
    if dtype != tensors.TEXT:
        return tensors.from_raw(name, data, dtype, shape)
    items, at = [], 0
    while at < len(data):
        length = int.from_bytes(data[at : at + _LENGTH], "little")
        at += _LENGTH + length
        if at > len(data):
            raise ValueError(f"output '{name}' ends within an element")
        items.append(bytes(data[at - length : at]))
    return tensors.from_elements(name, items, shape)


def dtype_of(name: str, kind: Any) -> str:
    """Give our name of a type; raise ValueError, in a phrase, for one that is not of the protocol."""
    if kind not in DTYPES:
        raise ValueError(f"'{name}' has the type {kind!r}, which is none of the Open Inference Protocol")
    return DTYPES[kind]


def names(index: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """Read the names in an index of a repository, each once."""
    return tuple(dict.fromkeys(str(entry["name"]) for entry in index if entry.get("name")))


def declared(metadata: Iterable[Mapping[str, Any]]) -> tuple[InputSpec, ...]:
    """Read the inputs in a model's metadata; raise ValueError, in a phrase, where they cannot be read."""
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
