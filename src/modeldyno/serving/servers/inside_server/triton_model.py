"""Runs a model file inside Triton's Python backend.

The model's configuration has ``parameters``: ``file``, ``threads`` and ``device``.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import numpy as np
import triton_python_backend_utils as triton

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import runner


class TritonPythonModel:
    """An instance of the model."""

    def initialize(self, args: dict[str, str]) -> None:
        """Load the model."""
        config = json.loads(args["model_config"])
        parameters = {name: value["string_value"] for name, value in config.get("parameters", {}).items()}
        self.batched = config.get("max_batch_size", 0) > 0
        self.inputs = [tensor["name"] for tensor in config["input"]]
        self.outputs = {
            tensor["name"]: triton.triton_string_to_numpy(tensor["data_type"]) for tensor in config["output"]
        }
        device = parameters.get("device", "cpu")
        if args.get("model_instance_kind") == "GPU":
            device = f"cuda:{args['model_instance_device_id']}"
        self.run = runner.load_model_file(
            runner.sibling_path(__file__, parameters["file"]),
            self.inputs,
            list(self.outputs),
            int(parameters.get("threads", "0")),
            device,
        )

    def execute(self, requests: list[Any]) -> list[Any]:
        """Answer several requests with one call if the model has batches."""
        feeds = [
            {name: triton.get_input_tensor_by_name(request, name).as_numpy() for name in self.inputs}
            for request in requests
        ]
        try:
            results = runner.run_batched(self.run, feeds) if self.batched else [*map(self.run, feeds)]
        except Exception as error:  # noqa: BLE001 - any runtime error goes into the response
            failure = triton.TritonError(f"{type(error).__name__}: {error}")
            return [triton.InferenceResponse(output_tensors=[], error=failure) for _ in requests]
        return [
            triton.InferenceResponse(output_tensors=self._tensors(request, arrays))
            for request, arrays in zip(requests, results)
        ]

    def _tensors(self, request: Any, arrays: dict[str, Any]) -> list[Any]:
        requested = set(request.requested_output_names())
        return [
            triton.Tensor(name, np.ascontiguousarray(array).astype(self.outputs[name], copy=False))
            for name, array in arrays.items()
            if name in requested
        ]
