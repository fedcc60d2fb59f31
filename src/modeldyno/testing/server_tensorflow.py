"""TensorFlow Serving's answers of the ground-truth server over REST, in its own words.

The model has one signature, ``serving_default``: it takes any float32 matrix ``x`` and echoes it as ``y``.
"""

from __future__ import annotations

import json
from typing import Any

from modeldyno.testing.server_response import ServerResponse, problem

VERSION = "1"
SIGNATURE = "serving_default"
METHOD = "tensorflow/serving/predict"


def predict(model: str, path: str, body: bytes) -> ServerResponse | None:
    """Answer ``/v1/models/MODEL[/versions/1]:predict``; None for any other path."""
    resource, verb, rest = path.rpartition(":predict")
    if not verb or rest or not resource.startswith("/v1/models/"):
        return None
    if (problem_found := _find_model(model, resource)) is not None:
        return problem_found
    return _predict(json.loads(body))


def _predict(request: Any) -> ServerResponse:
    if not isinstance(request, dict) or not {"instances", "inputs"} & request.keys():
        return problem(400, "Missing 'inputs' or 'instances' key")
    if (signature := request.get("signature_name") or SIGNATURE) != SIGNATURE:
        return problem(400, f'Serving signature name: "{signature}" not found in signature def')
    if "instances" in request:
        return ServerResponse(json.dumps({"predictions": request["instances"]}).encode())
    return ServerResponse(json.dumps({"outputs": request["inputs"]}).encode())


def _find_model(model: str, resource: str) -> ServerResponse | None:
    """Return the error of TensorFlow Serving for a model or version that it lacks; None if it has it."""
    name, _, version = resource.removeprefix("/v1/models/").partition("/versions/")
    if name == model and version in {"", VERSION}:
        return None
    return problem(404, f"Servable not found for request: {name_servable(name, version)}")


def name_servable(name: str, version: str) -> str:
    """Return what TensorFlow Serving calls a requested model, in its errors."""
    return f"Specific({name}, {version})" if version else f"Latest({name})"


def describe(model: str, path: str) -> ServerResponse | None:
    """Answer ``/v1/models/NAME[/versions/N][/metadata]``; None for any other path."""
    if not path.startswith("/v1/models/"):
        return None
    resource = path.removesuffix("/metadata")
    if (problem_found := _find_model(model, resource)) is not None:
        if resource != path:
            return problem_found
        name = resource.removeprefix("/v1/models/").partition("/")[0]
        return problem(404, f"Could not find any versions of model {name}")
    document = _metadata_document(model) if resource != path else _status_document()
    return ServerResponse(json.dumps(document, indent=1).encode())


def _status_document() -> dict[str, Any]:
    status = {"error_code": "OK", "error_message": ""}
    return {"model_version_status": [{"version": VERSION, "state": "AVAILABLE", "status": status}]}


def _metadata_document(model: str) -> dict[str, Any]:
    def tensor(name: str) -> dict[str, Any]:
        dimensions = [{"size": "-1", "name": ""}, {"size": "-1", "name": ""}]
        return {
            "dtype": "DT_FLOAT",
            "tensor_shape": {"dim": dimensions, "unknown_rank": False},
            "name": name,
        }

    signature = {
        "inputs": {"x": tensor("serving_default_x:0")},
        "outputs": {"y": tensor("StatefulPartitionedCall:0")},
        "method_name": METHOD,
        "defaults": {},
    }
    return {
        "model_spec": {"name": model, "signature_name": "", "version": VERSION},
        "metadata": {"signature_def": {"signature_def": {SIGNATURE: signature}}},
    }
