"""Inputs of a model: names, shapes with symbolic dimensions, dtypes, ranges, or real data."""

from __future__ import annotations

import re
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from modeldyno.base.errors import InputRefused, RequestError
from modeldyno.base.job.dimension_expression import evaluate, is_expression, names_in, solve

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

BATCH = "batch"
SEQUENCE = "seq"
DEFAULT_LENGTH = 128
"""Default length of a sequence dimension."""

_NO_SIZES: Mapping[str, int] = MappingProxyType({})

DTYPES = (
    "float16", "bfloat16", "float32", "float64", "bool", "string",
    "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
)  # fmt: skip
_SEQUENCE = re.compile(r"seq|len|time|token", re.IGNORECASE)
_REQUEST = re.compile(
    r"(?:(?P<name>[\w.\-/:]+)=)?(?P<shape>scalar|[\w,]+)"
    r"(?::(?P<dtype>[a-z]\w*))?(?::(?P<low>[-+.\de]+?)(?:\.\.(?P<high>[-+.\de]+))?)?"
)

Dimension = int | str


@dataclass(frozen=True, slots=True, kw_only=True)
class InputSpec:
    """One input, as a model declares it, as the user requests it, or as it was used."""

    name: str = ""
    """Empty in a request for the only input, or for all of them."""
    shape: tuple[Dimension, ...] | None = None
    """A name stands for a free dimension, or an expression for one that follows from others; ``batch`` is the
    knob `batch_size`."""
    dtype: str | None = None
    low: float | None = None
    high: float | None = None
    """Random values are in [low, high]; for integers that is the vocabulary, for text the number of words."""
    source: str | None = None
    """A file of real data: .npz, .npy, .jsonl, text, or requests in perf_analyzer's .json."""
    digest: str | None = None
    """As used: the digest of the values."""
    distinct: int | None = None
    """As used: the number of distinct payloads that were cycled through."""


def parse_input(text: str) -> InputSpec:
    """Read one of ``inputs``: ``[name=]8x128[:int64[:0..30521]]`` or ``[name=]file.npz|.jsonl|.txt``.

    A shape may be ``scalar``, a range a single value: ``rate=scalar:int64:16000``.

    Raises:
        RequestError: the text is neither.
    """
    match = _REQUEST.fullmatch(text)
    if match is None or not _is_shape(match["shape"]):
        name, separator, path = text.partition("=")
        name, path = (name, path) if separator and "/" not in name else ("", text)
        if not path:
            raise RequestError(f"`inputs` '{text}' is empty; write name=8x128:int64:0..30521, or a file.")
        return InputSpec(name=name, source=path)
    if match["dtype"] is not None and match["dtype"] not in DTYPES:
        raise RequestError(f"`inputs` '{text}': '{match['dtype']}' is not one of {', '.join(DTYPES)}.")
    low, high = _parse_number(text, match["low"]), _parse_number(text, match["high"] or match["low"])
    if low is not None and high is not None and low > high:
        raise RequestError(f"`inputs` '{text}': the range {match['low']}..{match['high']} is empty.")
    return InputSpec(
        name=match["name"] or "", shape=_parse_shape(match["shape"]), dtype=match["dtype"], low=low, high=high
    )


def bind_dimensions(
    declared: tuple[InputSpec, ...],
    requested: tuple[InputSpec, ...],
    batch_size: int | None,
    sizes: Mapping[str, int] = _NO_SIZES,
    limits: Mapping[str, int] = _NO_SIZES,
    assumed: Mapping[str, int] = _NO_SIZES,
) -> dict[str, int]:
    """Bind every symbolic dimension to a number.

    `sizes` binds dimensions by name; an explicit shape binds the dimensions at the same positions of the
    declaration; the knob `batch_size` binds ``batch``. Other dimensions are as in `assumed`, or else 1 for a
    batch and DEFAULT_LENGTH, or its limit if that is less, for a sequence.

    Raises:
        RequestError: two of these disagree, or a dimension stays free.
        InputRefused: a requested shape does not fit the declared one.
    """
    bound = given_dimensions(declared, requested, batch_size, sizes)
    missing: list[str] = []
    for name in free_dimensions(declared, bound):
        default = assumed.get(name, _default_size(name, bound, limits))
        if default is None:
            missing.append(name)
        else:
            bound[name] = default
    if missing:
        raise RequestError(explain_missing(declared, bound, missing))
    _check_expressions(declared, bound)
    return {name: size for name, size in bound.items() if not is_expression(name)}


def _check_expressions(declared: tuple[InputSpec, ...], bound: Mapping[str, int]) -> None:
    """Reject sizes that contradict a dimension that follows from others, or make it no size."""
    sizes = {name: size for name, size in bound.items() if not is_expression(name)}
    for spec in declared:
        for name in spec.shape or ():
            if not isinstance(name, str) or not is_expression(name):
                continue
            size = evaluate(name, sizes)
            if size is None or bound.get(name, size) != size:
                known = ", ".join(f"{part}={sizes[part]}" for part in names_in(name))
                given = "is no size" if size is None else f"is {size}, not {bound[name]}"
                raise InputRefused(
                    f"input '{spec.name}' is {format_shape(spec.shape or ())}: with {known}, {name} {given}; "
                    "give sizes that fit."
                )


def given_dimensions(
    declared: tuple[InputSpec, ...],
    requested: tuple[InputSpec, ...],
    batch_size: int | None,
    sizes: Mapping[str, int] = _NO_SIZES,
) -> dict[str, int]:
    """Bind the symbolic dimensions with a given size; the arguments are as in `bind_dimensions`.

    Raises:
        InputRefused: a requested shape does not fit the declared one, or another size.
    """
    bound: dict[str, int] = dict(sizes) if batch_size is None else {**sizes, BATCH: batch_size}
    for request in requested:
        for spec in declared:
            if request.name in {"", spec.name} and request.shape and spec.shape is not None:
                bound |= _bind_shape(spec, request.shape, bound)
    for name in filter(is_expression, tuple(bound)):
        bound |= solve(name, bound[name], bound)
    return bound


def fixed_batch(declared: tuple[InputSpec, ...]) -> int | None:
    """Return the only batch size that inputs take; None if it is free, or not known."""
    shapes = [spec.shape for spec in declared]
    if any(shape is None or BATCH in shape for shape in shapes):
        return None
    first = next((shape[0] for shape in shapes if shape), None)
    return first if isinstance(first, int) else None


def free_dimensions(declared: tuple[InputSpec, ...], bound: Mapping[str, int]) -> tuple[str, ...]:
    """Return the symbolic dimensions without a size, in the order of the inputs.

    Those that follow from others are not among them.
    """
    symbols = (name for spec in declared for name in symbols_of(spec))
    return tuple(dict.fromkeys(name for name in symbols if name not in bound))


def symbols_of(spec: InputSpec) -> tuple[str, ...]:
    """Return the names in the shape of an input, also those that another dimension follows from."""
    return tuple(name for d in spec.shape or () if isinstance(d, str) for name in names_in(d))


def explain_missing(
    declared: tuple[InputSpec, ...],
    bound: Mapping[str, int],
    missing: Collection[str],
    reason: str = "",
    *,
    proposed: bool = True,
) -> str:
    """Describe which sizes are missing, and the options that give them.

    Args:
        declared: the inputs of the model.
        bound: sizes to write into the options, including suggestions for `missing`.
        missing: the dimensions that the user must give.
        reason: why nothing could be assumed.
        proposed: whether sizes for `missing` are proposed; otherwise N stands for each.
    """
    specs = [spec for spec in declared if set(missing).intersection(symbols_of(spec))]
    inputs_text = " and ".join(f"'{spec.name}' {format_shape(spec.shape or ())}" for spec in specs)
    noun = "input" if len(specs) == 1 else "inputs"
    sizes: Mapping[str, int | str] = bound if proposed else {**dict.fromkeys(missing, "N"), **bound}
    options = " ".join(write_option(spec, sizes) for spec in specs)
    free = ", ".join(missing)
    return (
        f"Sizes are missing: {free} of the {noun} {inputs_text}{reason}; "
        f"give {'it' if len(missing) == 1 else 'them'}, such as {options}."
    )


def write_option(spec: InputSpec, bound: Mapping[str, int | str]) -> str:
    """Name the field that gives an input its sizes: numbers or texts.

    A batch of 1 stays free; other unknown sizes are 1.
    """
    given = {**bound, **({BATCH: BATCH} if bound.get(BATCH, 1) == 1 else {})}
    known = {name: size for name, size in given.items() if isinstance(size, int)}
    others = {name: size for name, size in given.items() if isinstance(size, str)}
    sizes = (resolve_dimension(d, known) for d in spec.shape or ())
    shape = "x".join(str(d) if isinstance(d, int) else _written(d, others) for d in sizes)
    return f"`inputs={spec.name}={shape or 'scalar'}`"


def _written(dimension: str, others: Mapping[str, str]) -> str:
    return next((others[name] for name in names_in(dimension) if name in others), "1")


def is_sequence(name: str) -> bool:
    """Return whether a dimension is the length of a sequence, by its name."""
    return _SEQUENCE.search(name) is not None


def concrete_shape(spec: InputSpec, bound: Mapping[str, int]) -> tuple[int, ...]:
    """Return the shape with every symbolic dimension replaced."""
    sizes = tuple(resolve_dimension(d, bound) for d in spec.shape or ())
    return tuple(size if isinstance(size, int) else bound[size] for size in sizes)


def resolve_dimension(dimension: Dimension, sizes: Mapping[str, int]) -> Dimension:
    """Return the size of a dimension, or the dimension itself where it is not known."""
    size = dimension if isinstance(dimension, int) else evaluate(dimension, sizes)
    return dimension if size is None else size


def _bind_shape(spec: InputSpec, shape: tuple[Dimension, ...], bound: Mapping[str, int]) -> dict[str, int]:
    assert spec.shape is not None
    if len(shape) != len(spec.shape):
        hint = ""
        if not spec.shape and len(shape) == 1:
            hint = f"; its value is written {spec.name}=scalar:{shape[0]}"
        elif spec.dtype == "string" and spec.low is not None:
            hint = f"; words of a text are a range: {spec.name}=1:string:128..128"
        raise InputRefused(
            f"input '{spec.name}' is {format_shape(spec.shape)}, and {format_shape(shape)} has another "
            f"number of dimensions{hint}."
        )
    sizes: dict[str, int] = {}
    for requested_size, declared in zip(shape, spec.shape, strict=True):
        if isinstance(requested_size, str):
            if requested_size not in {declared, BATCH, SEQUENCE}:
                raise InputRefused(
                    f"input '{spec.name}' has no dimension '{requested_size}'; it is "
                    f"{format_shape(spec.shape)}."
                )
            continue
        known = resolve_dimension(declared, {**bound, **sizes})
        bound_size = known if isinstance(known, int) else requested_size
        if bound_size != requested_size:
            raise InputRefused(
                f"input '{spec.name}' is {format_shape(spec.shape)}: {requested_size} in "
                f"{format_shape(shape)} contradicts "
                f"{_explain_conflict(declared, bound_size, sizes)}."
            )
        if isinstance(declared, str):
            sizes[declared] = requested_size
    return sizes


def _explain_conflict(declared: Dimension, bound_size: int, sizes: Mapping[str, int]) -> str:
    """Describe what a size contradicts: a fixed one, one given elsewhere, or `sizes` of the same shape."""
    if bound_size == declared:
        return f"{bound_size}, which is fixed; give a shape that fits"
    if declared in sizes:
        return f"{declared}={bound_size}: the model calls both '{declared}', so they are one size"
    return f"{declared}={bound_size}; give one of them"


def _default_size(name: str, bound: Mapping[str, int], limits: Mapping[str, int]) -> int | None:
    """Return the default size of a dimension; None if there is none."""
    if name == BATCH:
        return 1
    if is_sequence(name):
        length = bound.get(SEQUENCE, DEFAULT_LENGTH)
        return min(length, limits.get(name, length))
    return None


def format_shape(shape: tuple[Dimension, ...]) -> str:
    """Write a shape: ``1x8``; one with names as ``[batch, 8]``, because an x would run together with them."""
    if any(isinstance(dimension, str) for dimension in shape):
        return f"[{', '.join(map(str, shape))}]"
    return "x".join(map(str, shape)) or "scalar"


def _is_shape(text: str) -> bool:
    return text == "scalar" or (
        any(map(str.isdigit, _split_shape(text)))
        and all(part.isidentifier() or _is_size(part) for part in _split_shape(text))
    )


_DIGITS = 18
"""Of the largest size of a dimension that anything could have."""


def _is_size(part: str) -> bool:
    return part.isdecimal() and len(part) <= _DIGITS


def _split_shape(text: str) -> list[str]:
    """Split at commas, or else at every x next to a digit, because names may contain an x, too."""
    return text.split(",") if "," in text else re.split(r"(?<=\d)x|x(?=\d)", text)


def _parse_shape(text: str) -> tuple[Dimension, ...]:
    if text == "scalar":
        return ()
    return tuple(int(part) if part.isdigit() else part for part in _split_shape(text))


def _parse_number(text: str, part: str | None) -> float | None:
    try:
        return None if part is None else float(part)
    except ValueError:
        raise RequestError(f"`inputs` '{text}': '{part}' is not a number.") from None
