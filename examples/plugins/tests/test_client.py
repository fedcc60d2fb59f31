"""The client passes its suite."""

from __future__ import annotations

import numpy as np

from modeldyno.plugin import Feed, Reply
from modeldyno.testing.clients import ClientSuite


class TestClient(ClientSuite):
    name = "plain-json"
    answer = Reply(message=0, status=200, head=b"Content-Type: application/json", body=b'{"y": [[1.5, 2.0]]}')

    def feed(self, seed: int) -> Feed:
        return {"x": np.random.default_rng(seed).random((2, 4), dtype="float32")}
