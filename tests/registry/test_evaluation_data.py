"""What a version is evaluated on is kept with it, and every form of it is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.support.registry import ONCE

from modeldyno.base.errors import RequestError
from modeldyno.base.job.model_ref import ModelRef
from modeldyno.base.metrics.measurement import Interval, Measurement
from modeldyno.registry import conversions
from modeldyno.registry.answering import answer
from modeldyno.registry.records.answer import AnswerState
from modeldyno.registry.register import Registration, register
from modeldyno.registry.worker import run_worker
from modeldyno.serving.loadtest.replicas import CostOptions
from modeldyno.testing.sample_conversions import a_conversion

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from modeldyno.base.result.result import Result
    from modeldyno.conversion.request import ConversionRequest
    from modeldyno.profiling.request import Request
    from modeldyno.registry.interface import Registry
    from modeldyno.registry.records.records import Version


@pytest.fixture
def samples(tmp_path: Path) -> Path:
    """Four labelled samples."""
    return save(tmp_path / "test.npz", [0, 1, 1, 0])


def save(path: Path, classes: list[int]) -> Path:
    """Write labelled samples."""
    np.savez(path, x=np.zeros((len(classes), 4), np.float32), classes=np.array(classes))
    return path


def added(registry: Registry, model: Path, samples: Path, evaluate: str = "accuracy") -> Version:
    """Register the model with labelled samples."""
    request = Registration(model=str(model), convert=False, evaluate=(evaluate,), data=f"{samples}:classes")
    return register(request, registry).version


def test_every_figure_evaluates_the_samples_as_they_were(
    registry: Registry, model: Path, samples: Path, measured: list[Request]
) -> None:
    """Although the file has changed since."""
    content = samples.read_bytes()
    added(registry, model, samples)
    samples.unlink()
    run_worker(ONCE)

    assert [request.observation.evaluate for request in measured] == [("accuracy",)] * 3
    path, colon, labels = str(measured[0].observation.data).rpartition(":")
    assert (Path(path).read_bytes(), colon, labels) == (content, ":", "classes")


def test_a_bound_on_what_is_evaluated_is_answered(
    registry: Registry,
    model: Path,
    samples: Path,
    with_result: Callable[[Callable[[Result], Result]], None],
) -> None:
    """By its interval, together with one on the latency."""
    accuracy = Measurement(metric="accuracy", value=0.9, interval=Interval(low=0.87, high=0.92))
    with_result(lambda result: replace(result, measurements=(*result.measurements, accuracy)))
    added(registry, model, samples)
    run_worker(ONCE)

    def state(bound: str) -> AnswerState:
        require = [bound, "latency.p50 <= 1s"]
        return answer(registry, "net", require=require, cost=CostOptions()).state

    assert state("accuracy >= 0.75") is AnswerState.FOUND
    assert state("accuracy >= 0.91") is AnswerState.UNKNOWN
    assert state("accuracy >= 0.95") is AnswerState.NOTHING_HOLDS


def test_a_conversion_is_judged_by_them(
    registry: Registry, model: Path, samples: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside the samples that are compared, which stay those of the source."""
    version, requests = added(registry, model, samples), []

    def convert(request: ConversionRequest, **_options: Any) -> Any:
        requests.append(request)
        made = a_conversion()
        assert made.model is not None
        return replace(made, model=replace(made.model, digest=version.digest))

    monkeypatch.setattr(conversions, "convert", convert)
    conversions.convert_version(version, ModelRef(scheme="onnx", locator="m"), "openvino", registry)

    (request,) = requests
    assert (request.evaluate, request.data) == (("accuracy",), None)
    assert request.labelled().endswith("test.npz:classes")


def test_other_samples_are_said_anew(
    registry: Registry, model: Path, samples: Path, measured: list[Request]
) -> None:
    """The version stays; it is measured on them, and nothing is measured again while they are the same."""
    first = added(registry, model, samples)
    run_worker(ONCE)
    again = added(registry, model, samples)
    run_worker(ONCE)
    assert (again, len(measured)) == (first, 3)

    other = added(registry, model, save(samples, [1, 1, 1]))
    run_worker(ONCE)

    assert (other.name, len(measured)) == (first.name, 6)
    assert other.evaluation != first.evaluation
    without = register(Registration(model=str(model), convert=False, profile=False), registry).version
    assert without.evaluation == other.evaluation


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"evaluate": ("accuracy",)}, "`evaluate` needs labelled samples"),
        ({"data": "test.npz"}, "`data` has no effect without `evaluate`"),
        ({"evaluate": ("accurracy",), "data": "test.npz"}, "did you mean 'accuracy'"),
        ({"evaluate": ("accuracy",), "data": "none.npz"}, "none.npz"),
    ],
)
def test_what_cannot_be_evaluated_is_refused_before_anything_is_stored(
    registry: Registry, model: Path, options: dict[str, Any], sentence: str
) -> None:
    """In a sentence."""
    with pytest.raises(RequestError, match=sentence):
        register(Registration(model=str(model), **options), registry)
    assert registry.models() == []
