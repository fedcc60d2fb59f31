"""Run a Job in this process: load, open, first call, timed pass, second pass -> Result.

`run` folds the events that `events` yields; an executor may send the same events through a pipe and
fold them elsewhere. Errors of the model become Failures here; a wrong request raises.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Self, TypeVar

from modeldyno.base import plugins
from modeldyno.base.errors import ModelDynoError, PredictedOutOfMemory, RequestError
from modeldyno.base.job.devices import is_cpu
from modeldyno.base.job.knob import KnobValue
from modeldyno.base.metrics.doubt import Doubt
from modeldyno.base.metrics.measurement import Distribution, Measurement, pack
from modeldyno.base.metrics.metric import CallStage
from modeldyno.base.result.result import Ended, Environment, Event, Failure, FailureKind, Loaded, Result, fold
from modeldyno.base.stats.units import BYTES, format_quantity
from modeldyno.base.system.process_tree import list_process_tree, tree_memory
from modeldyno.engine.data.batches import assumption_doubts, resolve_inputs
from modeldyno.engine.data.requested_inputs import with_requested_inputs
from modeldyno.engine.environment import machine
from modeldyno.engine.interfaces.probe import NO_TURNS, Pass, ProbeContext
from modeldyno.engine.runtime.cohosted import CoHostedModels, load_cohosted
from modeldyno.engine.runtime.events import INTERRUPTED, RunStage, empty_result, event_of, record_measurements
from modeldyno.engine.runtime.failures import failure_of
from modeldyno.engine.runtime.forked_analysis import Analyst, analyse_here
from modeldyno.engine.runtime.output_checks import (
    OpenedModel,
    check_known,
    check_needs,
    check_outputs,
    tolerate_errors,
)
from modeldyno.engine.runtime.sampling import (
    discard_samplers,
    stage_marker,
    start_samplers,
    steady_collector,
    watch_server,
)
from modeldyno.engine.runtime.session_setup import (
    assume_input_sizes,
    batch_size_of,
    check_torch,
    conversion_doubts,
    describe_model,
    identity,
    import_frameworks,
    load_model,
    load_times,
    open_session,
    payload_of,
    recall_model,
    recallable_source,
    with_session_info,
    with_source,
)
from modeldyno.engine.runtime.stage_functions import StageFunctions, import_stage_functions, with_first_feed
from modeldyno.engine.runtime.time_limit import TimeLimit
from modeldyno.engine.runtime.waiting import wait_times
from modeldyno.engine.trace import energy
from modeldyno.models.interface import Form, Model
from modeldyno.models.load_stages import WatchStage, loading
from modeldyno.models.random_arrays import DEFAULT_DTYPE

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator
    from types import TracebackType

    from modeldyno.base.job.input_spec import InputSpec
    from modeldyno.base.job.job import Job
    from modeldyno.engine.interfaces.probe import Probe, TurnToken
    from modeldyno.engine.interfaces.sampler import Watch
    from modeldyno.engine.runtime.measured_region import Region


T = TypeVar("T")


def needs_session(probes: Iterable[str]) -> bool:
    """Return whether a probe needs the model ready to call; the others only inspect it."""
    return any(plugins.probe(name).needs is not None for name in probes)


def run(
    job: Job,
    *,
    interrupted: Callable[[], bool] = lambda: False,
    watch: Callable[[Event], None] = lambda _event: None,
    limit: TimeLimit | None = None,
) -> Result:
    """Measure what the Job describes.

    Args:
        job: what to do; `base.job.knob.configure` has completed its config.
        interrupted: whether to stop now and keep what there is; polled many times a second.
        watch: called with every event, including progress.
        limit: the time limit of the command.

    Raises:
        RequestError: the request cannot be carried out as written.
        MissingExtra: an optional package is not installed.
    """
    return fold(
        empty_result(job), _notify(events(job, interrupted=interrupted, watch=watch, limit=limit), watch)
    )


def _notify(stream: Iterable[Event], watch: Callable[[Event], None]) -> Iterator[Event]:
    for event in stream:
        watch(event)
        yield event


def events(
    job: Job,
    *,
    interrupted: Callable[[], bool],
    watch: Callable[[Event], None],
    warm: OpenSession | None = None,
    turns: TurnToken = NO_TURNS,
    region: Region = nullcontext,
    analyst: Analyst = analyse_here,
    limit: TimeLimit | None = None,
) -> Iterator[Event]:
    """Run a Job, yielding events as they occur.

    Args:
        job: what to run.
        interrupted: whether to stop early.
        watch: called with progress events.
        warm: what an earlier run left open, to be used again and kept open; the Jobs must be equal but for
            load, Plan and config.
        turns: token that says when this process may measure.
        region: entered for each pass of measuring, and for nothing else.
        analyst: runs the static analysis when the model is called as well.
        limit: the time limit of the command, for which probes are shortened and left out.
    """
    used = needs_session(job.probes)  # static analysis does not use the model
    if warm is not None and not plugins.serves(job.backend):
        warm.reset_baseline()
    samplers = start_samplers(os.getpid()) if used and not plugins.serves(job.backend) else []
    stage = RunStage(watch=watch, mark=stage_marker(samplers), analyst=analyst, region=region, limit=limit)
    measurements: list[Measurement] = []
    try:
        with OpenSession() if warm is None else warm.borrow() as session:
            yield from record_measurements(
                _run_job(job, stage, session, samplers, interrupted, turns), measurements
            )
    except Exception as error:
        if isinstance(error, ModelDynoError):
            discard_samplers(samplers)
            raise
        # Anything else that a model or its framework raises is an outcome of the run, not our error.
        yield failure_of(error, stage.name)
    except BaseException:
        discard_samplers(samplers)
        raise
    samples = [sample for sampler in samplers for sample in sampler.stop()]
    if warm is not None and not plugins.serves(job.backend):
        samples = warm.subtract_baseline(samples)
    yield from record_measurements(map(event_of, samples), measurements)
    yield from map(event_of, energy.energy_per_call(measurements))
    yield from map(_left_out, plugins.left_out("sampler", "formula", "metric"))
    yield Ended()


def _left_out(problem: str) -> Doubt:
    """Return the doubt of a plugin that every run asks, and that was left out."""
    seen, _, advice = problem.rstrip(".").rpartition("; ")
    return Doubt(code="faulty-plugin", seen=f"{seen}; it was left out", advice=advice)


@contextmanager
def answering_session(job: Job) -> Iterator[OpenedModel]:
    """Load and open the model of a Job and call it once, as a run does before it measures.

    Raises:
        ModelDynoError: the request cannot be carried out.
        Exception: anything that a model, its framework or its server raises.
    """
    stage = RunStage(watch=lambda _event: None)
    with OpenSession() as session:
        loaded = _last(_load_and_inspect(job, stage, lambda: False))
        yield _last(_open_backend(job, stage, session.stack, loaded)).opened


def _last(stream: Generator[Event, None, T]) -> T:
    """Return what a stream of events ends with, and pass its events on to nobody."""
    try:
        while True:
            next(stream)
    except StopIteration as end:
        result: T = end.value
        return result


@dataclass(frozen=True, slots=True, kw_only=True)
class _LoadedModel:
    """A model that was loaded and inspected."""

    subject: ProbeContext
    """What a probe needs that does not call the model."""
    events: tuple[Event, ...]
    """Those of loading and inspecting it."""
    spent: Mapping[str, float]
    """Seconds by stage."""
    preprocess: Model | None = None
    """The user's function that makes the inputs, as the loader of callables describes it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _ReadyModel:
    """A model that was opened by its backend and called once."""

    subject: ProbeContext
    """What a probe needs that calls the model."""
    events: tuple[Event, ...]
    """Those of opening and calling it."""
    opened: OpenedModel
    cohosted: CoHostedModels
    """The other models on the same server."""
    configs: tuple[Mapping[str, KnobValue], ...]
    """Knobs with which the models are open."""


@dataclass(slots=True)
class OpenSession:
    """What stays open between runs of Jobs that differ only in load, Plan and config.

    For another config the server is restarted with the model that is already loaded.
    """

    stack: ExitStack = field(default_factory=ExitStack)
    loaded: _LoadedModel | None = None
    ready: _ReadyModel | None = None
    profiler_bytes: float = 0.0
    """Bytes of this process that do not belong to the model."""
    model_bytes: float | None = None
    """Bytes of the model at the end of the last run, if nothing has changed since."""

    def __enter__(self) -> Self:
        """Keep it open until the end of the block."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        """Close whatever is open."""
        self.loaded = self.ready = None
        return self.stack.__exit__(kind, error, trace)

    def close(self) -> None:
        """Close what runs the model; the next run opens it again."""
        self.stack.close()
        self.model_bytes = self.ready = None

    def subtract_baseline(self, sampled: list[Measurement | Doubt]) -> list[Measurement | Doubt]:
        """Count memory from the baseline of the first run, since the model was loaded before this one."""
        memory = {m.scope: m for m in sampled if isinstance(m, Measurement) and m.metric == "process_memory"}
        sizes = memory[""].value if "" in memory else None
        if not isinstance(sizes, Distribution):
            return sampled
        first = "baseline" in memory
        above_base = sizes.samples() - (0.0 if first else self.profiler_bytes)
        self.model_bytes = float(above_base[-1])
        if first:
            self.profiler_bytes = tree_memory(list_process_tree(os.getpid())) - self.model_bytes
        above_baseline = replace(memory[""], value=replace(sizes, runs=(pack(above_base),)))
        kept = (sample for sample in sampled if sample is not memory.get(WatchStage.IDLE))
        return [above_baseline if sample is memory[""] else sample for sample in kept]

    def reset_baseline(self) -> None:
        """Attribute growth of the process since the last run to the profiler: the model was idle."""
        if self.model_bytes is not None:
            self.profiler_bytes = tree_memory(list_process_tree(os.getpid())) - self.model_bytes

    @contextmanager
    def borrow(self) -> Iterator[OpenSession]:
        """Use it in a run; close it if the run fails."""
        with ExitStack() as stack:
            stack.push(self)
            yield self
            stack.pop_all()


def _run_job(
    job: Job,
    stage: RunStage,
    warm: OpenSession,
    samplers: list[Watch],
    interrupted: Callable[[], bool],
    turns: TurnToken,
) -> Iterator[Event]:
    stage.limit = _limit_of_requests(job, stage.limit)
    if warm.loaded is None:
        warm.loaded = yield from _load_and_inspect(job, stage, interrupted)
    else:
        stage.mark(WatchStage.IDLE)
        if warm.ready is not None and warm.ready.configs != _configs(job):
            warm.close()
        yield from warm.loaded.events
        yield from () if warm.ready is None else warm.ready.events
    callable_probes = {name: probe for name in job.probes if (probe := plugins.probe(name)).needs is not None}
    if not callable_probes:
        if interrupted():
            yield INTERRUPTED
        return
    if warm.ready is None:
        warm.ready = yield from _open_backend(job, stage, warm.stack, warm.loaded)
    ready, opened = warm.ready, warm.ready.opened
    subject = replace(
        ready.subject,
        load=job.load,
        beside=ready.cohosted.with_loads(job, interrupted),
        turns=turns,
        interrupted=interrupted,
        watch=stage.watch,
        mark=stage.mark,
    )
    check_needs(callable_probes, subject, job)
    for probe in callable_probes.values():
        probe.check(subject)
    samplers += watch_server(opened.session)
    turns.tells(stage.mark)
    passes = {probe.pass_ for probe in callable_probes.values()}
    with steady_collector(), stage.region() if Pass.TIMED in passes else nullcontext():
        yield from _run_probes(callable_probes, (Pass.TIMED,), subject, job, stage)
    stage.mark(WatchStage.SECOND)
    yield from check_outputs(opened, "last call", stage)
    if _TIMED_CALLS in callable_probes and turns is NO_TURNS:
        yield from _waiting_lines(subject, job, stage)
    with stage.region() if Pass.SECOND in passes else nullcontext():
        yield from _run_probes(callable_probes, (Pass.SECOND,), subject, job, stage)
    if interrupted():
        yield INTERRUPTED


_TIMED_CALLS = "latency"
"""The probe that times calls one by one in this process."""


def _waiting_lines(subject: ProbeContext, job: Job, stage: RunStage) -> Iterator[Event]:
    """Yield in which lines calls wait, if they do and there is time to look."""
    plan = job.plan if stage.limit is None else stage.limit.shorten(job.plan, 1)
    if plugins.serves(job.backend) or subject.interrupted() or (stage.limit and stage.limit.left <= 0):
        return
    with suppress(Exception):  # a call that fails now was measured before
        yield from wait_times(subject.calls[0], plan.max_time)


def _load_and_inspect(
    job: Job, stage: RunStage, interrupted: Callable[[], bool]
) -> Generator[Event, None, _LoadedModel]:
    """Load the model as far as the probes need it, and inspect it."""
    loader, backend = plugins.loader(job.model.scheme), plugins.backend(job.backend)
    probes = {name: plugins.probe(name) for name in job.probes}
    used = needs_session(job.probes)
    needed = tuple(dict.fromkeys((*loader.requires, *(backend.requires if used else ()))))
    spent: dict[str, float] = {}
    events: list[Event] = []
    record = partial(_record, events)
    source, recalled, functions = _import_code(job, needed, stage, spent)
    environment = machine.describe_environment(needed, pinned=bool(job.plan.pin))
    yield from record([environment])
    stage.mark(WatchStage.IDLE)  # takes a second where a device reports its power draw
    stage.mark(WatchStage.BASELINE)
    with stage("load", spent), loading(stage.mark) as account, stage.bound_requests():
        if used:
            backend.configure_process(job.config)
        model = recalled or load_model(loader.load if used else loader.look, job)
    model = with_source(job, model, "" if recalled else source)
    spent["load"] = max(0.0, spent["load"] - account.described)
    stage.mark(WatchStage.PROFILER)
    if functions.preprocess is not None:
        with stage(CallStage.PREPROCESS):
            model = with_first_feed(functions.preprocess, job, model)
    else:
        model = with_requested_inputs(model, job.inputs)
    yield from record(describe_model(job, model))
    static_probes = {name: probe for name, probe in probes.items() if probe.needs is None}
    callable_probes = {name: probe for name, probe in probes.items() if probe.needs is not None}
    inputs = _requested_inputs(job) if callable_probes else job.inputs
    model = assume_input_sizes(job, model, inputs)
    subject_so_far = ProbeContext(
        model=model,
        inputs=inputs,
        batch_size=batch_size_of(job),
        sizes=job.sizes,
        load=job.load,
        inspection=job.inspection,
        device=partial(backend.device_of, job.config) if callable_probes else _on_cpu,
        precision=str(job.config.get("precision", "")),
        observation=job.observation,
        postprocess=functions.postprocess,
        interrupted=interrupted,
        watch=stage.watch,
    )
    measurements: list[Measurement] = []
    if callable_probes:
        if not _is_running_server(job) and _lacks_time_for_analysis(stage, spent):
            assert stage.limit is not None
            if static_probes:
                yield from record([stage.limit.left_out(tuple(static_probes))])
            static_probes = {}
        yield from record(
            record_measurements(_inspect_isolated(static_probes, subject_so_far, job, stage), measurements)
        )
    else:
        check_known(model)
        yield from record(assumption_doubts(model))
        yield from record(_resolved_inputs(job, subject_so_far))
        yield from record(_run_probes(static_probes, tuple(Pass), subject_so_far, job, stage))
    return _LoadedModel(
        subject=replace(subject_so_far, known=tuple(measurements)),
        events=tuple(events),
        spent=spent,
        preprocess=functions.preprocess,
    )


def _record(events: list[Event], stream: Iterable[Event]) -> Iterator[Event]:
    """Yield the events of a stream, and append them to `events`."""
    for event in stream:
        events.append(event)
        yield event


def _import_code(
    job: Job, needed: tuple[str, ...], stage: RunStage, spent: dict[str, float]
) -> tuple[str, Model | None, StageFunctions]:
    """Import what the model needs, then the user's functions.

    Returns:
        The digest of what the model comes from, the model if it need not be loaded, and the functions.
    """
    with stage("import"):
        check_torch(job)
        loader = plugins.loader(job.model.scheme)
        import_frameworks(loader.tools, job)
        source = recallable_source(job)
        recalled = recall_model(job, source, needed)
    with stage("import", spent):
        import_frameworks(() if recalled else needed, job)
    with stage("import"):  # later, or what they import would be missing in `load_time`
        return source, recalled, import_stage_functions(job)


def _on_cpu() -> str:
    return "cpu"


def _limit_of_requests(job: Job, limit: TimeLimit | None) -> TimeLimit | None:
    """Return the limit of a run: without one, that of a load on a running server is for all requests."""
    loads = [load for load in (job.load, *(spec.load for spec in job.beside)) if load is not None]
    if limit is not None or not loads or job.plan.may_extend or not _is_running_server(job):
        return limit
    return TimeLimit.begin(max(load.longest(job.plan.max_time) for load in loads))


_ANALYSIS_COST = 2.0
"""Seconds that the analysis of a model and its first calls are expected to take, relative to loading it."""


def _is_running_server(job: Job) -> bool:
    """Return whether the model is behind a running server, where there is nothing to analyse."""
    return plugins.loader(job.model.scheme).backend == Form.REMOTE


def _lacks_time_for_analysis(stage: RunStage, spent: Mapping[str, float]) -> bool:
    """Return whether an analysis would take the time that is left for calling the model."""
    return stage.limit is not None and stage.limit.left < _ANALYSIS_COST * sum(spent.values())


def _resolved_inputs(job: Job, subject: ProbeContext) -> Iterator[Event]:
    """Yield the input shapes that were requested, where the model declares none."""
    if all(spec.shape is not None for spec in subject.model.inputs):
        return
    try:
        shaped = resolve_inputs(
            subject.model, subject.inputs, batch_size=subject.batch_size, sizes=subject.sizes
        )
    except RequestError:
        return  # the analysis reports what is wrong with them
    inputs = tuple(replace(spec, dtype=spec.dtype or DEFAULT_DTYPE) for spec in shaped.inputs)
    yield Loaded(model=identity(job, subject.model), inputs=inputs)


def _inspect_isolated(
    probes: dict[str, Probe], subject: ProbeContext, job: Job, stage: RunStage
) -> Iterator[Event]:
    """Run the static probes on a model that will be called, without leaving traces in its memory."""

    def analysis(watch: Callable[[Event], None]) -> Iterator[Event]:
        apart = RunStage(watch=watch)
        return tolerate_errors(_run_probes(probes, tuple(Pass), replace(subject, watch=watch), job, apart))

    if probes:
        yield from stage.analyst(analysis, stage.watch, subject.interrupted)


def _open_backend(
    job: Job, stage: RunStage, stack: ExitStack, loaded: _LoadedModel
) -> Generator[Event, None, _ReadyModel]:
    """Open the backend with the knobs of this Job, and call the model once."""
    events: list[Event] = []
    record = partial(_record, events)
    subject, model, spent = loaded.subject, loaded.subject.model, {**loaded.spent}
    environment = next(event for event in loaded.events if isinstance(event, Environment))
    with stage("inputs" if loaded.preprocess is None else CallStage.PREPROCESS):
        _check_predicted_memory(job, subject)
        payload = payload_of(job, model, plugins.backend(job.backend), loaded.preprocess)
    # Yielded before the first call, so that the report of a failed call shows its inputs.
    yield from record([Loaded(model=identity(job, model), inputs=payload.used)])
    opened = open_session(job, model, payload, stage, stack, spent)
    environment = with_session_info(environment, opened.session)
    if opened.payload is not payload:
        yield from record([Loaded(model=identity(job, model), inputs=opened.payload.used)])
    yield from record([environment, *opened.events])
    cohosted = load_cohosted(job, opened.session, environment, stage, stack)
    yield from record(cohosted.events)
    if opened.model is not model:  # its first call needed other sizes than those analysed
        subject = replace(subject, model=opened.model)
        static_probes = {name: probe for name in job.probes if (probe := plugins.probe(name)).needs is None}
        yield from record(_inspect_isolated(static_probes, subject, job, stage))
    yield from record(conversion_doubts(job, opened.session, opened.model))
    yield from record(load_times(spent))
    return _ReadyModel(
        subject=_with_session(replace(subject, batch_size=batch_size_of(job)), opened),
        events=tuple(events),
        opened=opened,
        cohosted=cohosted,
        configs=_configs(job),
    )


_FAR_TOO_MUCH = 2.0
"""Times the free memory that a model is predicted to take before it is not tried: a runtime may need less."""


def _check_predicted_memory(job: Job, subject: ProbeContext) -> None:
    """Refuse a call that surely exhausts memory before its inputs are made, which may take minutes.

    Raises:
        PredictedOutOfMemory: it is predicted to take more than twice the memory there is for it.
    """
    if plugins.serves(job.backend) or not is_cpu(subject.device()):
        return
    peak = next((m.value for m in subject.known if m.metric == "memory_peak" and not m.scope), None)
    if not isinstance(peak, float | int):
        return
    limit = job.plan.memory_limit or machine.spare_memory(tree_memory(list_process_tree(os.getpid())))
    if peak > _FAR_TOO_MUCH * limit:
        raise PredictedOutOfMemory(
            f"skipped: it needs an estimated {format_quantity(peak, BYTES, 3)} of memory with these inputs, "
            f"and {format_quantity(limit, BYTES, 3)} are {'allowed' if job.plan.memory_limit else 'free'}"
        )


def _configs(job: Job) -> tuple[Mapping[str, KnobValue], ...]:
    """Return the knobs of all models of a server."""
    return (job.config, *(spec.config for spec in job.beside))


def _requested_inputs(job: Job) -> tuple[InputSpec, ...]:
    """Return the requested inputs, unless they are of the user's function, or the backend has its own."""
    other = job.observation.preprocess or plugins.backend(job.backend).inputs(job.config) is not None
    return () if other else job.inputs


def _with_session(subject: ProbeContext, opened: OpenedModel) -> ProbeContext:
    payload = opened.payload
    return replace(
        subject,
        session=opened.session,
        calls=opened.calls,
        feeds=payload.feeds,
        drawn=payload.drawn,
        preprocess=payload.makers,
        samples=payload.samples,
        streams=payload.streams,
        first_words=payload.first_words,
        primed=payload.primed,
    )


def _run_probes(
    probes: dict[str, Probe], passes: tuple[Pass, ...], subject: ProbeContext, job: Job, stage: RunStage
) -> Iterator[Event]:
    names = [name for name, probe in probes.items() if probe.pass_ in passes]
    limit, left_out = stage.limit, []  # type: TimeLimit | None, list[str]
    for number, name in enumerate(names):
        if subject.interrupted():
            break
        if limit is not None and limit.left <= 0 and stage.measured:
            left_out.append(name)
            continue
        probe = probes[name]
        if probe.needs is not None and probe.pass_ is Pass.TIMED:
            stage.mark(WatchStage.TIMED)
        with stage(name):
            plan = job.plan if limit is None else limit.shorten(job.plan, len(names) - number)
            stream: Iterator[Event] = map(event_of, probe.measure(subject, plan))
            if probe.needs is not None:
                stream = _keep_earlier_measurements(stream, name, stage)
            measurements = list(subject.known)
            for event in stream:
                yield event
                if isinstance(event, Measurement) and _is_small(event):
                    measurements.append(event)
            subject = replace(subject, known=tuple(measurements))
    if limit is not None and left_out:
        yield limit.left_out(left_out)


_MOST_KNOWN = 10_000
"""Samples of a measurement that the probes after it can see: more would show in this process's memory."""


def _is_small(measurement: Measurement) -> bool:
    return not isinstance(measurement.value, Distribution) or len(measurement.value) <= _MOST_KNOWN


def _keep_earlier_measurements(stream: Iterator[Event], name: str, stage: RunStage) -> Iterator[Event]:
    """Pass on a probe's events; if it refuses after others have measured, keep their measurements."""
    try:
        for event in stream:
            yield event
            stage.measured = True
    except RequestError as error:
        if not stage.measured:
            raise
        yield Failure(where=name, kind=FailureKind.ERROR, message=str(error).rstrip("."))
