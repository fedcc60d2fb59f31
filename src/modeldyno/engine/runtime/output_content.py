"""Whether outputs follow their inputs: from call to call, in each row, and in the precision they declare."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.base.metrics.doubt import Doubt

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy import ndarray

    from modeldyno.engine.data.outputs import Sketch
    from modeldyno.models.interface import Feed

MOST_BYTES = 64 * 2**20
"""Bytes of an output that are looked at."""
_FEWEST_VALUES = 64
"""Values that use the last bits of a 16-bit format, of which all are its values by no chance."""
_KINDS = (("float16", 13), ("bfloat16", 16))
"""Formats of 16 bits, and the low bits that their values leave zero in float32."""


def constant_output(feeds: Sequence[Feed], first: Mapping[int, Sketch]) -> Iterator[Doubt]:
    """Yield a doubt if outputs of floating-point numbers are the same for inputs that differ."""
    import numpy as np  # slow to import

    sketches = [sketch for number, sketch in first.items() if number < len(feeds)]
    names = (
        [name for name, values in sketches[0].values.items() if values.dtype.kind in "fc"] if sketches else ()
    )
    if len(sketches) < 2 or not names:
        return
    if all(
        n in each.values and np.array_equal(each.values[n], sketches[0].values[n])
        for each in sketches
        for n in names
    ):
        yield Doubt(
            code="constant-output",
            seen=f"{len(sketches)} different inputs gave the same output",
            advice="nothing, if it is meant to be constant; else it answers without looking at its input",
        )


def coarse_output(feed: Feed, output: Feed) -> Iterator[Doubt]:
    """Yield a doubt if all values of a float32 output, but of no input, are those of a 16-bit format."""
    if any(_narrow_format(array) for array in feed.values()):
        return
    for name, array in output.items():
        if kind := _narrow_format(array):
            yield Doubt(
                code="coarse-output",
                seen=f"all values of the output '{name}' are those of {kind}, although it is float32",
                advice=f"set the precision: f32 for the model as it is, or {kind} to say that this is meant",
            )


def _narrow_format(array: ndarray) -> str:
    """Return the 16-bit format that holds all values of a float32 array; empty if none does, or by chance."""
    import numpy as np  # slow to import

    if array.dtype != np.float32 or array.nbytes > MOST_BYTES:
        return ""
    values = np.unique(array[np.isfinite(array) & (array != np.round(array))])
    bits = values.view(np.uint32)
    for kind, zeros in _KINDS:
        # Simple fractions leave low bits zero as well: the last bits of the format must be in use.
        used = (bits >> zeros) & 3 != 0
        if int(used.sum()) >= _FEWEST_VALUES and not bool((bits & ((1 << zeros) - 1)).any()):
            return kind
    return ""


def repeated_rows(feed: Feed, output: Feed) -> dict[str, ndarray]:
    """Return by output which rows are equal to another, if those of every input differ."""
    import numpy as np  # slow to import

    rows = {array.shape[0] for array in feed.values() if array.ndim > 1}
    if len(rows) != 1 or min(rows) < 2:
        return {}
    count = rows.pop()
    if not any(len(np.unique(_by_row(array), axis=0)) == count for array in feed.values() if array.ndim > 1):
        return {}
    return {
        name: repeats
        for name, array in output.items()
        if array.ndim > 1
        and array.shape[0] == count
        and array.dtype.kind == "f"
        and array.nbytes <= MOST_BYTES
        and (repeats := _repeats(array)).any()
    }


def _repeats(array: ndarray) -> ndarray:
    """Return which rows are equal to another one."""
    import numpy as np  # slow to import

    _, inverse, counts = np.unique(_by_row(array), axis=0, return_inverse=True, return_counts=True)
    return np.asarray(counts[inverse.reshape(-1)] > 1)


def _by_row(array: ndarray) -> ndarray:
    import numpy as np  # slow to import

    return np.ascontiguousarray(array).reshape(array.shape[0], -1)


def reverse_rows(feed: Feed) -> Feed:
    """Return the inputs with their rows in the opposite order."""
    return {name: array[::-1].copy() if array.ndim > 1 else array for name, array in feed.items()}


def rows_repeat(feed: Feed, output: Feed, moved: Feed) -> Iterator[Doubt]:
    """Yield a doubt if rows repeat at the same places although those of the input are elsewhere.

    Args:
        feed: the inputs, whose rows differ.
        output: what they gave.
        moved: what their rows in the opposite order gave.
    """
    import numpy as np  # slow to import

    for name, repeats in repeated_rows(feed, output).items():
        other = moved.get(name)
        if other is None or other.shape != output[name].shape or not np.array_equal(_repeats(other), repeats):
            continue
        follows = np.isclose(other[::-1], output[name], rtol=1e-3, atol=1e-5, equal_nan=True)
        if not bool(follows.all()):
            yield Doubt(
                code="rows-repeat",
                seen=f"{int(repeats.sum())} of {len(repeats)} rows of the output '{name}' are equal to "
                "others, at the same places when the rows of the input are in the opposite order",
                advice="look whether it computes the whole batch: its rate counts all rows",
            )
