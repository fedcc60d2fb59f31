"""The current stage of a run, and the conversion of probe and sampler output into events."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, get_args

from modeldyno.base.clock import perf_counter
from modeldyno.base.errors import RequestError
from modeldyno.base.identity import new_identity
from modeldyno.base.metrics.doubt import Doubt
from modeldyno.base.metrics.measurement import Distribution, Measurement
from modeldyno.base.metrics.metric import METRICS
from modeldyno.base.result.result import Event, Progressed, Result
from modeldyno.base.system.deadline import answered_by
from modeldyno.engine.interfaces.probe import ProbeOutput
from modeldyno.engine.runtime import forked_analysis
from modeldyno.engine.runtime.measured_region import Region
from modeldyno.engine.runtime.time_limit import TimeLimit
from modeldyno.models.load_stages import WatchStage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modeldyno.base.job.job import Job

_OUTPUTS = get_args(ProbeOutput)
INTERRUPTED = Doubt(
    code="interrupted",
    seen="the run was interrupted before it finished",
    advice="run it again to the end before drawing conclusions from it",
)


@dataclass(slots=True)
class RunStage:
    """The current stage of a run: reported to `watch`, and named in a Failure."""

    watch: Callable[[Event], None]
    mark: Callable[[WatchStage], None] = field(default=lambda _stage: None)
    """Marks the stage for the samplers."""
    analyst: forked_analysis.Analyst = forked_analysis.analyse_here
    """Runs the static analysis of the model."""
    region: Region = nullcontext
    """Entered for each pass of measuring."""
    limit: TimeLimit | None = None
    """The time limit of the command."""
    name: str = "start"
    measured: bool = False
    """Whether a probe has found anything by calling the model."""

    @contextmanager
    def __call__(self, name: str, spent: dict[str, float] | None = None) -> Iterator[None]:
        """Enter a stage until the end of the block; record its seconds in `spent`."""
        self.name = name
        self.watch(Progressed(stage=name))
        begin = perf_counter()
        yield
        if spent is not None:
            spent[name] = perf_counter() - begin

    def bound_requests(self) -> AbstractContextManager[None]:
        """Give up the requests sent to a server within the block at the time limit."""
        return nullcontext() if self.limit is None else answered_by(self.limit.end)


def event_of(item: ProbeOutput) -> Event:
    """Return the event for what a probe or a sampler yielded, with numbers of NumPy as those of Python.

    Raises:
        RequestError: the metric is not declared, or it is nothing that a Result has a place for.
    """
    if not isinstance(item, _OUTPUTS):
        raise RequestError(
            f"A probe gave {item!r:.60}, which is a {type(item).__name__}; let it yield a "
            "Measurement, a Doubt, a Failure or an Artifact."
        )
    if isinstance(item, Measurement) and item.metric not in METRICS:
        raise RequestError(
            f"A probe measured '{item.metric}', which is no declared metric; declare it by "
            "an entry point of the group modeldyno.metrics or by modeldyno.register_metric."
        )
    return _with_plain_numbers(item) if isinstance(item, Measurement) else item


def _with_plain_numbers(measurement: Measurement) -> Measurement:
    """Return a measurement whose numbers are of Python: JSON holds no others, such as those of NumPy.

    Raises:
        RequestError: its value is no number.
    """
    value, interval = measurement.value, measurement.interval
    if isinstance(value, Distribution) or type(value) in {int, float}:
        return measurement
    try:
        return replace(
            measurement,
            value=float(value),
            runs=tuple(map(float, measurement.runs)),
            interval=interval and replace(interval, low=float(interval.low), high=float(interval.high)),
        )
    except (TypeError, ValueError, RuntimeError) as error:  # such as a tensor of several elements
        raise RequestError(
            f"A probe measured {measurement.metric} as {value!r:.60}, which is no number; give a float."
        ) from error


def record_measurements(stream: Iterator[Event], measurements: list[Measurement]) -> Iterator[Event]:
    """Pass events on, and append measurements to `known` for the probes that follow."""
    for event in stream:
        if isinstance(event, Measurement):
            measurements.append(event)
        yield event


def empty_result(job: Job) -> Result:
    """Return the empty Result with which a run of this Job begins."""
    return Result(job=job, **new_identity())
