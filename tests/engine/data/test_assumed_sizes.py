from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.support import tiny_onnx as models

from modeldyno.base.errors import RequestError
from modeldyno.base.job.input_spec import parse_input
from modeldyno.base.job.job import Job
from modeldyno.base.job.model_ref import ModelRef
from modeldyno.base.metrics.measurement_plan import Plan
from modeldyno.engine.runtime.engine import run

if TYPE_CHECKING:
    from pathlib import Path

    from modeldyno.base.result.result import Result

pytestmark = pytest.mark.usefixtures("brief_measurements")
pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")


def profiled(path: Path, *requests: str, probes: tuple[str, ...] = ("static", "latency")) -> Result:
    return run(
        Job(
            model=ModelRef(scheme="onnx", locator=str(path)),
            backend="onnxruntime",
            probes=probes,
            inputs=tuple(map(parse_input, requests)),
            plan=Plan(min_time=0.01, min_runs=2, max_time=0.2),
        )
    )


def picks_column(folder: Path, column: int) -> Path:
    """Write a model that takes a pixel of one column of an image: no shape determines the width."""
    nodes = [("GatherND", ["x", "place"], ["pixel"]), ("Relu", ["pixel"], ["y"])]
    shape = ("FLOAT", ["batch", 3, "height", "width"])
    weights = {"place": np.array([[0, 0, 0, column]])}
    return models.save(folder / "column.onnx", nodes, {"x": shape}, {"y": ("FLOAT", None)}, weights)


def window(folder: Path) -> Path:
    """Write a sequence model with a window of 256 steps."""
    weights = {"w": np.ones((2, 1, 256), np.float32), "axis": np.array([1])}
    nodes = [("Unsqueeze", ["x", "axis"], ["signal"]), ("Conv", ["signal", "w"], ["y"])]
    shape = ("FLOAT", ["batch", "sequence"])
    return models.save(folder / "window.onnx", nodes, {"x": shape}, {"y": ("FLOAT", None)}, weights)


def test_sizes_that_only_the_runtime_refuses_are_tried_until_one_is_taken(tmp_path: Path) -> None:
    """The counted sizes are those that ran, and the assumption is reported once."""
    result = profiled(picks_column(tmp_path, 300))
    assert not result.failures
    assert [spec.shape for spec in result.inputs] == [(1, 3, 320, 320)]
    assert result["input_bytes"] == 4 * 3 * 320 * 320
    (doubt,) = [item for item in result.doubts if item.code == "assumed-sizes"]
    assert "height 320, width 320 were assumed" in doubt.seen
    assert "`inputs=x=batchx3x320x320`" in doubt.advice


def test_a_network_that_takes_no_guess_says_what_is_missing(tmp_path: Path) -> None:
    """When one guess after the other is rejected, the error asks for the sizes."""
    with pytest.raises(
        RequestError, match=r"Sizes are missing: height, width .* `inputs=x=batchx3xNxN`"
    ) as error:
        profiled(picks_column(tmp_path, 9_999))
    assert "GatherND takes place 9999 of axis 3 of 1x3x224x224" in str(error.value)


def test_usual_lengths_that_the_runtime_refuses_are_replaced(tmp_path: Path) -> None:
    """Without an analysis the default length is tried first; if it fails another is assumed and reported."""
    for probes in (("latency",), ("static", "latency")):
        result = profiled(window(tmp_path), probes=probes)
        assert [spec.shape for spec in result.inputs] == [(1, 512)]
        assert [item.code for item in result.doubts].count("assumed-sizes") == 1


def test_sizes_that_were_given_are_never_replaced(tmp_path: Path) -> None:
    """A call that fails at the user's own sizes is a failure, as before."""
    result = profiled(window(tmp_path), "x=1x128")
    (failure,) = result.failures
    assert failure.where == "first call"
    assert "not-analysed" in [item.code for item in result.doubts]


def test_an_inspection_reports_what_was_assumed(tmp_path: Path) -> None:
    """An analysis runs nothing, and reports the sizes that it assumed all the same."""
    result = profiled(window(tmp_path), probes=("static",))
    assert result["macs"] == (512 - 255) * 2 * 256
    assert [item.code for item in result.doubts] == ["assumed-sizes"]
    with pytest.raises(RequestError, match=r"onnx.Conv has a window of 256 for 128 values"):
        profiled(window(tmp_path), "x=1x128", probes=("static",))


def test_looking_at_an_onnx_file_needs_no_torch(tmp_path: Path) -> None:
    """With onnx alone a model can be inspected: torch is not imported."""
    (tmp_path / "torch.py").write_text("raise ImportError('there is no torch here')")
    path = models.mlp(tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "modeldyno", "inspect", str(path), "--no-store", "-q"],
        capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "48 MACs" in done.stdout


# -- decoders ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "mask_length",
    ["past_sequence_length + sequence_length", "total_sequence_length", "attention_mask_sequence_length"],
)
def test_the_mask_of_a_decoder_covers_its_cache(tmp_path: Path, mask_length: str) -> None:
    """By whatever name, its length is the sum of both; with 128 each, projections and scores by hand."""
    result = profiled(models.decoder(tmp_path, mask_length))
    assert not result.failures
    assert [spec.shape for spec in result.inputs] == [(1, 128), (1, 256), (1, 2, 128, 8)]
    assert result["macs"] == 128 * 16 * 16 + 2 * 128 * 256 * 8
    one = profiled(
        models.decoder(tmp_path, mask_length), "input_ids=1x1", "attention_mask=1x20", probes=("static",)
    )
    assert one["macs"] == 16 * 16 + 2 * 20 * 8


def test_sizes_that_contradict_a_sum_are_refused(tmp_path: Path) -> None:
    """The sentence says which sizes do not fit."""
    path = models.decoder(tmp_path, "past_sequence_length + sequence_length")
    requests = ("input_ids=1x4", "past_key_values.0.key=1x2x16x8", "attention_mask=1x4")
    with pytest.raises(RequestError, match=r"attention_mask.*4 in 1x4 contradicts .*=20"):
        profiled(path, *requests, probes=("static",))
    with pytest.raises(RequestError, match=r"attention_mask.*is 132, not 4"):
        profiled(path, "input_ids=1x4", "attention_mask=1x4", "past_key_values.0.key=1x2x128x8")


def test_the_mismatch_that_is_reported_is_the_next_guess(tmp_path: Path) -> None:
    """No usual size fits; the one that the first refusal names does."""
    weights = {"w": np.ones((1, 333), np.float32)}
    inputs = {"x": ("FLOAT", ["batch", "features"])}
    path = models.save(
        tmp_path / "m.onnx", [("Add", ["x", "w"], ["y"])], inputs, {"y": ("FLOAT", None)}, weights
    )
    result = profiled(path)
    assert [spec.shape for spec in result.inputs] == [(1, 333)]


def test_a_multiple_of_the_batch_follows_it(tmp_path: Path) -> None:
    """An expression of the batch is no size of its own: 3 rows, and 6 of the second input."""
    weights = {"w": np.ones((8, 16), np.float32)}
    nodes = [("Concat", ["a", "b"], ["c"], {"axis": 0}), ("MatMul", ["c", "w"], ["y"])]
    inputs = {"a": ("FLOAT", ["s0", 8]), "b": ("FLOAT", ["2*s0", 8])}
    path = models.save(tmp_path / "m.onnx", nodes, inputs, {"y": ("FLOAT", None)}, weights)
    assert profiled(path, probes=("static",))["macs"] == 3 * 8 * 16
    assert profiled(path, "b=6x8", probes=("static",))["macs"] == 9 * 8 * 16
    assert profiled(path, "a=3x8", probes=("static", "latency"))["macs"] == 9 * 8 * 16


def test_a_size_of_zero_is_a_size(tmp_path: Path) -> None:
    """A cache that is declared empty stays empty."""
    nodes = [("Concat", ["past", "x"], ["y"], {"axis": 1})]
    inputs = {"past": ("FLOAT", [1, 0, 4]), "x": ("FLOAT", [1, 3, 4])}
    path = models.save(tmp_path / "m.onnx", nodes, inputs, {"y": ("FLOAT", None)}, {})
    result = profiled(path)
    assert not result.failures
    assert [spec.shape for spec in result.inputs] == [(1, 0, 4), (1, 3, 4)]
