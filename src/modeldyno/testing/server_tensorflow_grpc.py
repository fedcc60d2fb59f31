"""TensorFlow Serving's answers of the ground-truth server over gRPC.

Each input comes back as an output: ``y``, ``y1`` ...
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from modeldyno.base.clock import monotonic_ns
from modeldyno.serving.clients import protobuf
from modeldyno.serving.clients.tensorflow_grpc import (
    ANY,
    METADATA_REQUEST,
    MODEL,
    NAMED,
    REQUEST,
    SERVICE,
    SHAPE,
)
from modeldyno.testing.server_tensorflow import METHOD, SIGNATURE, VERSION, name_servable

if TYPE_CHECKING:
    from modeldyno.serving.clients.protobuf import Schema
    from modeldyno.testing.server_http import ServerState

STATUS = "/tensorflow.serving.ModelService/GetModelStatus"
_AVAILABLE = 30
_FLOAT = 1
_RESPONSE: Schema = {1: ("outputs", [NAMED]), 2: ("model_spec", MODEL)}
_INFO: Schema = {1: ("name", "string"), 2: ("dtype", "int32"), 3: ("tensor_shape", SHAPE)}
_NAMED_INFO: Schema = {1: ("key", "string"), 2: ("value", _INFO)}
_SIGNATURE_DEF: Schema = {
    1: ("inputs", [_NAMED_INFO]),
    2: ("outputs", [_NAMED_INFO]),
    3: ("method_name", "string"),
}
_SIGNATURES: Schema = {1: ("signature_def", [{1: ("key", "string"), 2: ("value", _SIGNATURE_DEF)}])}
_METADATA: Schema = {
    1: ("model_spec", MODEL),
    2: ("metadata", [{1: ("key", "string"), 2: ("value", ANY)}]),
}
_STATUS_REQUEST: Schema = {1: ("model_spec", MODEL)}
_STATUS: Schema = {
    1: (
        "model_version_status",
        [
            {
                1: ("version", "int64"),
                2: ("state", "int32"),
                3: ("status", {1: ("error_code", "int32"), 2: ("error_message", "string")}),
            }
        ],
    )
}


@dataclass(slots=True, kw_only=True, eq=False)
class _Call:
    """A gRPC request in the queue; times in nanoseconds."""

    done: asyncio.Future[None]
    queued: int = 0
    start: int = 0
    batch: int = 0
    stream: int = 0
    worked: int = 0
    arrival: int = field(default_factory=monotonic_ns)

    def begin(self, first: int) -> None:
        """Do nothing: an answer is no stream."""

    def finish(self) -> None:
        """Let the answer be sent."""
        self.worked = monotonic_ns()
        if not self.done.done():  # the client may have given up
            self.done.set_result(None)


async def serve_grpc(server: ServerState, host: str, port: int) -> tuple[Any, int]:
    """Serve Predict, GetModelMetadata and GetModelStatus; return grpc's server and its port.

    The requests wait in the same queue as those of HTTP and stand in the same ledger, with the id that the
    metadata ``x-id`` says; faults are for HTTP alone.
    """
    import grpc  # an extra of this server

    async def answer_predict(body: bytes, context: Any) -> bytes:
        try:
            request = protobuf.decode(REQUEST, body)
        except ValueError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        await require_model(request["model_spec"], context)
        call = _Call(done=asyncio.get_running_loop().create_future())
        if not server.workers.take(call):
            await context.abort(grpc.StatusCode.UNAVAILABLE, "too many requests wait")
        await call.done
        ids = [int(value) for key, value in context.invocation_metadata() or () if key == "x-id"]
        now = monotonic_ns()
        server.ledger.rows.extend(
            ((ids or [-1])[0], call.arrival, call.start, now, now, call.batch, -1),
        )
        server.ledger.count_call(call, call.worked, now)
        outputs = [
            {"key": f"y{index or ''}", "value": entry["value"]}
            for index, entry in enumerate(request["inputs"])
        ]
        return protobuf.encode(_RESPONSE, {"outputs": outputs, "model_spec": spec(SIGNATURE)})

    async def answer_metadata(body: bytes, context: Any) -> bytes:
        await require_model(protobuf.decode(METADATA_REQUEST, body)["model_spec"], context)
        value = {
            "type_url": "type.googleapis.com/tensorflow.serving.SignatureDefMap",
            "value": _SIGNATURE_MAP,
        }
        return protobuf.encode(
            _METADATA, {"model_spec": spec(), "metadata": [{"key": "signature_def", "value": value}]}
        )

    async def answer_status(body: bytes, context: Any) -> bytes:
        await require_model(protobuf.decode(_STATUS_REQUEST, body)["model_spec"], context)
        status = {"version": int(VERSION), "state": _AVAILABLE, "status": {"error_code": 0}}
        return protobuf.encode(_STATUS, {"model_version_status": [status]})

    def spec(signature: str = "") -> dict[str, Any]:
        return {
            "name": server.site.model,
            "version": {"value": int(VERSION)},
            "signature_name": signature,
        }

    async def require_model(model_spec: dict[str, Any] | None, context: Any) -> None:
        name = (model_spec or {}).get("name", "")
        version = ((model_spec or {}).get("version") or {}).get("value", 0)
        if name != server.site.model or version not in {0, int(VERSION)}:
            text = name_servable(name, str(version or ""))
            await context.abort(grpc.StatusCode.NOT_FOUND, f"Servable not found for request: {text}")

    answers = {
        f"{SERVICE}Predict": answer_predict,
        f"{SERVICE}GetModelMetadata": answer_metadata,
        STATUS: answer_status,
    }

    class Handler(grpc.GenericRpcHandler):  # type: ignore[misc]
        """Find the answer of a method; messages stay bytes."""

        def service(self, details: Any) -> Any:
            answer = answers.get(details.method)
            return grpc.unary_unary_rpc_method_handler(answer) if answer else None

    listening = grpc.aio.server(options=[("grpc.so_reuseport", 0), ("grpc.max_receive_message_length", -1)])
    listening.add_generic_rpc_handlers((Handler(),))
    bound = listening.add_insecure_port(f"{host}:{port}")
    await listening.start()
    return listening, bound


def _signature_map() -> bytes:
    def tensor(name: str) -> dict[str, Any]:
        return {"name": name, "dtype": _FLOAT, "tensor_shape": {"dim": [{"size": -1}, {"size": -1}]}}

    signature = {
        "inputs": [{"key": "x", "value": tensor("serving_default_x:0")}],
        "outputs": [{"key": "y", "value": tensor("StatefulPartitionedCall:0")}],
        "method_name": METHOD,
    }
    return protobuf.encode(_SIGNATURES, {"signature_def": [{"key": SIGNATURE, "value": signature}]})


_SIGNATURE_MAP = _signature_map()
