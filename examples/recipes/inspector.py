"""A client of one's own, measured: what it sends, how long it waits, and whether an agreement is kept."""

from __future__ import annotations

import json
import urllib.request
from typing import Any

import numpy as np

from modeldyno.compat import BaseModelInspector, Profiler
from modeldyno.testing.server import serve_in_subprocess


class Client(BaseModelInspector):
    """Sends rows of numbers to a server that gives them back."""

    url = ""

    def data_preprocess(self, x: list[float]) -> Any:
        """Make a row of what a user has."""
        return np.asarray(x, dtype=np.float32)

    def make_request(self, input_batch: list[Any]) -> bytes:
        """Write a batch as the server reads it."""
        x = np.stack(input_batch)
        tensor = {"name": "x", "datatype": "FP32", "shape": x.shape, "data": x.ravel().tolist()}
        return json.dumps({"inputs": [tensor]}).encode()

    def infer(self, input_batch: bytes) -> bytes:
        """Send it, and wait for the answer."""
        with urllib.request.urlopen(self.url, data=input_batch) as answer:  # noqa: S310 - our own server
            return bytes(answer.read())


with serve_in_subprocess("--service", "exponential:0.005", "--workers", "4") as running:
    Client.url = f"http://127.0.0.1:{running.port}/v2/models/echo/infer"
    inspector = Client([1, 2, 3, 4], batch_num=200, batch_size=8, sla=0.05, percentile=95)
    print(Profiler({"name": "echo", "engine": "own"}, inspector=inspector).diagnose())
