"""What real servers answered, and the schemas of gRPC as others' packages have them.

The answers were recorded from Triton 2.51, MLServer 1.7, KServe 0.21, transformers serve 5.23, and a server
built on tensorflow-serving-api 2.21 with a SavedModel; `golden/protocols/generate.py` writes the schemas.
"""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from modeldyno.engine.interfaces.request_target import Reply

HERE = Path(__file__).parent.parent / "golden" / "protocols"
SHORT = {
    "bool": "bool", "uint8": "uint8", "uint16": "uint16", "uint32": "uint32", "uint64": "uint64",
    "int8": "int8", "int16": "int16", "int32": "int32", "int64": "int64", "fp16": "float16",
    "fp32": "float32", "fp64": "float64", "string": "object",
}  # fmt: skip
"""Ending of the inputs and outputs of the recorded identity model, to the dtype."""


@lru_cache
def _answers() -> dict[str, dict[str, Any]]:
    return dict(json.loads((HERE / "answers.json").read_text()))


def recorded(name: str) -> Reply:
    """Give a recorded answer."""
    answer = _answers()[name]
    return Reply(
        message=0,
        status=answer["status"],
        head=answer["head"].encode("latin-1"),
        body=bytes.fromhex(answer["body"]),
    )


def reply(body: Any, status: int = 200, head: bytes = b"") -> Reply:
    """Make an answer of bytes, or of what becomes JSON."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Reply(message=0, status=status, head=head, body=data)


def every() -> dict[str, Any]:
    """Give what the recorded identity models were sent, by the ending of its name."""
    arrays = {}
    for short, dtype in SHORT.items():
        if dtype == "object":
            array = np.array([["a", "zwölf", ""], ["日本", "x\ny", "e"]], object)
        elif dtype == "bool":
            array = np.array([[1, 0, 1], [0, 0, 1]], bool)
        elif dtype.startswith("float"):
            array = np.array([[0.5, -1.25, 0], [3, 1024, -0.1]], dtype)
        else:
            limits = np.iinfo(dtype)
            array = np.array([[limits.min, 0, 1], [limits.max, 2, 3]], dtype)
        arrays[short] = array
    return arrays


def same(outputs: dict[str, Any], sent: dict[str, Any]) -> None:
    """Assert that an identity model gave back, under other names, what it was sent."""
    assert set(outputs) == {f"y_{short}" for short in sent}
    for short, array in sent.items():
        output = outputs[f"y_{short}"]
        assert (output.dtype, output.shape) == (array.dtype, array.shape)
        assert np.array_equal(output, array)


@lru_cache
def schemas(name: str) -> dict[str, Any]:
    """Give the classes of google.protobuf for every message of a schema, by full name."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    pool = descriptor_pool.DescriptorPool()
    files = descriptor_pb2.FileDescriptorSet.FromString((HERE / f"{name}.descriptors").read_bytes())
    for file in files.file:
        pool.Add(file)
    return dict(message_factory.GetMessageClassesForFiles([file.name for file in files.file], pool))
