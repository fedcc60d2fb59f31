"""Job -> Result, in this very process: load, open, first call, timed pass, second pass.

`run` folds the events that `events` yields; an executor may send the same events through a pipe and
fold them elsewhere. Wrong outcomes become Failures here; a wrong request raises.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Self

from modeldyno import data, plugins
from modeldyno.core.metrics.doubt import Doubt
from modeldyno.core.metrics.measurement import Distribution, Measurement, pack
from modeldyno.core.result.result import (
    Doubted,
    Ended,
    Event,
    Failed,
    Failure,
    FailureKind,
    Loaded,
    Located,
    Result,
    fold,
)
from modeldyno.core.spec.knob import KnobValue
from modeldyno.core.trace import energy
from modeldyno.data.random_arrays import DEFAULT_DTYPE
from modeldyno.environment import machine
from modeldyno.environment.process_tree import family_size, tree
from modeldyno.errors import ModelDynoError, RequestError
from modeldyno.interfaces import ALONE, Pass, Subject, TakesOtherInputs, WatchStage
from modeldyno.interfaces.load_stages import loading
from modeldyno.runtime.cohosted import Guests, hosted
from modeldyno.runtime.events import Stage, event_of, noted
from modeldyno.runtime.failures import failure_of
from modeldyno.runtime.forked_analysis import Analyst, here
from modeldyno.runtime.output_checks import check_known, check_needs, checked, forgiven
from modeldyno.runtime.sampling import beside, discard, marker, started, steady_collector
from modeldyno.runtime.session_setup import (
    Opened,
    batch_size_of,
    brought,
    conversion,
    described,
    identity,
    imported,
    load_time,
    opened_for,
    payload_of,
    placed,
    sized,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import TracebackType

    from modeldyno.core.spec.input_spec import InputSpec
    from modeldyno.core.spec.job import Job
    from modeldyno.interfaces import Baton, Probe, Watch


def needs_session(probes: Iterable[str]) -> bool:
    """Say whether a probe needs the model ready to call; the others only look at it."""
    return any(plugins.probe(name).needs is not None for name in probes)


def serves(backend: str) -> bool:
    """Say whether a backend runs models in a server."""
    return bool(getattr(plugins.backend(backend), "serves", False))


def empty(job: Job) -> Result:
    """Give the Result that a run of this Job begins with."""
    return Result(
        id=secrets.token_hex(6), created=datetime.now(UTC).isoformat(timespec="milliseconds"), job=job
    )


def run(
    job: Job,
    *,
    interrupted: Callable[[], bool] = lambda: False,
    watch: Callable[[Event], None] = lambda _event: None,
) -> Result:
    """Measure what the Job describes.

    Args:
        job: what to do; `core.spec.knob.configure` has completed its config.
        interrupted: whether to finish now with what there is; asked many times a second.
        watch: told of every event, progress included.

    Raises:
        RequestError: the request cannot be carried out as written.
        MissingExtra: an optional package is not installed.
    """
    return fold(empty(job), _told(events(job, interrupted=interrupted, watch=watch), watch))


def _told(stream: Iterable[Event], watch: Callable[[Event], None]) -> Iterator[Event]:
    for event in stream:
        watch(event)
        yield event


def events(
    job: Job,
    *,
    interrupted: Callable[[], bool],
    watch: Callable[[Event], None],
    warm: Warm | None = None,
    baton: Baton = ALONE,
    analyst: Analyst = here,
) -> Iterator[Event]:
    """Carry a Job out, yielding what is found as it is found; the timed pass when the baton allows it.

    The analyst carries out what only looks at the model, where the model is called as well.

    With `warm` what this run opens stays open, and what an earlier one left open is used: the Jobs must be
    equal but for load, Plan and config.
    """
    used = needs_session(job.probes)  # looking at a model is no use of it
    if warm is not None and not serves(job.backend):
        warm.begin_again()
    samplers = started(os.getpid()) if used and not serves(job.backend) else []
    stage = Stage(watch=watch, mark=marker(samplers), analyst=analyst)
    found: list[Measurement] = []
    try:
        with Warm() if warm is None else warm.lent() as lent:
            yield from noted(_measured(job, stage, lent, samplers, interrupted, baton), found)
    except Exception as error:
        if isinstance(error, ModelDynoError):
            discard(samplers)
            raise
        # Whatever else a model or its framework raises is an outcome, not our fault.
        yield Failed(failure=failure_of(error, stage.name))
    except BaseException:
        discard(samplers)
        raise
    seen = [each for sampler in samplers for each in sampler.stop()]
    if warm is not None and not serves(job.backend):
        seen = warm.above_the_baseline(seen)
    yield from noted(map(event_of, seen), found)
    yield from map(event_of, energy.per_call(found))
    yield Ended()


@dataclass(slots=True, kw_only=True)
class _Ready:
    """Everything up to the first call: what was found on the way, and what is measured then."""

    subject: Subject
    """The model looked at, and once it is open, ready to call."""
    told: list[Event]
    """What was found by looking at it, and then by opening it."""
    spent: dict[str, float]
    """Seconds of each stage."""
    looked: int = 0
    """Events that looking gave."""
    opened: Opened | None = None
    guests: Guests = field(default_factory=Guests)
    configs: tuple[Mapping[str, KnobValue], ...] = ()
    """What they are open with."""


@dataclass(slots=True)
class Warm:
    """What stays open between runs of Jobs that differ in nothing but load, Plan and config.

    For another config the server is started anew, beside the model that is loaded already.
    """

    stack: ExitStack = field(default_factory=ExitStack)
    ready: _Ready | None = None
    others: float = 0.0
    """Bytes of this process that are not the model's."""
    held: float | None = None
    """Bytes that the model held at the end of the last run, if it is as it was then."""

    def __enter__(self) -> Self:
        """Leave it open until the end of the block."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        """Close whatever is open."""
        self.ready = None
        return self.stack.__exit__(kind, error, trace)

    def close(self) -> None:
        """Close what runs the model; the next run opens it again."""
        self.stack.close()
        self.held = None
        if self.ready is not None:
            self.ready.opened = None

    def above_the_baseline(self, seen: list[Measurement | Doubt]) -> list[Measurement | Doubt]:
        """Count memory from the baseline of the first run: what was open already is the model's."""
        known = {m.scope: m for m in seen if isinstance(m, Measurement) and m.metric == "process_memory"}
        sizes = known[""].value if "" in known else None
        if not isinstance(sizes, Distribution):
            return seen
        first = "baseline" in known
        above = sizes.samples() - (0.0 if first else self.others)
        self.held = float(above[-1])
        if first:
            self.others = family_size(tree(os.getpid())) - self.held
        told = replace(known[""], value=replace(sizes, runs=(pack(above),)))
        return [told if each is known[""] else each for each in seen]

    def begin_again(self) -> None:
        """Take what the process has grown by since the last run for ours: the model did nothing."""
        if self.held is not None:
            self.others = family_size(tree(os.getpid())) - self.held

    @contextmanager
    def lent(self) -> Iterator[Warm]:
        """Use it in a run; what went wrong once is not used again."""
        with ExitStack() as stack:
            stack.push(self)
            yield self
            stack.pop_all()


def _measured(
    job: Job,
    stage: Stage,
    warm: Warm,
    samplers: list[Watch],
    interrupted: Callable[[], bool],
    baton: Baton,
) -> Iterator[Event]:
    if warm.ready is None:
        yield from _looked(job, stage, warm, interrupted)
        ready = warm.ready
    else:
        ready = warm.ready
        stage.mark(WatchStage.IDLE)
        if ready.opened is not None and ready.configs != _configs(job):
            warm.close()
        yield from ready.told if ready.opened is not None else ready.told[: ready.looked]
    assert ready is not None
    called = {name: probe for name in job.probes if (probe := plugins.probe(name)).needs is not None}
    if not called:
        if interrupted():
            yield Doubted(doubt=INTERRUPTED)
        return
    if ready.opened is None:
        yield from _opened(job, stage, warm.stack, ready)
    opened = ready.opened
    assert opened is not None
    subject = replace(
        ready.subject,
        load=job.load,
        beside=ready.guests.under(job, interrupted),
        baton=baton,
        interrupted=interrupted,
        watch=stage.watch,
        mark=stage.mark,
    )
    check_needs(called, subject, job)
    samplers += beside(opened.session)
    baton.tells(stage.mark)
    with steady_collector():
        yield from _probed(called, (Pass.TIMED,), subject, job, stage)
    stage.mark(WatchStage.SECOND)
    yield from checked(opened, "last call", stage)
    yield from _probed(called, (Pass.SECOND,), subject, job, stage)
    if interrupted():
        yield Doubted(doubt=INTERRUPTED)


def _looked(job: Job, stage: Stage, warm: Warm, interrupted: Callable[[], bool]) -> Iterator[Event]:
    """Load the model as far as the probes need it, and look at it; what came of it is kept, and told."""
    loader, backend = plugins.loader(job.model.scheme), plugins.backend(job.backend)
    probes = {name: plugins.probe(name) for name in job.probes}
    used = needs_session(job.probes)
    needed = tuple(dict.fromkeys((*loader.requires, *(backend.requires if used else ()))))
    spent: dict[str, float] = {}
    told: list[Event] = []

    def noting(found: Iterable[Event]) -> Iterator[Event]:
        for event in found:
            told.append(event)
            yield event

    with stage("import"):
        imported(loader.tools, job)
    with stage("import", spent):
        imported(needed, job)
    place = machine.environment(needed, pinned=bool(job.plan.pin))
    yield from noting([Located(environment=place)])
    stage.mark(WatchStage.IDLE)  # takes a second where a device tells what it draws
    stage.mark(WatchStage.BASELINE)
    with stage("load", spent), loading(stage.mark) as account:
        bring = loader.load if used else getattr(loader, "look", loader.load)
        model = brought(bring, job)
    spent["load"] = max(0.0, spent["load"] - account.described)
    stage.mark(WatchStage.OURS)
    yield from noting(described(job, model))
    alone = {name: probe for name, probe in probes.items() if probe.needs is None}
    called = {name: probe for name, probe in probes.items() if probe.needs is not None}
    inputs = _of_the_model(job) if called else job.inputs
    model = sized(job, model, inputs)
    looked = Subject(
        model=model,
        inputs=inputs,
        batch_size=batch_size_of(job),
        sizes=job.sizes,
        load=job.load,
        inspection=job.inspection,
        observation=job.observation,
        interrupted=interrupted,
        watch=stage.watch,
    )
    known: list[Measurement] = []
    if called:
        yield from noting(noted(_analysed_apart(alone, looked, job, stage), known))
    else:
        check_known(model)
        yield from noting(Doubted(doubt=found) for found in data.assumptions(model))
        yield from noting(_analysed(job, looked))
        yield from noting(_probed(alone, tuple(Pass), looked, job, stage))
    subject = replace(looked, known=tuple(known))
    warm.ready = _Ready(subject=subject, told=told, spent=spent, looked=len(told))


def _analysed(job: Job, subject: Subject) -> Iterator[Event]:
    """Tell the inputs with the shapes that were given for them, where the model declares none."""
    if all(spec.shape is not None for spec in subject.model.inputs):
        return
    try:
        shaped = data.shapes(
            subject.model, subject.inputs, batch_size=subject.batch_size, sizes=subject.sizes
        )
    except RequestError:
        return  # the analysis says what is wrong with them
    inputs = tuple(replace(spec, dtype=spec.dtype or DEFAULT_DTYPE) for spec in shaped.inputs)
    yield Loaded(model=identity(job, subject.model), inputs=inputs)


def _analysed_apart(probes: dict[str, Probe], subject: Subject, job: Job, stage: Stage) -> Iterator[Event]:
    """Look at a model that is to be called, as far as that goes, without a trace in its memory."""

    def analysis(watch: Callable[[Event], None]) -> Iterator[Event]:
        apart = Stage(watch=watch)
        return forgiven(_probed(probes, tuple(Pass), replace(subject, watch=watch), job, apart))

    if probes:
        yield from stage.analyst(analysis, stage.watch, subject.interrupted)


def _opened(job: Job, stage: Stage, stack: ExitStack, ready: _Ready) -> Iterator[Event]:
    """Have the backend run the model with the knobs of this Job; what came of it is kept, and told."""
    del ready.told[ready.looked :]
    for event in _opening(job, stage, stack, ready):
        ready.told.append(event)
        yield event
    ready.configs = _configs(job)


def _opening(job: Job, stage: Stage, stack: ExitStack, ready: _Ready) -> Iterator[Event]:
    place = next(event.environment for event in ready.told if isinstance(event, Located))
    model = ready.subject.model
    with stage("payload"):
        payload = payload_of(job, model, plugins.backend(job.backend))
    # Told before the first call, so that a call that fails is told with what it was given.
    yield Loaded(model=identity(job, model), inputs=payload.used)
    opened = opened_for(job, model, payload, stage, stack, ready.spent)
    place = placed(place, opened.session)
    if opened.payload is not payload:
        yield Loaded(model=identity(job, model), inputs=opened.payload.used)
    yield Located(environment=place)
    yield from opened.found
    ready.guests = hosted(job, opened.session, place, stage, stack)
    yield from ready.guests.found
    if opened.model is not ready.subject.model:  # its first call took other sizes than those analysed
        ready.subject = replace(ready.subject, model=opened.model)
        alone = {name: probe for name in job.probes if (probe := plugins.probe(name)).needs is None}
        yield from _analysed_apart(alone, ready.subject, job, stage)
    yield from conversion(job, opened.session)
    yield from load_time(ready.spent)
    ready.subject = _subject(replace(ready.subject, batch_size=batch_size_of(job)), opened)
    ready.opened = opened


def _configs(job: Job) -> tuple[Mapping[str, KnobValue], ...]:
    """Give the knobs of all models of a server."""
    return (job.config, *(each.config for each in job.beside))


def _of_the_model(job: Job) -> tuple[InputSpec, ...]:
    """Give what was asked of the model's own inputs, where requests are made of something else: nothing."""
    return () if isinstance(plugins.backend(job.backend), TakesOtherInputs) else job.inputs


INTERRUPTED = Doubt(
    code="interrupted",
    seen="the run was interrupted before it came to its own end",
    advice="run it again to the end before claiming anything from it",
)


def _subject(looked: Subject, opened: Opened) -> Subject:
    payload = opened.payload
    return replace(
        looked, session=opened.session, calls=opened.calls, feeds=payload.feeds, samples=payload.samples
    )


def _probed(
    probes: dict[str, Probe], passes: tuple[Pass, ...], subject: Subject, job: Job, stage: Stage
) -> Iterator[Event]:
    for name, probe in probes.items():
        if probe.pass_ in passes and not subject.interrupted():
            if probe.needs is not None and probe.pass_ is Pass.TIMED:
                stage.mark(WatchStage.TIMED)
            with stage(name):
                found = map(event_of, probe.measure(subject, job.plan))
                yield from found if probe.needs is None else _kept(found, name, stage)


def _kept(found: Iterator[Event], name: str, stage: Stage) -> Iterator[Event]:
    """Pass on what a probe finds; where it refuses after others have measured, theirs is not lost."""
    try:
        for event in found:
            yield event
            stage.measured = True
    except RequestError as error:
        if not stage.measured:
            raise
        yield Failed(failure=Failure(where=name, kind=FailureKind.ERROR, message=str(error).rstrip(".")))
