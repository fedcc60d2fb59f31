"""A stateful model: the sum of a sequence so far, and its number of requests; TALLY_LOG gets a line each."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as triton  # type: ignore[import-not-found]


class TritonPythonModel:
    """Keeps a sum and a count for each open sequence."""

    def initialize(self, _arguments: Any) -> None:
        """Open the log."""
        self.states: dict[int, tuple[int, int]] = {}
        self.log = Path(os.environ.get("TALLY_LOG", os.devnull)).open("a", buffering=1)  # noqa: SIM115

    def execute(self, requests: Any) -> list[Any]:
        """Answer each request, and fail one of a sequence that did not begin."""
        return [self._answer(request) for request in requests]

    def _answer(self, request: Any) -> Any:
        taken = {name: _number(request, name) for name in ("INPUT", "START", "END", "READY", "CORRID")}
        number = taken["CORRID"]
        total = step = 0
        if taken["READY"]:  # a batch has a row for each sequence that could have had a request
            total, step = (0, 0) if taken["START"] else self.states[number]
            total, step = self.states[number] = total + taken["INPUT"], step + 1
            self.log.write(f"{number} {taken['START']} {taken['END']} {step} {taken['INPUT']}\n")
            if taken["END"]:
                del self.states[number]
        outputs = {"OUTPUT": total, "STEP": step}
        return triton.InferenceResponse(
            [triton.Tensor(name, np.full((1, 1), value, np.int32)) for name, value in outputs.items()]
        )


def _number(request: Any, name: str) -> int:
    return int(triton.get_input_tensor_by_name(request, name).as_numpy().ravel()[0])
