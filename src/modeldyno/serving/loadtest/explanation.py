"""Explain the latency of a model: measure it in process, served alone and under load, in rounds.

Each round measures every level once, in the opposite order of the round before, so that a noisy minute of
the machine meets all of them. In process each round has a fresh process; the server stays, because it takes
longer to start than to measure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sized
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from modeldyno.base import plugins
from modeldyno.base.clock import monotonic
from modeldyno.base.errors import ModelDynoError, OutOfTime, ProbeUnsupported, RequestError, RunFailed
from modeldyno.base.identity import new_identity
from modeldyno.base.job.job import Job
from modeldyno.base.job.knob import BATCH_SIZE, REQUEST_TRACE, find_knob
from modeldyno.base.job.load_spec import Load, parse_rate
from modeldyno.base.job.probe_options import ProbeOptions
from modeldyno.base.job.static_options import HERE
from modeldyno.base.result.result import Event, Progressed, Result, merge
from modeldyno.engine.data.outputs import load_call
from modeldyno.engine.interfaces.executor import Executor
from modeldyno.engine.runtime.child_process import subprocess_executor
from modeldyno.engine.runtime.interrupts import counted_interrupts
from modeldyno.engine.runtime.session import ignore_event
from modeldyno.engine.runtime.time_limit import TimeLimit
from modeldyno.engine.runtime.warm_worker import open_warm_worker
from modeldyno.profiling.request import OPERATORS, OUTPUTS, STATIC, Request, make_inspection
from modeldyno.profiling.resolve_model import resolve_model
from modeldyno.serving.load.explanation import (
    ECHO,
    STATISTICS,
    Explanation,
    RunLevel,
    last_result,
    level_of,
    usual_statistic,
)
from modeldyno.serving.load.request_stages import has_stages
from modeldyno.serving.servers.echo_model import write_echo_model

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from modeldyno.base.document import StoredDocument
    from modeldyno.base.job.knob import KnobValue
    from modeldyno.base.metrics.measurement_plan import Plan

ROUNDS, MAX_TIME, CONCURRENCY = 3, 120.0, 4
_MEASURING = 0.5
"""Share of the time for measuring; the rest is for starts, warm-up and analysis."""
_SHORTEST, _LONGEST = 0.3, 5.0
"""Seconds that a probe measures in a round, however little or much time there is."""
_WARMED, _OVERHEAD = 3.0, 2.0
"""Times its measuring time, and seconds on top, that a load takes on a server that runs."""
_NOT_ASKED = "not asked for; `backend=triton` serves the model"
_SHARED = ("protocol",)
"""Knobs of the server that the echo shares: what decides on how a request travels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainOptions:
    """How an explanation is measured."""

    load: Load = field(default_factory=lambda: Load(concurrency=CONCURRENCY))
    """The load of the last level."""
    rounds: int = ROUNDS
    max_time: float = MAX_TIME
    """Seconds for all of it; what does not fit is not measured again, but once in any case."""
    statistic: str | None = None
    """None for the usual one: of a call the median, of requests the mean."""

    def __post_init__(self) -> None:
        """Refuse, in one sentence, what cannot be."""
        if self.rounds < 1:
            raise RequestError("An explanation needs at least one round.")
        if self.statistic is not None and self.statistic not in STATISTICS:
            raise RequestError(
                f"The statistic of an explanation is {' or '.join(STATISTICS)}, not '{self.statistic}'."
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainPlan:
    """The checked jobs of an explanation."""

    jobs: Mapping[RunLevel, Job]
    missing: Mapping[str, str]
    """Level to the reason why it is not measured."""
    options: ExplainOptions
    echo: Request | None
    """Serves the echo, whose model is known once the model has been called; None without one. A server that
    traces requests needs none."""


def plan_explanation(request: Request, options: ExplainOptions) -> ExplainPlan:
    """Check a request and make a Job of each level.

    The backend of the request is that of the server if it serves, else that of the call in process. A knob
    goes to each backend that has it.

    Raises:
        RequestError: the request is wrong.
        MissingExtra: an optional package is not installed.
    """
    model = resolve_model(request.model) if isinstance(request.model, str) else request.model
    request = replace(request, model=model)
    own = plugins.loader(model.ref.scheme).backend
    requested = request.backend
    caller = (
        None if plugins.serves(own) else own if requested is None or plugins.serves(requested) else requested
    )
    server = next((name for name in (requested, own) if name is not None and plugins.serves(name)), None)
    used = tuple(name for name in (caller, server) if name is not None)
    missing: dict[str, str] = {}
    jobs: dict[RunLevel, Job] = {}
    served = None
    if server is not None:
        settings = _settings_of(server, used, request.settings)
        served = _with_trace(replace(request, backend=server, settings=settings, probes=("load",)))
    probes = 2 * (caller is not None) + (0 if served is None else 2 if _is_traced(served.settings) else 3)
    plan = _share_time(request.plan, options, probes)
    if caller is None:
        missing[RunLevel.IN_PROCESS] = "a running server has the model; only requests can be measured"
    else:
        jobs[RunLevel.IN_PROCESS] = replace(
            request,
            backend=caller,
            settings=_settings_of(caller, used, request.settings),
            probes=(STATIC, "latency", OPERATORS),
            inspection=make_inspection(devices=(HERE,), modules=False),
            plan=plan,
        ).job()
    if served is None:
        missing |= dict.fromkeys((RunLevel.ALONE, RunLevel.LOADED), _NOT_ASKED)
        return ExplainPlan(jobs=jobs, missing=missing, options=options, echo=None)
    served = replace(served, plan=plan)
    jobs[RunLevel.ALONE] = replace(served, load=Load(concurrency=1)).job()
    if options.load == Load(concurrency=1):
        missing[RunLevel.LOADED] = "the load is one request at a time, which is alone"
    else:
        jobs[RunLevel.LOADED] = replace(served, load=options.load).job()
    echo = None
    if caller is None:
        missing[ECHO] = missing[RunLevel.IN_PROCESS]
    else:
        kept = {name: value for name, value in served.settings.items() if name in _SHARED}
        echo = replace(served, settings=kept, load=Load(concurrency=1), name=ECHO)
    return ExplainPlan(jobs=jobs, missing=missing, options=options, echo=echo)


def _with_trace(served: Request) -> Request:
    """Return a request with which the server traces requests, if it can and no other knob forbids it."""
    assert served.backend is not None
    name = REQUEST_TRACE.name
    if name in served.settings or not find_knob(name, plugins.backend(served.backend).knobs):
        return served
    traced = replace(served, settings={**served.settings, name: True})
    try:
        traced.job()
    except RequestError:
        return served
    return traced


def _is_traced(settings: Mapping[str, KnobValue]) -> bool:
    return bool(settings.get(REQUEST_TRACE.name))


def _share_time(plan: Plan, options: ExplainOptions, probes: int) -> Plan:
    """Return the plan of a probe in a round: its share of the time."""
    seconds = _MEASURING * options.max_time / (options.rounds * probes)
    seconds = min(_LONGEST, max(_SHORTEST, seconds))
    return replace(plan, max_time=seconds, min_time=min(plan.min_time, seconds / 2), processes=1)


def _settings_of(
    backend: str, used: Sequence[str], settings: Mapping[str, KnobValue]
) -> dict[str, KnobValue]:
    """Return the settings that a backend has a knob for, and those that none has, which it then refuses."""
    knobs_by_backend = {name: plugins.backend(name).knobs for name in used}
    return {
        name: value
        for name, value in settings.items()
        if find_knob(name, knobs_by_backend[backend])
        or not any(find_knob(name, knobs) for knobs in knobs_by_backend.values())
    }


def load_of(concurrency: int | None, rate: str | None) -> Load:
    """Return the load of the last level.

    Raises:
        RequestError: the rate is no rate.
    """
    if rate is None:
        return Load(concurrency=concurrency or CONCURRENCY)
    return Load(**parse_rate(rate), concurrency=concurrency)


def describe_plan(planned: ExplainPlan) -> str:
    """Say what is measured, and how often."""
    names = [str(level) for level in RunLevel if level in planned.jobs]
    if planned.echo is not None and not _is_traced(planned.jobs[RunLevel.ALONE].config):
        names.append("an echo of the same size")
    rounds = planned.options.rounds
    times = "Measuring" if rounds == 1 else f"Measuring in up to {rounds} rounds"
    return f"{times}: {', '.join(names)}"


# --- measuring ---------------------------------------------------------------------------------------


def measure_explanation(
    planned: ExplainPlan,
    *,
    watch: Callable[[Event], None] = ignore_event,
    execute: Executor | None = None,
    baseline: Mapping[str, Result] | None = None,
    clock: Callable[[], float] = monotonic,
) -> Explanation:
    """Measure every level in rounds and return the explanation; after an interruption, of what there is.

    Args:
        planned: what to measure.
        watch: called with every event.
        execute: runs the jobs in process; by default in fresh processes.
        baseline: results to compare with.
        clock: monotonic seconds.

    Raises:
        RequestError: a job cannot be run.
        MissingExtra: a server is not installed.
        RunFailed: nothing was measured.
        OutOfTime: nothing could be measured in time.
    """
    if baseline:
        level = RunLevel.LOADED if planned.jobs.keys() - {RunLevel.IN_PROCESS} else RunLevel.IN_PROCESS
        _check_level(level, baseline)
    with ExitStack() as stack:
        interrupts = stack.enter_context(counted_interrupts())
        limit = TimeLimit.begin(planned.options.max_time)
        rounds = _Rounds(
            planned=planned,
            watch=watch,
            interrupts=interrupts,
            call=execute or stack.enter_context(subprocess_executor(interrupts, limit=limit)),
            serve=stack.enter_context(open_warm_worker(interrupts, limit)).execute,
            serve_echo=stack.enter_context(open_warm_worker(interrupts, limit)).execute,
            folder=Path(stack.enter_context(TemporaryDirectory(prefix="modeldyno-"))),
            missing=dict(planned.missing),
        )
        rounds.run(clock)
    results = {str(name): merge(runs) for name, runs in rounds.results.items()}
    if not results:
        raise RunFailed("It was interrupted before anything was measured.")
    for result in results.values():
        if result.failure is not None and not result.find("latency") and len(results) == 1:
            raise RunFailed(f"{result.name} failed in {result.failure.where}: {result.failure.message}.")
    return Explanation(
        **new_identity(),
        results=results,
        baseline=dict(baseline or {}),
        statistic=planned.options.statistic or usual_statistic(level_of(last_result(results))),
        missing=rounds.missing,
    )


@dataclass(slots=True, kw_only=True)
class _Rounds:
    """Measures the levels in turns."""

    planned: ExplainPlan
    watch: Callable[[Event], None]
    interrupts: Sized
    call: Executor
    serve: Executor
    serve_echo: Executor
    folder: Path
    missing: dict[str, str]
    results: dict[str, list[Result]] = field(default_factory=dict)
    echo: Job | None = None
    took: dict[str, float] = field(default_factory=dict)
    """Seconds that each step took last."""
    failed: set[str] = field(default_factory=set)
    """What is not measured again, because it failed."""

    def run(self, clock: Callable[[], float]) -> None:
        """Measure round by round, until all rounds are done or nothing more fits into the time."""
        options, begin = self.planned.options, clock()
        for number in range(options.rounds):
            measured = False
            for name in self._order(number):
                if self.interrupts:
                    return
                step_begin = clock()
                if step_begin - begin + self._expected_seconds(name) > options.max_time:
                    if not number:
                        self._leave_out(name)
                    continue
                try:
                    self._measure(name, f"round {number + 1} of {options.rounds}, {name}")
                except OutOfTime:
                    if not self.results:
                        raise
                    self._leave_out(name)
                    continue
                self.took[name], measured = clock() - step_begin, True
            if not measured:
                return

    def _leave_out(self, name: str) -> None:
        """Note that no time was left for a level, unless an earlier round has measured it."""
        if name not in self.results:
            self.failed.add(name)
            self.missing[name] = "no time was left to measure it"

    def _expected_seconds(self, name: str) -> float:
        """Return the seconds that a step may take again: what it took, of a server without its start."""
        took = self.took.get(name, 0.0)
        job = self.planned.jobs[RunLevel.ALONE] if name == ECHO else self.planned.jobs[RunLevel(name)]
        if name == RunLevel.IN_PROCESS:
            return took
        return min(took, _WARMED * job.plan.max_time + _OVERHEAD)

    def _order(self, number: int) -> Iterator[str]:
        """Yield what to measure in a round; the first begins with the server, which may not be installed."""
        served = [level for level in (RunLevel.ALONE, RunLevel.LOADED) if level in self.planned.jobs]
        called = [level for level in (RunLevel.IN_PROCESS,) if level in self.planned.jobs]
        names = [*served, *called, ECHO]
        for name in names[::-1] if number % 2 else names:
            if name not in self.failed and (name != ECHO or self.needs_echo):
                yield name

    @property
    def needs_echo(self) -> bool:
        """Whether the way of a request is known by an echo only: the server has traced none."""
        alone = self.results.get(RunLevel.ALONE, [])
        return self.planned.echo is not None and not any(map(has_stages, alone))

    def _measure(self, name: str, label: str) -> None:
        def tell(event: Event) -> None:
            if isinstance(event, Progressed):
                event = replace(event, stage=f"{label}: {event.stage}")
            self.watch(event)

        if name == ECHO:
            self._measure_echo(tell)
            return
        job = self.planned.jobs[RunLevel(name)]
        result = self._call(job, tell) if name == RunLevel.IN_PROCESS else self._serve(job, tell)
        self._keep(name, result)

    def _serve(self, job: Job, tell: Callable[[Event], None]) -> Result:
        """Put the server under a load, once more if it fails while it traces: at times, Triton crashes so."""
        result = self.serve(job, watch=tell)
        if result.failure is None or result.interrupted or not _is_traced(job.config):
            return result
        return self.serve(job, watch=tell)

    def _keep(self, name: str, result: Result) -> None:
        if result.failure is not None:
            self.failed.add(name)
        if not result.interrupted or name not in self.results:
            self.results.setdefault(name, []).append(result)

    def _call(self, job: Job, tell: Callable[[Event], None]) -> Result:
        """Call the model in process: its first time with the analysis, and if it is served, its outputs."""
        first = RunLevel.IN_PROCESS not in self.results
        if not first:
            job = _without_probe(job, STATIC)
        if first and self.needs_echo:
            observation = ProbeOptions(outputs=str(self._outputs))
            job = replace(job, probes=(*job.probes, OUTPUTS), observation=observation)
        in_process = self.results.get(RunLevel.IN_PROCESS, [])
        if in_process and not in_process[0].find("unwatched_time", OPERATORS):
            job = _without_probe(job, OPERATORS)
        try:
            return self._without_outputs(self.call(job, watch=tell))
        except ProbeUnsupported as error:
            return self._without_outputs(self.call(_without_probe(job, error.probe), watch=tell))

    @property
    def _outputs(self) -> Path:
        return self.folder / "call.npz"

    def _without_outputs(self, result: Result) -> Result:
        """Return a Result whose job is that of every round: without the file of its outputs."""
        job = replace(_without_probe(result.job, OUTPUTS), observation=ProbeOptions())
        artifacts = tuple(artifact for artifact in result.artifacts if artifact.path != str(self._outputs))
        return replace(result, job=job, artifacts=artifacts)

    def _measure_echo(self, tell: Callable[[Event], None]) -> None:
        try:
            if self.echo is None:
                self.echo = self._echo_job()
            result = self.serve_echo(self.echo, watch=tell)
            if result.failure is not None:
                raise RunFailed(result.failure.message)
        except OutOfTime:
            raise
        except (ModelDynoError, OSError, ImportError, ValueError) as error:
            self.failed.add(ECHO)
            self.missing[ECHO] = f"it could not be served: {error}".rstrip(".")
        else:
            self._keep(ECHO, result)

    def _echo_job(self) -> Job:
        """Write the echo, and return the job that serves it."""
        if not self._outputs.is_file():
            raise ValueError("the call in process gave no outputs")
        assert self.planned.echo is not None
        path = self.folder / f"{ECHO}.onnx"
        write_echo_model(path, *load_call(self._outputs))
        request = self.planned.echo
        settings = {name: value for name, value in request.settings.items() if name != BATCH_SIZE.name}
        return replace(request, model=f"onnx:{path}", settings=settings, trust=False).job()


def _without_probe(job: Job, name: str) -> Job:
    return replace(job, probes=tuple(probe for probe in job.probes if probe != name))


# --- documents ---------------------------------------------------------------------------------------


def results_of(document: StoredDocument) -> dict[str, Result]:
    """Return the results that an explanation consists of, by level.

    Raises:
        RequestError: it is neither an explanation nor a result of a latency.
    """
    if isinstance(document, Explanation):
        return dict(document.results)
    if isinstance(document, Result):
        if document.find("latency") is None:
            raise RequestError(
                f"{document.id[:6]} has no latency to explain; measure one with profile or load."
            )
        return {str(level_of(document)): document}
    raise RequestError("Only results and explanations can be explained; modeldyno list shows them.")


def explain_results(
    results: Mapping[str, Result],
    baseline: Mapping[str, Result] | None = None,
    *,
    statistic: str | None = None,
) -> Explanation:
    """Explain results that were measured before, or what changed from others to them.

    Raises:
        RequestError: the statistic is unknown, or one is in process and the other of a server.
    """
    ExplainOptions(statistic=statistic)
    level = level_of(last_result(results))
    if baseline:
        _check_level(level, baseline)
    return Explanation(
        **new_identity(),
        results=dict(results),
        baseline=dict(baseline or {}),
        statistic=statistic or usual_statistic(level),
    )


def _check_level(level: RunLevel, baseline: Mapping[str, Result]) -> None:
    """Refuse to compare a call in process with a request.

    Raises:
        RequestError: the last level of the baseline is not this one.
    """
    before = level_of(last_result(baseline))
    if before is not level:
        raise RequestError(
            f"The baseline was measured {before} and the other {level}; compare two of the same level."
        )
