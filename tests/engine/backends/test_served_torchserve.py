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
from modeldyno.serving.backends import torchserve
from modeldyno.serving.backends.model_files import DeployedModel
from modeldyno.serving.servers import install
from modeldyno.testing.backends import DeclaredSuite, ServingSuite

if TYPE_CHECKING:
    from modeldyno.models.interface import Feed, Model

DIGITS = Path(__file__).parents[3] / "examples" / "digits" / "digits.onnx"
SPEC = InputSpec(name="x", shape=("batch", 4), dtype="float32")
PORTS = {"http": 1, "management": 2, "metrics": 3, "grpc": 4, "grpc_management": 5}


def digits() -> Model:
    """The classifier of the examples."""
    return plugins.loader("onnx").load(ModelRef(scheme="onnx", locator=str(DIGITS)), seed=0, trust=False)


class TestDeclared(DeclaredSuite):
    name = "torchserve"

    @pytest.fixture
    def model(self) -> Model:
        """The classifier of the examples."""
        return digits()


def files(settings: dict[str, KnobValue]) -> dict[str, str]:
    """Give the files of a server."""
    config = configure(torchserve.knobs, settings)
    deployed = DeployedModel(file="model.onnx", runtime="onnxruntime", inputs=(SPEC,), outputs=(SPEC,))
    return torchserve._files("m", deployed, config, PORTS, Path("/place"))


def test_the_configuration_of_the_server() -> None:
    """Addresses are of the loopback, the model interface is open, and knobs stand where they belong."""
    made = files({"workers": 2, "max_batch": 8, "queue_delay": 1500, "queue_size": 500, "config.a_b": "c"})
    lines = dict(line.split("=", 1) for line in made["config.properties"].splitlines())
    assert lines["inference_address"] == "http://127.0.0.1:1"
    assert lines["grpc_inference_address"] == "127.0.0.1"
    assert (lines["enable_model_api"], lines["disable_token_authorization"]) == ("true", "true")
    assert (lines["job_queue_size"], lines["number_of_gpu"], lines["a_b"]) == ("500", "0", "c")
    model = json.loads(lines["models"])["m"]["1.0"]
    assert (model["minWorkers"], model["maxWorkers"], model["batchSize"]) == (2, 2, 8)
    assert model["maxBatchDelay"] == 2, "milliseconds, rounded up"
    assert model["startupTimeout"] == 180


def test_what_the_handler_is_told() -> None:
    """The archive says which file to run, how, and where to count."""
    made = files({"threads": 3})
    settings = json.loads(made["store/m/settings.json"])
    assert settings == {
        "file": "model.onnx",
        "inputs": {"x": "float32"},
        "outputs": ["x"],
        "threads": 3,
        "device": "cpu",
        "tally": "/place/tally",
    }
    assert json.loads(made["store/m/MAR-INF/MANIFEST.json"])["model"]["handler"] == "handler.py"
    assert "number_of_gpu" not in files({"device": "cuda"})["config.properties"]


def test_a_wait_without_a_batch_is_refused() -> None:
    """To wait for others makes no sense where no others share the call."""
    with pytest.raises(RequestError, match="no effect without max_batch"):
        torchserve.check(configure(torchserve.knobs, {"queue_delay": 5000}))


def test_what_is_missing_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the engine nor Java is taken for granted."""
    monkeypatch.setenv("MODELDYNO_ENGINES", str(tmp_path))
    config = configure(torchserve.knobs, {})
    with pytest.raises(MissingExtra, match="engine install torchserve"), torchserve.open(digits(), config):
        pass
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(MissingExtra, match="apt-get install -y openjdk-17-jre-headless"):
        install.find_java()


@pytest.mark.engine
class TestReal(ServingSuite):
    name = "torchserve"

    @pytest.fixture
    def model(self) -> Model:
        """The classifier of the examples."""
        return digits()

    def feed(self, batch_size: int) -> Feed:
        """Give images."""
        return {"image": np.random.default_rng(0).random((batch_size, 1, 8, 8), dtype="float32")}


@pytest.mark.engine
class TestRealBatches(TestReal):
    settings: ClassVar[dict[str, KnobValue]] = {"max_batch": 8, "queue_delay": 5000, "workers": 2}
