"""A model made ready to call: what it needs is imported, its inputs are built, its first call is timed."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from time import perf_counter
from typing import TYPE_CHECKING, Any

from modeldyno import feeds, machine, plugins
from modeldyno.core import doubt
from modeldyno.core.measurement import observed
from modeldyno.core.result import Artifact, Doubted, Environment, Event, Found, Kept, Loaded
from modeldyno.errors import RequestError, Unloadable
from modeldyno.feeds import Payload
from modeldyno.ports import (
    CanCall,
    CanDrive,
    CountsPrompts,
    HasConverted,
    HasDevice,
    HasDoubts,
    HasFiles,
    HasSoftware,
    Session,
    TakesOtherInputs,
)
from modeldyno.run.checking import faults

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import ExitStack

    from modeldyno.core.doubt import Doubt
    from modeldyno.core.job import Job
    from modeldyno.core.model import ModelIdentity
    from modeldyno.ports import Backend, Model
    from modeldyno.run.stage import Stage


@dataclass(slots=True)
class Opened:
    """A model made ready to call."""

    session: Session
    payload: Payload
    calls: tuple[Callable[[], Any], ...]
    found: list[Event] = field(default_factory=list)


def imported(modules: tuple[str, ...], job: Job) -> None:
    """Import what the model needs; MissingExtra where it is not installed."""
    plugins.require(modules, f"model {job.model}")
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)  # what frameworks say of optional parts of theirs is no news
    try:
        for module in modules:
            import_module(module)
    finally:
        logging.disable(before)


def brought(bring: Callable[..., Model], job: Job) -> Model:
    """Load the model of a Job by what its loader has for that.

    Raises:
        Unloadable: it is not there, or is none; whatever the Job asks for beside it.
        RequestError: of the kinds that say more.
    """
    try:
        return bring(job.model, seed=job.plan.seed, trust=job.trust)
    except RequestError as error:
        if type(error) is not RequestError:
            raise
        raise Unloadable(str(error)) from error


def described(job: Job, model: Model) -> Iterator[Event]:
    """Tell what was loaded, and what is to be doubted of it."""
    yield Loaded(model=identity(job, model), inputs=model.inputs)
    for found in (*model.doubts, *_thread_doubts(job)):
        yield Doubted(doubt=found)


def identity(job: Job, model: Model) -> ModelIdentity:
    """Give the identity of a model, by the name that the Job gives it."""
    return model.identity if job.name is None else replace(model.identity, name=job.name)


def _thread_doubts(job: Job) -> Iterator[Doubt]:
    asked = [int(v) for k, v in job.config.items() if k.endswith("threads") and isinstance(v, int)]
    yield from doubt.of_threads(asked, max(1, int(machine.cpu_quota())))


def opened_for(job: Job, model: Model, stage: Stage, stack: ExitStack, spent: dict[str, float]) -> Opened:
    """Open the backend, and call the model once.

    Raises:
        RequestError: the backend does not run such models, or the inputs do not fit.
    """
    backend = plugins.backend(job.backend)
    with stage("payload"):
        payload = payload_of(job, model, backend)
    with stage("open", spent):
        session = stack.enter_context(backend.open(model, job.config))
    with stage("first call"):
        return called(session, payload)


def payload_of(job: Job, model: Model, backend: Backend) -> Payload:
    """Build what the model is given.

    Raises:
        RequestError: the backend does not run such models, or the inputs do not fit.
    """
    if model.form not in backend.accepts:
        raise RequestError(
            f"The backend '{job.backend}' runs {', '.join(sorted(backend.accepts))}, "
            f"and {job.model} is {model.form}; choose another with --backend."
        )
    if isinstance(backend, TakesOtherInputs):
        model = replace(model, inputs=backend.inputs(model, job.config), encode=None, example=None)
    return feeds.build(model, job.inputs, batch_size=batch_size_of(job), seed=job.plan.seed, sizes=job.sizes)


def called(session: Session, payload: Payload) -> Opened:
    """Call an open model once, and keep what that shows."""
    calls = _calls(session, payload)
    begin = perf_counter()
    output = calls[0]()
    first = perf_counter() - begin
    opened = Opened(session=session, payload=payload, calls=calls)
    known = session.doubts if isinstance(session, HasDoubts) else ()
    opened.found += [Found(measurement=observed("first_call", first))]
    opened.found += [Doubted(doubt=found) for found in (*payload.doubts, *known)]
    opened.found += _configured(session)
    opened.found += _prompted(session, output)
    opened.found += faults(session, output, "first call")
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


def placed(place: Environment, session: Session) -> Environment:
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


def conversion(job: Job, session: Session) -> Iterator[Event]:
    """Doubt an analysis of the model as it is stored beside a run of what it was converted to."""
    converted = session.converted if isinstance(session, HasConverted) else ""
    if converted and any(plugins.probe(name).needs is None for name in job.probes):
        yield Doubted(doubt=doubt.of_conversion(converted))


def load_time(spent: dict[str, float]) -> Iterator[Event]:
    """Tell the time from nothing to ready, and that of each stage."""
    yield Found(measurement=observed("load_time", sum(spent.values())))
    for name, seconds in spent.items():
        yield Found(measurement=observed("load_time", seconds, scope=name))


def batch_size_of(job: Job) -> int | None:
    """Give the samples of a call, if the Job says them."""
    batch = job.config.get("batch_size")
    return None if batch is None else int(batch)
