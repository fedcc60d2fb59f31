"""Models of TensorFlow Lite: their tensors, read without TensorFlow; outputs by LiteRT."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from modeldyno import plugins
from modeldyno.adapters.backends import tflite as backend
from modeldyno.adapters.loaders import tflite as loader
from modeldyno.core.spec.knob import configure
from modeldyno.core.spec.model_ref import ModelRef
from modeldyno.errors import MissingExtra, RequestError
from modeldyno.interfaces.loader import Form, Model
from modeldyno.profiling.resolve_model import resolve_reference
from modeldyno.testing.backends import BackendSuite
from modeldyno.testing.loaders import LoaderSuite

if TYPE_CHECKING:
    from modeldyno.interfaces.loader import Feed

GOLDEN = Path(__file__).parents[2] / "golden" / "tflite"
"""Two networks, Dense(3, relu) and Dense(2) of four numbers, and Dense(64) with 8-bit weights, as
`golden/tflite/generate.py` converted them; the weights are 0.5."""


def ref_of(name: str) -> ModelRef:
    return ModelRef(scheme="tflite", locator=str(GOLDEN / name))


def load(ref: ModelRef) -> Model:
    return loader.load(ref, seed=0, trust=False)


class TestLoader(LoaderSuite):
    scheme = "tflite"
    forms = frozenset({Form.TFLITE})

    @pytest.fixture
    def ref(self) -> ModelRef:
        """Two layers."""
        return ref_of("dense.tflite")

    @pytest.fixture
    def other(self) -> ModelRef:
        """One layer with 8-bit weights."""
        return ref_of("dense_int8.tflite")

    @pytest.fixture
    def damaged(self, tmp_path: Path) -> ModelRef:
        """One that is cut off."""
        path = tmp_path / "damaged.tflite"
        path.write_bytes((GOLDEN / "dense.tflite").read_bytes()[:200])
        return ModelRef(scheme="tflite", locator=str(path))

    @pytest.fixture
    def claimed(self) -> Path:
        """A path of this kind."""
        return GOLDEN / "dense.tflite"


class TestBackend(BackendSuite):
    name = "tflite"

    @pytest.fixture(autouse=True)
    def _needs_litert(self) -> None:
        pytest.importorskip("ai_edge_litert")

    @pytest.fixture
    def model(self) -> Model:
        """Give two layers."""
        return load(ref_of("dense.tflite"))

    def feed(self, batch_size: int) -> Feed:
        """Give rows of four numbers."""
        return {"x": np.random.default_rng(0).random((batch_size, 4), np.float32)}


def test_tensors_are_read_from_the_file() -> None:
    """The batch is free, and weights and biases are parameters."""
    model = load(ref_of("dense.tflite"))
    assert [(spec.name, spec.shape, spec.dtype) for spec in model.inputs] == [("x", ("batch", 4), "float32")]
    assert model.weights is not None
    parameters = [weight for weight in model.weights() if weight.parameter]
    assert sum(weight.size for weight in parameters) == 4 * 3 + 3 + 3 * 2 + 2
    assert sum(weight.bytes for weight in parameters) == 4 * 23


def test_quantised_weights_take_a_byte_each() -> None:
    """Integers with a scale are parameters, at their stored size."""
    model = load(ref_of("dense_int8.tflite"))
    assert model.weights is not None
    sizes = {weight.dtype: (weight.size, weight.bytes) for weight in model.weights() if weight.size > 64}
    assert sizes == {"int8": (64 * 64, 64 * 64)}


def test_outputs_by_hand() -> None:
    """Ones through weights and biases of a half, twice."""
    pytest.importorskip("ai_edge_litert")
    model = load(ref_of("dense.tflite"))
    with backend.open(model, configure(backend.knobs, {"threads": 1})) as session:
        (output,) = session.arrays(session.prepare({"x": np.ones((2, 4), np.float32)})()).values()
    np.testing.assert_allclose(output, np.full((2, 2), (4 * 0.5 + 0.5) * 0.5 * 3 + 0.5))


def test_any_cut_is_refused_in_a_sentence(tmp_path: Path) -> None:
    """Wherever a file ends, it is refused or read, and nothing else is raised."""
    whole = (GOLDEN / "dense.tflite").read_bytes()
    for end in range(0, len(whole), 7):
        path = tmp_path / "cut.tflite"
        path.write_bytes(whole[:end])
        try:
            load(ModelRef(scheme="tflite", locator=str(path)))
        except RequestError as error:
            assert "is no model of TensorFlow Lite" in str(error)  # noqa: PT017 - some cuts are read


def test_the_interpreters_refusal_is_told(tmp_path: Path) -> None:
    """What LiteRT cannot read is refused with its reason."""
    pytest.importorskip("ai_edge_litert")
    path = tmp_path / "m.tflite"
    path.write_bytes(b"\0" * 4 + b"TFL3" + b"\0" * 50)
    model = load(ref_of("dense.tflite"))
    with pytest.raises(RequestError, match="LiteRT cannot run"), backend.open(replace(model, value=path), {}):
        pass


def test_a_path_needs_no_scheme(tmp_path: Path) -> None:
    """A file is recognised by its mark, whatever its name."""
    path = tmp_path / "model.bin"
    path.write_bytes((GOLDEN / "dense.tflite").read_bytes())
    assert resolve_reference(str(path)) == ModelRef(scheme="tflite", locator=str(path))


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """One sentence says what to install for each format."""
    monkeypatch.setattr(plugins, "find_spec", lambda _module: None)
    for kind, name, package in (
        ("loader", "keras", "pip install keras tensorflow"),
        ("loader", "savedmodel", "pip install tensorflow"),
        ("backend", "tflite", "pip install ai-edge-litert"),
    ):
        with pytest.raises(MissingExtra, match=package):
            plugins.require(plugins.resolve(kind, name).requires, f"model {name}:m")
