"""TensorRT on a real GPU: engines are built, are still the model, and are measured."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

import modeldyno
from modeldyno.base.errors import RequestError
from modeldyno.base.job.model_ref import ModelRef
from modeldyno.base.plugins import loader
from modeldyno.engine.backends import tensorrt as backend

if TYPE_CHECKING:
    from modeldyno.conversion.agreement.conversion import Conversion, Converted

pytest.importorskip("tensorrt")
cuda = pytest.importorskip("cuda.bindings.runtime")
pytest.importorskip("onnxruntime")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(cuda.cudaGetDeviceCount()[1] == 0, reason="there is no CUDA device here"),
]
DIGITS = Path(__file__).parents[1] / "examples" / "digits" / "digits.onnx"


@pytest.fixture(scope="module")
def conversion(tmp_path_factory: pytest.TempPathFactory) -> Conversion:
    folder = tmp_path_factory.mktemp("engines")
    return modeldyno.convert(str(DIGITS), to=["tensorrt", "tensorrt-fp16"], output=folder, store=False)


@pytest.fixture(scope="module")
def engine(conversion: Conversion) -> Converted:
    return conversion.converted[0]


def test_an_engine_is_still_the_model(engine: Converted) -> None:
    """At batches of 1, 3 and 32, within the noise of the source."""
    assert engine.verdict == "agrees", engine
    assert "TensorRT" in engine.converter


def test_an_engine_of_half_precision_is_close(conversion: Conversion) -> None:
    """As one that loses precision is judged."""
    assert conversion.converted[1].verdict in {"agrees", "close"}, conversion.converted[1]


def test_an_engine_is_measured_on_the_gpu(engine: Converted) -> None:
    """With the copies to the GPU and back, which take 10 us at least."""
    result = modeldyno.profile(engine.path, store=False, progress=False, max_time=4.0)

    assert not result.failures
    p50 = result["latency.p50"]
    assert p50 is not None
    assert 1e-5 < p50 < 1e-2


def test_outputs_are_those_of_onnx_runtime(engine: Converted) -> None:
    """Of a batch that was not compared before."""
    import onnxruntime

    image = np.random.default_rng(1).random((17, 1, 8, 8), np.float32)
    session = onnxruntime.InferenceSession(str(DIGITS), providers=["CPUExecutionProvider"])
    expected = session.run(None, {session.get_inputs()[0].name: image})
    model = loader("tensorrt").load(ModelRef(scheme="tensorrt", locator=engine.path), seed=0, trust=False)
    with backend.open(model, {}) as opened:
        returned = opened.arrays(opened.prepare({model.inputs[0].name: image})())

    for output, array in zip(session.get_outputs(), expected, strict=True):
        np.testing.assert_allclose(returned[output.name], array, rtol=1e-4, atol=1e-4)


def test_a_batch_that_an_engine_was_not_built_for_is_one_sentence(engine: Converted) -> None:
    """It says which it takes."""
    model = loader("tensorrt").load(ModelRef(scheme="tensorrt", locator=engine.path), seed=0, trust=False)
    with (
        backend.open(model, {}) as opened,
        pytest.raises(RequestError, match="from 1x1x8x8 to 32x1x8x8 of 'image', not for 64x1x8x8"),
    ):
        opened.prepare({"image": np.zeros((64, 1, 8, 8), np.float32)})()
