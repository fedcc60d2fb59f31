"""Write what others' packages say of the protocols: the schemas of gRPC, and requests of Triton's own client.

Run it in an environment of its own, with tritonclient[all] and tensorflow-serving-api (and tensorflow)
installed: python tests/golden/protocols/generate.py
"""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SCHEMAS = {
    "kserve": ("tritonclient.grpc.service_pb2",),
    "tensorflow": (
        "tensorflow_serving.apis.predict_pb2",
        "tensorflow_serving.apis.get_model_metadata_pb2",
    ),
}


def descriptors(modules: tuple[str, ...]) -> bytes:
    """Give the files that the modules were made of, those that they import first."""
    by_name: dict[str, Any] = {}

    def visit(file: Any) -> None:
        if file.name not in by_name:
            for needed in file.dependencies:
                visit(needed)
            by_name[file.name] = file

    for module in modules:
        visit(import_module(module).DESCRIPTOR)
    made = import_module("google.protobuf.descriptor_pb2").FileDescriptorSet()
    for file in by_name.values():
        file.CopyToProto(made.file.add())
    return bytes(made.SerializeToString(deterministic=True))


def arrays() -> dict[str, Any]:
    """Give one array of each type, of shape 2 x 3; text with letters of more than one byte."""
    np = import_module("numpy")
    numbers = np.array([[0, 1, 2], [3, 4, 5]])
    whole = [f"{sign}int{bits}" for sign in ("u", "") for bits in (8, 16, 32, 64)]
    codes = ["bool", *whole, "float16", "float32", "float64"]
    made = {code: numbers.astype(code) for code in codes}
    text = np.array([["", "a", "zwölf"], ["日本", "x\ny", "end"]], dtype=object)
    return {**made, "string": text}


def requests() -> dict[str, Any]:
    """Give what Triton's own client sends for each array, by both transports, in hexadecimal digits."""
    http, grpc = import_module("tritonclient.http"), import_module("tritonclient.grpc")
    helper = import_module("tritonclient.grpc._utils")
    types = import_module("tritonclient.utils").np_to_triton_dtype
    encoded: dict[str, Any] = {"binary": {}, "json": {}, "grpc": {}}
    for name, array in arrays().items():
        for form in ("binary", "json"):
            if form == "json" and name == "float16":
                continue  # its client sends none
            tensor = http.InferInput("x", list(array.shape), types(array.dtype))
            tensor.set_data_from_numpy(array, binary_data=form == "binary")
            client = http.InferenceServerClient
            body, length = client.generate_request_body([tensor], outputs=None)
            encoded[form][name] = {"body": bytes(body).hex(), "json_length": length}
        tensor = grpc.InferInput("x", list(array.shape), types(array.dtype))
        tensor.set_data_from_numpy(array)
        request = helper._get_inference_request(
            model_name="net", inputs=[tensor], model_version="2", request_id="", outputs=None, sequence_id=0,
            sequence_start=False, sequence_end=False, priority=0, timeout=None, parameters=None,
        )  # fmt: skip
        encoded["grpc"][name] = request.SerializeToString(deterministic=True).hex()
    return encoded


def main() -> None:
    """Write all."""
    for name, modules in SCHEMAS.items():
        (HERE / f"{name}.descriptors").write_bytes(descriptors(modules))
    written = json.dumps(requests(), indent=1, sort_keys=True)
    (HERE / "triton-requests.json").write_text(written + "\n")


if __name__ == "__main__":
    main()
