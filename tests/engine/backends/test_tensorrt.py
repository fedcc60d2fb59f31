"""The session of an engine, over a TensorRT and a CUDA of this process."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.support import fake_tensorrt

from modeldyno.base.errors import CannotRunHere, MissingExtra, RequestError
from modeldyno.base.job.input_spec import InputSpec
from modeldyno.base.job.knob import configure
from modeldyno.base.job.model_ref import ModelRef
from modeldyno.engine.backends import tensorrt as backend
from modeldyno.models import tensorrt_engine
from modeldyno.models.loaders import tensorrt as loader
from modeldyno.testing.backends import BackendSuite

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from modeldyno.base.job.knob import KnobValue
    from modeldyno.models.interface import Feed, Model


@pytest.fixture(autouse=True)
def cuda(monkeypatch: pytest.MonkeyPatch) -> Iterator[fake_tensorrt.FakeCuda]:
    """Give the CUDA of this process."""
    yield fake_tensorrt.install(monkeypatch)
    tensorrt_engine.import_package.cache_clear()


def load(path: Path) -> Model:
    return loader.load(ModelRef(scheme="tensorrt", locator=str(path)), seed=0, trust=False)


def rows(count: int, dtype: str = "float32") -> Feed:
    return {"x": np.arange(count * 4, dtype=dtype).reshape(count, 4)}


def outputs(model: Model, feed: Feed, **settings: KnobValue) -> Feed:
    with backend.open(model, configure(backend.knobs, settings)) as session:
        return session.arrays(session.prepare(feed)())


class TestSuite(BackendSuite):
    name = "tensorrt"

    @pytest.fixture
    def model(self, tmp_path: Path) -> Model:
        """Give an engine."""
        return load(fake_tensorrt.write_engine(tmp_path / "net.engine"))

    def feed(self, batch_size: int) -> Feed:
        """Give rows of four numbers."""
        return rows(batch_size)


def test_calls_of_changing_sizes_return_the_outputs_of_their_own_inputs(tmp_path: Path) -> None:
    """Memory on the GPU grows with them."""
    model = load(fake_tensorrt.write_engine(tmp_path / "net.engine"))
    with backend.open(model, configure(backend.knobs, {})) as session:
        small, large = session.prepare(rows(2)), session.prepare(rows(32))
        for call, feed in ((small, rows(2)), (large, rows(32)), (small, rows(2))):
            np.testing.assert_array_equal(session.arrays(call())["y"], feed["x"] + 1)


def test_all_memory_of_the_gpu_is_given_back(cuda: fake_tensorrt.FakeCuda, tmp_path: Path) -> None:
    """Whatever was called."""
    model = load(fake_tensorrt.write_engine(tmp_path / "net.engine"))
    with backend.open(model, {}) as session:
        session.prepare(rows(2))()
        session.prepare(rows(32))()
        assert len(cuda.places) == 2

    assert not cuda.places


def test_the_gpu_of_that_number_is_used(cuda: fake_tensorrt.FakeCuda, tmp_path: Path) -> None:
    """And it is the device of the session."""
    cuda.count = 2
    model = load(fake_tensorrt.write_engine(tmp_path / "net.engine"))
    with backend.open(model, configure(backend.knobs, {"device": "cuda:1"})) as session:
        assert session.device == "cuda:1"

    assert cuda.device == 1


def test_inputs_get_the_dtype_of_the_engine(tmp_path: Path) -> None:
    """TensorRT turns int64 of ONNX into int32, in older versions."""
    model = load(fake_tensorrt.write_engine(tmp_path / "net.engine", dtype="INT32"))

    returned = outputs(model, rows(2, "int64"))["y"]

    assert returned.dtype == np.int32
    assert returned[0].tolist() == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("described", "feed", "message"),
    [
        ({"largest": 8}, rows(9), "built for sizes from 1x4 to 8x4 of 'x', not for 9x4; build it again"),
        ({"dtype": "BF16"}, rows(1), "'x' is BF16, which NumPy lacks"),
        ({"output": (-1, -1)}, rows(1), "The size of the output 'y' depends on the values"),
        ({}, {"z": np.zeros((1, 4))}, "The engine has no input 'z'; it takes x."),
        ({}, {}, "The engine takes an input 'x', which was not given."),
    ],
)
def test_what_an_engine_does_not_take_is_one_sentence(
    tmp_path: Path, described: dict[str, object], feed: Feed, message: str
) -> None:
    """It says what it takes."""
    model = load(fake_tensorrt.write_engine(tmp_path / "net.engine", **described))

    with pytest.raises(RequestError, match=message):
        outputs(model, feed)


@pytest.mark.parametrize(
    ("count", "device", "message"),
    [(0, "cuda", "and there is none here"), (2, "cuda:2", "this machine has 2 of them, without cuda:2")],
)
def test_a_gpu_that_is_not_there_is_named(
    cuda: fake_tensorrt.FakeCuda, tmp_path: Path, count: int, device: str, message: str
) -> None:
    """Nothing is measured."""
    cuda.count = count
    model = load(fake_tensorrt.write_engine(tmp_path / "net.engine"))

    with pytest.raises(CannotRunHere, match=message):
        outputs(model, rows(1), device=device)


def test_an_engine_of_another_gpu_or_version_says_why_it_does_not_run(tmp_path: Path) -> None:
    """The error of TensorRT, not its warning."""
    path = tmp_path / "net.engine"
    path.write_bytes(b"ftrt of another version")

    with pytest.raises(CannotRunHere, match=r"of another version; an engine is for the GPU and the version"):
        outputs(load(path), rows(1))


def test_an_engine_of_a_package_that_is_missing_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first bytes tell the package."""
    monkeypatch.setitem(tensorrt_engine.PACKAGES, b"vtrt", "tensorrt_elsewhere")
    path = tmp_path / "net.engine"
    path.write_bytes(b"vtrt")

    with pytest.raises(MissingExtra, match="pip install tensorrt_elsewhere"):
        outputs(load(path), rows(1))


def test_another_package_named_cuda_is_not_what_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a folder of that name in the working directory."""
    model = load(fake_tensorrt.write_engine(tmp_path / "net.engine"))
    monkeypatch.setitem(sys.modules, "cuda.bindings.runtime", None)

    with pytest.raises(MissingExtra, match="pip install cuda-bindings"):
        outputs(model, rows(1))


def test_a_call_that_fails_raises_what_tensorrt_says(cuda: fake_tensorrt.FakeCuda, tmp_path: Path) -> None:
    """Or that it says nothing."""
    cuda.broken = True
    with pytest.raises(RuntimeError, match=r"TensorRT 10.0.1 failed: it gives no reason"):
        outputs(load(fake_tensorrt.write_engine(tmp_path / "net.engine")), rows(1))


def test_memory_of_the_gpu_that_ends_is_told_as_such(cuda: fake_tensorrt.FakeCuda, tmp_path: Path) -> None:
    """A search for the largest batch reads it."""
    cuda.room = 8
    with pytest.raises(RuntimeError, match="cudaMalloc: out of memory"):
        outputs(load(fake_tensorrt.write_engine(tmp_path / "net.engine")), rows(1))


def test_a_device_that_is_no_gpu_is_refused() -> None:
    """TensorRT has no other."""
    with pytest.raises(RequestError, match="takes a GPU, such as cuda or cuda:1, not 'cpu'"):
        backend.check({"device": "cpu"})


def test_the_inputs_of_an_engine_are_read_beside_it(tmp_path: Path) -> None:
    """Without them the user gives the inputs."""
    path = fake_tensorrt.write_engine(tmp_path / "net.engine")
    assert load(path).undeclared

    inputs = (InputSpec(name="x", shape=("batch", 4), dtype="float32"),)
    tensorrt_engine.write_inputs(path, inputs)

    assert load(path).inputs == inputs
    assert [file.name for file in loader.files(ModelRef(scheme="tensorrt", locator=str(path)))] == [
        "net.engine",
        "net.engine.json",
    ]


@pytest.mark.parametrize(
    ("content", "message"), [(None, "There is no file"), (b"PK", "is no engine of TensorRT, or is damaged")]
)
def test_a_file_that_is_no_engine_is_not_loaded(tmp_path: Path, content: bytes | None, message: str) -> None:
    """Nor claimed."""
    path = tmp_path / "net.engine"
    if content is not None:
        path.write_bytes(content)

    assert not loader.claims(path)
    with pytest.raises(RequestError, match=message):
        load(path)
