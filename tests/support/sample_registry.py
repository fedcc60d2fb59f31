"""Sample records of the registry, for tests of code that reads them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from modeldyno.base.job.input_spec import InputSpec
from modeldyno.base.job.version_name import SOURCE
from modeldyno.registry.records.policy import profile_task, task_key
from modeldyno.registry.records.records import (
    FigureState,
    HardwareTarget,
    Measure,
    Task,
    TaskKind,
    Variant,
    VariantFigure,
    VariantState,
    Version,
    Worker,
)
from modeldyno.registry.records.staleness import PROTOCOL

TARGET = "0f0f0f0f0f0f"
"""Id of the sample target."""


def a_version(model: str = "digits", number: int = 1, **changes: Any) -> Version:
    """Return a version; `changes` replaces any other part of it, such as ``digest=``."""
    version = Version(
        model=model,
        number=number,
        created="2026-01-02T03:04:05.678901+00:00",
        creator="ada",
        reference="onnx:models/digits.onnx",
        digest="sha256:" + f"{number:02x}" * 32,
        framework="onnx",
        kind="onnx",
        backend="onnxruntime",
        inputs=(InputSpec(name="image", shape=("batch", 64), dtype="float32", low=0.0, high=16.0),),
        metrics={"accuracy": 0.97},
        labels={"team": "vision"},
    )
    return replace(version, **changes)


def a_variant(version: Version, recipe: str = SOURCE, **changes: Any) -> Variant:
    """Return a variant of a version that is still the model."""
    variant = Variant(
        model=version.model,
        number=version.number,
        recipe=recipe,
        state=VariantState.AGREES,
        reference=version.reference,
        backend=version.backend,
        digest=version.digest,
    )
    return replace(variant, **changes)


def a_target(**changes: Any) -> HardwareTarget:
    """Return a target."""
    target = HardwareTarget(id=TARGET, name="here", device="cpu", hardware={"processor": "a test processor"})
    return replace(target, **changes)


def a_worker(name: str = "a", **changes: Any) -> Worker:
    """Return a worker of the sample target."""
    worker = Worker(id=name, target=TARGET, host="here", pid=1, software={"onnxruntime": "1.18.0"})
    return replace(worker, **changes)


def a_task(version: Version, batch: int = 1, **changes: Any) -> Task:
    """Return the task that measures the source of a version on the sample target."""
    measure = Measure(probes=("latency", "throughput"), settings={"batch_size": batch})
    return replace(profile_task(a_variant(version), measure, TARGET, priority=100), **changes)


def a_conversion(version: Version, recipe: str = "onnx", **changes: Any) -> Task:
    """Return the task that converts a version."""
    task = Task(
        key=task_key(version.name, recipe, None, ""),
        kind=TaskKind.CONVERT,
        model=version.model,
        number=version.number,
        recipe=recipe,
    )
    return replace(task, **changes)


def a_figure(task: Task, **changes: Any) -> VariantFigure:
    """Return the fresh figure that a task has given."""
    assert task.measure is not None
    figure = VariantFigure(
        key=task.key,
        model=task.model,
        number=task.number,
        recipe=task.recipe,
        target=task.target,
        measure=task.measure,
        result="0123456789ab",
        taken=datetime.now(UTC).isoformat(),
        software={"onnxruntime": "1.18.0"},
        protocol=PROTOCOL,
        state=FigureState.FRESH,
    )
    return replace(figure, **changes)
