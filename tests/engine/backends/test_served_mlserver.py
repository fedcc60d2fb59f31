from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pytest

from modeldyno.base import plugins
from modeldyno.base.errors import MissingExtra, RequestError
from modeldyno.base.job.input_spec import InputSpec
from modeldyno.base.job.knob import KnobValue, configure
from modeldyno.base.job.model_ref import ModelRef
from modeldyno.serving.backends import base, mlserver
from modeldyno.serving.backends.model_files import DeployedModel
from modeldyno.testing.backends import DeclaredSuite, ServingSuite

if TYPE_CHECKING:
    from modeldyno.models.interface import Feed, Model

DIGITS = Path(__file__).parents[3] / "examples" / "digits" / "digits.onnx"
FREE = InputSpec(name="x", shape=("batch", 4), dtype="float32")
TEXT = InputSpec(name="t", shape=(1,), dtype="string")


def digits() -> Model:
    """The classifier of the examples."""
    return plugins.loader("onnx").load(ModelRef(scheme="onnx", locator=str(DIGITS)), seed=0, trust=False)


class TestDeclared(DeclaredSuite):
    name = "mlserver"

    @pytest.fixture
    def model(self) -> Model:
        """The classifier of the examples."""
        return digits()


def test_the_settings_of_the_server() -> None:
    """It listens on the loopback, runs the model in its own process, and takes any setting by its name."""
    settings: dict[str, KnobValue] = {
        "max_batch": 4,
        "queue_delay": 3000,
        "batch_size": 2,
        "config.debug": "true",
    }
    config = configure(mlserver.knobs, settings)
    deployed = DeployedModel(file="model.onnx", runtime="onnxruntime", inputs=(FREE, TEXT), outputs=(FREE,))
    made = mlserver._files("m", deployed, config, {"http": 1, "grpc": 2, "metrics": 3}, Path("/place"))
    server, model = (json.loads(made[name]) for name in ("settings.json", "model-settings.json"))
    assert (server["host"], server["http_port"], server["parallel_workers"]) == ("127.0.0.1", 1, 0)
    assert server["debug"] is True
    assert (model["max_batch_size"], model["max_batch_time"]) == (4, 0.003)
    assert model["inputs"] == [
        {"name": "x", "datatype": "FP32", "shape": [-1, 4]},
        {"name": "t", "datatype": "BYTES", "shape": [1]},
    ]
    extra = model["parameters"]["extra"]
    assert extra["inputs"] == {"x": "float32", "t": "object"}
    assert (extra["samples"], extra["tally"]) == (2, "/place")


def test_batches_that_cannot_be() -> None:
    """A wait without a batch, and a batch of a model that has none, are refused."""
    with pytest.raises(RequestError, match="no effect without max_batch"):
        mlserver.check(configure(mlserver.knobs, {"queue_delay": 5000}))
    fixed = DeployedModel(file="model.onnx", runtime="onnxruntime", inputs=(TEXT,), outputs=(FREE,))
    with pytest.raises(RequestError, match=r"cannot be batched.* t 1 -> x \[batch, 4\]"):
        base.check_batchable(fixed, configure(mlserver.knobs, {"max_batch": 4}))


def test_an_engine_that_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What to type is in the error."""
    monkeypatch.setenv("MODELDYNO_ENGINES", str(tmp_path))
    config = configure(mlserver.knobs, {})
    with (
        pytest.raises(MissingExtra, match="modeldyno engine install mlserver"),
        mlserver.open(digits(), config),
    ):
        pass


@pytest.mark.engine
class TestReal(ServingSuite):
    name = "mlserver"

    @pytest.fixture
    def model(self) -> Model:
        """The classifier of the examples."""
        return digits()

    def feed(self, batch_size: int) -> Feed:
        """Give images."""
        return {"image": np.random.default_rng(0).random((batch_size, 1, 8, 8), dtype="float32")}


@pytest.mark.engine
class TestRealBatches(TestReal):
    settings: ClassVar[dict[str, KnobValue]] = {"max_batch": 8, "queue_delay": 5000, "protocol": "grpc"}
