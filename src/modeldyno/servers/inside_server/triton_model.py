"""Runs a model file inside Triton, by its Python backend.

The configuration says which: ``parameters`` ``file``, ``threads`` and ``device``.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import numpy as np
import triton_python_backend_utils as triton

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120 - where runner.py lies

import runner


class TritonPythonModel:
    """An instance of the model."""

    def initialize(self, args: dict[str, str]) -> None:
        """Load the model."""
        config = json.loads(args["model_config"])
        said = {name: value["string_value"] for name, value in config.get("parameters", {}).items()}
        self.batched = config.get("max_batch_size", 0) > 0
        self.inputs = [each["name"] for each in config["input"]]
        self.outputs = {
            each["name"]: triton.triton_string_to_numpy(each["data_type"]) for each in config["output"]
        }
        device = said.get("device", "cpu")
        if args.get("model_instance_kind") == "GPU":
            device = f"cuda:{args['model_instance_device_id']}"
        self.run = runner.opened(
            runner.beside(__file__, said["file"]),
            self.inputs,
            list(self.outputs),
            int(said.get("threads", "0")),
            device,
        )

    def execute(self, requests: list[Any]) -> list[Any]:
        """Answer several requests by one call, where the model has batches."""
        feeds = [
            {name: triton.get_input_tensor_by_name(request, name).as_numpy() for name in self.inputs}
            for request in requests
        ]
        try:
            found = runner.together(self.run, feeds) if self.batched else [*map(self.run, feeds)]
        except Exception as error:  # noqa: BLE001 - whatever the runtime raises is the answer
            wrong = triton.TritonError(f"{type(error).__name__}: {error}")
            return [triton.InferenceResponse(output_tensors=[], error=wrong) for _ in requests]
        return [
            triton.InferenceResponse(output_tensors=self._tensors(request, arrays))
            for request, arrays in zip(requests, found)  # noqa: B905 - servers run old Pythons
        ]

    def _tensors(self, request: Any, arrays: dict[str, Any]) -> list[Any]:
        wanted = set(request.requested_output_names())
        return [
            triton.Tensor(name, np.ascontiguousarray(array).astype(self.outputs[name], copy=False))
            for name, array in arrays.items()
            if name in wanted
        ]
