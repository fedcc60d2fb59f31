"""Payloads: what a model is fed with, from what it declares and what the user asks for.

Real data is cut into batches, random data is drawn within dtype, range and vocabulary. Several distinct
payloads are made, for the caller to cycle through: one payload again and again flatters a cache.
"""

from __future__ import annotations

import hashlib
import math
import re
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from modeldyno.core.metrics.doubt import Doubt
from modeldyno.core.spec.input_spec import (
    BATCH,
    InputSpec,
    concrete,
    dimensions,
    given_dimensions,
    write_option,
)
from modeldyno.data import data_files, random_arrays
from modeldyno.errors import RequestError, UnknownName
from modeldyno.interfaces import Feed, Form, Tracing

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy import ndarray

    from modeldyno.interfaces import Model

_IDS = re.compile(r"ids?$|token", re.IGNORECASE)
_MASK = "attention_mask"
_PADDING = 0.1
"""Part of the tokens from which on it matters that texts are padded to the longest of all calls."""
_UNNAMED = "input"
"""Name of an input that neither the model nor the user names."""
MOST = 8
"""Payloads at most."""
MOST_TEXTS = 64
"""Random payloads of text alone, at most: the server of a language model remembers how prompts begin."""
MOST_REAL_TEXTS = 1024
"""Payloads of real text alone, at most."""
MOST_BYTES = 64 * 2**20
"""Bytes of all payloads together, unless one alone has more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Payload:
    """What to feed a model with, and where it came from."""

    feeds: tuple[Feed, ...]
    """Distinct payloads, at least one; to be cycled through."""
    used: tuple[InputSpec, ...]
    """Each input as fed: its concrete shape, dtype, range or source, digest and distinct values."""
    samples: int
    """In each payload."""
    doubts: tuple[Doubt, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Shaped:
    """The inputs of a model that is analysed and not run."""

    inputs: tuple[InputSpec, ...]
    """With symbolic dimensions where the model declares them."""
    bound: dict[str, int]
    """Each symbolic dimension, and its size."""
    real: Feed
    """Values of the example or of files, by input name, as they were given."""

    def values(self, specs: Iterable[InputSpec]) -> Feed:
        """Give real values in the shapes of `specs`, of those inputs whose numbers can steer the course.

        These are whole numbers (ids, lengths, masks), single numbers, and lists or dicts of arrays, each
        wrapped in an array without dimensions. Rows are repeated or left out
        where the first axis has another size; an input that differs in another axis is left out.
        """
        import numpy as np  # noqa: PLC0415 - dear at start-up

        found: Feed = {}
        for spec in specs:
            array, shape = self.real.get(spec.name), tuple(map(int, spec.shape or ()))
            if array is None or (array.ndim and array.dtype.kind not in "iub"):
                continue
            if array.shape == shape:
                found[spec.name] = array
            elif array.ndim == len(shape) and array.size and array.shape[1:] == shape[1:]:
                found[spec.name] = array[np.arange(shape[0]) % len(array)]
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class _Data:
    """Real values, by input name."""

    rows: Feed = field(default_factory=dict)
    """To be cut into batches along the first axis."""
    whole: Feed = field(default_factory=dict)
    """The same in every payload."""
    sources: dict[str, str] = field(default_factory=dict)
    """Input name to the file that its values came from."""
    lengths: list[int] = field(default_factory=list)
    """Tokens of each text that was padded to the longest of all."""


def build(
    model: Model,
    requested: tuple[InputSpec, ...],
    *,
    batch_size: int | None,
    seed: int,
    sizes: Mapping[str, int] | None = None,
    base: Path | None = None,
) -> Payload:
    """Make the payloads.

    Args:
        model: its inputs as declared, its example and its tokenizer.
        requested: shapes, ranges and files that the user gave.
        batch_size: the knob; None leaves it to shapes and data, and is 1 in the end.
        seed: of random values.
        sizes: of symbolic dimensions, by name.
        base: the directory that files are relative to.

    Raises:
        RequestError: what was asked for contradicts the model, the data, or itself.
        UnknownName: `sizes` names a dimension that no input has.
    """
    asked = _asked(model, requested, batch_size, base, sizes)
    specs, data, batch, bound, rows = asked.specs, asked.data, asked.batch, asked.bound, _rows(asked.data)
    made = (_feed(specs, data, batch, (seed, i)) for i in range(_how_many(specs, data, batch)))
    marked = {tuple(map(_digest, feed.values())): feed for feed in made}
    feeds = tuple(marked.values())
    digests = zip(*marked, strict=True) if specs else ()
    return Payload(
        feeds=feeds,
        used=tuple(
            _as_used(spec, feeds[0][spec.name], marks, data)
            for spec, marks in zip(specs, digests, strict=True)
        ),
        samples=bound.get(BATCH) or _common_first(feeds[0]) or 1,
        doubts=(
            *_doubts(data, batch, rows),
            *_padded(specs, data, batch),
            *_assumed(model, requested, batch_size, feeds[0]),
            *assumptions(model),
        ),
    )


def shapes(
    model: Model,
    requested: tuple[InputSpec, ...],
    *,
    batch_size: int | None,
    sizes: Mapping[str, int],
    base: Path | None = None,
) -> Shaped:
    """Give the inputs with their symbolic dimensions, and bind those, without drawing values.

    `sizes` are of dimensions by name; the rest is as in `build`.

    Raises:
        RequestError: as in `build`.
        UnknownName: `sizes` names a dimension that no input has.
    """
    asked = _asked(model, requested, batch_size, base, sizes)
    real = {**asked.data.rows, **asked.data.whole}
    return Shaped(inputs=asked.known, bound=asked.bound, real=real)


def given_sizes(
    model: Model,
    requested: tuple[InputSpec, ...],
    *,
    batch_size: int | None,
    sizes: Mapping[str, int],
    base: Path | None = None,
) -> tuple[tuple[InputSpec, ...], dict[str, int]]:
    """Give the inputs with their symbolic dimensions, and the sizes of those that somebody gave.

    Raises:
        RequestError: as in `build`.
        UnknownName: `sizes` names a dimension that no input has.
    """
    told = _told(model, requested, batch_size, base, sizes)
    return told.known, given_dimensions(told.known, told.given, batch_size, sizes)


def assumptions(model: Model) -> tuple[Doubt, ...]:
    """Doubt the sizes that were assumed because nobody gave them."""
    if not model.assumed:
        return ()
    sizes = ", ".join(f"{name} {size}" for name, size in model.assumed.items())
    specs = [spec for spec in model.inputs if set(model.assumed).intersection(spec.shape or ())]
    options = " ".join(write_option(spec, model.assumed) for spec in specs)
    seen = f"nobody gave all sizes of the inputs; {sizes} was assumed, which the network takes"
    return (Doubt(code="assumed-sizes", seen=seen, advice=f"give the sizes that you use, as in {options}"),)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """What is to be made."""

    known: tuple[InputSpec, ...]
    """With symbolic dimensions where the model declares them."""
    specs: tuple[InputSpec, ...]
    """With concrete shapes."""
    bound: dict[str, int]
    data: _Data
    batch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Told:
    """What is said of the inputs, before free dimensions are bound."""

    known: tuple[InputSpec, ...]
    given: tuple[InputSpec, ...]
    """Shapes that were asked for, or that data have."""
    data: _Data
    batch: int


def _asked(
    model: Model,
    requested: tuple[InputSpec, ...],
    batch_size: int | None,
    base: Path | None,
    sizes: Mapping[str, int] | None = None,
) -> _Asked:
    told = _told(model, requested, batch_size, base, sizes)
    bound = dimensions(told.known, told.given, batch_size, sizes or {}, model.limits, model.assumed)
    return _Asked(
        known=told.known,
        specs=tuple(replace(spec, shape=concrete(spec, bound)) for spec in told.known),
        bound=bound,
        data=told.data,
        batch=told.batch,
    )


def _told(
    model: Model,
    requested: tuple[InputSpec, ...],
    batch_size: int | None,
    base: Path | None,
    sizes: Mapping[str, int] | None,
) -> _Told:
    model = _declared(model, requested)
    _check_names(model, requested)
    declared = tuple(_merged(spec, requested, model.example) for spec in model.inputs)
    _check_batch(declared, requested, batch_size)
    if model.example is not None and not requested:
        batch, data = _example(model.example, batch_size)
    else:
        batch = _batch(declared, requested, batch_size)
        sized = [_sized(spec, sizes or {}) for spec in declared]
        data = _read(model, sized, requested, batch, base or Path())
    _rows(data)
    given = (*(r for r in requested if r.source is None), *_shapes(data, batch))
    known = tuple(_valued(_shaped(spec, given, model), data) for spec in declared)
    _check_sizes(known, sizes or {})
    return _Told(known=known, given=given, data=data, batch=batch)


# -- what was asked for --------------------------------------------------------------------------


def _declared(model: Model, requested: Iterable[InputSpec]) -> Model:
    """Take the inputs that the user names where nobody else tells them."""
    if not model.undeclared:
        return model
    names = dict.fromkeys(request.name or _UNNAMED for request in requested)
    return replace(model, inputs=tuple(InputSpec(name=name) for name in names))


def _check_names(model: Model, requested: Iterable[InputSpec]) -> None:
    names = [spec.name for spec in model.inputs]
    for request in requested:
        if request.name and request.name not in names:
            raise UnknownName.among("input", request.name, names)
        if request.shape is not None and 0 in request.shape:
            raise RequestError(f"--input {request.name or 'shape'}: a dimension of 0 leaves nothing to run.")


def _check_sizes(known: Iterable[InputSpec], sizes: Iterable[str]) -> None:
    """Refuse the size of a dimension that no input has."""
    free = dict.fromkeys(d for spec in known for d in spec.shape or () if isinstance(d, str))
    for name in sizes:
        if name not in free:
            raise UnknownName.among("dimension", name, free)


def _sized(spec: InputSpec, sizes: Mapping[str, int]) -> InputSpec:
    """Bind the dimensions that a size is given for; how many rows there are is said elsewhere."""
    shape = spec.shape and tuple(d if d == BATCH else sizes.get(str(d), d) for d in spec.shape)
    return replace(spec, shape=shape)


def _of(spec: InputSpec, requested: Iterable[InputSpec]) -> Iterable[InputSpec]:
    return (request for request in requested if request.name in {"", spec.name})


def _merged(spec: InputSpec, requested: Iterable[InputSpec], example: Feed | None) -> InputSpec:
    """Complete a declaration by what the requests say of it."""
    for request in _of(spec, requested):
        if None not in {request.dtype, spec.dtype} and request.dtype != spec.dtype:
            raise RequestError(f"The input '{spec.name}' is {spec.dtype}, not {request.dtype}.")
        spec = replace(
            spec,
            shape=request.shape if spec.shape is None else spec.shape,
            dtype=spec.dtype or request.dtype,
            low=spec.low if request.low is None else request.low,
            high=spec.high if request.high is None else request.high,
        )
    known = (example or {}).get(spec.name)
    if spec.low is None and known is not None and known.size and known.dtype.kind in "iu":
        spec = replace(spec, low=float(known.min()), high=float(known.max()))
    return spec


def _check_batch(
    declared: Sequence[InputSpec], requested: Sequence[InputSpec], batch_size: int | None
) -> None:
    """Refuse a batch size that no input can take."""
    shapes = [spec.shape for spec in declared]
    if batch_size is None or any(s is None or BATCH in s or s[:1] == (batch_size,) for s in shapes):
        return
    spec = next((spec for spec in declared if spec.shape), None)
    if spec is None:
        if batch_size > 1:
            raise RequestError(f"batch_size={batch_size} has no effect: no input has a batch dimension.")
        return
    assert spec.shape is not None
    if any(request.shape == spec.shape for request in _of(spec, requested)):
        sized, free = (f"--input {spec.name}={_show((b, *spec.shape[1:]))}" for b in (batch_size, BATCH))
        raise RequestError(
            f"--input {spec.name}={_show(spec.shape)} and batch_size={batch_size} give two sizes of the "
            f"batch; write {sized} alone, or {free}, whose batch is any."
        )
    raise RequestError(
        f"batch_size={batch_size} contradicts the first dimension of the input '{spec.name}', "
        f"which is fixed: {_show(spec.shape)}; leave batch_size out, or export the model with a free batch."
    )


def _shaped(spec: InputSpec, shapes: Iterable[InputSpec], model: Model) -> InputSpec:
    """Give an input that declares no shape that of the data."""
    known = next((found.shape for found in shapes if found.name == spec.name), None)
    if spec.shape is None and known is None:
        like = "1x128:int64:0..999" if _IDS.search(spec.name) else "1x3x224x224"
        taken = _taken(model)
        such = f"such as --input {spec.name}={taken or like}{', which it takes' if taken else ''}"
        raise RequestError(
            f"The model does not tell the shape of its input '{spec.name}'; give it, {such}, "
            "or a file of data."
        )
    return spec if spec.shape is not None else replace(spec, shape=known)


def _valued(spec: InputSpec, data: _Data) -> InputSpec:
    """Narrow the range of an input of one whole number or flag to the value that the data has."""
    array = data.whole.get(spec.name)
    if array is None or array.size != 1 or array.dtype.kind not in "iub":
        return spec
    return replace(spec, low=float(array.item()), high=float(array.item()))


def _taken(model: Model) -> str:
    """Write the first candidate that the model can be analysed with; empty where there is none."""
    for spec in (model.candidates() if model.candidates is not None else ()) if model.graph else ():
        with suppress(RequestError):
            assert model.graph is not None
            model.graph(Tracing(inputs=(spec,)))
            shape = "x".join(map(str, spec.shape or ()))
            return shape if spec.high is None else f"{shape}:{spec.dtype}:0..{spec.high:.0f}"
    return ""


def _batch(declared: Sequence[InputSpec], requested: Sequence[InputSpec], batch_size: int | None) -> int:
    """Say how many rows a payload takes; `core.spec.input_spec.dimensions` finds what contradicts it."""
    if batch_size is not None:
        return batch_size
    by_rows = _by_rows(declared)
    for spec in declared:
        if spec.name in by_rows:
            for shape in (spec.shape, *(request.shape for request in _of(spec, requested))):
                if shape and isinstance(shape[0], int):
                    return shape[0]
    return 1


def _by_rows(declared: Iterable[InputSpec]) -> set[str]:
    """Find the inputs whose first axis counts samples: ``batch``, or where none is, any fixed number."""
    shapes = {spec.name: spec.shape for spec in declared}
    free = {name for name, shape in shapes.items() if shape is None or shape[:1] == (BATCH,)}
    return free or {name for name, shape in shapes.items() if shape and isinstance(shape[0], int)}


def _show(shape: Iterable[int | str]) -> str:
    return "x".join(map(str, shape)) or "one number"


# -- real data -----------------------------------------------------------------------------------


def _example(example: Feed, batch_size: int | None) -> tuple[int, _Data]:
    """Take the model's own inputs as they are, or repeat their rows for another batch size."""
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
    model: Model, declared: Sequence[InputSpec], requested: Sequence[InputSpec], batch: int, base: Path
) -> _Data:
    data = _Data()
    files = [request for request in requested if request.source is not None]
    named = {request.name for request in files}
    shaped = {request.name for request in requested if request.source is None}
    by_rows = _by_rows(declared)
    for request in files:
        names = [s.name for s in declared if s.name == request.name or not (request.name or s.name in named)]
        path = base / Path(str(request.source)).expanduser()
        found = data_files.read(path, names, _most(declared, real=True) * batch, optional=shaped)
        if isinstance(found, list):
            found = _encoded(model, declared, requested, found, path)
            if _MASK in found and _length(declared, requested) is None:
                data.lengths.extend(map(int, found[_MASK].sum(axis=-1)))
        for spec in declared:
            if spec.name in found:
                kind = data.rows if spec.name in by_rows else data.whole
                kind[spec.name] = _fitted(spec, found[spec.name], path, rows=kind is data.rows)
                data.sources[spec.name] = str(request.source)
    return data


def _encoded(
    model: Model,
    declared: Sequence[InputSpec],
    requested: Sequence[InputSpec],
    texts: list[str],
    path: Path,
) -> Feed:
    """Turn text into inputs by the model's tokenizer, or hand it to an input that takes text."""
    import numpy as np  # noqa: PLC0415 - dear at start-up

    if model.encode is not None:
        return model.encode(texts, _length(declared, requested))
    takers = [spec for spec in declared if spec.dtype == "string"]
    if len(takers) == 1:
        ones = (1,) * (len(takers[0].shape or (BATCH,)) - 1)
        return {takers[0].name: np.array(texts, dtype=object).reshape(len(texts), *ones)}
    raise RequestError(
        f"{path} is text, but {model.identity.name} has no tokenizer and no single input of text; "
        "give its inputs as .npz or .jsonl."
    )


def _length(declared: Iterable[InputSpec], requested: Sequence[InputSpec]) -> int | None:
    """Give the length that every text is padded to, if a shape fixes it."""
    for spec in declared:
        for shape in (spec.shape, *(request.shape for request in _of(spec, requested))):
            if shape is not None and len(shape) > 1 and isinstance(shape[1], int):
                return shape[1]
    return None


def _fitted(spec: InputSpec, array: ndarray, path: Path, *, rows: bool) -> ndarray:
    """Check the shape of real data against the declaration, and give it the declared dtype."""
    wanted = array.shape if spec.shape is None else spec.shape
    fits = array.ndim == len(wanted) and all(
        isinstance(w, str) or w == seen or (rows and axis == 0)
        for axis, (w, seen) in enumerate(zip(wanted, array.shape, strict=True))
    )
    if not fits:
        raise RequestError(
            f"{path}: the array for '{spec.name}' is {_show(array.shape)}, "
            f"but the model takes {_show(wanted)}{', with samples along the first axis' if rows else ''}."
        )
    where = f"{path}: '{spec.name}'"
    return array if spec.dtype is None else random_arrays.converted(array, spec.dtype, where)


def _rows(data: _Data) -> int | None:
    """Count the samples; every input must have as many."""
    counts = {name: len(array) for name, array in data.rows.items()}
    if len(set(counts.values())) > 1:
        shown = ", ".join(f"{name} {count}" for name, count in counts.items())
        raise RequestError(f"The inputs have different numbers of samples: {shown}.")
    return next(iter(counts.values()), None)


def _shapes(data: _Data, batch: int) -> Iterable[InputSpec]:
    for name, array in data.rows.items():
        yield InputSpec(name=name, shape=(batch, *array.shape[1:]))
    for name, array in data.whole.items():
        yield InputSpec(name=name, shape=array.shape)


# -- payloads ------------------------------------------------------------------------------------


def _how_many(specs: Sequence[InputSpec], data: _Data, batch: int) -> int:
    if all(spec.name in data.whole for spec in specs):
        return 1
    size = sum(math.prod(map(int, s.shape or ())) * _itemsize(s, data) for s in specs)
    most = max(1, min(_most(specs, real=bool(data.rows)), MOST_BYTES // max(1, size)))
    return min([most, *(-(-len(array) // batch) for array in data.rows.values())])


def _itemsize(spec: InputSpec, data: _Data) -> int:
    """Give the bytes of one element, of real text the mean."""
    if spec.dtype == "string" and spec.name in data.rows:
        texts = data.rows[spec.name]
        return math.ceil(sum(map(len, texts.flat)) / max(1, texts.size))
    return random_arrays.itemsize(spec)


def _most(specs: Iterable[InputSpec], *, real: bool) -> int:
    """Say how many payloads there may be, of what is small."""
    if any(spec.dtype != "string" for spec in specs):
        return MOST
    return MOST_REAL_TEXTS if real else MOST_TEXTS


def _feed(specs: Iterable[InputSpec], data: _Data, batch: int, seed: tuple[int, int]) -> Feed:
    """Make payload number `seed[1]`: rows follow on from those of the one before, and begin again."""
    import numpy as np  # noqa: PLC0415 - dear at start-up

    index = seed[1] * batch + np.arange(batch)
    feed: Feed = {}
    for position, spec in enumerate(specs):
        if spec.name in data.rows:
            feed[spec.name] = data.rows[spec.name][index % len(data.rows[spec.name])]
        elif spec.name in data.whole:
            feed[spec.name] = data.whole[spec.name]
        else:
            feed[spec.name] = random_arrays.draw(spec, (*seed, position))
    return feed


def _as_used(spec: InputSpec, array: ndarray, digests: Iterable[str], data: _Data) -> InputSpec:
    """Record an input as fed: one of its arrays, and the digests of all."""
    real = spec.name in data.rows or spec.name in data.whole
    low, high = (None, None) if real else random_arrays.bounds(spec)
    marks = tuple(digests)
    return replace(
        spec,
        shape=array.shape,
        dtype=_dtype(array),
        low=low,
        high=high,
        source=data.sources.get(spec.name),
        digest=f"sha256:{hashlib.sha256(''.join(marks).encode()).hexdigest()}",
        distinct=len(set(marks)),
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


def _assumed(
    model: Model, requested: tuple[InputSpec, ...], batch_size: int | None, feed: Feed
) -> Iterable[Doubt]:
    """Doubt a batch that only the shape of a single example speaks for."""
    arrays = [array for array in feed.values() if array.ndim]
    if model.example is None or requested or batch_size is not None or len(arrays) != 1:
        return
    (array,) = arrays
    by_convention = model.form == Form.TORCH and array.ndim in _BATCH_FIRST
    if array.shape[0] > 1 and not by_convention:
        shape = "x".join(map(str, array.shape))
        yield Doubt(
            code="assumed-batch",
            seen=f"the first axis of the example {shape} was taken for a batch of {array.shape[0]} samples",
            advice=f"say so with --set batch_size={array.shape[0]}, or give the example an axis for it",
        )


_BATCH_FIRST = (2, 4, 5)
"""Axes of an input of a torch module whose first one is the batch beyond doubt: features or tokens, images,
volumes. One of three may be a sequence whose first axis is time, and one of one a sample."""


def _samples_of(source: str, rows: int) -> str:
    return f"the only sample of {source} was" if rows == 1 else f"the {rows} samples of {source} were"


def _doubts(data: _Data, batch: int, rows: int | None) -> Iterable[Doubt]:
    if rows is not None and rows < batch:
        source = ", ".join(dict.fromkeys(data.sources.values())) or "the model's example"
        yield Doubt(
            code="repeated-data",
            seen=f"{_samples_of(source, rows)} repeated to fill a batch of {batch}",
            advice=f"give {batch} samples or more, or a smaller batch_size",
        )


def _padded(specs: Iterable[InputSpec], data: _Data, batch: int) -> Iterable[Doubt]:
    """Doubt that calls take as long as they would if each were padded to the longest text of its own."""
    lengths = data.lengths
    if not lengths:
        return
    longest = max(lengths)
    own = [max(lengths[first : first + batch]) for first in range(0, len(lengths), batch)]
    usual = round(sum(own) / len(own))
    if usual > (1 - _PADDING) * longest:
        return
    name = next(spec.name for spec in specs if spec.name in data.rows and len(spec.shape or ()) > 1)
    yield Doubt(
        code="padded",
        seen=f"the texts of {data.sources[name]} have {min(lengths)} to {longest} tokens, and every call is "
        f"padded to {longest}; padded to the longest text of its own, a call would have {usual} on average",
        advice=f"give the length that you serve, as --input {name}={batch}x{usual}, which cuts longer texts",
    )
