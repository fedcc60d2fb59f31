"""Job -> Result, in this very process: load, open, first call, timed pass, second pass.

`run` folds the events that `events` yields; an executor may send the same events through a pipe and
fold them elsewhere. Wrong outcomes become Failures here; a wrong request raises.
"""

from __future__ import annotations

import gc
import hashlib
import logging
import os
import secrets
import traceback
from collections.abc import Callable
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from importlib import import_module
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, Self

from modeldyno import feeds, machine, outputs, plugins
from modeldyno.core import doubt, energy
from modeldyno.core.activity import Activity
from modeldyno.core.doubt import Doubt
from modeldyno.core.measurement import Measurement, observed
from modeldyno.core.outline import Outline
from modeldyno.core.result import (
    Artifact,
    Doubted,
    Ended,
    Environment,
    Event,
    Failed,
    Failure,
    FailureKind,
    Found,
    Kept,
    Loaded,
    Located,
    Outlined,
    Progressed,
    Result,
    Watched,
    fold,
)
from modeldyno.errors import ModelDynoError, RequestError
from modeldyno.feeds import Payload
from modeldyno.ports import (
    CanCall,
    CanDrive,
    CountsPrompts,
    HasAllocator,
    HasConverted,
    HasDevice,
    HasDoubts,
    HasFiles,
    HasSoftware,
    Pass,
    Seen,
    Session,
    Subject,
    TakesOtherInputs,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import TracebackType

    from modeldyno.core.inputs import InputSpec
    from modeldyno.core.job import Job
    from modeldyno.core.model import ModelIdentity
    from modeldyno.ports import Model, Probe, Watch

SAMPLERS = ("device", "process")
"""What watches from outside: this process, or where a server runs the model, that."""
_CHECKING = 1.0
"""Seconds of calls that looking at the outputs may take."""


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
        job: what to do; `core.knob.configure` has completed its config.
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
) -> Iterator[Event]:
    """Carry a Job out, yielding what is found as it is found.

    With `warm` what this run opens stays open, and what an earlier one left open is used: the Jobs must be
    equal but for their load and their Plan.
    """
    stage = _Stage(watch=watch)
    used = needs_session(job.probes)  # looking at a model is no use of it
    samplers = _started(os.getpid()) if used and not serves(job.backend) else []
    found: list[Measurement] = []
    try:
        with Warm() if warm is None else warm.lent() as lent:
            yield from _noted(_measured(job, stage, lent, samplers, interrupted), found)
    except Exception as error:
        if isinstance(error, ModelDynoError):
            _discard(samplers)
            raise
        # Whatever else a model or its framework raises is an outcome, not our fault.
        yield Failed(failure=failure_of(error, stage.name))
    except BaseException:
        _discard(samplers)
        raise
    for sampler in samplers:
        yield from _noted(map(_event, sampler.stop()), found)
    yield from map(_event, energy.per_call(found))
    yield Ended()


def failure_of(error: BaseException, where: str) -> Failure:
    """Classify what a framework, a model or a server raised."""
    from modeldyno.engines.server import ServerFailed  # noqa: PLC0415 - only a failure needs it

    if isinstance(error, ServerFailed):
        return Failure(where=where, kind=FailureKind.SERVER, message=str(error), log=error.log)
    lines = str(error).strip().splitlines() or [""]
    text = f"{type(error).__name__}: {lines[0]}".rstrip(": ")
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not _is_ours(Path(f.filename))]
    memory = isinstance(error, MemoryError) or any(sign in str(error).lower() for sign in _OUT_OF_MEMORY)
    kind = FailureKind.OOM if memory else FailureKind.ERROR
    if frames:
        text += f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})"
    places = [f"{f.filename}:{f.lineno} {f.line}" for f in frames[-_FRAMES:]]
    return Failure(where=where, kind=kind, message=text, log="\n".join([*lines[1:], *places])[:2000])


def _is_ours(path: Path) -> bool:
    """Say whether a line is of this package, or of what opens and closes its contexts."""
    return _OURS in path.parents or path.name == "contextlib.py"


_OURS = Path(__file__).parent
_FRAMES = 3
"""Lines of the model's code that a Failure shows."""
_OUT_OF_MEMORY = ("out of memory", "can't allocate memory", "failed to allocate", "bad_alloc")


@dataclass(slots=True)
class _Stage:
    """Where the run stands; whoever watches is told, and a Failure names it."""

    watch: Callable[[Event], None]
    name: str = "start"
    measured: bool = False
    """Whether a probe has found anything by calling the model."""

    @contextmanager
    def __call__(self, name: str, spent: dict[str, float] | None = None) -> Iterator[None]:
        self.name = name
        self.watch(Progressed(stage=name))
        begin = perf_counter()
        yield
        if spent is not None:
            spent[name] = perf_counter() - begin


@dataclass(slots=True)
class _Opened:
    """A model made ready to call."""

    session: Session
    payload: Payload
    calls: tuple[Callable[[], Any], ...]
    found: list[Event] = field(default_factory=list)


@dataclass(slots=True)
class _Ready:
    """Everything up to the first call: what was found on the way, and what is measured then."""

    told: list[Event] = field(default_factory=list)
    subject: Subject | None = None
    opened: _Opened | None = None


@dataclass(slots=True)
class Warm:
    """What stays open between runs of Jobs that differ in nothing but their load and their Plan."""

    stack: ExitStack = field(default_factory=ExitStack)
    ready: _Ready | None = None

    def __enter__(self) -> Self:
        """Leave it open until the end of the block."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        """Close whatever is open."""
        self.ready = None
        return self.stack.__exit__(kind, error, trace)

    @contextmanager
    def lent(self) -> Iterator[Warm]:
        """Use it in a run; what went wrong once is not used again."""
        with ExitStack() as stack:
            stack.push(self)
            yield self
            stack.pop_all()


def _measured(
    job: Job, stage: _Stage, warm: Warm, samplers: list[Watch], interrupted: Callable[[], bool]
) -> Iterator[Event]:
    if warm.ready is None:
        ready = _Ready()
        for event in _prepared(job, stage, warm.stack, samplers, interrupted, ready):
            ready.told.append(event)
            yield event
        warm.ready = ready
    else:
        ready = warm.ready
        _mark(samplers, "idle")
        yield from ready.told
    if ready.opened is None or ready.subject is None:
        if interrupted():
            yield Doubted(doubt=INTERRUPTED)
        return
    opened = ready.opened
    called = {name: probe for name in job.probes if (probe := plugins.probe(name)).needs is not None}
    subject = replace(ready.subject, load=job.load, interrupted=interrupted, watch=stage.watch)
    _check_needs(called, subject, job)
    samplers += _beside(opened.session)
    _mark(samplers, "timed")
    with _steady_collector():
        yield from _probed(called, (Pass.TIMED,), subject, job, stage)
    _mark(samplers, "after")
    yield from _checked(opened, "last call", stage)
    yield from _probed(called, (Pass.SECOND,), subject, job, stage)
    if interrupted():
        yield Doubted(doubt=INTERRUPTED)


def _prepared(
    job: Job,
    stage: _Stage,
    stack: ExitStack,
    samplers: list[Watch],
    interrupted: Callable[[], bool],
    ready: _Ready,
) -> Iterator[Event]:
    """Load and open the model as far as the probes need it, and look at it; `ready` holds what came of it."""
    loader, backend = plugins.loader(job.model.scheme), plugins.backend(job.backend)
    probes = {name: plugins.probe(name) for name in job.probes}
    used = needs_session(job.probes)
    needed = tuple(dict.fromkeys((*loader.requires, *(backend.requires if used else ()))))
    spent: dict[str, float] = {}
    with stage("import"):
        _import(loader.tools, job)
    with stage("import", spent):
        _import(needed, job)
    place = machine.environment(needed)
    yield Located(environment=place)
    _mark(samplers, "idle")  # takes a second where a device tells what it draws
    _mark(samplers, "baseline")
    _mark(samplers, "load")
    with stage("load", spent):
        bring = loader.load if used else getattr(loader, "look", loader.load)
        model = bring(job.model, seed=job.plan.seed, trust=job.trust)
    spent["load"] = max(0.0, spent["load"] - model.looked)
    yield from _described(job, model)
    alone = {name: probe for name, probe in probes.items() if probe.needs is None}
    called = {name: probe for name, probe in probes.items() if probe.needs is not None}
    looked = Subject(
        model=model,
        inputs=_of_the_model(job) if called else job.inputs,
        batch_size=_batch_size(job),
        sizes=job.sizes,
        load=job.load,
        inspection=job.inspection,
        observation=job.observation,
        interrupted=interrupted,
        watch=stage.watch,
    )
    if not called:
        _check_known(model)
        yield from _probed(alone, tuple(Pass), looked, job, stage)
        return
    known: list[Measurement] = []
    yield from _forgiven(_noted(_probed(alone, tuple(Pass), looked, job, stage), known))
    opened = _open(job, model, stage, stack, spent)
    yield Loaded(model=_identity(job, model), inputs=opened.payload.used)
    yield Located(environment=_place(place, opened.session))
    yield from opened.found
    yield from _conversion(job, opened.session)
    yield from _load_time(spent)
    ready.subject, ready.opened = replace(_subject(looked, opened), known=tuple(known)), opened


def _of_the_model(job: Job) -> tuple[InputSpec, ...]:
    """Give what was asked of the model's own inputs, where requests are made of something else: nothing."""
    return () if isinstance(plugins.backend(job.backend), TakesOtherInputs) else job.inputs


INTERRUPTED = Doubt(
    code="interrupted",
    seen="the run was interrupted before it came to its own end",
    advice="run it again to the end before claiming anything from it",
)


def _import(modules: tuple[str, ...], job: Job) -> None:
    plugins.require(modules, f"model {job.model}")
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)  # what frameworks say of optional parts of theirs is no news
    try:
        for module in modules:
            import_module(module)
    finally:
        logging.disable(before)


def _described(job: Job, model: Model) -> Iterator[Event]:
    yield Loaded(model=_identity(job, model), inputs=model.inputs)
    for found in (*model.doubts, *_thread_doubts(job)):
        yield Doubted(doubt=found)


def _identity(job: Job, model: Model) -> ModelIdentity:
    return model.identity if job.name is None else replace(model.identity, name=job.name)


def _thread_doubts(job: Job) -> Iterator[Doubt]:
    asked = [int(v) for k, v in job.config.items() if k.endswith("threads") and isinstance(v, int)]
    yield from doubt.of_threads(asked, max(1, int(machine.cpu_quota())))


def _open(job: Job, model: Model, stage: _Stage, stack: ExitStack, spent: dict[str, float]) -> _Opened:
    backend = plugins.backend(job.backend)
    if model.form not in backend.accepts:
        raise RequestError(
            f"The backend '{job.backend}' runs {', '.join(sorted(backend.accepts))}, "
            f"and {job.model} is {model.form}; choose another with --backend."
        )
    with stage("payload"):
        if isinstance(backend, TakesOtherInputs):
            model = replace(model, inputs=backend.inputs(model, job.config), encode=None, example=None)
        payload = feeds.build(
            model, job.inputs, batch_size=_batch_size(job), seed=job.plan.seed, sizes=job.sizes
        )
    with stage("open", spent):
        session = stack.enter_context(backend.open(model, job.config))
    with stage("first call"):
        calls = _calls(session, payload)
        begin = perf_counter()
        output = calls[0]()
        first = perf_counter() - begin
    opened = _Opened(session=session, payload=payload, calls=calls)
    known = session.doubts if isinstance(session, HasDoubts) else ()
    opened.found += [Found(measurement=observed("first_call", first))]
    opened.found += [Doubted(doubt=found) for found in (*payload.doubts, *known)]
    opened.found += _configured(session)
    opened.found += _prompted(session, output)
    opened.found += _faults(session, output, "first call")
    return opened


def _configured(session: Session) -> Iterator[Event]:
    """Keep what a server was told: files that are to be used again."""
    for name, text in session.files if isinstance(session, HasFiles) else ():
        digest = f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
        yield Kept(artifact=Artifact(name=name, path="", digest=digest, text=text))


def _prompted(session: Session, output: Any) -> Iterator[Event]:
    """Tell how many tokens a prompt has: of a text, only the server knows."""
    if isinstance(session, CountsPrompts) and (count := session.prompt_tokens(output)) >= 0:
        yield Found(measurement=observed("prompt_tokens", count))


def _place(place: Environment, session: Session) -> Environment:
    """Add what a session knows of where it runs: the device, and the versions of a server."""
    device = {"device": session.device} if isinstance(session, HasDevice) else {}
    software = session.software if isinstance(session, HasSoftware) else {}
    return replace(
        place,
        conditions={**place.conditions, **device},
        software={**place.software, **software},
    )


def _calls(session: Session, payload: Payload) -> tuple[Callable[[], Any], ...]:
    """Prepare a call of each payload; for a server, one request, to see that it answers at all."""
    if isinstance(session, CanCall):
        return tuple(session.prepare(feed) for feed in payload.feeds)
    if isinstance(session, CanDrive):
        return (session.calls()[0],)
    from modeldyno.loadgen.crew import once  # noqa: PLC0415 - only a server is sent to

    return (partial(once, session.target(payload.feeds[:1])),)


def _conversion(job: Job, session: Session) -> Iterator[Event]:
    """Doubt an analysis of the model as it is stored beside a run of what it was converted to."""
    converted = session.converted if isinstance(session, HasConverted) else ""
    if converted and any(plugins.probe(name).needs is None for name in job.probes):
        yield Doubted(doubt=doubt.of_conversion(converted))


def _load_time(spent: dict[str, float]) -> Iterator[Event]:
    yield Found(measurement=observed("load_time", sum(spent.values())))
    for name, seconds in spent.items():
        yield Found(measurement=observed("load_time", seconds, scope=name))


def _batch_size(job: Job) -> int | None:
    batch = job.config.get("batch_size")
    return None if batch is None else int(batch)


def _subject(looked: Subject, opened: _Opened) -> Subject:
    payload = opened.payload
    return replace(
        looked, session=opened.session, calls=opened.calls, feeds=payload.feeds, samples=payload.samples
    )


def _check_known(model: Model) -> None:
    """Refuse to look at what tells nothing of itself."""
    if model.weights is None and model.graph is None and model.file_bytes is None:
        raise RequestError(
            f"'{model.identity.name}' is code that nothing is known of before it runs; profile it instead."
        )


def _check_needs(probes: dict[str, Probe], subject: Subject, job: Job) -> None:
    for name, probe in probes.items():
        if probe.needs is not None and not isinstance(subject.session, probe.needs):
            wanted = (probe.needs.__doc__ or probe.needs.__name__).partition("\n")[0].rstrip(".")
            raise RequestError(
                f"The probe '{name}' needs {wanted[:1].lower()}{wanted[1:]}; the backend '{job.backend}' "
                "gives none."
            )


def _probed(
    probes: dict[str, Probe], passes: tuple[Pass, ...], subject: Subject, job: Job, stage: _Stage
) -> Iterator[Event]:
    for name, probe in probes.items():
        if probe.pass_ in passes and not subject.interrupted():
            with stage(name):
                found = map(_event, probe.measure(subject, job.plan))
                yield from found if probe.needs is None else _kept(found, name, stage)


def _kept(found: Iterator[Event], name: str, stage: _Stage) -> Iterator[Event]:
    """Pass on what a probe finds; where it refuses after others have measured, theirs is not lost."""
    try:
        for event in found:
            yield event
            stage.measured = True
    except RequestError as error:
        if not stage.measured:
            raise
        yield Failed(failure=Failure(where=name, kind=FailureKind.ERROR, message=str(error).rstrip(".")))


def _forgiven(found: Iterator[Event]) -> Iterator[Event]:
    """Look at a model as far as that goes: what can be measured is measured all the same."""
    try:
        yield from found
    except Exception as error:  # noqa: BLE001 - whatever it is, it is no reason not to run the model
        yield Doubted(
            doubt=Doubt(
                code="not-analysed",
                seen=str(error) or type(error).__name__,
                advice="nothing, if only times and memory are wanted; else see `modeldyno inspect`",
            )
        )


def _noted(found: Iterator[Event], known: list[Measurement]) -> Iterator[Event]:
    """Keep what is measured for the probes that come after."""
    for event in found:
        if isinstance(event, Found):
            known.append(event.measurement)
        yield event


def _event(found: Seen) -> Event:
    match found:
        case Measurement():
            return Found(measurement=found)
        case Doubt():
            return Doubted(doubt=found)
        case Failure():
            return Failed(failure=found)
        case Outline():
            return Outlined(outline=found)
        case Activity():
            return Watched(activity=found)
        case Artifact():
            return Kept(artifact=found)


def _checked(opened: _Opened, where: str, stage: _Stage) -> Iterator[Event]:
    """Look at what every payload gives, as far as a second of calls goes; the first in any case.

    What a server answers under load is looked at by whoever put it there.
    """
    if not isinstance(opened.session, CanCall):
        return
    begin = perf_counter()
    with stage(where):
        for call in opened.calls:
            yield from _faults(opened.session, call(), where)
            if perf_counter() - begin > _CHECKING:
                break
    if isinstance(opened.session, HasAllocator):
        yield Found(measurement=observed("allocator_reserved", opened.session.peak_reserved()))


def _faults(session: Session, output: Any, where: str) -> list[Event]:
    try:
        arrays = session.arrays(output)
    except ValueError as error:
        if isinstance(session, CanCall):
            raise
        return [Doubted(doubt=replace(_REFUSED, seen=f"{_REFUSED.seen}: {error}"))]
    if not arrays:
        return [Doubted(doubt=_UNCHECKED)]
    return [
        Failed(failure=Failure(where=where, kind=FailureKind.INVALID_OUTPUT, message=message))
        for message in outputs.faults(arrays)
    ]


_REFUSED = Doubt(
    code="failed-requests",
    seen="the very first request was not answered well",
    advice="read the rate of errors beside the latency",
)
_UNCHECKED = Doubt(
    code="unchecked-output",
    seen="what the model returned holds no arrays, so it was not checked for NaN",
    advice="nothing, if it is meant to return nothing",
)


@contextmanager
def _steady_collector() -> Iterator[None]:
    """Keep the garbage collector on, as in a service, but spare it what was loaded before."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _started(root: int) -> list[Watch]:
    """Start the samplers on a process; each is told which others are ours, and no load of the model."""
    found: list[Watch] = []
    program = dict.fromkeys((root, os.getpid(), os.getppid()))
    for name in SAMPLERS:
        ours = (pid for sampler in found for pid in sampler.pids)
        found.append(plugins.sampler(name).start((*program, *ours)))
    return found


def _beside(session: Session) -> list[Watch]:
    """Watch a server, now that it is there; one that is not ours cannot be watched."""
    if isinstance(session, CanCall) or session.pid is None:
        return []
    found = _started(session.pid)
    _mark(found, "idle")
    return found


def _mark(samplers: list[Watch], stage: str) -> None:
    for sampler in samplers:
        sampler.mark(stage)


def _discard(samplers: list[Watch]) -> None:
    for sampler in samplers:
        for _ in sampler.stop():
            pass
