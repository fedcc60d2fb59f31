"""What goes into a model: names, shapes with symbolic dimensions, dtypes, ranges, or real data."""

from __future__ import annotations

import re
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from modeldyno.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

BATCH = "batch"
SEQUENCE = "seq"
DEFAULT_LENGTH = 128
"""Length of a sequence dimension that nobody gave."""

_NONE: Mapping[str, int] = MappingProxyType({})

DTYPES = (
    "float16", "bfloat16", "float32", "float64", "bool", "string",
    "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
)  # fmt: skip
_SEQUENCE = re.compile(r"seq|len|time|token", re.IGNORECASE)
_REQUEST = re.compile(
    r"(?:(?P<name>[\w.\-/:]+)=)?(?P<shape>scalar|[\w,]+)"
    r"(?::(?P<dtype>\w+))?(?::(?P<low>[-+.\de]+?)(?:\.\.(?P<high>[-+.\de]+))?)?"
)

Dimension = int | str


@dataclass(frozen=True, slots=True, kw_only=True)
class InputSpec:
    """One input, as a model declares it, as a user asks for it, or as it was used."""

    name: str = ""
    """Empty in a request that speaks of the only input, or of all of them."""
    shape: tuple[Dimension, ...] | None = None
    """A name stands for a dimension that is free; ``batch`` is the knob `batch_size`."""
    dtype: str | None = None
    low: float | None = None
    high: float | None = None
    """Random values lie in [low, high]; for integers that is the vocabulary, of text the words in each."""
    source: str | None = None
    """A file of real data: .npz, .npy, .jsonl or text."""
    digest: str | None = None
    """As used: the digest of the values."""
    distinct: int | None = None
    """As used: how many distinct payloads were cycled through."""


def parse_input(text: str) -> InputSpec:
    """Read one ``--input``: ``[name=]8x128[:int64[:0..30521]]`` or ``[name=]file.npz|.jsonl|.txt``.

    A shape may be ``scalar``, a range a single value: ``rate=scalar:int64:16000``.

    Raises:
        RequestError: the text is neither.
    """
    match = _REQUEST.fullmatch(text)
    if match is None or not _is_shape(match["shape"]):
        name, separator, path = text.partition("=")
        name, path = (name, path) if separator and "/" not in name else ("", text)
        if not path:
            raise RequestError(f"--input '{text}' is empty; write name=8x128:int64:0..30521, or a file.")
        return InputSpec(name=name, source=path)
    if match["dtype"] is not None and match["dtype"] not in DTYPES:
        raise RequestError(f"--input '{text}': '{match['dtype']}' is not one of {', '.join(DTYPES)}.")
    low, high = _number(text, match["low"]), _number(text, match["high"] or match["low"])
    if low is not None and high is not None and low > high:
        raise RequestError(f"--input '{text}': the range {match['low']}..{match['high']} is empty.")
    return InputSpec(
        name=match["name"] or "", shape=_shape(match["shape"]), dtype=match["dtype"], low=low, high=high
    )


def dimensions(
    declared: tuple[InputSpec, ...],
    requested: tuple[InputSpec, ...],
    batch_size: int | None,
    sizes: Mapping[str, int] = _NONE,
    limits: Mapping[str, int] = _NONE,
    assumed: Mapping[str, int] = _NONE,
) -> dict[str, int]:
    """Bind every symbolic dimension to a number.

    `sizes` binds dimensions by name; an explicit shape binds the dimensions that stand in the same place
    of the declaration; the knob `batch_size` binds ``batch``. What nobody gave is as in `assumed`, and else
    1 for a batch and DEFAULT_LENGTH for a sequence, or its limit where that is less.

    Raises:
        RequestError: two of these disagree, or a dimension stays free.
    """
    bound = given_dimensions(declared, requested, batch_size, sizes)
    missing: list[str] = []
    for name in free_dimensions(declared, bound):
        usual = assumed.get(name, _default(name, bound, limits))
        if usual is None:
            missing.append(name)
        else:
            bound[name] = usual
    if missing:
        raise RequestError(explain_missing(declared, bound, missing))
    return bound


def given_dimensions(
    declared: tuple[InputSpec, ...],
    requested: tuple[InputSpec, ...],
    batch_size: int | None,
    sizes: Mapping[str, int] = _NONE,
) -> dict[str, int]:
    """Bind the symbolic dimensions that somebody gave a size; the arguments are as in `dimensions`.

    Raises:
        RequestError: two sizes disagree.
    """
    bound: dict[str, int] = dict(sizes) if batch_size is None else {**sizes, BATCH: batch_size}
    for request in requested:
        for spec in declared:
            if request.name in {"", spec.name} and request.shape and spec.shape is not None:
                bound |= _bind(spec, request.shape, bound)
    return bound


def free_dimensions(declared: tuple[InputSpec, ...], bound: Mapping[str, int]) -> tuple[str, ...]:
    """Name the symbolic dimensions that have no size, in the order in which inputs have them."""
    symbols = (d for spec in declared for d in spec.shape or () if isinstance(d, str))
    return tuple(dict.fromkeys(name for name in symbols if name not in bound))


def explain_missing(
    declared: tuple[InputSpec, ...], bound: Mapping[str, int], missing: Collection[str], reason: str = ""
) -> str:
    """Say which sizes are to be given, of all inputs, and write the options that give them.

    Args:
        declared: the inputs of the model.
        bound: sizes to write into the options, those of `missing` too, where any speak for them.
        missing: the dimensions that somebody must give.
        reason: why nothing could be assumed.
    """
    specs = [spec for spec in declared if set(missing).intersection(spec.shape or ())]
    named = " and ".join(f"'{spec.name}' {show(spec.shape or ())}" for spec in specs)
    noun = "input" if len(specs) == 1 else "inputs"
    options = " ".join(write_option(spec, bound) for spec in specs)
    free = ", ".join(missing)
    return (
        f"Sizes are missing: {free} of the {noun} {named}{reason}; "
        f"give {'it' if len(missing) == 1 else 'them'}, such as {options}."
    )


def write_option(spec: InputSpec, bound: Mapping[str, int]) -> str:
    """Write the option that gives an input its sizes; one that nothing is known of is 1."""
    shape = "x".join(str(d if isinstance(d, int) else bound.get(d, 1)) for d in spec.shape or ())
    return f"--input {spec.name}={shape or 'scalar'}"


def is_sequence(name: str) -> bool:
    """Whether a dimension is the length of a sequence, by its name."""
    return _SEQUENCE.search(name) is not None


def concrete(spec: InputSpec, bound: Mapping[str, int]) -> tuple[int, ...]:
    """Give the shape with every symbolic dimension replaced."""
    return tuple(d if isinstance(d, int) else bound[d] for d in spec.shape or ())


def _bind(spec: InputSpec, shape: tuple[Dimension, ...], bound: Mapping[str, int]) -> dict[str, int]:
    assert spec.shape is not None
    if len(shape) != len(spec.shape):
        words = f"; words of a text are a range: {spec.name}=1:string:128..128" if _is_text(spec) else ""
        raise RequestError(
            f"input '{spec.name}' has {len(spec.shape)} dimensions {show(spec.shape)}, "
            f"not {show(shape)}{words}."
        )
    sizes: dict[str, int] = {}
    for given, declared in zip(shape, spec.shape, strict=True):
        if isinstance(given, str):
            if given not in {declared, BATCH, SEQUENCE}:
                raise RequestError(
                    f"input '{spec.name}' has no dimension '{given}'; it is {show(spec.shape)}."
                )
            continue
        known = declared if isinstance(declared, int) else sizes.get(declared, bound.get(declared, given))
        if known != given:
            raise RequestError(
                f"input '{spec.name}' is {show(spec.shape)}: {given} in {show(shape)} contradicts "
                f"{_explain_conflict(declared, known, sizes)}."
            )
        if isinstance(declared, str):
            sizes[declared] = given
    return sizes


def _explain_conflict(declared: Dimension, known: int, sizes: Mapping[str, int]) -> str:
    """Say what a size contradicts: a fixed one, one given elsewhere, or `sizes` of the same shape."""
    if known == declared:
        return f"{known}, which is fixed; give a shape that fits"
    if declared in sizes:
        return f"{declared}={known}: the model calls both '{declared}', so they are one size"
    return f"{declared}={known}; give one of them"


def _is_text(spec: InputSpec) -> bool:
    return spec.dtype == "string" and spec.low is not None


def _default(name: str, bound: Mapping[str, int], limits: Mapping[str, int]) -> int | None:
    """Give the size of a dimension that nobody gave; None where it has no usual one."""
    if name == BATCH:
        return 1
    if is_sequence(name):
        usual = bound.get(SEQUENCE, DEFAULT_LENGTH)
        return min(usual, limits.get(name, usual))
    return None


def show(shape: tuple[Dimension, ...]) -> str:
    """Write a shape: ``1x8``, and one with names, which an x would run together, as ``[batch, 8]``."""
    if any(isinstance(dimension, str) for dimension in shape):
        return f"[{', '.join(map(str, shape))}]"
    return "x".join(map(str, shape)) or "scalar"


def _is_shape(text: str) -> bool:
    return text == "scalar" or (
        any(map(str.isdigit, _parts(text)))
        and all(part.isidentifier() or part.isdigit() for part in _parts(text))
    )


def _parts(text: str) -> list[str]:
    """Split at commas, or else at every x that stands beside a number: names may hold an x, too."""
    return text.split(",") if "," in text else re.split(r"(?<=\d)x|x(?=\d)", text)


def _shape(text: str) -> tuple[Dimension, ...]:
    if text == "scalar":
        return ()
    return tuple(int(part) if part.isdigit() else part for part in _parts(text))


def _number(text: str, part: str | None) -> float | None:
    try:
        return None if part is None else float(part)
    except ValueError:
        raise RequestError(f"--input '{text}': '{part}' is not a number.") from None
