"""What goes into a model: names, shapes with symbolic dimensions, dtypes, ranges, or real data."""

from __future__ import annotations

import re
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from modeldyno.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Mapping

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
    r"(?:(?P<name>[\w.\-/]+)=)?(?P<shape>scalar|[\w,]+)"
    r"(?::(?P<dtype>\w+))?(?::(?P<low>[-+.\de]+)\.\.(?P<high>[-+.\de]+))?"
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
    low, high = _number(text, match["low"]), _number(text, match["high"])
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
) -> dict[str, int]:
    """Bind every symbolic dimension to a number.

    `sizes` binds dimensions by name; an explicit shape binds the dimensions that stand in the same place
    of the declaration; the knob `batch_size` binds ``batch``; a sequence length that nobody gave is
    DEFAULT_LENGTH, or its limit where that is less.

    Raises:
        RequestError: two of these disagree, or a dimension stays free.
    """
    bound: dict[str, int] = dict(sizes) if batch_size is None else {**sizes, BATCH: batch_size}
    for request in requested:
        for spec in declared:
            if request.name in {"", spec.name} and request.shape and spec.shape is not None:
                bound |= _bind(spec, request.shape, bound)
    for spec in declared:
        for name in filter(lambda d: isinstance(d, str), spec.shape or ()):
            if name not in bound:
                bound[str(name)] = _default(str(name), spec, bound, limits)
    return bound


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
    found: dict[str, int] = {}
    for given, declared in zip(shape, spec.shape, strict=True):
        if isinstance(given, str):
            if given not in {declared, BATCH, SEQUENCE}:
                raise RequestError(
                    f"input '{spec.name}' has no dimension '{given}'; it is {show(spec.shape)}."
                )
            continue
        known = declared if isinstance(declared, int) else bound.get(declared, given)
        if known != given:
            fixed = f"{known}, which is fixed; give a shape that fits"
            why = fixed if known == declared else f"{declared}={known}; give one of them"
            raise RequestError(
                f"input '{spec.name}' is {show(spec.shape)}: {given} in {show(shape)} contradicts {why}."
            )
        if isinstance(declared, str):
            found[declared] = given
    return found


def _is_text(spec: InputSpec) -> bool:
    return spec.dtype == "string" and spec.low is not None


def _default(name: str, spec: InputSpec, bound: Mapping[str, int], limits: Mapping[str, int]) -> int:
    if name == BATCH:
        return 1
    if _SEQUENCE.search(name):
        usual = bound.get(SEQUENCE, DEFAULT_LENGTH)
        return min(usual, limits.get(name, usual))
    example = "x".join(str(d) if isinstance(d, int) else "1" for d in spec.shape or ())
    raise RequestError(
        f"input '{spec.name}' has the free dimension '{name}' in {show(spec.shape or ())}; "
        f"give its shape, such as --input {spec.name}={example}."
    )


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
