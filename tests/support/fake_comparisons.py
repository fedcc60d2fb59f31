"""Comparisons without real runs: Jobs with made-up latencies, for tests of comparing code."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from modeldyno.base.job.input_spec import InputSpec
from modeldyno.base.job.job import Job
from modeldyno.base.job.model_ref import ModelIdentity
from modeldyno.base.metrics.measurement import Distribution, Measurement, observed_number
from modeldyno.base.result.result import Environment, Failure, Progressed
from modeldyno.engine.runtime.events import empty_result
from modeldyno.testing.sample_results import a_job

if TYPE_CHECKING:
    from modeldyno.base.result.result import Event, Result

SAMPLES = 61
"""Samples of each process: enough for a median with an interval."""


def a_side(name: str, latency: float = 1e-3) -> Job:
    """Return the Job of a model whose calls take the given seconds when `SimulatedRuns` runs it."""
    return replace(a_job(name), name=name, config={"batch_size": 8, "microseconds": latency * 1e6})


@dataclass(slots=True, kw_only=True)
class SimulatedRuns:
    """Simulates runs of Jobs: a call takes the Job's latency, and each process varies randomly."""

    noise: float = 0.001
    """Relative standard deviation from process to process."""
    failing: Failure | None = None
    """Failure of every run of the model ``broken``."""
    jobs: list[Job] = field(default_factory=list)
    """Jobs that were run, in order."""
    hook: Callable[[Job], None] = lambda _job: None
    """Called before each run."""

    def __call__(self, job: Job, *, watch: Callable[[Event], None]) -> Result:
        """Return the Result of a simulated process."""
        self.hook(job)
        self.jobs.append(job)
        watch(Progressed(stage="latency: steady", runs=SAMPLES))
        rng = random.Random(f"{len(self.jobs)} of {job.name}")
        latency = float(job.config["microseconds"]) * 1e-6 * rng.gauss(1.0, self.noise)
        times = [latency * (1 + step / 10_000) for step in rng.sample(range(-30, 31), SAMPLES)]
        result = replace(
            empty_result(job),
            model=ModelIdentity(name=job.name or "", digest="sha256:" + "5a" * 32, framework="onnx"),
            inputs=(InputSpec(name="x", shape=(8, 64), dtype="float32", digest="sha256:" + "00" * 32),),
            environment=Environment(hardware={"cores": 2}, software={"onnxruntime": "1.18.0"}),
        )
        if self.failing is not None and job.name == "broken":
            return replace(result, failures=(self.failing,))
        measurements = (
            Measurement(metric="latency", value=Distribution.of(times)),
            observed_number("load_time", rng.uniform(1.0, 1.01)),
            Measurement(metric="weight_bytes", value=int(latency * 1e9) // 1000 * 1000),
        )
        return replace(result, measurements=measurements)
