"""Random arrays that a model can be fed with, and dtypes by their names."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from modeldyno.core.spec.input_spec import DTYPES
from modeldyno.data.word_list import WORDS
from modeldyno.errors import RequestError

if TYPE_CHECKING:
    from numpy import ndarray

    from modeldyno.core.spec.input_spec import InputSpec

DEFAULT_DTYPE = "float32"
"""Of an input that declares none."""
MOST_WORDS = 1_000_000
"""In a random text."""
_WORD_BYTES = 8
"""A guess at what a word of random text takes."""


def draw(spec: InputSpec, seed: tuple[int, ...]) -> ndarray:
    """Draw values of a concrete shape within dtype and range; whole numbers are never all zero.

    Raises:
        RequestError: the range does not fit the dtype.
    """
    import numpy as np  # noqa: PLC0415 - dear at start-up

    kind, shape = _numpy(spec), tuple(map(int, spec.shape or ()))
    random = np.random.default_rng(seed)
    low, high = bounds(spec)
    if kind.kind == "O":
        return _texts(shape, (int(low or 1), int(high or 1)), random)
    if low is None or high is None:
        return np.asarray(random.standard_normal(shape, np.float32)).astype(kind)
    if kind.kind in "iub":
        whole = random.integers(int(low), int(high), shape, _widest(kind), endpoint=True)
        return _not_all_zero(np.asarray(whole, kind), int(low) or int(high))
    return np.asarray(low + (high - low) * random.random(shape)).astype(kind)


def bounds(spec: InputSpec) -> tuple[float | None, float | None]:
    """Give the range that values are drawn from, of text that of the words in each.

    None where they are standard normal, or single words.

    Raises:
        RequestError: no value of the dtype lies in the range.
    """
    import numpy as np  # noqa: PLC0415 - dear at start-up

    kind = _numpy(spec)
    if kind.kind not in "iub" and spec.low is None and spec.high is None:
        return None, None
    if kind.kind == "O":
        return _lengths(spec)
    if kind.kind not in "iub":
        return _range(spec, 0.0, 1.0)
    limits = (0, 1) if kind.kind == "b" else (int(np.iinfo(kind).min), int(np.iinfo(kind).max))
    default = (0, 1) if kind.kind == "b" else (0, 255 if kind == np.uint8 else 9)
    given = _range(spec, *default)
    low, high = math.ceil(given[0]), math.floor(given[1])
    if not limits[0] <= low <= high <= limits[1]:
        raise RequestError(
            f"The input '{spec.name}' is {spec.dtype}: it has no values in {given[0]:g}..{given[1]:g} "
            f"that all lie in {limits[0]}..{limits[1]}."
        )
    return low, high


def itemsize(spec: InputSpec) -> int:
    """Give the bytes of one element, of text about so many."""
    if spec.dtype == "string":
        return _WORD_BYTES * int(bounds(spec)[1] or 1)
    return {"bfloat16": 2, None: 4}.get(spec.dtype) or int(_dtype(str(spec.dtype)).itemsize)


def converted(array: ndarray, name: str, where: str) -> ndarray:
    """Give real data another dtype, if nothing but the digits of a fraction is lost.

    Raises:
        RequestError: a value would change.
    """
    import numpy as np  # noqa: PLC0415 - dear at start-up

    kind = _dtype(name)
    text = array.dtype.kind in "OU"
    if text != (kind.kind == "O"):
        raise RequestError(
            f"{where} holds {'text' if text else array.dtype.name}, but the model takes {name}."
        )
    if array.dtype == kind:
        return array
    with np.errstate(all="ignore"):
        cast = array.astype(kind)
        back = cast.astype(array.dtype) if not text else cast
        rounded = array.dtype.kind == "f" and kind.kind not in "iub"
        same = np.isfinite(cast) == np.isfinite(array) if rounded else back == array
    if not bool(np.all(same)):
        raise RequestError(
            f"{where} holds {array.dtype.name} that {name}, which the model takes, cannot hold; convert it."
        )
    return cast


def _texts(shape: tuple[int, ...], lengths: tuple[int, int], random: Any) -> ndarray:
    """Write texts of so many words, from the first to the last length, each as likely."""
    import numpy as np  # noqa: PLC0415 - dear at start-up

    texts = np.empty(shape, dtype=object)
    for index in np.ndindex(shape):
        texts[index] = " ".join(random.choice(WORDS, random.integers(*lengths, endpoint=True)))
    return texts


def _lengths(spec: InputSpec) -> tuple[int, int]:
    low = spec.high if spec.low is None else spec.low
    high = spec.low if spec.high is None else spec.high
    assert low is not None
    assert high is not None
    if not 1 <= math.ceil(low) <= math.floor(high) <= MOST_WORDS:
        raise RequestError(
            f"The input '{spec.name}' is text: its range {low:g}..{high:g} is that of the words in each, "
            f"of which there must be 1 to {MOST_WORDS:,}."
        )
    return math.ceil(low), math.floor(high)


def _range(spec: InputSpec, low: float, high: float) -> tuple[float, float]:
    low = low if spec.low is None else spec.low
    high = high if spec.high is None else spec.high
    if not (math.isfinite(low) and math.isfinite(high) and low <= high):
        raise RequestError(f"The input '{spec.name}' cannot be drawn from the range {low:g}..{high:g}.")
    return low, high


def _not_all_zero(values: ndarray, other: int) -> ndarray:
    if values.size and not values.any() and other:
        values.reshape(-1)[0] = other
    return values


def _widest(kind: Any) -> Any:
    return "uint64" if kind.kind == "u" else "int64"


def _numpy(spec: InputSpec) -> Any:
    return _dtype(spec.dtype or DEFAULT_DTYPE)


def _dtype(name: str) -> Any:
    import numpy as np  # noqa: PLC0415 - dear at start-up

    if name not in DTYPES:
        raise RequestError(f"ModelDyno cannot make inputs of the dtype {name}.")
    if name == "bfloat16":
        try:
            import ml_dtypes  # noqa: PLC0415 - optional
        except ImportError:
            raise RequestError(
                "Inputs of bfloat16 need the package ml_dtypes: pip install ml_dtypes."
            ) from None
        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(object if name == "string" else name)
