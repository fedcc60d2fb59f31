"""A `ModelProfiler` measures what comes before and after the model, and says what to try."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from modeldyno.base.errors import RequestError
from modeldyno.compat import ModelProfiler
from modeldyno.compat.recommendations import Recommendations

pytestmark = pytest.mark.usefixtures("brief_measurements")
DIGITS = str(Path(__file__).parents[3] / "examples" / "digits" / "digits.onnx")
RAW = np.full((4, 8), 8, dtype=np.uint8)


def profiler(model: Any = DIGITS, **options: Any) -> ModelProfiler:
    return ModelProfiler(model, max_time=0.1, store=False, progress=False, **options)


def doubled(values: Any) -> Any:
    """A model in this process."""
    return values[:, :3] * 2


def test_the_stages_around_a_model_add_up() -> None:
    """The functions get what was given and what the model returned; end to end is the sum of the means."""
    shapes: list[Any] = []

    def preprocess(raw: Any) -> Any:
        return raw.astype(np.float32) / 16

    def postprocess(outputs: Any) -> Any:
        shapes[:] = [outputs.shape]
        return outputs.argmax(axis=1)

    made = profiler(doubled, preprocess=preprocess, postprocess=postprocess)
    results = made.profile(RAW, num_runs=5, warmup_runs=1)
    stages = results["stages"]

    assert list(stages) == ["preprocess", "copy", "compute", "copy_back", "postprocess", "end_to_end"]
    assert stages["end_to_end"] == pytest.approx(sum(stages.values()) / 2)
    assert shapes == [(4, 3)]


def test_a_stage_that_fails_is_told_by_its_name() -> None:
    """And `preprocess` needs something to make inputs of."""
    with pytest.raises(RequestError, match=r"A function around the model failed: .*division"):
        profiler(doubled, postprocess=lambda _: 1 / 0).profile(RAW, num_runs=2, warmup_runs=0)
    with pytest.raises(RequestError, match="preprocess makes inputs of input_data"):
        profiler(doubled, preprocess=lambda raw: raw).profile()


@pytest.mark.slow
def test_the_stored_precision_of_a_file_is_accepted() -> None:
    """Another one fails its own configuration, with the stored one named, and refuses a profiler."""
    made = profiler(precision="fp32")
    small, half = made.benchmark([{"batch_size": 1, "precision": "fp32"}, {"precision": "fp16"}], num_runs=2)

    assert small.failure is None
    assert half.failure is not None
    assert "runs a model in its stored precision, fp32; drop precision=fp16" in half.failure
    with pytest.raises(RequestError, match="stored precision, fp32; drop precision=fp16"):
        profiler(precision="fp16")


@pytest.mark.slow
def test_recommendations_have_a_command() -> None:
    """They are made of everything that was measured; without a measurement there are none to make."""
    made = profiler()
    with pytest.raises(RequestError, match="Nothing was measured yet"):
        made.recommendations()
    made.profile(num_runs=20, warmup_runs=1)
    recommendations = made.recommendations()

    assert recommendations
    assert all(item.command for item in recommendations)
    assert [item.code for item in recommendations] == list(
        dict.fromkeys(item.code for item in recommendations)
    )
    assert f"{recommendations[0].code}: {recommendations[0].text}" in str(recommendations)
    assert str(Recommendations()) == "Nothing to recommend by what was measured."
