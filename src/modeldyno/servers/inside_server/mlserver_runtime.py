"""Runs a model file inside MLServer.

The settings of the model say which: ``extra`` with ``file``, ``outputs``, ``threads``, ``device``,
``samples`` (of one request) and ``tally``, the folder to count in.
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
    """The model."""

    async def load(self) -> bool:
        """Open the file."""
        extra = self.settings.parameters.extra
        self.dtypes = extra["inputs"]
        self.names = extra["outputs"]
        self.samples = extra["samples"]
        self.tally = runner.Tally(extra["tally"])
        self.run = runner.opened(
            runner.beside(__file__, extra["file"]),
            list(self.dtypes),
            self.names,
            extra["threads"],
            extra["device"],
        )
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        """Answer a request, or several that adaptive batching has put together."""
        begin = time.perf_counter()
        arrays = {each.name: self._array(each) for each in payload.inputs}
        placed = time.perf_counter()
        found = self.run(arrays)
        computed = time.perf_counter()
        answer = InferenceResponse(
            model_name=self.name,
            model_version=self.version,
            outputs=[self._output(name, array) for name, array in found.items()],
        )
        samples = len(next(iter(arrays.values())))
        stages = (placed - begin, computed - placed, time.perf_counter() - computed)
        self.tally.add(samples / self.samples, samples, *stages)
        return answer

    def _array(self, given: Any) -> Any:
        array = NumpyCodec.decode_input(given)
        return array.astype(self.dtypes[given.name], copy=False)

    def _output(self, name: str, array: Any) -> ResponseOutput:
        return NumpyCodec.encode_output(name=name, payload=np.ascontiguousarray(array))
