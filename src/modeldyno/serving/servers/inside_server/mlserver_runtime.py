"""Runs a model file inside MLServer.

The model's settings configure it: ``extra`` with ``file``, ``outputs``, ``threads``, ``device``,
``samples`` (of one request) and ``tally``, the folder for the counters.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import runner
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceRequest, InferenceResponse, ResponseOutput


class Runtime(MLModel):
    """An MLServer runtime for a model file."""

    async def load(self) -> bool:
        """Load the model file."""
        extra = self.settings.parameters.extra
        self.dtypes = extra["inputs"]
        self.names = extra["outputs"]
        self.samples = extra["samples"]
        self.tally = runner.Tally(extra["tally"])
        self.run = runner.load_model_file(
            runner.sibling_path(__file__, extra["file"]),
            list(self.dtypes),
            self.names,
            extra["threads"],
            extra["device"],
        )
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        """Answer one request, or several that adaptive batching has joined."""
        begin = time.perf_counter()
        arrays = {tensor.name: self._array(tensor) for tensor in payload.inputs}
        prepared = time.perf_counter()
        results = self.run(arrays)
        computed = time.perf_counter()
        answer = InferenceResponse(
            model_name=self.name,
            model_version=self.version,
            outputs=[self._output(name, array) for name, array in results.items()],
        )
        samples = len(next(iter(arrays.values())))
        stages = (prepared - begin, computed - prepared, time.perf_counter() - computed)
        self.tally.add(samples / self.samples, samples, *stages)
        return answer

    def _array(self, request_input: Any) -> Any:
        array = NumpyCodec.decode_input(request_input)
        return array.astype(self.dtypes[request_input.name], copy=False)

    def _output(self, name: str, array: Any) -> ResponseOutput:
        return NumpyCodec.encode_output(name=name, payload=np.ascontiguousarray(array))
