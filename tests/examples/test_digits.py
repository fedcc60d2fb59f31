from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np

from modeldyno.base.job.input_spec import parse_input
from modeldyno.base.job.knob import configure
from modeldyno.base.job.model_ref import ModelRef
from modeldyno.engine.backends.onnxruntime import backend
from modeldyno.engine.data import batches as feeds
from modeldyno.models.loaders import onnx as loader

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "examples" / "digits"
MODEL = loader.load(ModelRef(scheme="onnx", locator=str(DIGITS / "digits.onnx")), seed=0, trust=False)


def test_accuracy_is_what_the_page_says() -> None:
    """ONNX Runtime reads 357 of the 360 test images right, as README.md says."""
    data = np.load(DIGITS / "test.npz")
    with backend.open(MODEL, configure(backend.knobs, {})) as session:
        scores = session.arrays(session.prepare({"image": data["image"]})())["scores"]
    right = int((scores.argmax(1) == data["label"]).sum())
    assert (right, len(data["label"])) == (357, 360)
    assert f"{right} of {len(data['label'])}" in (DIGITS / "README.md").read_text()


def test_model_is_one_small_file() -> None:
    """The model is one file below 500 kB that takes any batch, and names no place where it was made."""
    path = DIGITS / "digits.onnx"
    assert MODEL.file_bytes == path.stat().st_size < 500_000
    assert [(spec.name, spec.shape) for spec in MODEL.inputs] == [("image", ("batch", 1, 8, 8))]
    assert b"train.py" not in path.read_bytes()


def test_parameters_are_what_the_page_says() -> None:
    """README.md gives the number of parameters of the exported model."""
    assert MODEL.weights is not None
    count = sum(weight.size for weight in MODEL.weights() if weight.parameter)
    assert f"{count:,} parameters" in (DIGITS / "README.md").read_text()


def test_test_set_feeds_the_model() -> None:
    """The test set is cut into distinct batches of real images; the labels in it are left alone."""
    request = parse_input(str(DIGITS / "test.npz"))
    payload = feeds.build_payloads(MODEL, (request,), batch_size=32, seed=0)
    assert payload.samples == 32
    assert len(payload.feeds) == feeds.MOST
    assert payload.doubts == ()
    images = np.load(DIGITS / "test.npz")["image"]
    np.testing.assert_array_equal(payload.feeds[1]["image"], images[32:64])


def test_next_steps_fit_the_terminal(tmp_path: Path) -> None:
    """What `make run` says last fits 80 columns and names the result; without a result it says so."""
    script = DIGITS / "next_steps.py"
    missing = subprocess.run(
        [sys.executable, script], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (missing.returncode, missing.stdout) == (4, "")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "digits.json").write_text("{}")
    done = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "out/digits.json" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert len(runpy.run_path(str(script))["COMMANDS"]) == 3
