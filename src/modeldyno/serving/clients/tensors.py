"""Converts arrays to and from what protocols carry: little-endian bytes in C order, or lists for JSON."""

from __future__ import annotations

import base64
import math
from typing import TYPE_CHECKING, Any

from modeldyno.base.errors import RequestError
from modeldyno.base.job.input_spec import BATCH, DTYPES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy import ndarray

    from modeldyno.base.job.input_spec import Dimension
    from modeldyno.models.interface import Feed

TEXT, BFLOAT16 = "string", "bfloat16"


def dtype_name(array: ndarray) -> str:
    """Return the dtype of an array as `base.job.input_spec` names it."""
    return TEXT if array.dtype.kind in "OUS" else array.dtype.name


def require_inputs(feed: Feed, example: str) -> Feed:
    """Return the payload; refuse one without inputs, for protocols that have to name them."""
    if not feed:
        raise RequestError(
            f"The server does not describe the model's inputs; describe them, for example {example}."
        )
    return feed


def single_input(feed: Feed, what: str) -> tuple[str, ndarray]:
    """Return the only input of a payload, with its name."""
    if len(feed) != 1:
        raise RequestError(f"{what} takes one input, not {len(feed)}: {', '.join(feed) or 'none'}.")
    return next(iter(feed.items()))


def to_raw(array: ndarray) -> bytes:
    """Return the bytes of numbers; bfloat16 as the upper 16 bits of its float32."""
    import numpy as np  # slow to import

    plain = array.view(np.uint16) if array.dtype.name == BFLOAT16 else array
    return np.ascontiguousarray(plain, plain.dtype.newbyteorder("<")).tobytes()


def to_elements(name: str, array: ndarray) -> list[bytes]:
    """Return the elements of a text array as bytes; str is encoded as UTF-8."""
    return [_element(name, item) for item in array.reshape(-1).tolist()]


def _element(name: str, item: Any) -> bytes:
    if isinstance(item, bytes):
        return item
    if not isinstance(item, str):
        raise RequestError(
            f"The input '{name}' holds {type(item).__name__} values, which no request can carry."
        )
    try:
        return item.encode()
    except UnicodeEncodeError:
        raise RequestError(f"The input '{name}' holds text that is not valid Unicode.") from None


def to_lists(name: str, array: ndarray, *, encoded: bool = False) -> Any:
    """Return nested lists for JSON; bytes as UTF-8, or with `encoded` as ``{"b64": ...}``."""
    if dtype_name(array) not in DTYPES:
        raise RequestError(f"The input '{name}' is {array.dtype}, which JSON cannot carry.")
    if dtype_name(array) == BFLOAT16:
        return array.astype("float32").tolist()
    return _texts(name, array.tolist(), encoded=encoded) if dtype_name(array) == TEXT else array.tolist()


def _texts(name: str, value: Any, *, encoded: bool) -> Any:
    if isinstance(value, list):
        return [_texts(name, item, encoded=encoded) for item in value]
    data = _element(name, value)
    if isinstance(value, str):
        return value
    if encoded:
        return {"b64": base64.b64encode(data).decode()}
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise RequestError(
            f"The input '{name}' holds bytes that are not UTF-8 text, which JSON cannot carry; use gRPC."
        ) from None


def raw_size(name: str, dtype: str, shape: Sequence[int]) -> int:
    """Return the bytes that numbers take; raise ValueError (a phrase) for text, which has no fixed size."""
    import numpy as np  # slow to import

    if dtype == TEXT:
        raise ValueError(f"output '{name}' is text, which is not read from shared memory")
    return math.prod(shape) * np.dtype(np.uint16 if dtype == BFLOAT16 else dtype).itemsize


def from_raw(name: str, data: bytes | memoryview, dtype: str, shape: Sequence[int]) -> ndarray:
    """Decode numbers from bytes; bfloat16 becomes float32, which holds it exactly.

    Raises:
        ValueError: the number of bytes does not match the shape.
    """
    import numpy as np  # slow to import

    code = np.dtype(np.uint16 if dtype == BFLOAT16 else dtype).newbyteorder("<")
    expected = math.prod(shape) * code.itemsize
    if len(data) != expected or any(size < 0 for size in shape):
        raise ValueError(
            f"output '{name}' has {len(data):,} bytes, but {_show(shape)} {dtype} takes {expected:,}"
        )
    array = np.frombuffer(data, code).reshape(shape)
    if dtype == BFLOAT16:
        return (array.astype(np.uint32) << 16).view(np.float32)
    return array.astype(code.newbyteorder("="), copy=False)


def from_values(name: str, values: Any, dtype: str | None, shape: Sequence[int] | None) -> ndarray:
    """Convert lists of numbers or text, nested or flat, to an array; without a dtype it is inferred.

    Raises:
        ValueError: the values have another dtype, or their number does not match the shape.
    """
    import numpy as np  # slow to import

    try:
        array = np.asarray(values, object if dtype == TEXT else None)
        if array.dtype.kind not in "biuf":
            array = _text(values, dtype)
        elif dtype is not None:
            array = _cast(values, array, np.dtype("float32" if dtype == BFLOAT16 else dtype))
    except (ValueError, TypeError, OverflowError):
        raise ValueError(f"output '{name}' holds something other than {dtype or 'numbers in rows'}") from None
    if shape is None:
        return array
    if array.size != math.prod(shape) or any(size < 0 for size in shape):
        raise ValueError(f"output '{name}' has {array.size:,} values, but its shape is {_show(shape)}")
    return array.reshape(shape)


def _text(values: Any, dtype: str | None) -> ndarray:
    """Return an array of text or bytes; raise ValueError for anything else, or if numbers are expected."""
    import numpy as np  # slow to import

    array = np.asarray(values, object)
    if dtype not in {None, TEXT} or not all(isinstance(item, str | bytes) for item in array.flat):
        raise ValueError
    return array


def _cast(values: Any, array: ndarray, dtype: Any) -> ndarray:
    """Convert numbers to another dtype; integers must be whole and fit.

    Raises:
        ValueError: a number is not whole, or does not fit.
        OverflowError: a number does not fit.
    """
    import numpy as np  # slow to import

    if dtype.kind not in "biu":
        with np.errstate(over="ignore"):
            return array.astype(dtype)
    if array.dtype.kind == "f":  # numpy's choice for integers beyond int64
        array = np.asarray(values, object)
        if any(isinstance(item, float) and not item.is_integer() for item in array.flat):
            raise ValueError
    with np.errstate(all="ignore"):
        cast = array.astype(dtype)
    if not bool(np.all(cast == array)):
        raise ValueError
    return cast


def from_elements(name: str, items: Sequence[bytes], shape: Sequence[int]) -> ndarray:
    """Return an array of text, or of bytes if an element is not UTF-8."""
    try:
        return from_values(name, [item.decode() for item in items], TEXT, shape)
    except UnicodeDecodeError:
        return from_values(name, list(items), TEXT, shape)


def shape_of(name: str, sizes: Sequence[Any]) -> tuple[Dimension, ...]:
    """Return a declared shape: -1 is a free dimension, and on the first axis the batch.

    Raises:
        ValueError: a size is not a number.
    """
    try:
        numbers = [int(size) for size in sizes]
    except (TypeError, ValueError):
        raise ValueError(f"the shape of '{name}' is {sizes!r}") from None
    return tuple(
        size if size > 0 else (BATCH if axis == 0 else f"{name}_dim{axis}")
        for axis, size in enumerate(numbers)
    )


def _show(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape)) or "one number"
