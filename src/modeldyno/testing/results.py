"""Sample Results for tests of whatever reads them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from modeldyno.core.doubt import Doubt
from modeldyno.core.inputs import InputSpec
from modeldyno.core.job import Job
from modeldyno.core.measurement import Distribution, Interval, Measurement, observed
from modeldyno.core.model import ModelIdentity, ModelRef
from modeldyno.core.result import Artifact, Environment, Failure, FailureKind, Result

if TYPE_CHECKING:
    from collections.abc import Iterable

SAMPLES = (0.00125, 0.0013, 0.00128, 0.0031, 0.00127, 0.00126, 0.00129, 0.00131)
"""Seconds, with one outlier."""


def a_job(name: str = "digits") -> Job:
    """Make a Job with a knob of each type."""
    return Job(
        model=ModelRef(scheme="onnx", locator=f"models/{name}.onnx"),
        backend="onnxruntime",
        inputs=(InputSpec(name="image", shape=("batch", 64), dtype="float32", low=0.0, high=16.0),),
        config={"batch_size": 8, "device": "cpu", "io_binding": False, "threads": 2},
    )


def a_result(*, name: str = "digits", samples: Iterable[float] = SAMPLES, **changes: Any) -> Result:
    """Make the Result of a run that went well; `changes` replaces any other part of it, such as ``id=``."""
    made = Result(
        id="0123456789ab",
        created="2026-01-02T03:04:05.678901+00:00",
        job=a_job(name),
        model=ModelIdentity(name=name, digest="sha256:" + "5a" * 32, framework="onnx"),
        inputs=(InputSpec(name="image", shape=(8, 64), dtype="float32", digest="sha256:00", distinct=4),),
        environment=Environment(
            hardware={"cpu": "a test processor", "cores": 2, "memory": 8 * 2**30},
            software={"python": "3.11.7", "onnxruntime": "1.18.0"},
            conditions={"load": 0.25, "governor": "performance", "pinned": True},
        ),
        measurements=_measurements(samples),
        doubts=(Doubt(code="few-samples", seen="8 samples", advice="Give --max-time more."),),
    )
    return replace(made, **changes)


def a_small_result(**changes: Any) -> Result:
    """Make a Result with little in it, for tests that make thousands."""
    slim: dict[str, Any] = {"inputs": (), "environment": Environment(), "measurements": (), "doubts": ()}
    return a_result(**(slim | changes))


def a_failed_result(**changes: Any) -> Result:
    """Make the Result of a run in which the model never loaded."""
    failure = Failure(
        where="load", kind=FailureKind.OOM, message="The child took 2 GiB.", log="Allocating...\nKilled"
    )
    lost: dict[str, Any] = {"model": None, "measurements": (), "failures": (failure,)}
    return a_result(**(lost | changes))


def an_artifact(path: str, *, keep_until: str | None = None) -> Artifact:
    """Make the record of a file."""
    return Artifact(name="log", path=path, digest="sha256:" + "0f" * 32, keep_until=keep_until)


def _measurements(samples: Iterable[float]) -> tuple[Measurement, ...]:
    latency = Distribution.of(
        samples, stop="time limit", unmet=("precision",), warmup_dropped=3, warmup_time=0.5, timer_cost=4e-8
    )
    rate = Interval(low=6100.0, high=6300.0)
    return (
        Measurement(metric="latency", value=latency),
        Measurement(metric="throughput", value=6200.5, interval=rate, runs=(6200.5,)),
        observed("load_time", 0.125),
        Measurement(metric="parameters", value=4810),
        Measurement(metric="weight_bytes", value=19240, scope="float32"),
    )
