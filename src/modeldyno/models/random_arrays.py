"""Random arrays for model inputs, and dtypes by name."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from modeldyno.base.errors import RequestError
from modeldyno.base.job.input_spec import DTYPES
from modeldyno.models.word_list import WORDS

if TYPE_CHECKING:
    from numpy import ndarray

    from modeldyno.base.job.input_spec import InputSpec

DEFAULT_DTYPE = "float32"
"""Dtype of an input that declares none."""
MOST_WORDS = 1_000_000
"""Maximum words in a random text."""
_WORD_BYTES = 8
"""Estimated bytes of a word of random text."""


def draw_array(spec: InputSpec, seed: tuple[int, ...]) -> ndarray:
    """Draw values of a concrete shape within dtype and range; integers are never all zero.

    Raises:
        RequestError: the range does not fit the dtype.
    """
    import numpy as np  # slow to import

    dtype, shape = _input_dtype(spec), tuple(map(int, spec.shape or ()))
    generator = np.random.default_rng(seed)
    low, high = value_range(spec)
    if dtype.kind == "O":
        return _texts(shape, (int(low or 1), int(high or 1)), generator)
    if low is None or high is None:
        return np.asarray(generator.standard_normal(shape, np.float32)).astype(dtype)
    if dtype.kind in "iub":
        integers = generator.integers(int(low), int(high), shape, _widest(dtype), endpoint=True)
        return _not_all_zero(np.asarray(integers, dtype), int(low) or int(high))
    return np.asarray(low + (high - low) * generator.random(shape)).astype(dtype)


def value_range(spec: InputSpec) -> tuple[float | None, float | None]:
    """Return the range that values are drawn from; for text, of the words in each.

    None for standard normal values, or single words.

    Raises:
        RequestError: no value of the dtype lies in the range.
    """
    import numpy as np  # slow to import

    dtype = _input_dtype(spec)
    if dtype.kind not in "iub" and spec.low is None and spec.high is None:
        return None, None
    if dtype.kind == "O":
        return _lengths(spec)
    if dtype.kind not in "iub":
        return _range(spec, 0.0, 1.0)
    limits = (0, 1) if dtype.kind == "b" else (int(np.iinfo(dtype).min), int(np.iinfo(dtype).max))
    default = (0, 1) if dtype.kind == "b" else (0, 255 if dtype == np.uint8 else 9)
    requested = _range(spec, *default)
    low, high = math.ceil(requested[0]), math.floor(requested[1])
    if not limits[0] <= low <= high <= limits[1]:
        raise RequestError(
            f"The input '{spec.name}' is {spec.dtype}: it has no values in "
            f"{requested[0]:g}..{requested[1]:g} that all lie in {limits[0]}..{limits[1]}."
        )
    return low, high


def itemsize(spec: InputSpec) -> int:
    """Return the bytes of one element, for text an estimate."""
    if spec.dtype == "string":
        return _WORD_BYTES * int(value_range(spec)[1] or 1)
    return {"bfloat16": 2, None: 4}.get(spec.dtype) or int(numpy_dtype(str(spec.dtype)).itemsize)


def convert_dtype(array: ndarray, name: str, where: str) -> ndarray:
    """Convert real data to another dtype, if nothing but fractional digits is lost.

    Raises:
        RequestError: a value would change.
    """
    import numpy as np  # slow to import

    dtype = numpy_dtype(name)
    text = array.dtype.kind in "OU"
    if text != (dtype.kind == "O"):
        raise RequestError(
            f"{where} holds {'text' if text else array.dtype.name}, but the model takes {name}."
        )
    if array.dtype == dtype:
        return array
    with np.errstate(all="ignore"):
        cast = array.astype(dtype)
        restored = cast.astype(array.dtype) if not text else cast
        rounded = array.dtype.kind == "f" and dtype.kind not in "iub"
        same = np.isfinite(cast) == np.isfinite(array) if rounded else restored == array
    if not bool(np.all(same)):
        raise RequestError(
            f"{where} holds {array.dtype.name} that {name}, which the model takes, cannot hold; convert it."
        )
    return cast


def _texts(shape: tuple[int, ...], lengths: tuple[int, int], generator: Any) -> ndarray:
    """Generate texts with a uniformly random number of words within the lengths."""
    import numpy as np  # slow to import

    texts = np.empty(shape, dtype=object)
    for index in np.ndindex(shape):
        texts[index] = " ".join(generator.choice(WORDS, generator.integers(*lengths, endpoint=True)))
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


def _widest(dtype: Any) -> Any:
    return "uint64" if dtype.kind == "u" else "int64"


def _input_dtype(spec: InputSpec) -> Any:
    return numpy_dtype(spec.dtype or DEFAULT_DTYPE)


def numpy_dtype(name: str) -> Any:
    """Return numpy's dtype; raise RequestError for one that no input can have."""
    import numpy as np  # slow to import

    if name not in DTYPES:
        raise RequestError(f"ModelDyno cannot make inputs of the dtype {name}.")
    if name == "bfloat16":
        try:
            import ml_dtypes  # optional
        except ImportError:
            raise RequestError(
                "Inputs of bfloat16 need the package ml_dtypes: pip install ml_dtypes."
            ) from None
        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(object if name == "string" else name)
