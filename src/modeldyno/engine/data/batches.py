"""Payloads: model inputs from the model's declaration and the user's request.

Real data is cut into batches, random data is drawn within dtype, range and vocabulary. Several distinct
payloads are made for the caller to cycle through: repeating one payload would favour caches.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modeldyno.base.errors import InputRefused, RequestError, UnknownName
from modeldyno.base.job.input_spec import (
    BATCH,
    InputSpec,
    bind_dimensions,
    concrete_shape,
    format_shape,
    given_dimensions,
    resolve_dimension,
    symbols_of,
    write_option,
)
from modeldyno.base.job.prompt_lengths import SCHEME, TRACE_SCHEME, parse_prompt_lengths, parse_trace_source
from modeldyno.base.metrics.doubt import Doubt
from modeldyno.engine.data import (
    agent_graphs,
    data_files,
    request_data,
    text_requests,
    token_prompts,
    trace_file,
    trace_prompts,
)
from modeldyno.engine.data.requested_inputs import with_requested_inputs
from modeldyno.models import random_arrays
from modeldyno.models.interface import Feed, Form, RequestStreams, Tracing

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy import ndarray

    from modeldyno.engine.data.first_words import FirstWords
    from modeldyno.engine.data.text_requests import TextRequests
    from modeldyno.models.interface import Model

IDS = re.compile(r"ids?$|token", re.IGNORECASE)
"""A name of an input of ids."""
_MASK = "attention_mask"
_PADDING_SHARE = 0.1
"""Share of padding tokens from which a warning says that texts are padded to the longest of all calls."""
MOST = 8
"""Maximum number of payloads."""
MOST_TEXTS = 64
"""Maximum number of random payloads of text alone: language model servers cache prompt prefixes."""
MOST_REAL_TEXTS = 1024
"""Maximum number of payloads of real text alone."""
MOST_BYTES = 64 * 2**20
"""Maximum bytes of all payloads together, unless one alone has more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Payload:
    """Model inputs, and how they were made."""

    feeds: tuple[Feed, ...]
    """Distinct payloads, at least one; to be cycled through."""
    used: tuple[InputSpec, ...]
    """Each input as fed: its concrete shape, dtype, range or source, digest and number of distinct values."""
    samples: int
    """Samples in each payload."""
    streams: RequestStreams | None = None
    """Of a file of requests: its streams, and the answers that it expects."""
    drawn: frozenset[str] = frozenset()
    """Names of inputs whose values are random."""
    prompt_tokens: int = 0
    """Tokens of the first payload's prompts, as the model's tokenizer counts them; 0 if that is unknown."""
    first_words: FirstWords | None = None
    """Words of random prompts in place of which others are sent; None: prompts stay as they are."""
    primed: bool = False
    """Whether the server may have the prompts in a prefix cache."""
    makers: tuple[Callable[[], Feed], ...] = ()
    """Functions of the user that make each of `feeds` again; empty without."""
    doubts: tuple[Doubt, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedInputs:
    """The inputs of a model that is analysed but not run."""

    inputs: tuple[InputSpec, ...]
    """With symbolic dimensions where the model declares them."""
    bound: dict[str, int]
    """Symbolic dimension to its size."""
    real: Feed
    """Values of the example or of files, by input name, as given."""

    def values(self, specs: Iterable[InputSpec]) -> Feed:
        """Return real values, in the shapes of `specs`, of inputs whose values can affect control flow.

        These are integers (ids, lengths, masks), single numbers, and lists or dicts of arrays, each wrapped
        in a zero-dimensional array. Rows are repeated or dropped where the first axis has a different size;
        an input that differs in another axis is left out.
        """
        import numpy as np  # slow to import

        values: Feed = {}
        for spec in specs:
            array, shape = self.real.get(spec.name), tuple(map(int, spec.shape or ()))
            if array is None or (array.ndim and array.dtype.kind not in "iub"):
                continue
            if array.shape == shape:
                values[spec.name] = array
            elif array.ndim == len(shape) and array.size and array.shape[1:] == shape[1:]:
                values[spec.name] = array[np.arange(shape[0]) % len(array)]
        return values


@dataclass(frozen=True, slots=True, kw_only=True)
class _Data:
    """Real values, by input name."""

    rows: Feed = field(default_factory=dict)
    """Cut into batches along the first axis."""
    whole: Feed = field(default_factory=dict)
    """The same in every payload."""
    sources: dict[str, str] = field(default_factory=dict)
    """Input name to the file of its values."""
    unused: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """File of requests to the fields in it that are not sent."""
    lengths: list[int] = field(default_factory=list)
    """Tokens of each text that was padded to the longest of all."""
    prompt_tokens: list[int] = field(default_factory=list)
    """Tokens of each prompt that was made to have so many."""
    sessions: list[int] = field(default_factory=list)
    """Turns of each session of a file of such, one after the other."""
    shared: list[int] = field(default_factory=list)
    """Tokens with which each prompt begins as an earlier one does; empty if none is made to."""
    traces: list[str] = field(default_factory=list)
    """File of the trace whose requests the rows are; empty without."""
    doubts: list[Doubt] = field(default_factory=list)


def build_payloads(
    model: Model,
    requested: tuple[InputSpec, ...],
    *,
    batch_size: int | None,
    seed: int,
    sizes: Mapping[str, int] | None = None,
    base: Path | None = None,
    sessions: bool = False,
) -> Payload:
    """Build the payloads.

    Args:
        model: its inputs as declared, its example and its tokenizer.
        requested: shapes, ranges and files that the user gave.
        batch_size: the knob; None leaves it to shapes and data, and means 1 if they do not decide.
        seed: seed of random values.
        sizes: sizes of symbolic dimensions, by name.
        base: the directory that files are relative to.
        sessions: whether a line of requests to a language model is a session of several turns.

    Raises:
        RequestError: the request contradicts the model, the data, or itself.
        UnknownName: `sizes` names a dimension that no input has.
    """
    declared = _declare(model, requested, batch_size, sizes or {}, base, seed, sessions=sessions)
    data, batch = declared.data, declared.batch
    bound = declared.bound_sizes(model, batch_size, sizes or {})
    specs = tuple(replace(spec, shape=concrete_shape(spec, bound)) for spec in declared.inputs)
    streams = None
    path = None if data.sessions else _request_file(requested, base or Path())
    if path is not None:
        feeds, streams = request_data.read_request_data(path).feeds(declared.inputs, batch)
        made = [tuple(map(_digest, feed.values())) for feed in feeds]
    elif data.sessions:
        streams = RequestStreams(lengths=tuple(data.sessions))
        feeds = tuple(_feed(specs, data, batch, (seed, turn)) for turn in range(sum(data.sessions)))
        made = [tuple(map(_digest, feed.values())) for feed in feeds]
    else:
        feeds = tuple(_feed(specs, data, batch, (seed, i)) for i in range(_payload_count(specs, data, batch)))
        made = [tuple(map(_digest, feed.values())) for feed in feeds]
        if not data.traces:  # a trace may have the same request twice
            by_digests = dict(zip(made, feeds, strict=True))
            feeds, made = tuple(by_digests.values()), [*by_digests]
        if data.shared:
            shared = [sum(data.shared[at * batch : (at + 1) * batch]) for at in range(len(feeds))]
            streams = RequestStreams(lengths=(len(feeds),), shared=tuple(shared), of_trace=bool(data.traces))
    digests = zip(*made, strict=True) if specs else ()
    return Payload(
        feeds=feeds,
        used=tuple(
            _record_input(spec, feeds[0][spec.name], digests_of_input, data)
            for spec, digests_of_input in zip(specs, digests, strict=True)
        ),
        samples=bound.get(BATCH) or _common_first(feeds[0]) or 1,
        streams=streams,
        prompt_tokens=sum(data.prompt_tokens[:batch]),
        drawn=frozenset(s.name for s in specs if path is None and s.name not in {**data.rows, **data.whole}),
        doubts=(
            *data.doubts,
            *_data_doubts(data, batch, _row_count(data)),
            *_padding_doubts(specs, data, batch),
            *_batch_doubts(model, requested, batch_size, feeds[0]),
            *assumption_doubts(model),
        ),
    )


def resolve_inputs(
    model: Model,
    requested: tuple[InputSpec, ...],
    *,
    batch_size: int | None,
    sizes: Mapping[str, int],
) -> ResolvedInputs:
    """Return the inputs with their symbolic dimensions bound, without drawing values.

    `sizes` maps dimensions by name; the rest is as in `build_payloads`.

    Raises:
        RequestError: as in `build_payloads`.
        UnknownName: `sizes` names a dimension that no input has.
    """
    declared = _declare(model, requested, batch_size, sizes)
    return ResolvedInputs(
        inputs=declared.inputs,
        bound=declared.bound_sizes(model, batch_size, sizes),
        real={**declared.data.rows, **declared.data.whole},
    )


def given_sizes(
    model: Model,
    requested: tuple[InputSpec, ...],
    *,
    batch_size: int | None,
    sizes: Mapping[str, int],
) -> tuple[tuple[InputSpec, ...], dict[str, int]]:
    """Return the inputs with their symbolic dimensions, and the sizes that were given.

    Raises:
        RequestError: as in `build_payloads`.
        UnknownName: `sizes` names a dimension that no input has.
    """
    declared = _declare(model, requested, batch_size, sizes)
    return declared.inputs, given_dimensions(declared.inputs, declared.given, batch_size, sizes)


def assumption_doubts(model: Model) -> tuple[Doubt, ...]:
    """Return a doubt about sizes that were assumed because they were not given."""
    if model.assumed_input:
        return (_assumed_input_doubt(model),)
    if not model.assumed:
        return ()
    sizes = ", ".join(f"{name} {size}" for name, size in model.assumed.items())
    specs = [spec for spec in model.inputs if set(model.assumed).intersection(symbols_of(spec))]
    options = " ".join(write_option(spec, model.assumed) for spec in specs)
    verb = "was" if len(model.assumed) == 1 else "were"
    text = f"not all sizes of the inputs were given; {sizes} {verb} assumed, which the model accepts"
    return (Doubt(code="assumed-sizes", seen=text, advice=f"give the sizes that you use, as in {options}"),)


def _assumed_input_doubt(model: Model) -> Doubt:
    spec = next(spec for spec in model.inputs if spec.name == model.assumed_input)
    option = write_option(spec, {})
    return Doubt(
        code="assumed-sizes",
        seen=f"the shape of the input '{spec.name}' was not given; {format_shape(spec.shape or ())} was "
        "assumed, which the model accepts",
        advice=f"give the shape that you use, as in {option}",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _DeclaredInputs:
    """The inputs before dynamic dimensions are bound."""

    inputs: tuple[InputSpec, ...]
    given: tuple[InputSpec, ...]
    """Requested shapes, or shapes of the data."""
    data: _Data
    batch: int

    def bound_sizes(self, model: Model, batch_size: int | None, sizes: Mapping[str, int]) -> dict[str, int]:
        """Return the size of each symbolic dimension."""
        return bind_dimensions(self.inputs, self.given, batch_size, sizes, model.limits, model.assumed)


def _declare(
    model: Model,
    requested: tuple[InputSpec, ...],
    batch_size: int | None,
    sizes: Mapping[str, int],
    base: Path | None = None,
    seed: int = 0,
    *,
    sessions: bool = False,
) -> _DeclaredInputs:
    model = with_requested_inputs(model, requested, base)
    _check_names(model, requested)
    declared = tuple(_merge_requests(spec, requested, model.example) for spec in model.inputs)
    _check_batch(declared, requested, batch_size)
    if model.example is not None and not requested:
        batch, data = _use_example(model.example, batch_size)
    else:
        batch = _batch(declared, requested, batch_size)
        sized = [_bind_sizes(spec, sizes) for spec in declared]
        data = _read(model, sized, requested, batch, base or Path(), seed, sessions=sessions)
    if sessions and model.takes_requests and (batch > 1 or not data.sessions):
        raise RequestError(
            "`sequence=data` sends the sessions of a file, one turn at a time: give the file with `inputs`, "
            "such as `inputs=chats.jsonl`, and no batch_size; or say how many turns each has, such as "
            "`sequence=5`."
        )
    _row_count(data)
    shaped = (*(r for r in requested if r.source is None), *_data_shapes(data, batch))
    inputs = tuple(_with_fixed_value(_with_data_shape(spec, shaped, model), data) for spec in declared)
    _check_sizes(inputs, sizes)
    return _DeclaredInputs(inputs=inputs, given=shaped, data=data, batch=batch)


# -- the request ---------------------------------------------------------------------------------


def _request_file(requested: Iterable[InputSpec], base: Path) -> Path | None:
    """Return the file whose steps are the requests; None without one.

    Raises:
        RequestError: there is something beside it.
    """
    files = [
        request
        for request in requested
        if request.source
        and Path(request.source).suffix.lower() == request_data.SUFFIX
        and not request.source.startswith(TRACE_SCHEME)
    ]
    if not files:
        return None
    if len(files) > 1 or files[0].name:
        raise RequestError(
            "A file of requests (.json) has the values of all inputs: give a single one, without a name."
        )
    return base / Path(str(files[0].source)).expanduser()


def _check_names(model: Model, requested: Iterable[InputSpec]) -> None:
    requested = tuple(requested)
    names = [spec.name for spec in model.inputs]
    unnamed = [request.shape for request in requested if request.shape is not None and not request.name]
    if len(unnamed) > 1:
        raise RequestError(
            f"{len(unnamed)} shapes are given without a name; write which input each is for, such as "
            f"`inputs={'a' if model.undeclared else (names or ['x'])[0]}={_show(unnamed[0])}`."
        )
    for request in requested:
        if request.name and request.name not in names:
            known = [*names, *(spec.name for spec in model.optional)]
            dicts = [spec.name for spec in model.inputs if spec.shape is None and model.form == Form.TORCH]
            entry = f" The entry of a dict is written {dicts[0]}.{request.name}." if dicts else ""
            raise InputRefused(f"{UnknownName.among('input', request.name, known)}{entry}")
        if request.shape is not None and 0 in request.shape:
            name = request.name or "shape"
            raise RequestError(f"`inputs` '{name}': a dimension of 0 leaves nothing to run.")


def _check_sizes(declared: Iterable[InputSpec], sizes: Iterable[str]) -> None:
    """Reject the size of a dimension that no input has."""
    dynamic = dict.fromkeys(name for spec in declared for name in symbols_of(spec))
    for name in sizes:
        if name not in dynamic:
            raise UnknownName.among("dimension", name, dynamic)


def _bind_sizes(spec: InputSpec, sizes: Mapping[str, int]) -> InputSpec:
    """Bind the dimensions with a given size, except the batch, which is determined elsewhere."""
    shape = spec.shape and tuple(d if d == BATCH else resolve_dimension(d, sizes) for d in spec.shape)
    return replace(spec, shape=shape)


def _requests_for(spec: InputSpec, requested: Iterable[InputSpec]) -> Iterable[InputSpec]:
    return (request for request in requested if request.name in {"", spec.name})


def _merge_requests(spec: InputSpec, requested: Iterable[InputSpec], example: Feed | None) -> InputSpec:
    """Complete a declaration from the requests."""
    for request in _requests_for(spec, requested):
        if None not in {request.dtype, spec.dtype} and request.dtype != spec.dtype:
            raise InputRefused(f"The input '{spec.name}' is {spec.dtype}, not {request.dtype}.")
        spec = replace(
            spec,
            shape=request.shape if spec.shape is None else spec.shape,
            dtype=spec.dtype or request.dtype,
            low=spec.low if request.low is None else request.low,
            high=spec.high if request.high is None else request.high,
        )
    example_values = (example or {}).get(spec.name)
    if (
        spec.low is None
        and example_values is not None
        and example_values.size
        and example_values.dtype.kind in "iu"
    ):
        spec = replace(spec, low=float(example_values.min()), high=float(example_values.max()))
    return spec


def _check_batch(
    declared: Sequence[InputSpec], requested: Sequence[InputSpec], batch_size: int | None
) -> None:
    """Reject a batch size that no input can take."""
    shapes = [spec.shape for spec in declared]
    if batch_size is None or any(s is None or BATCH in s or s[:1] == (batch_size,) for s in shapes):
        return
    spec = next((spec for spec in declared if spec.shape), None)
    if spec is None:
        if batch_size > 1:
            raise RequestError(f"batch_size={batch_size} has no effect: no input has a batch dimension.")
        return
    assert spec.shape is not None
    if any(request.shape == spec.shape for request in _requests_for(spec, requested)):
        with_size, with_dynamic = (
            f"`inputs={spec.name}={_show((b, *spec.shape[1:]))}`" for b in (batch_size, BATCH)
        )
        raise RequestError(
            f"`inputs={spec.name}={_show(spec.shape)}` and batch_size={batch_size} give two different "
            f"sizes of the batch; write only {with_size}, or {with_dynamic} for any batch."
        )
    raise RequestError(
        f"batch_size={batch_size} contradicts the first dimension of the input '{spec.name}', "
        f"which is fixed: {_show(spec.shape)}; leave out batch_size, or export the model with a "
        "dynamic batch."
    )


def _with_data_shape(spec: InputSpec, shapes: Iterable[InputSpec], model: Model) -> InputSpec:
    """Set the shape of an input without a declared shape to that of the data."""
    data_shape = next((shaped.shape for shaped in shapes if shaped.name == spec.name), None)
    if spec.shape is None and data_shape is None:
        example_shape = "batchx128:int64:0..999" if IDS.search(spec.name) else "batchx3x224x224"
        name, accepted = _accepted_candidate(model) or (spec.name, "")
        note = ", which it accepts" if accepted else ""
        suggestion = f"such as `inputs={name}={accepted or example_shape}`{note}"
        raise RequestError(
            f"The model does not declare the shape of its input '{spec.name}'; give it, {suggestion}, "
            "or a file of data."
        )
    return spec if spec.shape is not None else replace(spec, shape=data_shape)


def _with_fixed_value(spec: InputSpec, data: _Data) -> InputSpec:
    """Narrow the range of a one-element integer or flag input to the value in the data."""
    array = data.whole.get(spec.name)
    if array is None or array.size != 1 or array.dtype.kind not in "iub":
        return spec
    return replace(spec, low=float(array.item()), high=float(array.item()))


def _accepted_candidate(model: Model) -> tuple[str, str] | None:
    """Return the first candidate that the model can be analysed with: name, and shape as an option."""
    for spec in (model.candidates() if model.candidates is not None else ()) if model.graph else ():
        with suppress(RequestError):
            assert model.graph is not None
            model.graph(Tracing(inputs=(spec,)))
            shape = _show((BATCH, *(spec.shape or ())[1:]))
            return spec.name, shape if spec.high is None else f"{shape}:{spec.dtype}:0..{spec.high:.0f}"
    return None


def _batch(declared: Sequence[InputSpec], requested: Sequence[InputSpec], batch_size: int | None) -> int:
    """Return the rows of a payload; `base.job.input_spec.bind_dimensions` finds contradictions."""
    if batch_size is not None:
        return batch_size
    by_rows = _by_rows(declared)
    for spec in declared:
        if spec.name in by_rows:
            for shape in (spec.shape, *(request.shape for request in _requests_for(spec, requested))):
                if shape and isinstance(shape[0], int):
                    return shape[0]
    return 1


def _by_rows(declared: Iterable[InputSpec]) -> set[str]:
    """Return the inputs whose first axis counts samples: ``batch``, or if there is none, any fixed number."""
    shapes = {spec.name: spec.shape for spec in declared}
    dynamic = {name for name, shape in shapes.items() if shape is None or shape[:1] == (BATCH,)}
    return dynamic or {name for name, shape in shapes.items() if shape and isinstance(shape[0], int)}


def _show(shape: Iterable[int | str]) -> str:
    return "x".join(map(str, shape)) or "one number"


# -- real data -----------------------------------------------------------------------------------


def _use_example(example: Feed, batch_size: int | None) -> tuple[int, _Data]:
    """Use the model's example inputs as they are, or repeat their rows for another batch size."""
    firsts = {array.shape[0] for array in example.values() if array.ndim}
    if batch_size is None or firsts == {batch_size}:
        return batch_size or 1, _Data(whole=dict(example))
    if len(firsts) > 1:
        shapes = ", ".join(f"{name} {array.shape}" for name, array in example.items())
        raise RequestError(
            f"batch_size={batch_size} cannot be applied: the first axes of the inputs differ ({shapes})."
        )
    rows = {name: array for name, array in example.items() if array.ndim}
    return batch_size, _Data(rows=rows, whole={n: a for n, a in example.items() if n not in rows})


def _read(
    model: Model,
    declared: Sequence[InputSpec],
    requested: Sequence[InputSpec],
    batch: int,
    base: Path,
    seed: int,
    *,
    sessions: bool = False,
) -> _Data:
    data = _Data()
    files = [request for request in requested if request.source is not None]
    named_inputs = {request.name for request in files}
    shaped_inputs = {request.name for request in requested if request.source is None}
    by_rows = _by_rows(declared)
    for request in files:
        names = [
            s.name for s in declared if s.name == request.name or not (request.name or s.name in named_inputs)
        ]
        path = base / Path(str(request.source)).expanduser()
        limit = _max_payloads(declared, real=True) * batch
        values: Feed | list[str]
        if str(request.source).startswith((SCHEME, TRACE_SCHEME)):
            values = _make_prompts(model, str(request.source), batch, data, most=limit, seed=seed)
        elif path.suffix.lower() == request_data.SUFFIX and not (sessions and model.takes_requests):
            values = request_data.read_request_data(path).rows(
                [spec for spec in declared if spec.name in names], limit
            )
        elif (
            model.takes_requests
            and (requests := _text_requests(path, names, limit, sessions=sessions)) is not None
        ):
            values = requests.texts
            data.sessions.extend(requests.sessions)
            data.unused[str(request.source)] = requests.unused
        else:
            values = data_files.read_data_file(path, names, limit, optional=shaped_inputs)
        if isinstance(values, list):
            values = _encode_texts(model, declared, requested, values, path)
            if _MASK in values and _length(declared, requested) is None:
                data.lengths.extend(map(int, values[_MASK].sum(axis=-1)))
        for spec in declared:
            if spec.name in values:
                target = data.rows if spec.name in by_rows else data.whole
                target[spec.name] = _fit_to_spec(spec, values[spec.name], path, rows=target is data.rows)
                data.sources[spec.name] = str(request.source)
    return data


def _make_prompts(model: Model, source: str, batch: int, data: _Data, *, most: int, seed: int) -> list[str]:
    """Make prompts of so many tokens, or those of a trace; put into the data what is known of them.

    Raises:
        RequestError: the model takes no prompts, its tokenizer is not known, or the source is wrong.
    """
    if not model.takes_requests:
        raise RequestError(
            f"`inputs` '{source}' makes prompts, which only a server of a language model takes."
        )
    if source.startswith(TRACE_SCHEME):
        return _trace_prompts(model, source, batch, data, seed=seed)
    lengths = parse_prompt_lengths(source)
    values, counts = token_prompts.make_prompts(
        lengths, model.tokenizer, most=most, seed=seed, added=model.template_tokens
    )
    data.prompt_tokens.extend(counts)
    data.shared.extend([lengths.shared] * len(counts) if lengths.shared else ())
    return values


def _trace_prompts(model: Model, source: str, batch: int, data: _Data, *, seed: int) -> list[str]:
    path, window = parse_trace_source(source)
    trace = trace_file.read_trace(path).until(window)
    if not trace.prompt_tokens:
        raise RequestError(f"The trace {path} has no lengths of prompts, so that none can be made of it.")
    if batch != 1:
        raise RequestError("A request of a trace has one prompt; set batch_size=1.")
    made = trace_prompts.make_trace_prompts(
        trace, path, model.tokenizer, seed=seed, added=model.template_tokens
    )
    data.prompt_tokens.extend(made.tokens)
    data.shared.extend(made.shared)
    data.traces.append(path)
    data.doubts.extend(made.doubts)
    return made.texts


def _text_requests(path: Path, names: Sequence[str], limit: int, *, sessions: bool) -> TextRequests | None:
    """Read a file of requests to a language model; None if it is another file."""
    suffix, one = path.suffix.lower(), len(names) == 1
    if sessions and one and suffix in {*text_requests.SUFFIXES, text_requests.LIST_SUFFIX}:
        if suffix in text_requests.SUFFIXES and agent_graphs.is_graph_file(path):
            return agent_graphs.read_graphs(path)
        return text_requests.read_sessions(path, names[0])
    if suffix not in {*text_requests.SUFFIXES, text_requests.TABLE_SUFFIX} or not one:
        return None
    return text_requests.read_text_requests(path, names[0], limit)


def _encode_texts(
    model: Model,
    declared: Sequence[InputSpec],
    requested: Sequence[InputSpec],
    texts: list[str],
    path: Path,
) -> Feed:
    """Tokenize text into inputs, or pass it to an input that takes text."""
    import numpy as np  # slow to import

    if model.encode is not None:
        return model.encode(texts, _length(declared, requested))
    text_inputs = [spec for spec in declared if spec.dtype == "string"]
    if len(text_inputs) == 1:
        ones = (1,) * (len(text_inputs[0].shape or (BATCH,)) - 1)
        return {text_inputs[0].name: np.array(texts, dtype=object).reshape(len(texts), *ones)}
    raise RequestError(
        f"{path} is text, but {model.identity.name} has no tokenizer and no single input of text; "
        "give its inputs as .npz or .jsonl."
    )


def _length(declared: Iterable[InputSpec], requested: Sequence[InputSpec]) -> int | None:
    """Return the length that texts are padded to, if a shape fixes it."""
    for spec in declared:
        for shape in (spec.shape, *(request.shape for request in _requests_for(spec, requested))):
            if shape is not None and len(shape) > 1 and isinstance(shape[1], int):
                return shape[1]
    return None


def _fit_to_spec(spec: InputSpec, array: ndarray, path: Path, *, rows: bool) -> ndarray:
    """Check the shape of real data against the declaration, and convert it to the declared dtype."""
    expected = array.shape if spec.shape is None else spec.shape
    fits = array.ndim == len(expected) and all(
        isinstance(w, str) or w == actual or (rows and axis == 0)
        for axis, (w, actual) in enumerate(zip(expected, array.shape, strict=True))
    )
    if not fits:
        raise RequestError(
            f"{path}: the array for '{spec.name}' is {_show(array.shape)}, "
            f"but the model takes {_show(expected)}{', with samples along the first axis' if rows else ''}."
        )
    where = f"{path}: '{spec.name}'"
    return array if spec.dtype is None else random_arrays.convert_dtype(array, spec.dtype, where)


def _row_count(data: _Data) -> int | None:
    """Count the samples; every input must have the same number."""
    counts = {name: len(array) for name, array in data.rows.items()}
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"{name} {count}" for name, count in counts.items())
        raise RequestError(f"The inputs have different numbers of samples: {listed}.")
    return next(iter(counts.values()), None)


def _data_shapes(data: _Data, batch: int) -> Iterable[InputSpec]:
    for name, array in data.rows.items():
        yield InputSpec(name=name, shape=(batch, *array.shape[1:]))
    for name, array in data.whole.items():
        yield InputSpec(name=name, shape=array.shape)


# -- payloads ------------------------------------------------------------------------------------


def _payload_count(specs: Sequence[InputSpec], data: _Data, batch: int) -> int:
    if all(spec.name in data.whole for spec in specs):
        return 1
    if data.traces:
        return max(map(len, data.rows.values()))
    size = sum(math.prod(map(int, s.shape or ())) * _itemsize(s, data) for s in specs)
    limit = max(1, min(_max_payloads(specs, real=bool(data.rows)), MOST_BYTES // max(1, size)))
    return min([limit, *(-(-len(array) // batch) for array in data.rows.values())])


def _itemsize(spec: InputSpec, data: _Data) -> int:
    """Return the bytes of one element; of real text the mean."""
    if spec.dtype == "string" and spec.name in data.rows:
        texts = data.rows[spec.name]
        return math.ceil(sum(map(len, texts.flat)) / max(1, texts.size))
    return random_arrays.itemsize(spec)


def _max_payloads(specs: Iterable[InputSpec], *, real: bool) -> int:
    """Return the maximum number of payloads."""
    if any(spec.dtype != "string" for spec in specs):
        return MOST
    return MOST_REAL_TEXTS if real else MOST_TEXTS


def _feed(specs: Iterable[InputSpec], data: _Data, batch: int, seed: tuple[int, int]) -> Feed:
    """Build payload number `seed[1]`: rows continue from the previous one, and wrap around."""
    import numpy as np  # slow to import

    index = seed[1] * batch + np.arange(batch)
    feed: Feed = {}
    for position, spec in enumerate(specs):
        if spec.name in data.rows:
            feed[spec.name] = data.rows[spec.name][index % len(data.rows[spec.name])]
        elif spec.name in data.whole:
            feed[spec.name] = data.whole[spec.name]
        else:
            feed[spec.name] = random_arrays.draw_array(spec, (*seed, position))
    return feed


def _record_input(spec: InputSpec, array: ndarray, digests: Iterable[str], data: _Data) -> InputSpec:
    """Record an input as fed: the shape and dtype of one array, and the digests of all."""
    real = spec.name in data.rows or spec.name in data.whole
    low, high = (None, None) if real else random_arrays.value_range(spec)
    all_digests = tuple(digests)
    return replace(
        spec,
        shape=array.shape,
        dtype=_dtype(array),
        low=low,
        high=high,
        source=data.sources.get(spec.name),
        digest=f"sha256:{hashlib.sha256(''.join(all_digests).encode()).hexdigest()}",
        distinct=len(set(all_digests)),
    )


def _dtype(array: ndarray) -> str:
    if array.dtype.kind == "O":
        return "string" if all(isinstance(value, str) for value in array.flat) else "object"
    return "string" if array.dtype.kind == "U" else array.dtype.name


def _digest(array: ndarray) -> str:
    state = hashlib.sha256(f"{array.dtype.name}{array.shape}".encode())
    state.update(repr(array.tolist()).encode() if array.dtype.kind == "O" else array.tobytes())
    return state.hexdigest()


def _common_first(feed: Mapping[str, ndarray]) -> int | None:
    firsts = {array.shape[0] for array in feed.values() if array.ndim}
    return firsts.pop() if len(firsts) == 1 else None


def _nested_first(feed: Feed) -> int:
    """Return the first axis that all arrays within dicts and lists have in common; 0 if there is none."""
    firsts: set[int] = set()
    below: list[Any] = [array.item() for array in feed.values() if array.dtype.kind == "O" and not array.ndim]
    while below:
        value = below.pop()
        if isinstance(value, dict):
            below += value.values()
        elif isinstance(value, list | tuple):
            below += value
        elif shape := getattr(value, "shape", None):
            firsts.add(shape[0])
    return firsts.pop() if len(firsts) == 1 else 0


def _batch_doubts(
    model: Model, requested: tuple[InputSpec, ...], batch_size: int | None, feed: Feed
) -> Iterable[Doubt]:
    """Yield a doubt about a batch that only the shape of a single example suggests, or arrays within it."""
    arrays = [array for array in feed.values() if array.ndim]
    if not arrays and (rows := _nested_first(feed)) > 1:
        yield Doubt(
            code="assumed-batch",
            seen=f"a call counts as one sample, but all arrays in its inputs begin with an axis of {rows}",
            advice=f"if that is the batch, {rows} times as many samples are done in a second",
        )
    if model.example is None or requested or batch_size is not None or len(arrays) != 1:
        return
    (array,) = arrays
    by_convention = model.form == Form.TORCH and array.ndim in _BATCH_FIRST
    if array.shape[0] > 1 and not by_convention:
        shape = "x".join(map(str, array.shape))
        yield Doubt(
            code="assumed-batch",
            seen=f"the first axis of the example {shape} was taken for a batch of {array.shape[0]} samples",
            advice=f"confirm it with `batch_size={array.shape[0]}`, or give the example a batch axis",
        )


_BATCH_FIRST = (2, 4, 5)
"""Ranks of torch inputs whose first axis is certainly the batch: features or tokens, images, volumes.
Rank 3 may be a sequence whose first axis is time, and rank 1 a single sample."""


def _samples_of(source: str, rows: int) -> str:
    return f"the only sample of {source} was" if rows == 1 else f"the {rows} samples of {source} were"


def _data_doubts(data: _Data, batch: int, rows: int | None) -> Iterable[Doubt]:
    for source, unused in data.unused.items():
        if unused:
            yield Doubt(
                code="fields-not-sent",
                seen=f"{source} also has {', '.join(unused)} of its requests, which were not sent",
                advice="add what matters to every request with `extra`, or leave it out of the file",
            )
    if rows is not None and rows < batch:
        source = ", ".join(dict.fromkeys(data.sources.values())) or "the model's example"
        yield Doubt(
            code="repeated-data",
            seen=f"{_samples_of(source, rows)} repeated to fill a batch of {batch}",
            advice=f"give {batch} samples or more, or a smaller batch_size",
        )


def _padding_doubts(specs: Iterable[InputSpec], data: _Data, batch: int) -> Iterable[Doubt]:
    """Yield a doubt where calls take longer than if each were padded to its own longest text."""
    lengths = data.lengths
    if not lengths:
        return
    longest = max(lengths)
    own_longest = [max(lengths[first : first + batch]) for first in range(0, len(lengths), batch)]
    typical = round(sum(own_longest) / len(own_longest))
    if typical > (1 - _PADDING_SHARE) * longest:
        return
    name = next(spec.name for spec in specs if spec.name in data.rows and len(spec.shape or ()) > 1)
    yield Doubt(
        code="padded",
        seen=f"the texts of {data.sources[name]} have {min(lengths)} to {longest} tokens, and every call is "
        f"padded to {longest}; padded to its own longest text, a call would have {typical} on average",
        advice=f"give the length that you serve, as `inputs={name}={batch}x{typical}`, which truncates "
        "longer texts",
    )
