"""Checks of model outputs, and the agreement between the outputs of two models."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, isfinite
from typing import TYPE_CHECKING, Any

from modeldyno.base.result.output_agreement import OutputAgreement
from modeldyno.engine.data.request_data import decode_values
from modeldyno.models.interface import ExpectedOutputs, Feed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy import ndarray

_RELATIVE, _ABSOLUTE = 1e-3, 1e-5
"""Differences from an expected floating-point value that are none."""


@dataclass(frozen=True, slots=True)
class OutputFault:
    """A fault of one array of an output."""

    output: str
    kind: str
    """``nan``, ``infinite``, or ``empty`` of any finite value."""
    sentence: str


def describe_faults(output: Feed) -> Iterator[str]:
    """Return a sentence for each fault of an output; see `find_faults`."""
    return (fault.sentence for fault in find_faults(output))


def find_faults(output: Feed) -> Iterator[OutputFault]:
    """Find NaN, positive infinity, and outputs whose values are all minus infinity.

    Masks are filled with minus infinity on purpose, so it is no fault in some places, nor throughout one
    array among others.
    """
    import numpy as np  # slow to import

    floats = {name: values for name, values in output.items() if values.dtype.kind in "fc"}
    for name, values in floats.items():
        nans = int(np.isnan(values).sum())
        infinite = int(np.isinf(values).sum())
        if nans:
            yield OutputFault(name, "nan", f"output '{name}' has {nans:,} NaN of {values.size:,} values")
        if infinite and bool(np.isposinf(values.real).any() or np.isposinf(values.imag).any()):
            text = f"output '{name}' has {infinite:,} infinite of {values.size:,} values"
            yield OutputFault(name, "infinite", text)
    empty_names = all_minus_infinity(output)
    if empty_names and len(empty_names) == len(floats):
        for name in empty_names:
            text = f"every one of the {output[name].size:,} values of output '{name}' is minus infinity"
            yield OutputFault(name, "empty", text)


def describe_difference(output: Feed, expected: ExpectedOutputs) -> str:
    """Return in a phrase how an output differs from what is expected; empty if it does not.

    Floating-point values may differ by a thousandth of the expected one, or 1e-5; others must be equal.
    """
    import numpy as np  # slow to import

    for name, parts in expected.items():
        if name not in output:
            return f"there is no output '{name}'"
        answer = _as_text(output[name].reshape(-1))
        target = np.concatenate([_values_like(answer, part) for part in parts])
        if target.size != answer.size:
            return f"output '{name}' has {answer.size:,} values, and {target.size:,} are expected"
        form = "g" if answer.dtype.kind == "f" else ""
        if form:
            same = np.isclose(answer, target, rtol=_RELATIVE, atol=_ABSOLUTE, equal_nan=True)
        else:
            same = np.asarray(answer == target)
        if not same.all():
            first = int(np.argmin(same))
            return (
                f"output '{name}' is {answer[first]:{form}} where {target[first]:{form}} is expected "
                f"({int((~same).sum()):,} of {answer.size:,} values differ)"
            )
    return ""


def _as_text(values: ndarray) -> ndarray:
    """Return texts as such, whether they came as bytes or not; other values as they are."""
    import numpy as np  # slow to import

    if values.dtype.kind not in "OUS":
        return values
    texts = [item.decode(errors="replace") if isinstance(item, bytes) else str(item) for item in values]
    return np.array(texts, dtype=object)


def _values_like(answer: ndarray, part: list[Any] | bytes) -> ndarray:
    """Return expected values as those of an answer."""
    import numpy as np  # slow to import

    text = answer.dtype.kind == "O"
    if isinstance(part, bytes):
        return decode_values(part, "string" if text else answer.dtype.name, "the expected output")
    return np.array([str(item) for item in part] if text else part, dtype=object if text else None)


def all_minus_infinity(output: Feed) -> list[str]:
    """Name the arrays of an output that hold only minus infinity."""
    import numpy as np  # slow to import

    floats = ((name, values) for name, values in output.items() if values.dtype.kind == "f")
    return [name for name, values in floats if values.size and bool(np.isneginf(values).all())]


@dataclass(frozen=True, slots=True)
class Sketch:
    """A small sample of an output, to compare a later one with."""

    shapes: dict[str, tuple[int, ...]]
    values: Feed
    """Values of each array, evenly sampled."""


_SKETCHED = 4096
"""Values of an array that a sketch keeps."""


def sketch_output(output: Feed) -> Sketch:
    """Keep the shapes of an output, and a few thousand values of each array."""
    step = {name: max(1, values.size // _SKETCHED) for name, values in output.items()}
    return Sketch(
        shapes={name: values.shape for name, values in output.items()},
        values={name: values.reshape(-1)[:: step[name]].copy() for name, values in output.items()},
    )


_INPUT, _OUTPUT = "input ", "output "
"""Prefixes of array names in a file with both."""


def named_arrays(inputs: Feed, outputs: Feed) -> Feed:
    """Combine the inputs and outputs of a call, with prefixed names, for one file."""
    return {
        **{f"{_INPUT}{name}": values for name, values in inputs.items()},
        **{f"{_OUTPUT}{name}": values for name, values in outputs.items()},
    }


def load_call(path: Path) -> tuple[Feed, Feed]:
    """Read the inputs and outputs of a call, as the probe ``outputs`` wrote them."""
    import numpy as np  # slow to import

    with np.load(path, allow_pickle=False) as file:
        inputs, outputs = (
            {name.removeprefix(prefix): file[name] for name in file.files if name.startswith(prefix)}
            for prefix in (_INPUT, _OUTPUT)
        )
    return inputs, outputs


def save_inputs(feed: Feed, folder: Path) -> tuple[Path, ...]:
    """Write a file for each array; raises ValueError, with a phrase, for non-numeric arrays."""
    import numpy as np  # slow to import

    if any(values.dtype.kind not in "biuf" for values in feed.values()):
        raise ValueError("their inputs are not numeric")
    paths = tuple(folder / f"input-{index}.npy" for index in range(len(feed)))
    for path, values in zip(paths, feed.values(), strict=True):
        np.save(path, values, allow_pickle=False)
    return paths


def same_values(one: Feed, other: Feed) -> bool:
    """Whether two feeds hold the same values, matched by name where the names are equal, else in order."""
    import numpy as np  # slow to import

    names = zip(one, one if one.keys() == other.keys() else other, strict=False)
    return len(one) == len(other) and all(np.array_equal(one[a], other[b]) for a, b in names)


def shared_samples(one: tuple[Feed, Feed], other: tuple[Feed, Feed]) -> tuple[Feed, Feed]:
    """Return the outputs of two calls; of different batches, cut to the leading samples that both have.

    Args:
        one: inputs and outputs of a call.
        other: those of the other call.

    Raises ValueError, with a phrase, where their inputs differ.
    """
    first, second = (_batch(fed) for fed, _ in (one, other))
    if first == second:
        return one[1], other[1]
    rows = min(first, second)

    def cut(feed: Feed, batch: int) -> Feed:
        return {n: v[:rows] if v.ndim and len(v) == batch else v for n, v in feed.items()}

    if not rows or not same_values(cut(one[0], first), cut(other[0], second)):
        raise ValueError("they were run with different inputs")
    return cut(one[1], first), cut(other[1], second)


def _batch(fed: Feed) -> int:
    """Count the samples of a call; 0 where its inputs disagree."""
    batch_sizes = {len(values) for values in fed.values() if values.ndim}
    return batch_sizes.pop() if len(batch_sizes) == 1 else 0


def agreement(baseline: Feed, candidate: Feed) -> tuple[OutputAgreement, ...]:
    """Return how far two outputs agree, by array; matched by name where names are equal, else in order.

    Raises ValueError, with a phrase, where they cannot be compared.
    """
    if len(baseline) != len(candidate):
        raise ValueError(f"one returns {len(baseline)} arrays, the other {len(candidate)}")
    names = dict(zip(baseline, candidate, strict=True))
    if baseline.keys() == candidate.keys():
        names = {name: name for name in baseline}
    for name, other in names.items():
        if baseline[name].shape != candidate[other].shape:
            shapes = [" x ".join(map(str, array.shape)) for array in (baseline[name], candidate[other])]
            raise ValueError(f"the output '{name}' is {shapes[0]} in one, and {shapes[1]} in the other")
    return tuple(_agreement(name, baseline[name], candidate[other]) for name, other in names.items())


def _agreement(name: str, one: ndarray, other: ndarray) -> OutputAgreement:
    """Compare two arrays of one shape; where both have the same NaN or infinity, they agree."""
    import numpy as np  # slow to import

    if one.dtype.kind not in "biufc" or other.dtype.kind not in "biufc":
        all_equal = bool((one == other).all())
        return OutputAgreement(
            output=name,
            largest=0.0 if all_equal else inf,
            relative=0.0 if all_equal else inf,
            cosine=float(all_equal),
        )
    dtype = np.complex128 if "c" in one.dtype.kind + other.dtype.kind else np.float64
    first, second = one.astype(dtype).ravel(), other.astype(dtype).ravel()
    equal = (first == second) | (np.isnan(first) & np.isnan(second))
    with np.errstate(invalid="ignore"):
        differences = np.where(equal, 0.0, np.abs(first - second))
    largest = float(np.where(np.isnan(differences), inf, differences).max(initial=0.0))
    is_finite = np.isfinite(first) & np.isfinite(second)
    size = float(np.abs(first[is_finite]).max(initial=0.0))
    return OutputAgreement(
        output=name,
        largest=largest,
        relative=0.0 if not largest else largest / size if size and isfinite(largest) else inf,
        cosine=_cosine(first[is_finite], second[is_finite]),
    )


def _cosine(first: ndarray, second: ndarray) -> float:
    """Return the cosine of the angle between two vectors; 1 if both are zero."""
    import numpy as np  # slow to import

    sizes = [float(np.abs(vector).max(initial=0.0)) for vector in (first, second)]
    if not all(sizes):
        return float(sizes[0] == sizes[1])
    one, other = (vector / size for vector, size in zip((first, second), sizes, strict=True))
    lengths = float(np.linalg.norm(one)) * float(np.linalg.norm(other))
    return float(np.clip(np.vdot(one, other).real / lengths, -1.0, 1.0))
