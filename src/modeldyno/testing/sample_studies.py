"""Sample studies, and simulated trials: for tests of code that makes, stores or reads a study."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from modeldyno.base.job.input_spec import InputSpec
from modeldyno.base.job.job import Job
from modeldyno.base.job.knob import KnobValue
from modeldyno.base.job.load_spec import Load
from modeldyno.base.job.model_ref import ModelIdentity, ModelRef
from modeldyno.base.metrics.constraints import Constraint
from modeldyno.base.metrics.measurement import Distribution, Interval, Measurement, observed_number
from modeldyno.base.result.result import (
    Environment,
    Event,
    Failure,
    FailureKind,
    Loaded,
    Progressed,
    Result,
    fold,
)
from modeldyno.engine.runtime.events import empty_result
from modeldyno.sweeps.study.goal import Goal, Objective
from modeldyno.sweeps.study.search_space import Space, parse_axis
from modeldyno.sweeps.study.study import Study
from modeldyno.testing.sample_results import a_job

if TYPE_CHECKING:
    from modeldyno.engine.interfaces.executor import Executor

DIGEST = "sha256:" + "5a" * 32
HARDWARE = {"processor": "a test processor", "cores": 2}
SOFTWARE = {"python": "3.11.7", "onnxruntime": "1.18.0"}


def make_goal(
    *, maximize: str | Sequence[str] = (), minimize: str | Sequence[str] = (), require: Sequence[str] = ()
) -> Goal:
    """Build a goal from text."""
    up, down = ([text] if isinstance(text, str) else list(text) for text in (maximize, minimize))
    return Goal(
        objectives=(
            *(Objective.parse(text, maximize=True) for text in up),
            *(Objective.parse(text, maximize=False) for text in down),
        ),
        constraints=tuple(map(Constraint.parse, require)),
    )


def a_study(*axes: str, **changes: Any) -> Study:
    """Return a study without trials, of a classifier in ONNX Runtime."""
    definitions = axes or (
        "batch_size=1,2",
        "graph_optimization=all,basic if batch_size=2",
        "io_binding=true,false",
    )
    study = Study(
        id="0123456789ab",
        created="2026-01-02T03:04:05.678+00:00",
        job=replace(a_job(), config={"device": "cpu"}, inputs=(), probes=("latency", "throughput")),
        space=Space(axes=tuple(map(parse_axis, definitions))),
        goal=Goal(
            objectives=(Objective.parse("throughput"),),
            constraints=(Constraint.parse("latency.p99 <= 10ms"),),
        ),
        strategy="grid",
        name="digits",
    )
    return replace(study, **changes)


def a_served_study(*axes: str, **changes: Any) -> Study:
    """Return a study of a model on a server, whose throughput is to be maximized."""
    job = Job(
        model=ModelRef(scheme="onnx", locator="digits.onnx"), backend="triton", probes=("load",), load=Load()
    )
    goal = Goal(objectives=(Objective.parse("throughput"),))
    return a_study(*axes, **({"job": job, "goal": goal} | changes))


@dataclass(slots=True, kw_only=True)
class SimulatedTrials:
    """Simulates runs of Jobs: the Result is a function of a Job's configuration and load.

    It serves as the `Rooms` of a sweep.
    """

    rate: Callable[[dict[str, KnobValue]], float]
    """Samples per second, by knobs, sizes of dimensions, and the load."""
    fails: Callable[[dict[str, KnobValue]], FailureKind | None] = lambda _point: None
    fails_at: str = "load"
    """The stage in which it fails."""
    noise: float = 0.0
    """Relative standard deviation; a Job that is run again in the same way has the same deviation."""
    inputs: tuple[InputSpec, ...] = (InputSpec(name="ids", shape=("batch", "seq"), dtype="int64"),)
    digest: str = DIGEST
    hardware: dict[str, Any] = field(default_factory=lambda: dict(HARDWARE))
    software: dict[str, Any] = field(default_factory=lambda: dict(SOFTWARE))
    jobs: list[tuple[bool, Job]] = field(default_factory=list)
    """Jobs that were run, in order, and whether fresh."""

    def __call__(self, job: Job, *, fresh: bool) -> Executor:
        """Return the executor of a Job."""
        del job

        def execute(job: Job, *, watch: Callable[[Event], None]) -> Result:
            self.jobs.append((fresh, job))
            return fold(empty_result(job), _notify(self._events(job, fresh=fresh), watch))

        return execute

    def _events(self, job: Job, *, fresh: bool) -> list[Event]:
        load = {} if job.load is None else {"concurrency": job.load.slots or 0, "rate": job.load.rate or 0.0}
        point: dict[str, KnobValue] = {**job.config, **job.sizes, **load, "backend": job.backend}
        factor = random.Random(f"{sorted(point.items())} {fresh}").gauss(1.0, self.noise)
        events: list[Event] = [
            Environment(hardware=dict(self.hardware), software=dict(self.software)),
            Loaded(
                model=ModelIdentity(name="digits", digest=self.digest, framework="onnx"), inputs=self.inputs
            ),
            Progressed(stage="latency: steady", runs=10, left=1.0),
        ]
        kind = self.fails(point)
        if kind is not None:
            failure = Failure(
                where=self.fails_at, kind=kind, message="it took too much", log="one\nthe last word\n\n"
            )
            return [*events, failure]
        rate = self.rate(point) * factor
        interval = Interval(low=rate * 0.99, high=rate * 1.01)
        times = Distribution.of([(1 + n / 100) / rate for n in range(20)])
        return [
            *events,
            observed_number("throughput", rate, interval=interval),
            Measurement(metric="latency", value=times),
        ]


def _notify(events: list[Event], watch: Callable[[Event], None]) -> list[Event]:
    for event in events:
        watch(event)
    return events
