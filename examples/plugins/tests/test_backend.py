"""The backend passes its suite."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest

from modeldyno.plugin import Feed, Form, InputSpec, Model, ModelIdentity
from modeldyno.testing.backends import BackendSuite


class TestBackend(BackendSuite):
    name = "repeated"
    settings: ClassVar = {"times": 2}

    @pytest.fixture
    def model(self) -> Model:
        def double(x: Any) -> Any:
            return 2 * x

        return Model(
            identity=ModelIdentity(name="double", digest="sha256:" + 64 * "0", framework="numpy"),
            form=Form.CALLABLE,
            value=double,
            inputs=(InputSpec(name="x", shape=("batch", 4), dtype="float32"),),
        )

    def feed(self, batch_size: int) -> Feed:
        return {"x": np.random.default_rng(0).random((batch_size, 4), dtype="float32")}
