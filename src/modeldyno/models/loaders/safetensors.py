"""``safetensors:file``: weights without an architecture; the header lists their sizes.

Only the header is read: a few kilobytes of a file of any size. Nothing in it is executed.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modeldyno.base.errors import RequestError
from modeldyno.base.job.model_ref import ModelIdentity
from modeldyno.models.interface import Executes, Form, Model
from modeldyno.models.loaders import digest
from modeldyno.models.static.graph import bits_per_element
from modeldyno.models.static.weights import Weight

if TYPE_CHECKING:
    from collections.abc import Iterable

    from modeldyno.base.job.model_ref import ModelRef

requires: tuple[str, ...] = ()
executes = Executes.NOTHING
backend = "python"

_MAX_HEADER = 100_000_000
"""Bytes; the limit of the format itself."""
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
    """Raise: there is nothing to run.

    Raises:
        RequestError: always.
    """
    del seed, trust
    raise RequestError(
        f"'{ref.locator}' holds weights without an architecture; `modeldyno inspect` lists their sizes, "
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
    weights = read_header(path)
    return Model(
        identity=ModelIdentity(
            name=path.stem,
            digest=digest.digest_structure(f"{w.name}:{w.dtype}:{w.shape}" for w in weights),
            framework="safetensors",
        ),
        form=Form.CALLABLE,
        value=None,
        inputs=(),
        weights=lambda: weights,
        file_bytes=path.stat().st_size,
    )


def read_header(path: Path) -> tuple[Weight, ...]:
    """List the tensors in the header of a file.

    Raises:
        RequestError: it cannot be read, or the header is damaged or does not fit the file.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            length = int.from_bytes(file.read(_PREFIX), "little")
            if not 0 < length <= min(_MAX_HEADER, size - _PREFIX):
                raise _damaged_error(path, f"its header claims {length:,} bytes of a file of {size:,}")
            content = json.loads(file.read(length))
    except OSError as error:
        raise RequestError(f"'{path}' cannot be read: {error.strerror}.") from error
    except (ValueError, RecursionError) as error:
        raise _damaged_error(path, "its header is not JSON") from error
    if not isinstance(content, dict):
        raise _damaged_error(path, "its header is not a JSON object")
    data = size - _PREFIX - length
    weights = tuple(
        _weight(name, entry, data, path) for name, entry in content.items() if name != "__metadata__"
    )
    if sum(weight.bytes for weight in weights) > data:
        raise _damaged_error(path, "its tensors overlap")
    return weights


def most_common_dtype(files: Iterable[Path]) -> str | None:
    """Return the floating-point dtype of most of the elements, or None where there is none."""
    counts: Counter[str] = Counter()
    for path in files:
        for weight in read_header(path):
            if "float" in weight.dtype:
                counts[weight.dtype] += weight.size
    return counts.most_common(1)[0][0] if counts else None


def _weight(name: str, entry: Any, data: int, path: Path) -> Weight:
    try:
        dtype, shape, (begin, end) = entry["dtype"], tuple(entry["shape"]), entry["data_offsets"]
        is_valid = all(type(n) is int and n >= 0 for n in (*shape, begin, end)) and begin <= end <= data
    except (KeyError, TypeError, ValueError) as error:
        raise _damaged_error(
            path, f"its entry for {_quoted_name(name)} lacks dtype, shape or data_offsets"
        ) from error
    if not is_valid or not isinstance(dtype, str) or _DTYPE.fullmatch(dtype) is None:
        raise _damaged_error(path, f"its entry for {_quoted_name(name)} does not fit the file")
    dtype_name = _DTYPES.get(dtype, dtype.lower())
    size = _size(shape, 8 * (end - begin))
    if size is None or (
        dtype in _DTYPES
        and not dtype.startswith("F6")
        and (size * bits_per_element(dtype_name) + 7) // 8 != end - begin
    ):
        raise _damaged_error(path, f"its entry for {_quoted_name(name)} has a different size than its data")
    return Weight(name=name, shape=shape, dtype=dtype_name, size=size, bytes=end - begin)


def _size(shape: tuple[int, ...], limit: int) -> int | None:
    """Multiply the dimensions, or return None beyond `limit`: a damaged shape may be of any size."""
    size = 0 if 0 in shape else 1
    for dimension in shape:
        size *= dimension
        if size > limit:
            return None
    return size


def _quoted_name(name: str) -> str:
    return ascii(name[:80])


def _damaged_error(path: Path, what: str) -> RequestError:
    return RequestError(f"'{path}' is truncated or damaged: {what}; save or copy it again.")
