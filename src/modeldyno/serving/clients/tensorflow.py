"""Shared parts of TensorFlow Serving's clients, for HTTP and gRPC: dtypes, signatures, shapes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from modeldyno.base.errors import RequestError
from modeldyno.base.job.input_spec import InputSpec
from modeldyno.serving.clients import tensors

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy import ndarray

DTYPES = {
    "float32": ("DT_FLOAT", 1), "float64": ("DT_DOUBLE", 2), "int32": ("DT_INT32", 3),
    "uint8": ("DT_UINT8", 4), "int16": ("DT_INT16", 5), "int8": ("DT_INT8", 6), "string": ("DT_STRING", 7),
    "int64": ("DT_INT64", 9), "bool": ("DT_BOOL", 10), "bfloat16": ("DT_BFLOAT16", 14),
    "uint16": ("DT_UINT16", 17), "float16": ("DT_HALF", 19), "uint32": ("DT_UINT32", 22),
    "uint64": ("DT_UINT64", 23),
}  # fmt: skip
"""ModelDyno's dtype name to TensorFlow's name and number."""
BY_NAME = {name: dtype for dtype, (name, _) in DTYPES.items()}
BY_NUMBER = {number: dtype for dtype, (_, number) in DTYPES.items()}
DEFAULT_SIGNATURE = "serving_default"
EXAMPLE = "`inputs=name=1x4:float32`"


def dtype_number(name: str, array: ndarray) -> int:
    """Return TensorFlow's number for an input's dtype.

    Raises:
        RequestError: TensorFlow has no such dtype.
    """
    names = DTYPES.get(tensors.dtype_name(array))
    if names is None:
        raise RequestError(f"The input '{name}' is {array.dtype}, which TensorFlow Serving cannot carry.")
    return names[1]


def signature_inputs(signatures: Mapping[str, Any], signature_name: str) -> tuple[InputSpec, ...]:
    """Return the inputs of a signature; each has a dtype (name or number) and a shape.

    Raises:
        ValueError: the model has no such signature, or the signature cannot be read.
    """
    signature = signatures.get(signature_name or DEFAULT_SIGNATURE)
    if signature is None:
        available = ", ".join(sorted(signatures)) or "none"
        raise ValueError(
            f"the model has no signature '{signature_name or DEFAULT_SIGNATURE}'; it has: {available}"
        )
    try:
        return tuple(_input(name, info) for name, info in sorted(signature["inputs"].items()))
    except (KeyError, TypeError, AttributeError):
        raise ValueError("the server's description of the model lacks dtype or shape of an input") from None


def _input(name: str, info: Mapping[str, Any]) -> InputSpec:
    dtype = BY_NAME.get(info["dtype"], BY_NUMBER.get(info["dtype"]))
    if dtype is None:
        raise ValueError(f"the input '{name}' has the dtype {info['dtype']}, which ModelDyno cannot generate")
    shape = info["tensor_shape"] or {}
    if shape.get("unknown_rank"):
        return InputSpec(name=name, dtype=dtype)
    return InputSpec(
        name=name,
        dtype=dtype,
        shape=tensors.shape_of(name, [dim["size"] for dim in shape.get("dim") or ()]),
    )
