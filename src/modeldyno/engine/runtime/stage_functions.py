"""The user's functions around a model: what makes its inputs of raw data, and what takes its outputs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modeldyno.base import plugins
from modeldyno.base.errors import InputRefused, RequestError, UnknownName
from modeldyno.base.job.input_spec import BATCH, InputSpec
from modeldyno.base.job.model_ref import LIVE, ModelRef
from modeldyno.engine.data.batches import build_payloads, resolve_inputs
from modeldyno.engine.data.requested_inputs import with_named_inputs
from modeldyno.engine.interfaces.session import LocalSession
from modeldyno.models.interface import Feed, Model

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modeldyno.base.job.job import Job
    from modeldyno.engine.data.batches import Payload

_LIVE = "object:"
"""Beginning of the reference to a function of this process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageFunctions:
    """The functions of a Job, imported; None where it has none."""

    preprocess: Model | None
    """As the loader of callables describes it: its inputs are the raw data."""
    postprocess: Callable[[Feed], Any] | None
    """It takes the named outputs of a call."""


def import_stage_functions(job: Job) -> StageFunctions:
    """Import the functions of a Job.

    Raises:
        RequestError: one cannot be imported, or cannot be called.
    """
    before, after = job.observation.preprocess, job.observation.postprocess
    with _naming("post"):
        taker = None if after is None else partial(_give_outputs, import_function(after).value)
    with _naming("pre"):
        return StageFunctions(
            preprocess=None if before is None else import_function(before), postprocess=taker
        )


def _give_outputs(function: Callable[[Any], Any], outputs: Feed) -> Any:
    """Call a function with the outputs of a model: an array, or a dict by name if there are several."""
    return function(next(iter(outputs.values())) if len(outputs) == 1 else outputs)


def _feed_makers(function: Model, job: Job, model: Model) -> Iterator[Callable[[], Feed]]:
    """Yield a function for each batch of raw data; it makes the named inputs of the model."""
    names = tuple(spec.name for spec in model.inputs)
    with _naming("pre"):
        raw_feeds = _raw_feeds(function, job)
    with plugins.backend("python").open(function, {}) as session:
        assert isinstance(session, LocalSession)
        for feed in raw_feeds:
            make = session.prepare({name: _as_texts(array) for name, array in feed.items()})
            yield partial(_make_feed, make, names)


def preprocessed_payload(function: Model, job: Job, model: Model) -> Payload:
    """Build the payloads that a function makes of raw data.

    Raises:
        RequestError: the raw data do not fit the function.
        InputRefused: the model does not take what it returns.
    """
    makers = tuple(_feed_makers(function, job, model))
    feeds = [make() for make in makers]
    with _naming_line(function):
        payloads = [
            build_payloads(
                _with_example(model, feed, job), (), batch_size=_batch_of(feed, model), seed=job.plan.seed
            )
            for feed in feeds
        ]
        used = tuple(_record(specs) for specs in zip(*(payload.used for payload in payloads), strict=True))
    fed = tuple(payload.feeds[0] for payload in payloads)
    return replace(payloads[0], feeds=fed, used=used, makers=makers)


def with_first_feed(function: Model, job: Job, model: Model) -> Model:
    """Return the model with the inputs of its first call as its example, by which it is analysed.

    Raises:
        InputRefused: the model does not take what the function returns.
    """
    feed = next(_feed_makers(function, job, model))()
    with _naming_line(function):
        example = _with_example(model, feed, job)
        resolve_inputs(example, (), batch_size=None, sizes={})
    return example


def import_function(reference: str) -> Model:
    """Import a function of the user: ``file.py:name``, ``package.module:name``, or one of this process.

    Raises:
        RequestError: it cannot be imported, or cannot be called.
    """
    scheme, locator = "call", reference
    if reference.startswith(_LIVE):
        scheme, locator = LIVE, reference.removeprefix(_LIVE)
    return plugins.loader(scheme).load(ModelRef(scheme=scheme, locator=locator), seed=0, trust=False)


def _raw_feeds(function: Model, job: Job) -> tuple[Feed, ...]:
    """Return the batches of raw data; a single empty one for a function without parameters."""
    if not function.inputs:
        if job.inputs:
            raise RequestError(f"`inputs` is for a function with a parameter; {_line(function)} has none.")
        return ({},)
    if not job.inputs and function.example is None:
        name = function.inputs[0].name
        raise RequestError(
            f"{_line(function)} makes the inputs of '{name}', which is not given; give it with "
            f"`inputs={name}=data.npz`, or in the same file as {function.value.__name__}_inputs."
        )
    single = function.inputs[0].name if len(function.inputs) == 1 else None
    batch = job.config.get("batch_size")
    return build_payloads(
        replace(function, encode=None if single is None else partial(_name_texts, single)),
        job.inputs,
        batch_size=None if batch is None else int(batch),
        seed=job.plan.seed,
    ).feeds


def _name_texts(name: str, texts: Any, length: int | None) -> Feed:
    import numpy as np  # slow to import

    del length  # of texts that are padded
    return {name: np.array(texts, dtype=object)}


def _as_texts(array: Any) -> Any:
    """Wrap an array of text, so that the function gets a list of it; another array is unchanged."""
    import numpy as np  # slow to import

    if array.ndim != 1 or array.dtype.kind not in "OU":
        return array
    wrapped = np.empty((), dtype=object)
    wrapped[()] = array.tolist()
    return wrapped


def _make_feed(make: Callable[[], Any], names: tuple[str, ...]) -> Feed:
    """Call the function, and return its result as named arrays: of a dict, a tuple or a single value."""
    made = make()
    if isinstance(made, Mapping):
        return {str(name): _to_array(value) for name, value in made.items()}
    values = made if isinstance(made, tuple | list) and all(hasattr(v, "shape") for v in made) else (made,)
    input_names = (*names, *(f"input_{place}" for place in range(len(names), len(values))))
    return {name: _to_array(value) for name, value in zip(input_names, values, strict=False)}


def _to_array(value: Any) -> Any:
    """Convert a tensor, an array or a list to an array on the host; wrap any other object."""
    import numpy as np  # slow to import

    if hasattr(value, "detach"):
        value = value.detach().cpu()
        return (value.float() if "bfloat16" in str(value.dtype) else value).numpy()
    array = np.asarray(value)
    if array.dtype.kind != "O" or isinstance(value, np.ndarray):
        return array
    wrapped = np.empty((), dtype=object)
    wrapped[()] = value
    return wrapped


def _with_example(model: Model, feed: Feed, job: Job) -> Model:
    """Return the model with these inputs as its example.

    Raises:
        InputRefused: it has others, or they have another dtype or batch size; `data` checks the shapes.
    """
    model = with_named_inputs(model, feed)
    declared = {spec.name: spec for spec in model.inputs or [InputSpec(name=name) for name in feed]}
    for name in feed:
        if name not in declared:
            known = (*declared, *(spec.name for spec in model.optional))
            raise InputRefused(str(UnknownName.among("input", name, known)))
    for name, spec in declared.items():
        if name not in feed:
            raise InputRefused(f"There is nothing for the input '{name}'.")
        if spec.shape and not feed[name].ndim:
            raise InputRefused(f"The input '{name}' has {len(spec.shape)} dimensions, not none.")
        kind = feed[name].dtype
        if spec.dtype not in {None, "string", kind.name}:
            raise InputRefused(f"The input '{name}' is {spec.dtype}, not {kind.name}.")
    batch = job.config.get("batch_size")
    rows = {array.shape[0] for array in feed.values() if array.ndim}
    if batch is not None and len(rows) == 1 and rows != {int(batch)}:
        raise InputRefused(f"It has {rows.pop()} rows, and batch_size={batch}.")
    return replace(model, inputs=tuple(declared.values()), example=feed, encode=None)


def _batch_of(feed: Feed, model: Model) -> int | None:
    """Return the number of samples, if the model declares which axis counts them."""
    counted = [feed[spec.name] for spec in model.inputs if spec.shape and spec.shape[0] == BATCH]
    rows = {array.shape[0] for array in counted if array.ndim}
    return rows.pop() if len(rows) == 1 else None


def _record(specs: tuple[InputSpec, ...]) -> InputSpec:
    """Record an input of all calls: as the first one, with the digest of all."""
    digests = [str(spec.digest) for spec in specs]
    joint = sha256("".join(digests).encode()).hexdigest()
    return replace(specs[0], digest=f"sha256:{joint}", distinct=len(set(digests)))


def _line(function: Model) -> str:
    """Name a function with its line: ``clean (stages.py:3)``."""
    inner = inspect.unwrap(function.value)
    inner = inner.func if isinstance(inner, partial) else inner
    name = getattr(inner, "__name__", type(inner).__name__)
    code = getattr(inner, "__code__", None)
    return name if code is None else f"{name} ({Path(code.co_filename).name}:{code.co_firstlineno})"


@contextmanager
def _naming(field: str) -> Iterator[None]:
    """Name the option in a refusal."""
    try:
        yield
    except RequestError as error:
        raise RequestError(f"`{field}`: {error}") from error


@contextmanager
def _naming_line(function: Model) -> Iterator[None]:
    """Name the function and its line in a refusal of what it returned."""
    try:
        yield
    except RequestError as error:
        text = str(error)
        raise InputRefused(
            f"`pre`: {_line(function)} returns what the model does not take: {text[0].lower()}{text[1:]}"
        ) from error
