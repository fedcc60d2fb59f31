"""Models in OpenVINO's own format: inputs and constants, read without OpenVINO."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.support.openvino_module import import_openvino

import modeldyno
from modeldyno.base.errors import RequestError
from modeldyno.base.job.knob import configure
from modeldyno.base.job.model_ref import ModelRef
from modeldyno.engine.backends import openvino as backend
from modeldyno.models.interface import Form, Model
from modeldyno.models.loaders import openvino as loader
from modeldyno.profiling.resolve_model import resolve_reference
from modeldyno.testing.loaders import LoaderSuite

if TYPE_CHECKING:
    from pathlib import Path


def write_model(folder: Path, scale: float = 1.0) -> Path:
    """Write x @ w with a free batch."""
    openvino = import_openvino()
    x = openvino.opset13.parameter([-1, 4], np.float32, name="x")
    weights = openvino.opset13.constant(np.full((4, 3), scale, np.float32), name="w")
    product = openvino.opset13.matmul(x, weights, transpose_a=False, transpose_b=False)
    x.output(0).get_tensor().set_names({"x"})
    folder.mkdir(exist_ok=True)
    openvino.save_model(openvino.Model([product], [x], "product"), folder / "m.xml", compress_to_fp16=False)
    return folder / "m.xml"


class TestLoader(LoaderSuite):
    scheme = "openvino"
    forms = frozenset({Form.OPENVINO})

    @pytest.fixture
    def ref(self, tmp_path: Path) -> ModelRef:
        """A matrix product."""
        return ModelRef(scheme="openvino", locator=str(write_model(tmp_path / "one")))

    @pytest.fixture
    def other(self, tmp_path: Path) -> ModelRef:
        """Other weights in the same graph."""
        return ModelRef(scheme="openvino", locator=str(write_model(tmp_path / "two", 2.0)))

    @pytest.fixture
    def damaged(self, tmp_path: Path) -> ModelRef:
        """One that is cut off."""
        path = write_model(tmp_path / "cut")
        path.write_bytes(path.read_bytes()[:300])
        return ModelRef(scheme="openvino", locator=str(path))

    @pytest.fixture
    def claimed(self, tmp_path: Path) -> Path:
        """Its graph."""
        return write_model(tmp_path / "claimed")

    def test_it_tells_inputs_and_weights(self, model: Model) -> None:
        """The first free dimension is the batch."""
        assert [(spec.name, spec.shape, spec.dtype) for spec in model.inputs] == [
            ("x", ("batch", 4), "float32")
        ]
        assert model.weights is not None
        assert [(w.shape, w.bytes, w.parameter) for w in model.weights()] == [((4, 3), 48, True)]


def test_other_xml_is_not_claimed(tmp_path: Path) -> None:
    """Such as a report of tests."""
    path = tmp_path / "report.xml"
    path.write_text("<testsuites/>")

    assert not loader.claims(path)


def test_constants_that_are_missing_are_told(tmp_path: Path) -> None:
    """With the file that is not there."""
    path = write_model(tmp_path / "m")
    path.with_suffix(".bin").unlink()

    with pytest.raises(RequestError, match=r"m\.bin"):
        loader.load(resolve_reference(str(path)), seed=0, trust=False)


@pytest.mark.filterwarnings("ignore")  # OpenVINO traces with what torch deprecates
def test_what_is_converted_from_torch_has_free_sizes_and_no_names(tmp_path: Path) -> None:
    """Sizes are found by calls; an output has its place as its name."""
    openvino, torch = import_openvino(), pytest.importorskip("torch")
    made = openvino.convert_model(torch.nn.Conv2d(3, 4, 3), example_input=torch.zeros(2, 3, 8, 8))
    made.reshape([-1, 3, -1, -1])
    openvino.save_model(made, tmp_path / "m.xml")
    profile = modeldyno.profile(tmp_path / "m.xml", max_time=0.2, store=False)
    assert "assumed-sizes" in {doubt.code for doubt in profile.doubts}
    model = loader.load(ModelRef(scheme="openvino", locator=str(tmp_path / "m.xml")), seed=0, trust=False)
    with backend.open(model, configure(backend.knobs, {})) as session:
        feed = {model.inputs[0].name: np.ones((2, 3, 5, 4), np.float32)}
        ((name, array),) = session.arrays(session.prepare(feed)()).items()
    assert (name, array.shape) == ("output_0", (2, 4, 3, 2))
