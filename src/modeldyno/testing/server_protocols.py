"""Answers of the ground-truth server, by protocol: a request's head and body -> an Answer."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from modeldyno.testing import server_dialects, server_tensorflow, server_text
from modeldyno.testing.server_response import ServerResponse, problem
from modeldyno.testing.server_text import TEXT_FORMS, Generation

if TYPE_CHECKING:
    from collections.abc import Callable

_BINARY = b"Inference-Header-Content-Length"


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestHead:
    """The head of a request."""

    method: str
    path: str
    """Path without query and ``/fault/NAME``."""
    query: str
    headers: dict[str, str]
    length: int
    fault: str = ""
    id: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """What is served: the model, and how it answers."""

    model: str = "echo"
    payload: bytes = b"ok"
    """Body of the plain path's answer."""
    generation: Generation = field(default_factory=Generation)

    def answer(self, head: RequestHead, body: bytes) -> ServerResponse | None:
        """Answer an inference request; None for any other."""
        work: dict[str, Callable[[RequestHead, bytes], ServerResponse]] = {
            "/": lambda _head, _body: ServerResponse(self.payload, kind=b"application/octet-stream"),
            f"/predictions/{self.model}": lambda _, sent: ServerResponse(sent),
            f"/v2/models/{self.model}/infer": _kserve,
            f"/v2/models/{self.model}/versions/1/infer": _kserve,
            **dict.fromkeys(TEXT_FORMS, self._generate),
        }
        try:
            if head.path in work:
                return work[head.path](head, body)
            if (spoken := server_dialects.answer(head.path, body, self.generation.tokens)) is not None:
                return spoken
            return server_tensorflow.predict(self.model, head.path, body)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            return problem(400, f"the request cannot be read: {error!r}")

    def _generate(self, head: RequestHead, body: bytes) -> ServerResponse:
        return server_text.answer(self.model, TEXT_FORMS[head.path], body, self.generation)

    def describe(self, path: str) -> ServerResponse:
        """Answer a request about the server or the model."""
        tensor = {"datatype": "FP32", "shape": [-1, -1]}
        model = {
            "name": self.model,
            "versions": ["1"],
            "platform": "modeldyno_ground_truth",
            "inputs": [{"name": "x"} | tensor],
            "outputs": [{"name": "y"} | tensor],
        }
        documents: dict[str, Any] = {
            "/v2/repository/index": [{"name": self.model, "version": "1", "state": "READY"}],
            "/v2": {"name": "modeldyno.testing.server", "version": "1", "extensions": ["binary_tensor_data"]},
            f"/v2/models/{self.model}": model,
            "/v1/models": {"object": "list", "data": [{"id": self.model, "object": "model"}]},
            "/ping": {"status": "Healthy"},
        }
        healthy = {"/v2/health/live", "/v2/health/ready", f"/v2/models/{self.model}/ready", "/health"}
        if path in healthy:
            return ServerResponse()
        if path in documents:
            return ServerResponse(json.dumps(documents[path]).encode())
        return server_tensorflow.describe(self.model, path) or problem(404, f"no {path} here")


def _kserve(head: RequestHead, body: bytes) -> ServerResponse:
    """Echo each input as an output: ``y``, ``y1`` ...; in binary if requested."""
    length = int(head.headers.get(_BINARY.decode().lower(), len(body)))
    request, rest = json.loads(body[:length]), body[length:]
    requested = {output["name"]: output.get("parameters", {}) for output in request.get("outputs", ())}
    always = request.get("parameters", {}).get("binary_data_output", False)
    outputs, blocks = [], []
    for index, tensor in enumerate(request["inputs"]):
        name = f"y{index or ''}"
        output = {"name": name, "datatype": tensor["datatype"], "shape": tensor["shape"]}
        size = tensor.get("parameters", {}).get("binary_data_size")
        if size is None:
            block, data = b"", tensor["data"]
        else:
            block, rest, data = rest[:size], rest[size:], None
        if len(block) != (size or 0):
            raise ValueError(f"{tensor['name']} has {len(block)} bytes, not {size}")
        if requested.get(name, {}).get("binary_data", always):
            block = block or _pack(tensor["datatype"], data)
            output["parameters"] = {"binary_data_size": len(block)}
            blocks.append(block)
        else:
            output["data"] = _unpack(tensor["datatype"], block) if data is None else data
        outputs.append(output)
    response = {"model_name": head.path.split("/")[3], "model_version": "1", "outputs": outputs}
    encoded = json.dumps(response | ({"id": request["id"]} if "id" in request else {})).encode()
    if not blocks:
        return ServerResponse(encoded)
    extra = b"%b: %d\r\n" % (_BINARY, len(encoded))
    return ServerResponse(encoded + b"".join(blocks), kind=b"application/octet-stream", extra=extra)


_DTYPES = {
    "BOOL": "?", "INT8": "i1", "INT16": "<i2", "INT32": "<i4", "INT64": "<i8", "UINT8": "u1",
    "UINT16": "<u2", "UINT32": "<u4", "UINT64": "<u8", "FP16": "<f2", "FP32": "<f4", "FP64": "<f8",
}  # fmt: skip


def _pack(datatype: str, data: Any) -> bytes:
    import numpy as np  # heavy

    return np.asarray(data, _DTYPES[datatype]).tobytes()


def _unpack(datatype: str, block: bytes) -> Any:
    import numpy as np  # heavy

    return np.frombuffer(block, _DTYPES[datatype]).tolist()
