"""The Result: the central document, and the events that it is folded from.

A run is a stream of events and the Result is a fold over them, so that a run that crashed, was killed or
interrupted still gives a Result with everything up to then.
"""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from modeldyno.base.document import MeasuredAt, StoredDocument, presentation
from modeldyno.base.errors import RequestError, RunFailed, UncertifiedWarning, UnknownName
from modeldyno.base.job.devices import is_cpu
from modeldyno.base.job.input_spec import InputSpec
from modeldyno.base.job.job import Job
from modeldyno.base.job.model_ref import ModelIdentity
from modeldyno.base.job.static_options import HERE
from modeldyno.base.metrics import doubt
from modeldyno.base.metrics.constraints import Answer, Constraint, Judgement
from modeldyno.base.metrics.doubt import Doubt
from modeldyno.base.metrics.measurement import (
    INTERRUPTED,
    LITTLE_LAW,
    RATES_OF_LOADS,
    SHORT_LOAD,
    Distribution,
    Measurement,
    pool_measurements,
    void_unearned,
)
from modeldyno.base.metrics.metric import COSTS, METRICS, Query
from modeldyno.base.metrics.queries import format_main_figures, list_numbers
from modeldyno.base.result import trace_data as activity
from modeldyno.base.result.static_data import StaticReport
from modeldyno.base.result.trace_data import LiveSecond, TraceReport

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

SCHEMA = 1
_NAMED_BY = ("device_total", "device_used")
"""Metrics whose scope is the device of a server."""
_SERVER = "url"
"""The scheme of a model on a server that ran already."""
Fact = str | int | float | bool


class FailureKind(StrEnum):
    """What went wrong, in one word."""

    OOM = "oom"
    CRASH = "crash"
    KILLED = "killed"
    EXIT = "exit"
    TIMEOUT = "timeout"
    ERROR = "error"
    INVALID_OUTPUT = "invalid-output"
    SERVER = "server"
    CLOCK = "clock"


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A failure of a run, as data."""

    where: str
    """The stage: import, load, open, first call, a probe's name, or child."""
    kind: FailureKind
    message: str
    log: str = ""
    """The end of the model's output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """Where it ran. Different `hardware` prevents a comparison; different `software` is part of a change."""

    hardware: dict[str, Fact] = field(default_factory=dict)
    software: dict[str, Fact] = field(default_factory=dict)
    conditions: dict[str, Fact] = field(default_factory=dict)
    """Conditions during the run: load average, governor, threads, steal."""

    @property
    def device(self) -> str:
        """The device that the model ran on, by the name that its framework gives; cpu if none is known."""
        return str(self.conditions.get("device", "cpu"))

    @property
    def on_cpu(self) -> bool:
        """Whether the model ran on the processor."""
        return is_cpu(self.device)


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """A file that belongs to a Result, stored next to the store."""

    name: str
    path: str
    """Empty if the text is in the document itself."""
    digest: str
    keep_until: str | None = None
    """UTC time after which it may be removed; None keeps it as long as the Result."""
    text: str = ""
    """Of a short file, such as the configuration given to a server."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Result(StoredDocument):
    """The outcome of a Job: ``result["latency.p50"]`` is a number in base units, `keys` lists all of them."""

    KIND = "result"
    id: str
    """Twelve hexadecimal digits; any unambiguous prefix names it."""
    created: str
    """UTC time when the run began, ISO 8601."""
    job: Job
    schema: int = SCHEMA
    model: ModelIdentity | None = None
    """None if loading failed."""
    inputs: tuple[InputSpec, ...] = ()
    """As used: concrete shapes, the source and digest of the values."""
    environment: Environment = field(default_factory=Environment)
    measurements: tuple[Measurement, ...] = ()
    outline: StaticReport | None = None
    """The static analysis, if the model was analysed."""
    activity: TraceReport | None = None
    """The trace of the second pass, if there was one."""
    doubts: tuple[Doubt, ...] = ()
    failures: tuple[Failure, ...] = ()
    artifacts: tuple[Artifact, ...] = ()

    def __repr__(self) -> str:
        figures = ", ".join(format_main_figures(self.measurements)) or "nothing measured"
        codes = ", ".join(
            dict.fromkeys(noteworthy_doubt.code for noteworthy_doubt in doubt.noteworthy_doubts(self.doubts))
        )
        doubted = f"; doubts: {codes}" if codes else ""
        failed = f"; failed in {self.failure.where}" if self.failure else ""
        return f"<Result {self.id} of {self.name}: {figures}{doubted}{failed}>"

    @property
    def name(self) -> str:
        """Name of the model, even if it never loaded."""
        return self.model.name if self.model else (self.job.name or self.job.model.argument)

    @property
    def model_digests(self) -> frozenset[str]:
        """Digest of its model; none if loading failed."""
        return frozenset({self.model.digest} if self.model else ())

    @property
    def measured_at(self) -> MeasuredAt:
        """Where it was measured; of a server that ran already, with the devices that it reported."""
        devices = dict.fromkeys(m.scope for m in self.measurements if m.metric in _NAMED_BY and m.scope)
        reported = ", ".join(device for device in devices if not device.endswith(" baseline"))
        return place_of(self.job, self.environment, reported)

    @property
    def processes(self) -> int:
        """Fresh processes that the measurements come from."""
        runs = (m.value.runs if isinstance(m.value, Distribution) else m.runs for m in self.measurements)
        return max(map(len, runs), default=0) or 1

    @property
    def failure(self) -> Failure | None:
        """The first failure, which explains those after it; None if nothing failed."""
        return self.failures[0] if self.failures else None

    @property
    def interrupted(self) -> bool:
        """Whether the user ended it early."""
        return any(doubt.code == INTERRUPTED for doubt in self.doubts)

    @property
    def peaks_scope(self) -> str:
        """The scope of the peaks, and of the bounds from them, of the device that the model ran on."""
        return HERE if self.environment.on_cpu else self.environment.device

    def find(self, metric: str, scope: str = "") -> Measurement | None:
        """Return the measurement of a metric at a scope, or None."""
        return next((m for m in self.measurements if (m.metric, m.scope) == (metric, scope)), None)

    def distribution(self, metric: str, scope: str = "") -> Distribution | None:
        """Return the samples of a metric at a scope; None if it was not measured, or is a single number."""
        measurement = self.find(metric, scope)
        value = None if measurement is None else measurement.value
        return value if isinstance(value, Distribution) else None

    def withheld(self, metric: str, scope: str = "") -> str:
        """Return the code of the doubt with which a rate of a load, or its cost, is withheld; else empty."""
        if COSTS.get(metric, metric) not in RATES_OF_LOADS or self.find(metric, scope) is not None:
            return ""
        return next((each.code for each in self.doubts if each.code in {SHORT_LOAD, LITTLE_LAW}), "")

    def number(self, metric: str, scope: str = "", statistic: str = "mean") -> float | None:
        """Return a number in base units, certified or not; None if the metric was not measured."""
        measurement = self.find(metric, scope)
        value = None if measurement is None else measurement.value
        return value.statistic(statistic) if isinstance(value, Distribution) else value

    def ask(self, query: Query | str) -> Answer:
        """Answer a query (``latency.p99``, ``latency.p99.ci``, ``throughput``) with its interval."""
        parsed = Query.parse(query, self._metrics) if isinstance(query, str) else query
        try:
            return Answer.to(parsed, self.measurements)
        except RunFailed as error:
            if self.failure is None:
                raise
            raise RunFailed(f"The run failed in {self.failure.where}: {self.failure.message}.") from error

    def judge(self, bound: Constraint | str) -> Judgement:
        """Judge a bound (``latency.p99 <= 50ms``) by the interval: held, broken or undecided."""
        parsed = self.read_bound(bound) if isinstance(bound, str) else bound
        return parsed.judge(self.measurements)

    def read_bound(self, text: str) -> Constraint:
        """Read a bound for this Result.

        Raises:
            UnknownName: its metric is not installed; if the Result has it, the message gives the value.
            RequestError: the text does not follow the grammar.
        """
        try:
            return Constraint.parse(text)
        except UnknownName as error:
            name = re.split(r"\W", text.strip(), maxsplit=1)[0]
            own = [m for m in self.measurements if m.metric == name]
            if not own or name in METRICS:
                raise
            figures = ", ".join(format_main_figures(own))
            raise UnknownName(f"{error} This result has {figures}, which no bound can judge here.") from None

    @property
    def _metrics(self) -> frozenset[str]:
        return frozenset(m.metric for m in self.measurements)

    def __getitem__(self, query: str) -> float | None:
        """Return one number in base units; None with a warning that says why, if it is not certified.

        Raises:
            UnknownName: the metric or the statistic does not exist.
            RequestError: a distribution was queried without a statistic, or a number with one.
            RunFailed: the metric was not measured at this scope.
        """
        answer = self.ask(query)
        if answer.value is None:
            warnings.warn(f"{query} is None: {answer.why}", UncertifiedWarning, stacklevel=2)
        return answer.value

    def __contains__(self, query: object) -> bool:
        """Return whether the metric was measured at this scope; the statistic does not matter."""
        try:
            parsed = Query.parse(str(query), self._metrics)
        except RequestError:
            return False
        return self.find(parsed.metric, parsed.scope) is not None

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def keys(self) -> tuple[str, ...]:
        """List the valid keys: ``latency.p50``, ``latency.p99.raw``, ``macs@encoder``."""
        return tuple(str(query) for query, _ in list_numbers(self.measurements))

    def _ipython_key_completions_(self) -> list[str]:
        return list(self.keys())

    def to_dict(self) -> dict[str, float]:
        """Return every number in base units by its key; an uncertified percentile ends in ``.raw``."""
        return {str(query): value for query, value in list_numbers(self.measurements)}

    def to_pandas(self) -> Any:
        """Return a pandas.DataFrame with a row for each number in base units and its 95 % interval.

        The columns are metric, scope, statistic, value, low, high, unit.

        Raises:
            MissingExtra: pandas is not installed.
        """
        return presentation().data_frame(self)

    def to_html(self) -> str:
        """Return the report as one self-contained page."""
        return presentation().page(self)

    def show(self) -> None:
        """Print the report, in colour if the terminal supports it."""
        presentation().show(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """The model is loaded; its inputs are known."""

    model: ModelIdentity
    inputs: tuple[InputSpec, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Progressed:
    """The progress of the run; shown, but not part of the Result."""

    stage: str
    """For example ``load`` or ``latency: steady``."""
    runs: int = 0
    left: float | None = None
    """Estimated seconds left in this stage."""
    value: float | None = None
    """The target statistic so far, seconds."""
    precision: float | None = None
    """Relative half-width of its interval so far."""
    share: float = 0.0
    """Share of the runs of the whole command that are done, where their largest number is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SecondPassed:
    """A second of a load that goes on; shown, but not part of the Result."""

    load: str
    """The load in words, such as ``concurrency 8``."""
    second: LiveSecond


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The request turned out to be wrong once the model was loaded; nothing was measured."""

    error: str
    """The name of the exception class in modeldyno.base.errors."""
    message: str
    probe: str = ""
    """The probe that the backend does not support, if that is why."""
    trace: str = ""
    """The traceback in the child process, the user's own code included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The run ended by itself; without this event it was ended from outside."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuringBegan:
    """The model is ready, and the device is about to be measured; sent where somebody guards it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuringEnded:
    """The device is no longer measured."""


Event = (
    Loaded
    | Environment
    | Measurement
    | StaticReport
    | TraceReport
    | Artifact
    | Doubt
    | Failure
    | Progressed
    | SecondPassed
    | MeasuringBegan
    | MeasuringEnded
    | Refused
    | Ended
)


def fold(empty: Result, events: Iterable[Event]) -> Result:
    """Fold events into a Result; `empty` has the identity, the time and the Job."""
    measurements: dict[tuple[str, str], Measurement] = {}
    doubts: dict[Doubt, None] = {}
    failures: list[Failure] = []
    activities: list[TraceReport] = []
    artifacts: list[Artifact] = []
    result = empty
    for event in events:
        match event:
            case Loaded(model=model, inputs=inputs):
                result = replace(result, model=model, inputs=inputs)
            case Environment():
                result = replace(result, environment=event)
            case Measurement():
                measurements[event.metric, event.scope] = event
            case StaticReport():
                result = replace(result, outline=event)
            case TraceReport():
                activities.append(event)
            case Artifact():
                artifacts.append(event)
            case Doubt():
                doubts[event] = None
            case Failure():
                failures.append(event)
            case _:  # the others are not part of the Result
                continue
    return replace(
        result,
        measurements=void_unearned(measurements.values(), (raised.code for raised in doubts)),
        activity=activity.join_reports(activities),
        doubts=tuple(doubt.adjust_advice(doubts, several=_may_run_threads(result.job))),
        failures=tuple(failures),
        artifacts=tuple(artifacts),
    )


def _may_run_threads(job: Job) -> bool:
    """Return whether several threads may have run; a single one must be requested."""
    counts = [n for name, n in job.config.items() if name.endswith("threads") and isinstance(n, int)]
    return max(counts, default=2) > 1


def merge(results: Sequence[Result]) -> Result:
    """Pool the Results of one Job from fresh processes, under the id of the first one.

    A failed process contributes failures and doubts; its numbers count only if no process succeeded.
    """
    if len(results) == 1:
        return results[0]
    successful = [r for r in results if not r.failures] or results
    pooled = replace(
        successful[0],
        id=results[0].id,
        created=results[0].created,
        measurements=pool_measurements([r.measurements for r in successful]),
        doubts=doubt.pooled_doubts([d for r in results for d in r.doubts]),
        failures=tuple(f for r in results for f in r.failures),
        artifacts=tuple(a for r in results for a in r.artifacts),
    )
    latency = pooled.find("latency")
    if latency is None or not isinstance(latency.value, Distribution):
        return pooled
    missing = doubt.missing_percentile_doubts("latency", latency.value, pooled.job.plan.percentiles)
    return replace(pooled, doubts=(*pooled.doubts, *missing))


def scopes(result: Result) -> frozenset[str]:
    """Return the scopes that are modules or phases, not dtypes or devices."""
    modules = (module.path for module in result.outline.modules) if result.outline else ()
    measured = (m.scope for m in result.measurements if m.metric in {"parameters", "macs", "flops"})
    traced = (layer.path for layer in result.activity.layers) if result.activity else ()
    return frozenset(filter(None, (*modules, *measured, *traced)))


KINDS = {
    FailureKind.OOM: "out of memory",
    FailureKind.CRASH: "crash",
    FailureKind.KILLED: "killed",
    FailureKind.EXIT: "the process ended",
    FailureKind.TIMEOUT: "time-out",
    FailureKind.ERROR: "error",
    FailureKind.INVALID_OUTPUT: "invalid output",
    FailureKind.CLOCK: "wrong clock",
    FailureKind.SERVER: "the server",
}
"""Failure kind to its readable name."""


def place_of(job: Job, environment: Environment | None, server_devices: str = "") -> MeasuredAt:
    """Return where a Job was run; `server_devices` are those that a server reported."""
    is_elsewhere = job.model.scheme == _SERVER
    processor = "" if environment is None else str(environment.hardware.get("processor", ""))
    device = str(job.config.get("device") or ("cpu" if environment is None else environment.device))
    batch_size = job.config.get("batch_size", 1)
    return MeasuredAt(
        host=(urlsplit(job.model.locator).hostname or "") if is_elsewhere else processor,
        device=server_devices if is_elsewhere else device,
        engine=job.backend,
        batch_size=batch_size if isinstance(batch_size, int) else 1,
    )
