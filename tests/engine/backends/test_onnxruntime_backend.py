from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pytest
from tests.support import tiny_onnx as models

from modeldyno.base.errors import RequestError, UnknownName
from modeldyno.base.job.knob import configure
from modeldyno.base.job.model_ref import ModelRef
from modeldyno.engine.backends.onnxruntime import backend
from modeldyno.models.loaders import onnx as loader
from modeldyno.testing.backends import BackendSuite

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from modeldyno.base.job.knob import KnobValue
    from modeldyno.models.interface import Feed, Model


def load(path: Path) -> Model:
    return loader.load(ModelRef(scheme="onnx", locator=str(path)), seed=0, trust=False)


def rows(batch_size: int) -> Feed:
    return {"x": np.random.default_rng(0).standard_normal((batch_size, 4), np.float32)}


def outputs(path: Path, feed: Feed, **settings: KnobValue) -> Feed:
    with backend.open(load(path), configure(backend.knobs, settings)) as session:
        return session.arrays(session.prepare(feed)())


class TestSuite(BackendSuite):
    name = "onnxruntime"

    @pytest.fixture
    def model(self, tmp_path: Path) -> Model:
        """Give a network of two layers."""
        return load(models.mlp(tmp_path))

    def feed(self, batch_size: int) -> Feed:
        """Give rows of four numbers."""
        return rows(batch_size)


class TestSuiteBound(TestSuite):
    settings: ClassVar[Mapping[str, KnobValue]] = {"io_binding": True}


@pytest.mark.parametrize(
    "settings",
    [
        {"intra_op_num_threads": 2},
        {"parallel": True, "inter_threads": 2},
        {"graph_optimization_level": "disable"},
        {"graph_optimization": "basic", "arena": False},
        {"graph_optimization": "extended", "spinning": False},
        {"provider": "CPUExecutionProvider", "io_binding": True},
    ],
)
def test_knobs_change_how_but_not_what(tmp_path: Path, settings: dict[str, KnobValue]) -> None:
    """Under any setting the outputs are those of the formula."""
    path = models.mlp(tmp_path)
    feed = rows(3)
    model = load(path)
    weights = _values(path)
    expected = np.maximum(feed["x"] @ weights["w1"] + weights["b1"], 0) @ weights["w2"]
    assert model.weights is not None
    np.testing.assert_allclose(outputs(path, feed, **settings)["y"], expected, rtol=1e-5, atol=1e-6)


def _values(path: Path) -> dict[str, Any]:
    from onnx import load_model, numpy_helper

    return {tensor.name: numpy_helper.to_array(tensor) for tensor in load_model(path).graph.initializer}


def test_knobs_reach_the_session(tmp_path: Path) -> None:
    """What is set is what ONNX Runtime was told."""
    settings: dict[str, KnobValue] = {"threads": 2, "inter_threads": 3, "parallel": True}
    settings |= {"graph_optimization": "basic", "spinning": False, "arena": False}
    config = configure(backend.knobs, settings)
    with backend.open(load(models.mlp(tmp_path)), config) as session:
        options = session.session.get_session_options()
    assert (options.intra_op_num_threads, options.inter_op_num_threads) == (2, 3)
    assert (options.execution_mode.name, options.graph_optimization_level.name) == (
        "ORT_PARALLEL",
        "ORT_ENABLE_BASIC",
    )
    assert options.enable_cpu_mem_arena is False
    assert options.get_session_config_entry("session.intra_op.allow_spinning") == "0"


def test_unset_knobs_leave_the_defaults(tmp_path: Path) -> None:
    """Threads and spinning that nobody set are left to ONNX Runtime."""
    with backend.open(load(models.mlp(tmp_path)), configure(backend.knobs, {})) as session:
        options = session.session.get_session_options()
    assert (options.intra_op_num_threads, options.inter_op_num_threads) == (0, 0)


def test_device_that_is_not_there_is_refused(tmp_path: Path) -> None:
    """A provider that this build lacks is refused with those that it has."""
    model = load(models.mlp(tmp_path))
    with (
        pytest.raises(RequestError, match=r"no QNNExecutionProvider; available: .*CPUExecutionProvider"),
        backend.open(model, configure(backend.knobs, {"device": "qnn"})),
    ):
        pass


def test_misspelt_device_gets_a_suggestion() -> None:
    """A device that no provider serves is refused before anything is opened, with the nearest one."""
    with pytest.raises(UnknownName, match="did you mean 'cuda'"):
        backend.check({"device": "cudda"})
    with pytest.raises(UnknownName):
        backend.check({"device": "cpu:x"})


@pytest.mark.parametrize(
    "device", ["cpu", "CPU", "cuda:1", "gpu", "CUDAExecutionProvider", "NewExecutionProvider"]
)
def test_devices_are_words_or_providers(device: str) -> None:
    """A device is a word, with a number or not, or the name of a provider, known or not."""
    backend.check({"device": device})


@pytest.mark.parametrize(
    ("device", "named"), [("cpu", "cpu"), ("cuda", "cuda:0"), ("tensorrt:1", "cuda:1"), ("openvino", "cpu")]
)
def test_the_device_is_the_one_whose_memory_is_used(device: str, named: str) -> None:
    """Of an execution provider that computes on the host it is the CPU."""
    assert backend.device_of(configure(backend.knobs, {"device": device})) == named


def test_the_libraries_of_a_card_are_loaded_from_pips_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before a session is opened, and without what that prints."""
    import onnxruntime

    calls: list[str] = []

    def preload() -> None:
        calls.append("preload")
        print("Failed to load libcudnn.so")

    monkeypatch.setattr(onnxruntime, "preload_dlls", preload, raising=False)
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["CUDAExecutionProvider"])
    with (
        pytest.raises(RequestError, match="did not start; check its driver and libraries"),
        pytest.warns(UserWarning, match="not in available provider"),
        backend.open(load(models.mlp(tmp_path)), configure(backend.knobs, {"device": "cuda"})),
    ):
        pass
    assert calls == ["preload"]
    assert "libcudnn" not in capsys.readouterr().out


def test_knob_without_effect_is_refused() -> None:
    """Threads across operators that would never run are refused."""
    with pytest.raises(RequestError, match="parallel=true"):
        backend.check({"inter_threads": 2})
    backend.check({"inter_threads": 1})


def test_text_goes_in_and_out(tmp_path: Path) -> None:
    """Strings can be fed, and come back."""
    feed = {"words": np.array(["one", "two"], dtype=object)}
    assert outputs(models.string_model(tmp_path), feed)["y"].tolist() == ["one", "two"]
    with pytest.raises(RequestError, match="io_binding does not support text"):
        outputs(models.string_model(tmp_path), feed, io_binding=True)


@pytest.mark.parametrize("bound", [False, True])
def test_bfloat16_goes_in(tmp_path: Path, bound: bool) -> None:
    """Inputs of bfloat16 can be fed; outputs of it are refused, since numpy could not hold them."""
    values = {"x": ("BFLOAT16", ["batch", 2])}, {"y": ("FLOAT", ["batch", 2])}
    path = models.save(tmp_path / "m.onnx", [("Cast", ["x"], ["y"], {"to": 1})], *values, {})
    ml_dtypes = pytest.importorskip("ml_dtypes")
    feed = {"x": np.array([[1, 2]], ml_dtypes.bfloat16)}
    assert outputs(path, feed, io_binding=bound)["y"].tolist() == [[1, 2]]
    values[1]["y"] = values[0]["x"]
    path = models.save(tmp_path / "m.onnx", [("Identity", ["x"], ["y"])], *values, {})
    with pytest.raises(RequestError, match="bfloat16"):
        outputs(path, feed, io_binding=bound)


def test_sequences_and_maps_become_arrays() -> None:
    """An output of sequences and maps is told as one array for each entry."""
    named = dict(backend._named_arrays("p", [{"a": 0.5, "b": 0.25}, np.ones(2)]))
    assert {name: array.tolist() for name, array in named.items()} == {
        "p.0.keys": ["a", "b"],
        "p.0.values": [0.5, 0.25],
        "p.1": [1.0, 1.0],
    }


@pytest.mark.parametrize("bound", [False, True])
def test_scattered_payload_is_laid_out_once(tmp_path: Path, bound: bool) -> None:
    """A payload that is not contiguous gives the outputs of one that is."""
    feed = rows(6)
    path = models.mlp(tmp_path)
    scattered = {"x": np.asfortranarray(feed["x"])[::2]}
    output = outputs(path, scattered, io_binding=bound)["y"]
    np.testing.assert_allclose(output, outputs(path, feed)["y"][::2], rtol=1e-5, atol=1e-6)


def test_errors_are_raised_and_not_printed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """What ONNX Runtime cannot load or run raises its own error, and nothing is printed beside it."""
    broken = models.save(
        tmp_path / "m.onnx",
        [("NoSuchOperator", ["x"], ["y"])],
        {"x": ("FLOAT", ["batch", 4])},
        {"y": ("FLOAT", ["batch", 4])},
        {},
    )
    with pytest.raises(Exception, match="NoSuchOperator") as caught:
        outputs(broken, rows(1))
    assert not isinstance(caught.value, RequestError)
    with pytest.raises(Exception, match=r"Got: 5"):
        outputs(models.mlp(tmp_path), {"x": np.ones((1, 5), np.float32)})
    assert capfd.readouterr() == ("", "")


def test_truth_of_the_awkward_models(tmp_path: Path) -> None:
    """The testing models give NaN, and the wrong shape, as they say."""
    assert np.isnan(outputs(models.not_a_number(tmp_path), rows(2))["y"]).all()
    assert outputs(models.wrong_shape(tmp_path), rows(3))["y"].shape == (2, 3, 2)
    ids = {
        "input_ids": np.array([[0, 1]]),
        "attention_mask": np.array([[1, 0]]),
        "token_type_ids": np.array([[0, 0]]),
    }
    assert outputs(models.embedding(tmp_path), ids)["pooled"].tolist() == [[1.0, 2.0, 3.0]]
    assert outputs(models.external(tmp_path), rows(1))["y"].shape == (1, 2)
