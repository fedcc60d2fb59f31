"""The user's functions around a model are imported, given raw data, and held to what the model takes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import modeldyno
from modeldyno.base.errors import InputRefused, RequestError
from modeldyno.base.metrics.measurement import Distribution
from modeldyno.base.metrics.measurement_plan import Plan
from modeldyno.engine.runtime.inline import run_inline
from modeldyno.sweeps.point_to_job import job_at_point
from modeldyno.sweeps.views.sweep_command import sweep_command

if TYPE_CHECKING:
    from modeldyno import Result

pytestmark = pytest.mark.usefixtures("brief_measurements")
DIGITS = str(Path(__file__).parents[3] / "examples" / "digits" / "digits.onnx")
BRIEF = Plan(max_time=0.05, min_time=0.0, min_runs=5)
RAW = "4x1x8x8:uint8:0..16"
SOURCE = """
import numpy as np

def clean(raw):
    return {"image": (raw / 16).astype(np.float32)}

def alone(raw):
    return (raw / 16).astype(np.float32)

def pair(raw):
    return ((raw / 16).astype(np.float32),)

def whole():
    return np.zeros((3, 1, 8, 8), np.float32)

def known(raw):
    return np.full((raw, 1, 8, 8), raw, np.float32)

known_inputs = (5,)

def texts(lines):
    return np.stack([np.full((1, 8, 8), len(line), np.float32) for line in lines])

def renamed(raw):
    return {"pixels": raw}

def lacking(raw):
    return {}

def double(raw):
    return raw / 16

def narrow(raw):
    return raw[:, :, :, :3].astype(np.float32)

def single(raw):
    return np.float32(3)

def broken(raw):
    return raw.nope

def decode(scores):
    return scores.argmax(axis=1)

def undone(scores):
    return scores.nope

constant = 3
"""


@pytest.fixture
def functions(tmp_path: Path) -> str:
    """Return the path of a file of functions."""
    path = tmp_path / "stages.py"
    path.write_text(SOURCE)
    return str(path)


def profiled(**options: Any) -> Result:
    """Measure the digits for a moment in this process."""
    arguments: dict[str, Any] = {
        "probes": "stages",
        "inline": True,
        "min_runs": 5,
        "min_time": 0.0,
        "max_time": 0.1,
    }
    return modeldyno.profile(DIGITS, store=False, progress=False, **{**arguments, **options})


def test_every_stage_of_a_call_is_a_scope_of_the_latency(functions: str) -> None:
    """Each with its samples; the means add up, and the inputs are those that the function made."""
    result = profiled(pre=f"{functions}:clean", post=f"{functions}:decode", inputs=RAW, min_runs=100)
    stages = ("preprocess", "copy", "compute", "copy_back", "postprocess")

    end_to_end = result["latency.mean@end_to_end"]
    assert sum(result[f"latency.mean@{stage}"] or 0.0 for stage in stages) == pytest.approx(end_to_end)
    spreads = [
        measurement.value
        for measurement in result.measurements
        if measurement.scope in (*stages, "end_to_end")
    ]
    assert len({len(spread) for spread in spreads if isinstance(spread, Distribution)}) == 1
    assert [(spec.name, spec.shape, spec.dtype, spec.distinct) for spec in result.inputs] == [
        ("image", (4, 1, 8, 8), "float32", 8)
    ]
    with pytest.raises(RequestError, match=r"did you mean 'latency.p50@end_to_end'"):
        result["latency.end_to_end"]


@pytest.mark.parametrize(
    ("name", "inputs", "batch"),
    [("alone", RAW, 4), ("pair", RAW, 4), ("whole", (), 3), ("known", (), 5)],
)
def test_a_function_may_return_its_inputs_in_any_usual_form(
    functions: str, name: str, inputs: Any, batch: int
) -> None:
    """An array or a tuple; its raw data may be its own, or stand beside it in the file."""
    result = profiled(pre=f"{functions}:{name}", inputs=inputs)

    assert result.inputs[0].shape == (batch, 1, 8, 8)
    assert result.find("latency", "postprocess") is None


def test_text_is_given_as_a_list_of_a_batch_of_lines(functions: str, tmp_path: Path) -> None:
    """Which may be paths of pictures as well."""
    lines = tmp_path / "lines.txt"
    lines.write_text("one\ntwenty\n")
    result = profiled(pre=f"{functions}:texts", inputs=str(lines), batch_size=2)

    assert result.inputs[0].shape == (2, 1, 8, 8)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "renamed",
            r"renamed \(stages.py:24\) returns .* does not take: there is no input 'pixels'",
        ),
        (
            "lacking",
            r"lacking \(stages.py:27\) returns .*: there is nothing for .*'image'",
        ),
        ("single", r"single \(stages.py:36\) returns .*: the input 'image' has 4 dimensions, not none"),
        ("double", r"double \(stages.py:30\) returns .*: the input 'image' is float32, not float64"),
        (
            "narrow",
            r"narrow \(stages.py:33\) returns .*: input 'image' is \[batch, 1, 8, 8\]: 3 in 4x1x8x3",
        ),
    ],
)
def test_what_the_model_does_not_take_is_refused_with_the_line_of_the_function(
    functions: str, name: str, message: str
) -> None:
    """In one sentence, before anything is measured."""
    with pytest.raises(InputRefused, match=message):
        profiled(pre=f"{functions}:{name}", inputs=RAW)


def test_a_function_that_does_not_exist_or_fit_is_refused(functions: str) -> None:
    """A wrong name, no function, no data for it, data for none, and another batch than asked for."""
    for options, message in (
        ({"pre": f"{functions}:claen"}, "did you mean 'clean'"),
        ({"post": f"{functions}:constant"}, "cannot be called"),
        (
            {"pre": f"{functions}:clean"},
            r"clean \(stages.py:4\) makes the inputs of 'raw', which",
        ),
        ({"pre": f"{functions}:whole", "inputs": RAW}, r"whole \(stages.py:13\) has none"),
        ({"pre": f"{functions}:whole", "batch_size": 4}, "it has 3 rows, and batch_size=4"),
    ):
        with pytest.raises(RequestError, match=message):
            profiled(**options)


@pytest.mark.parametrize(
    ("options", "line"), [({"pre": "broken", "inputs": RAW}, 40), ({"post": "undone"}, 46)]
)
def test_a_function_that_raises_is_a_failure_with_its_line(
    functions: str, options: dict[str, Any], line: int
) -> None:
    """Also of a model that was loaded for it."""
    named = {
        field: value if field == "inputs" else f"{functions}:{value}" for field, value in options.items()
    }
    failure = profiled(**named).failure

    assert failure is not None
    assert failure.message.endswith(f"has no attribute 'nope' (stages.py:{line})")


def test_functions_of_this_process_are_for_models_in_it() -> None:
    """A live function gets `example` as it is."""
    raw = np.full((4, 8), 8, dtype=np.uint8)
    options: dict[str, Any] = {"probes": "stages", "store": False, "progress": False, "max_time": 0.05}
    options |= {"pre": lambda pixels: pixels / 16, "post": lambda scores: scores.max()}
    result = modeldyno.profile(lambda values: values[:, :3] * 2, raw, **options)

    assert result.inputs[0].shape == (4, 8)
    assert result["latency.mean@postprocess"]
    for steps, message in (
        ({"pre": 3}, "pre takes a function, or its name"),
        ({"post": len}, "post is a function of this process, and the model runs in one of its own"),
        ({"pre": "stages.py:clean", "example": raw}, "example= is not given to a function by name"),
    ):
        with pytest.raises(RequestError, match=message):
            modeldyno.profile(DIGITS, **{**options, "pre": None, "post": None, **steps})


@pytest.mark.slow
def test_a_comparison_judges_calls_end_to_end() -> None:
    """Both sides get what the same functions make of the same data; a stage is judged if asked for."""
    options: dict[str, Any] = {"store": False, "progress": False, "why": False, "probes": "stages"}
    options |= {"min_rounds": 1, "max_rounds": 1, "plan": BRIEF}
    options |= {"example": np.full((4, 8), 8, dtype=np.uint8)}
    options |= {"pre": lambda pixels: pixels / 16, "post": lambda scores: scores.max()}

    def judged(**further: Any) -> set[str]:
        comparison = modeldyno.compare(
            lambda values: values[:, :3], lambda values: values * 2, **options, **further
        )
        assert comparison.baseline.inputs[0].shape == (4, 8)
        return {str(change.query) for change in comparison.contrasts[0].changes if "@" in str(change.query)}

    assert judged() == {"latency.p50@end_to_end"}
    assert judged(metrics="latency.p50@postprocess") == {"latency.p50@postprocess"}


def test_a_sweep_times_the_functions_in_each_trial(functions: str) -> None:
    """The batch size varies what the first one is given; a server among the backends is refused."""
    options: dict[str, Any] = {"pre": f"{functions}:clean", "post": f"{functions}:decode", "dry_run": True}
    options |= {"inputs": "batchx1x8x8:uint8:0..16", "space": {"batch_size": (1, 8)}}
    study = modeldyno.sweep(DIGITS, **options, minimize="latency.p50@end_to_end")
    job = replace(job_at_point(study, {"batch_size": 8}), probes=("stages",), plan=BRIEF)
    result = run_inline(job, watch=lambda _event: None)

    assert "stages" in study.job.probes
    assert result.inputs[0].shape == (8, 1, 8, 8)
    assert result["latency.mean@preprocess"]
    assert f"--pre {functions}:clean --post {functions}:decode" in sweep_command(study)
    with pytest.raises(RequestError, match="the backend 'triton' sends requests"):
        modeldyno.sweep(DIGITS, **{**options, "space": {"backend": ("onnxruntime", "triton")}})
