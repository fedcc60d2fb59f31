"""``safetensors:file``: weights without an architecture, of which the header says what they weigh.

Only the header is read: a few kilobytes of a file of any size, and nothing in it is executed.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modeldyno.adapters.loaders import digest
from modeldyno.core.spec.model_ref import ModelIdentity
from modeldyno.core.static.graph import bits
from modeldyno.core.static.weights import Weight
from modeldyno.errors import RequestError
from modeldyno.interfaces import Executes, Form, Model

if TYPE_CHECKING:
    from collections.abc import Iterable

    from modeldyno.core.spec.model_ref import ModelRef

requires: tuple[str, ...] = ()
tools: tuple[str, ...] = ()
executes = Executes.NOTHING
backend = "python"

_LARGEST_HEADER = 100_000_000
"""Bytes, as the format itself limits it."""
_DTYPES = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64", "I32": "int32",
    "I16": "int16", "I8": "int8", "U64": "uint64", "U32": "uint32", "U16": "uint16", "U8": "uint8",
    "BOOL": "bool", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2", "F8_E8M0": "float8_e8m0fnu",
    "C64": "complex64", "F4": "float4", "F6_E2M3": "float6_e2m3", "F6_E3M2": "float6_e3m2",
}  # fmt: skip
_DTYPE = re.compile(r"[A-Z][A-Z0-9_]{0,30}")
_PREFIX = 8


def claims(path: Path) -> bool:
    """Claim a file by its suffix."""
    return path.suffix == ".safetensors" and path.is_file()


def load(ref: ModelRef, *, seed: int, trust: bool) -> Model:
    """Refuse: there is nothing to run.

    Raises:
        RequestError: always.
    """
    del seed, trust
    raise RequestError(
        f"'{ref.locator}' holds weights without an architecture; `modeldyno inspect` says what they weigh, "
        "and a directory with its config.json, or a factory that loads them (torch:file.py:make), can be run."
    )


def look(ref: ModelRef, *, seed: int, trust: bool) -> Model:
    """Read the header.

    Raises:
        RequestError: the file is missing, or its header is damaged.
    """
    del seed, trust
    path = Path(ref.locator)
    if not path.is_file():
        raise RequestError(f"There is no file '{path}'; check the path of the safetensors file.")
    found = header(path)
    return Model(
        identity=ModelIdentity(
            name=path.stem,
            digest=digest.of_structure(f"{w.name}:{w.dtype}:{w.shape}" for w in found),
            framework="safetensors",
        ),
        form=Form.CALLABLE,
        value=None,
        inputs=(),
        weights=lambda: found,
        file_bytes=path.stat().st_size,
    )


def header(path: Path) -> tuple[Weight, ...]:
    """List the tensors that a file says it has.

    Raises:
        RequestError: it cannot be read, or the header is damaged or does not fit the file.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            length = int.from_bytes(file.read(_PREFIX), "little")
            if not 0 < length <= min(_LARGEST_HEADER, size - _PREFIX):
                raise _damaged(path, f"its header claims {length:,} bytes of a file of {size:,}")
            content = json.loads(file.read(length))
    except OSError as error:
        raise RequestError(f"'{path}' cannot be read: {error.strerror}.") from error
    except (ValueError, RecursionError) as error:
        raise _damaged(path, "its header is no JSON") from error
    if not isinstance(content, dict):
        raise _damaged(path, "its header is no JSON object")
    data = size - _PREFIX - length
    found = tuple(
        _weight(name, entry, data, path) for name, entry in content.items() if name != "__metadata__"
    )
    if sum(weight.bytes for weight in found) > data:
        raise _damaged(path, "its tensors lie in each other")
    return found


def commonest_dtype(files: Iterable[Path]) -> str | None:
    """Give the floating-point dtype of most of the elements, or None where there is none."""
    found: Counter[str] = Counter()
    for path in files:
        for weight in header(path):
            if "float" in weight.dtype:
                found[weight.dtype] += weight.size
    return found.most_common(1)[0][0] if found else None


def _weight(name: str, entry: Any, data: int, path: Path) -> Weight:
    try:
        dtype, shape, (begin, end) = entry["dtype"], tuple(entry["shape"]), entry["data_offsets"]
        sound = all(type(n) is int and n >= 0 for n in (*shape, begin, end)) and begin <= end <= data
    except (KeyError, TypeError, ValueError) as error:
        raise _damaged(path, f"its entry for {_shown(name)} lacks dtype, shape or data_offsets") from error
    if not sound or not isinstance(dtype, str) or _DTYPE.fullmatch(dtype) is None:
        raise _damaged(path, f"its entry for {_shown(name)} does not fit the file")
    kind = _DTYPES.get(dtype, dtype.lower())
    size = _size(shape, 8 * (end - begin))
    if size is None or (
        dtype in _DTYPES and not dtype.startswith("F6") and (size * bits(kind) + 7) // 8 != end - begin
    ):
        raise _damaged(path, f"its entry for {_shown(name)} has another size than its data")
    return Weight(name=name, shape=shape, dtype=kind, size=size, bytes=end - begin)


def _size(shape: tuple[int, ...], most: int) -> int | None:
    """Multiply, but not beyond the bits that there are: a damaged shape may be of any size."""
    size = 0 if 0 in shape else 1
    for dimension in shape:
        size *= dimension
        if size > most:
            return None
    return size


def _shown(name: str) -> str:
    return ascii(name[:80])


def _damaged(path: Path, what: str) -> RequestError:
    return RequestError(f"'{path}' is truncated or damaged: {what}; save or copy it again.")
