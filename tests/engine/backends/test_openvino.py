from __future__ import annotations

import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pytest
from tests.support import tiny_onnx as models
from tests.support.openvino_module import import_openvino

from modeldyno.base.errors import RequestError
from modeldyno.base.job.knob import configure
from modeldyno.base.job.model_ref import ModelRef
from modeldyno.engine.backends import openvino as backend
from modeldyno.engine.backends.onnxruntime import backend as onnxruntime_backend
from modeldyno.models.loaders import onnx as loader
from modeldyno.testing.backends import BackendSuite

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from modeldyno.base.job.knob import KnobValue
    from modeldyno.models.interface import Feed, Model

import_openvino()


def load(path: Path) -> Model:
    return loader.load(ModelRef(scheme="onnx", locator=str(path)), seed=0, trust=False)


def rows(batch_size: int) -> Feed:
    return {"x": np.random.default_rng(0).standard_normal((batch_size, 4), np.float32)}


def outputs(path: Path, feed: Feed, **settings: KnobValue) -> Feed:
    with backend.open(load(path), configure(backend.knobs, settings)) as session:
        return session.arrays(session.prepare(feed)())


class TestSuite(BackendSuite):
    name = "openvino"

    @pytest.fixture
    def model(self, tmp_path: Path) -> Model:
        """Give a network of two layers."""
        return load(models.mlp(tmp_path))

    def feed(self, batch_size: int) -> Feed:
        """Give rows of four numbers."""
        return rows(batch_size)


class TestSuiteStreams(TestSuite):
    settings: ClassVar[Mapping[str, KnobValue]] = {"streams": 2, "threads": 2, "precision": "f32"}


@pytest.mark.parametrize("settings", [{}, {"threads": 1}, {"num_streams": 1}, {"device": "auto"}])
def test_outputs_are_those_of_onnx_runtime(tmp_path: Path, settings: dict[str, KnobValue]) -> None:
    """Under any setting both runtimes give the same numbers under the same names."""
    path, feed = models.mlp(tmp_path), rows(3)
    with onnxruntime_backend.open(load(path), configure(onnxruntime_backend.knobs, {})) as reference:
        expected = reference.arrays(reference.prepare(feed)())
    with backend.open(load(path), configure(backend.knobs, settings)) as session:
        outputs = session.arrays(session.prepare(feed)())
    assert outputs.keys() == expected.keys()
    error = 1e-2 * np.abs(expected["y"]).max() if session.converted else 1e-5  # some machines choose bf16
    np.testing.assert_allclose(outputs["y"], expected["y"], rtol=1e-4, atol=error)


def test_knobs_reach_the_runtime(tmp_path: Path) -> None:
    """What is set is what OpenVINO compiled for."""
    config = configure(backend.knobs, {"threads": 2, "streams": 2, "precision": "f32"})
    with backend.open(load(models.mlp(tmp_path)), config) as session:
        compiled = session.compiled
        assert compiled.get_property("INFERENCE_NUM_THREADS") == 2
        assert compiled.get_property("NUM_STREAMS") == 2
        assert compiled.get_property("INFERENCE_PRECISION_HINT").to_string() == "f32"
        assert session.converted == ""


def test_a_precision_that_openvino_chooses_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A processor that computes in bf16 by itself converts the weights, which the session says."""
    import openvino

    class Compiled:
        def get_property(self, name: str) -> object:
            assert name == "INFERENCE_PRECISION_HINT"
            return openvino.Type.bf16

    monkeypatch.setattr(openvino.Core, "compile_model", lambda *_: Compiled())
    for settings in ({}, {"precision": "bf16"}):
        with backend.open(load(models.mlp(tmp_path)), configure(backend.knobs, settings)) as session:
            assert session.converted == "bf16"


def test_a_precision_is_used_or_refused(tmp_path: Path) -> None:
    """OpenVINO ignores the hint where the processor cannot follow it; that is refused, not measured."""
    path = models.mlp(tmp_path)
    # A processor with AVX-512 computes in it, too, though it has no instructions for it.
    compiled = backend.open_core().compile_model(str(path), "CPU", {"INFERENCE_PRECISION_HINT": "bf16"})
    able = "bfloat16" in str(compiled.get_property("INFERENCE_PRECISION_HINT"))
    if able:
        assert outputs(path, rows(1), precision="bf16")["y"].shape == (1, 2)
    else:
        with pytest.raises(RequestError, match="does not compute in bf16: OpenVINO would use f32 instead"):
            outputs(path, rows(1), precision="bf16")


def test_device_that_is_not_there_is_refused(tmp_path: Path) -> None:
    """A device that OpenVINO does not find is refused with those that it finds."""
    with pytest.raises(RequestError, match=r"finds no device NPU\.7 here; available: .*CPU"):
        outputs(models.mlp(tmp_path), rows(1), device="npu:7")


def test_a_word_that_is_no_device_is_refused() -> None:
    """It is refused before anything is opened."""
    with pytest.raises(RequestError, match="such as cpu or gpu"):
        backend.check({"device": "cpu x"})


def test_a_precision_needs_a_device() -> None:
    """What AUTO computes in cannot be asked, so it cannot be promised."""
    with pytest.raises(RequestError, match="With device=auto it is not known"):
        backend.check({"device": "auto", "precision": "f32"})


def test_more_streams_than_threads_are_refused() -> None:
    """Each stream needs a thread."""
    with pytest.raises(RequestError, match="4 streams cannot share 1 thread;"):
        backend.check({"streams": 4, "threads": 1})
    backend.check({"streams": 2, "threads": 2})


def test_a_graph_that_openvino_cannot_run_is_refused(tmp_path: Path) -> None:
    """The sentence is one line with OpenVINO's reason, and names another backend."""
    shape = ("FLOAT", ["batch", 4])
    path = models.save(
        tmp_path / "m.onnx", [("NoSuchOperator", ["x"], ["y"])], {"x": shape}, {"y": shape}, {}
    )
    with pytest.raises(RequestError, match=r"NoSuchOperator.*try `backend=onnxruntime`") as caught:
        outputs(path, rows(1))
    assert "\n" not in str(caught.value)


def test_scattered_payload_is_laid_out_once(tmp_path: Path) -> None:
    """A payload that is not contiguous gives the outputs of one that is."""
    feed, path = rows(6), models.mlp(tmp_path)
    scattered = {"x": np.asfortranarray(feed["x"])[::2]}
    np.testing.assert_allclose(
        outputs(path, scattered)["y"], outputs(path, feed)["y"][::2], rtol=1e-5, atol=1e-6
    )


def test_a_signal_is_handled_after_sessions_that_overlapped(tmp_path: Path) -> None:
    """The first of two is closed first; with a Core each, the signal would end the process."""
    code = textwrap.dedent("""
        import faulthandler, gc, signal, sys
        from modeldyno.engine.backends import openvino as backend
        from modeldyno.models.loaders import onnx as loader
        from modeldyno.base.job.model_ref import ModelRef

        faulthandler.enable()
        model = loader.load(ModelRef(scheme="onnx", locator=sys.argv[1]), seed=0, trust=False)
        sessions = [backend.open(model, {}) for _ in range(2)]
        for session in sessions:
            session.__enter__()
        for session in sessions:
            session.__exit__(None, None, None)
        del session, sessions
        gc.collect()
        signal.signal(signal.SIGINT, lambda *_: print("handled", flush=True))
        signal.raise_signal(signal.SIGINT)
    """)
    done = subprocess.run(
        [sys.executable, "-c", code, str(models.mlp(tmp_path))], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "handled\n"), done.stderr
