"""Make a model ready to call: import what it needs, build its inputs, time its first call."""

from __future__ import annotations

import hashlib
import logging
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modeldyno.base import plugins
from modeldyno.base.clock import perf_counter
from modeldyno.base.errors import ModelDynoError, RequestError, Unloadable, short_reason
from modeldyno.base.job.input_spec import BATCH, InputSpec
from modeldyno.base.job.load_spec import BY_DATA, Load
from modeldyno.base.job.prompt_images import images_of_knobs
from modeldyno.base.job.prompt_lengths import (
    OUTPUT_TOKENS,
    PREFIX_CACHE,
    PRIMED,
    PROMPT_TOKENS,
    SCHEME,
    TOKENIZER,
    format_trace_source,
    lengths_of_knobs,
)
from modeldyno.base.metrics import doubt
from modeldyno.base.metrics.doubt import Doubt
from modeldyno.base.metrics.measurement import observed_number
from modeldyno.base.result.result import Artifact, Environment, Event, Loaded
from modeldyno.engine.data import token_prompts, trace_file
from modeldyno.engine.data.assumed_sizes import assume_sizes
from modeldyno.engine.data.batches import build_payloads
from modeldyno.engine.data.first_words import find_first_words
from modeldyno.engine.data.outputs import sketch_output
from modeldyno.engine.data.prompt_images import with_images
from modeldyno.engine.environment import machine
from modeldyno.engine.interfaces.session import (
    LocalSession,
    RequestSession,
    ServedSession,
    Session,
    ThreadSession,
    load_target,
)
from modeldyno.engine.runtime.failures import failure_of
from modeldyno.engine.runtime.output_checks import OpenedModel, find_output_faults, first_request_failed
from modeldyno.engine.runtime.stage_functions import preprocessed_payload
from modeldyno.models.interface import Form
from modeldyno.models.load_stages import WatchStage
from modeldyno.models.static.weights import CONVERTED_DTYPES

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import ExitStack

    from modeldyno.base.job.job import Job
    from modeldyno.base.job.model_ref import ModelIdentity
    from modeldyno.engine.data.batches import Payload
    from modeldyno.engine.interfaces.backend import Backend
    from modeldyno.engine.runtime.events import RunStage
    from modeldyno.models.interface import Model


_LOAD = "load"
"""The probe that sends to a server."""
_SIZE_GUESS_TIME = 60.0
"""Seconds for trying guessed input sizes by calls."""


def import_frameworks(modules: tuple[str, ...], job: Job) -> None:
    """Import the modules the model needs; MissingExtra if one is not installed."""
    plugins.require(modules, f"model {job.model.argument}")
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)  # hide notes of frameworks about their optional parts
    try:
        for module in modules:
            import_module(module)
    finally:
        logging.disable(before)


def load_model(bring: Callable[..., Model], job: Job) -> Model:
    """Load the model of a Job with the given function of its loader.

    Raises:
        Unloadable: the model is missing or malformed, or the Job does not fit it.
            RequestError: a more specific kind of it.
    """
    try:
        return bring(job.model, seed=job.plan.seed, trust=job.trust)
    except RequestError as error:
        if type(error) is not RequestError:
            raise
        raise Unloadable(str(error)) from error


def check_torch(job: Job) -> None:
    """Refuse a module for a server that is known to lack torch, before the module is loaded.

    Raises:
        RequestError: the server lacks it.
    """
    is_module = plugins.loader(job.model.scheme).backend == Form.TORCH
    if is_module and any(plugins.probe(name).needs is not None for name in job.probes):
        plugins.backend(job.backend).check_torch(job.config)


def recallable_source(job: Job) -> str:
    """Digest what the model of a Job depends on, if its backend may serve it unloaded; else empty."""
    loader, backend = plugins.loader(job.model.scheme), plugins.backend(job.backend)
    only_served = job.probes == (_LOAD,)  # other probes look at the model itself
    return loader.source_digest(job.model) if only_served and backend.recalls else ""


def recall_model(job: Job, source: str, modules: tuple[str, ...]) -> Model | None:
    """Return a model without loading it; None if the backend has not kept what the server needs of it."""
    backend = plugins.backend(job.backend)

    def load() -> Model:
        import_frameworks(modules, job)
        return load_model(plugins.loader(job.model.scheme).load, job)

    return backend.recall(source, load) if source else None


def with_source(job: Job, model: Model, source: str) -> Model:
    """Give a model the source from which it was loaded, unless that has changed meanwhile."""
    return replace(model, source=source) if source and recallable_source(job) == source else model


def describe_model(job: Job, model: Model) -> Iterator[Event]:
    """Yield what was loaded, and the doubts about it."""
    yield Loaded(model=identity(job, model), inputs=model.inputs)
    yield from (*model.doubts, *_thread_doubts(job))


def identity(job: Job, model: Model) -> ModelIdentity:
    """Return the identity of a model, under the name that the Job gives it."""
    return model.identity if job.name is None else replace(model.identity, name=job.name)


def _thread_doubts(job: Job) -> Iterator[Doubt]:
    threads = [int(v) for k, v in job.config.items() if k.endswith("threads") and isinstance(v, int)]
    yield from doubt.thread_doubts(threads, max(1, int(machine.cpu_quota())))


def open_session(
    job: Job, model: Model, payload: Payload, stage: RunStage, stack: ExitStack, spent: dict[str, float]
) -> OpenedModel:
    """Open the backend, and call the model once."""
    backend = plugins.backend(job.backend)
    stage.mark(WatchStage.LOAD)
    with stage("open", spent), stage.bound_requests():
        session = stack.enter_context(backend.open(model, job.config))
    with stage("first call"):
        return fit_prompts(job, _call_with_assumed_sizes(job, model, backend, session, payload, stage), stage)


def assume_input_sizes(
    job: Job,
    model: Model,
    inputs: tuple[InputSpec, ...],
    refused: Sequence[tuple[Mapping[str, int], str]] = (),
) -> Model:
    """Assume input sizes that are not known; see `assume_sizes`."""
    varied = {name: sizes[0] for name, sizes in job.inspection.vary.items()}
    return assume_sizes(
        model,
        inputs,
        batch_size=varied.get(BATCH, batch_size_of(job)),
        sizes={**job.sizes, **varied},
        prove=any(plugins.probe(name).needs is None for name in job.probes),
        refused=refused,
    )


def _call_with_assumed_sizes(
    job: Job, model: Model, backend: Backend, session: Session, payload: Payload, stage: RunStage
) -> OpenedModel:
    """Call the model; if it refuses assumed sizes, assume others."""
    begin, refused = perf_counter(), list[tuple[Mapping[str, int], str]]()
    while True:
        try:
            return first_call(session, payload, model, stage, job.load or Load())
        except Exception as error:
            refused.append((model.assumed, " ".join(str(error).split())))
            late = perf_counter() - begin > _SIZE_GUESS_TIME
            if (
                late
                or isinstance(error, (ModelDynoError, MemoryError))
                or not isinstance(session, LocalSession)
            ):
                raise
            if payload.makers:
                raise
            if not payload.used and (model.optional or model.undeclared):
                raise _inputs_wanted(model, error) from error
            other = _other_sizes(job, model, refused)
            if other is None:
                raise
        model, payload = other, payload_of(job, other, backend)


def _inputs_wanted(model: Model, error: Exception) -> RequestError:
    """Return what to give to a model that fails without any of its optional inputs."""
    names = [spec.name for spec in model.optional] or ["a"]
    any_name = " and any other" if model.undeclared and model.optional else ""
    takes = f"{', '.join(names[:_NAMES])}{any_name}" if model.optional else "any"
    return RequestError(
        f"{model.identity.name} fails without inputs ({short_reason(error)}), of which it takes {takes}; "
        f"give what it needs, such as `inputs={names[0]}=batchx3x224x224`."
    )


_NAMES = 5
"""Optional inputs that a message names."""


def _other_sizes(job: Job, model: Model, refused: Sequence[tuple[Mapping[str, int], str]]) -> Model | None:
    """Assume sizes that have not been refused; None if the sizes were not the problem.

    Raises:
        RequestError: there are no other sizes to assume.
    """
    try:
        other = assume_input_sizes(job, model, job.inputs, refused)
    except RequestError:
        if refused[0][0]:
            raise
        return None
    return None if other.assumed == model.assumed else other


def _backends_for(model: Model) -> Iterator[str]:
    """Return the backends that run such models."""
    return (name for name, backend in plugins.usable("backend") if model.form in backend.accepts)


def payload_of(job: Job, model: Model, backend: Backend, preprocess: Model | None = None) -> Payload:
    """Build the inputs of the model, by the user's function if there is one.

    Raises:
        RequestError: the backend does not run such models, or the inputs do not fit.
    """
    if model.form not in backend.accepts:
        raise RequestError(
            f"The backend '{job.backend}' runs models of {', '.join(sorted(backend.accepts))}, and "
            f"{job.model.argument} is one of {model.form}; leave `backend` out, or give one that runs it: "
            f"{', '.join(_backends_for(model))}."
        )
    if preprocess is not None:
        return preprocessed_payload(preprocess, job, model)
    if (inputs := backend.inputs(job.config)) is not None:
        model = replace(
            model,
            inputs=inputs,
            takes_requests=backend.takes_requests,
            optional=(),
            encode=None,
            example=None,
            assumed_input="",
        )
    if model.takes_requests:
        tokenizer = str(job.config.get(TOKENIZER, "")) or model.tokenizer or _own_tokenizer(model)
        model = replace(model, tokenizer=tokenizer)
    seed = _seed_of_prompts(job) if model.takes_requests else job.plan.seed
    payload = build_payloads(
        model,
        _with_lengths(job, model),
        batch_size=batch_size_of(job),
        seed=seed,
        sizes=job.sizes,
        sessions=job.load is not None and job.load.sequence == BY_DATA,
    )
    if model.takes_requests:
        payload = _with_first_words(payload, model, primed=job.config.get(PREFIX_CACHE) == PRIMED)
    images = images_of_knobs(job.config) if model.takes_requests else None
    return payload if images is None else with_images(payload, images, seed=seed)


def _with_first_words(payload: Payload, model: Model, *, primed: bool) -> Payload:
    """Find in random prompts what is to change when they are sent again, unless a cache may have them."""
    if primed:
        return replace(payload, primed=True)
    prompts = payload.used[0]
    random = prompts.name in payload.drawn or str(prompts.source).startswith(SCHEME)
    if not random or payload.samples != 1 or len(payload.used) != 1:
        return payload
    tokenizer = None
    if payload.prompt_tokens:
        tokenizer = token_prompts.open_tokenizer(token_prompts.find_tokenizer(model.tokenizer))
    first_words = find_first_words(
        [str(feed[prompts.name].flat[0]) for feed in payload.feeds],
        alike=payload.streams is not None and any(payload.streams.shared),
        tokenizer=tokenizer,
    )
    return replace(payload, first_words=first_words)


def _seed_of_prompts(job: Job) -> int:
    """Return a seed of its own for each load, as a prefix cache would know the prompts of the last one."""
    return job.plan.seed if job.load is None else zlib.crc32(f"{job.plan.seed} {job.load}".encode())


def _own_tokenizer(model: Model) -> str:
    """Return the folder of a model of Transformers, which has its tokenizer; empty if it has none."""
    folder = Path(str(getattr(model.value, "name_or_path", "") or ""))
    return str(folder) if (folder / token_prompts.FILE).is_file() else ""


def _with_lengths(job: Job, model: Model) -> tuple[InputSpec, ...]:
    """Return the requested inputs; of a language model with the lengths that knobs or a trace ask for.

    Raises:
        RequestError: its prompts are given in another way, too.
    """
    lengths = lengths_of_knobs(job.config) if model.takes_requests else None
    if lengths is None:
        return job.inputs or _of_trace(job, model)
    if job.inputs:
        raise RequestError(
            f"`inputs` gives the prompts, which {PROMPT_TOKENS} and {OUTPUT_TOKENS} would make; leave one "
            "out. Requests of a file say their own `max_tokens`."
        )
    return (InputSpec(source=str(lengths)),)


def _of_trace(job: Job, model: Model) -> tuple[InputSpec, ...]:
    """Return the source of prompts with the lengths of the trace that is replayed, if it has any.

    Without a tokenizer they cannot be made.
    """
    load = job.load or Load()
    if not (load.trace and model.takes_requests and model.tokenizer):
        return ()
    if not trace_file.read_trace(load.trace).prompt_tokens:
        return ()
    return (InputSpec(source=format_trace_source(load.trace, load.window)),)


def first_call(session: Session, payload: Payload, model: Model, stage: RunStage, load: Load) -> OpenedModel:
    """Call an open model once and record the outcome; a request is one of that load.

    Exceptions are raised on, except those of a user's own client, whose failures are counted under load.
    """
    prepared = _prepare_calls(session, payload, load)
    call = next(prepared)
    inputs = sketch_output(payload.feeds[0]) if payload.feeds and isinstance(session, LocalSession) else None
    begin = perf_counter()
    failure, output = None, None
    try:
        with stage.bound_requests():
            output = call()
    except Exception as error:
        if not isinstance(session, ThreadSession):
            raise
        # A flaky client may fail its first call; the load shows whether it always does.
        failure = first_request_failed(failure_of(error, "first call").message)
    seconds = perf_counter() - begin
    stage.mark(WatchStage.PROFILER)  # preparing further payloads is our work, not the model's
    opened = OpenedModel(
        session=session, payload=payload, calls=(call, *prepared), model=model, first_inputs=inputs
    )
    opened.events += [*payload.doubts, *session.doubts]
    opened.events += _config_files(session)
    if failure is not None:
        opened.events.append(failure)
        return opened
    opened.events += [observed_number("first_call", seconds)]
    if isinstance(session, ServedSession):
        opened.prompt_tokens = session.prompt_tokens(output)
    opened.events += find_output_faults(session, output, "first call", opened.checks)
    return opened


def _config_files(session: Session) -> Iterator[Event]:
    """Yield the configuration files of a server, so that they can be reused."""
    for name, text in session.files:
        digest = f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
        yield Artifact(name=name, path="", digest=digest, text=text)


def fit_prompts(job: Job, opened: OpenedModel, stage: RunStage) -> OpenedModel:
    """Make prompts again that are shorter by what the server adds to each, as by its chat template.

    They are kept if the server counts their tokens nearer to what was asked for.
    """
    fitted = opened
    if added := _added_tokens(opened):
        model = replace(opened.model, template_tokens=added)
        with suppress(RequestError, OSError):  # some are shorter than the template, or a request fails
            payload = payload_of(job, model, plugins.backend(job.backend))
            again = first_call(opened.session, payload, model, stage, job.load or Load())
            if abs(_excess(again)) < abs(_excess(opened)):
                fitted = replace(again, model=opened.model, template_tokens=added, events=opened.events)
    fitted.events += _prompt_length_events(fitted)
    return fitted


def _excess(opened: OpenedModel) -> int:
    """Return by how much the server's count of the first prompts is above what was asked for."""
    return opened.prompt_tokens - opened.payload.prompt_tokens


def _added_tokens(opened: OpenedModel) -> int:
    """Return how many tokens the server adds to each prompt; 0 if it adds none, or that is not known."""
    if opened.prompt_tokens < 0 or not opened.payload.prompt_tokens:
        return 0
    added, rest = divmod(_excess(opened), opened.payload.samples)
    return 0 if rest else added


def _prompt_length_events(opened: OpenedModel) -> Iterator[Event]:
    """Yield the number of tokens of a prompt, as the server counts it, and a doubt if that is far off."""
    count, target = opened.prompt_tokens, opened.payload.prompt_tokens
    if count >= 0:
        yield observed_number("prompt_tokens", count)
    if opened.template_tokens:
        yield observed_number("template_tokens", opened.template_tokens)
    if count >= 0 and target and abs(count - target) > _LENGTH_TOLERANCE * target:
        change = f"{abs(target - count):,} {'fewer' if count > target else 'more'}"
        yield Doubt(
            code="length-differs",
            seen=f"the server counts {count:,} tokens in a prompt of {target:,}",
            advice="its tokenizer is another one, or its chat template longer than some prompts: give its "
            f"own with `tokenizer=DIR`, or ask for {change}",
        )


_LENGTH_TOLERANCE = 0.05
"""Share by which the server's count of a prompt may differ from what was asked for."""


def with_session_info(place: Environment, session: Session) -> Environment:
    """Add what a session knows of its environment: the device, its threads, the versions of a server."""
    device = {"device": session.device} if session.device else {}
    threads = {"threads": session.threads} if session.threads else {}
    return replace(
        place,
        conditions={**place.conditions, **device, **threads},
        software={**place.software, **(session.software or {})},
    )


def _prepare_calls(session: Session, payload: Payload, load: Load) -> Iterator[Callable[[], Any]]:
    """Prepare a call of each payload; for a server, one request, to see whether it answers."""
    if isinstance(session, LocalSession):
        yield from map(session.prepare, payload.feeds)
    elif isinstance(session, ThreadSession):
        yield session.calls(payload.feeds)[0]
    else:
        from modeldyno.serving.loadgen.driver_pool import send_once  # only servers need it

        assert isinstance(session, RequestSession)
        # Our own server may load the model on the first request.
        cold = session.started_server() is not None
        timeout = max(load.timeout, Load().timeout) if cold else load.timeout
        yield partial(send_once, load_target(session, payload.feeds[:1], load), timeout=timeout)


def conversion_doubts(job: Job, session: Session, model: Model) -> Iterator[Event]:
    """Doubt an unasked conversion, and an analysis of the model as stored beside a converted one."""
    converted = session.converted
    if converted and "precision" not in job.config:
        yield doubt.unasked_precision_doubt(converted)
    analysed_so = model.converts and converted in CONVERTED_DTYPES
    if converted and not analysed_so and any(plugins.probe(name).needs is None for name in job.probes):
        yield doubt.conversion_doubt(converted)


def load_times(spent: dict[str, float]) -> Iterator[Event]:
    """Yield the total time until ready, and that of each stage."""
    yield observed_number("load_time", sum(spent.values()))
    for name, seconds in spent.items():
        yield observed_number("load_time", seconds, scope=name)


def batch_size_of(job: Job) -> int | None:
    """Return the number of samples of a call, if the Job sets it."""
    batch = job.config.get("batch_size")
    return None if batch is None else int(batch)
