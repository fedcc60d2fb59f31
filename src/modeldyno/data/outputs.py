"""Whether what a model returned can be an answer at all, and how far the answers of two models agree."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, isfinite
from typing import TYPE_CHECKING

from modeldyno.core.comparison.comparison import Agreement
from modeldyno.interfaces import Feed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy import ndarray


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong with one array of an output."""

    output: str
    kind: str
    """``nan``, ``infinite``, or ``empty`` of anything finite."""
    sentence: str


def faults(output: Feed) -> Iterator[str]:
    """Say in a sentence each what is wrong with the arrays of an output: see `find_faults`."""
    return (fault.sentence for fault in find_faults(output))


def find_faults(output: Feed) -> Iterator[Fault]:
    """Find NaN, positive infinity, and an output of which no value at all is above minus infinity.

    Masks are filled with minus infinity on purpose, so that it is no fault in some places, nor in the whole
    of one array among others.
    """
    import numpy as np  # noqa: PLC0415 - dear at start-up

    floats = {name: values for name, values in output.items() if values.dtype.kind in "fc"}
    for name, values in floats.items():
        nans = int(np.isnan(values).sum())
        infinite = int(np.isinf(values).sum())
        if nans:
            yield Fault(name, "nan", f"output '{name}' has {nans:,} NaN of {values.size:,} values")
        if infinite and bool(np.isposinf(values.real).any() or np.isposinf(values.imag).any()):
            text = f"output '{name}' has {infinite:,} infinite of {values.size:,} values"
            yield Fault(name, "infinite", text)
    hollow = all_minus_infinity(output)
    if hollow and len(hollow) == len(floats):
        for name in hollow:
            text = f"every one of the {output[name].size:,} values of output '{name}' is minus infinity"
            yield Fault(name, "empty", text)


def all_minus_infinity(output: Feed) -> list[str]:
    """Name the arrays of an output that hold minus infinity and nothing else."""
    import numpy as np  # noqa: PLC0415 - dear at start-up

    floats = ((name, values) for name, values in output.items() if values.dtype.kind == "f")
    return [name for name, values in floats if values.size and bool(np.isneginf(values).all())]


@dataclass(frozen=True, slots=True)
class Sketch:
    """What is kept of an output to compare a later one with: little, however large the output is."""

    shapes: dict[str, tuple[int, ...]]
    values: Feed
    """Values of each array, evenly spread over it."""


_SKETCHED = 4096
"""Values of an array that a sketch keeps."""


def sketch(output: Feed) -> Sketch:
    """Keep the shapes of an output, and a few thousand values of each array."""
    step = {name: max(1, values.size // _SKETCHED) for name, values in output.items()}
    return Sketch(
        shapes={name: values.shape for name, values in output.items()},
        values={name: values.reshape(-1)[:: step[name]].copy() for name, values in output.items()},
    )


_INPUT, _OUTPUT = "input ", "output "
"""How the arrays of a file are called that holds both."""


def arrays(given: Feed, returned: Feed) -> Feed:
    """Name what a call was given and what it returned, for one file."""
    return {
        **{f"{_INPUT}{name}": values for name, values in given.items()},
        **{f"{_OUTPUT}{name}": values for name, values in returned.items()},
    }


def load(path: Path) -> tuple[Feed, Feed]:
    """Read what a call was given and what it returned, as the probe ``outputs`` wrote it."""
    import numpy as np  # noqa: PLC0415 - dear at start-up

    with np.load(path, allow_pickle=False) as file:
        given, returned = (
            {name.removeprefix(kind): file[name] for name in file.files if name.startswith(kind)}
            for kind in (_INPUT, _OUTPUT)
        )
    return given, returned


def save(feed: Feed, folder: Path) -> tuple[Path, ...]:
    """Write a file for each array; raises ValueError, in a phrase, for what is no number."""
    import numpy as np  # noqa: PLC0415 - dear at start-up

    if any(values.dtype.kind not in "biuf" for values in feed.values()):
        raise ValueError("their inputs are no numbers")
    paths = tuple(folder / f"input-{place}.npy" for place in range(len(feed)))
    for path, values in zip(paths, feed.values(), strict=True):
        np.save(path, values, allow_pickle=False)
    return paths


def alike(one: Feed, other: Feed) -> bool:
    """Say whether two feeds hold the same values, by name where the names are the same, else in order."""
    import numpy as np  # noqa: PLC0415 - dear at start-up

    names = zip(one, one if one.keys() == other.keys() else other, strict=False)
    return len(one) == len(other) and all(np.array_equal(one[a], other[b]) for a, b in names)


def shared_samples(one: tuple[Feed, Feed], other: tuple[Feed, Feed]) -> tuple[Feed, Feed]:
    """Give what two calls returned; of unlike batches, cut to the samples that both were given first.

    Args:
        one: what a call was given, and what it returned.
        other: likewise.

    Raises ValueError, in a phrase, where they were not given the same.
    """
    first, second = (_batch(fed) for fed, _ in (one, other))
    if first == second:
        return one[1], other[1]
    rows = min(first, second)

    def cut(feed: Feed, batch: int) -> Feed:
        return {n: v[:rows] if v.ndim and len(v) == batch else v for n, v in feed.items()}

    if not rows or not alike(cut(one[0], first), cut(other[0], second)):
        raise ValueError("another batch is fed")
    return cut(one[1], first), cut(other[1], second)


def _batch(fed: Feed) -> int:
    """Count the samples of a call; 0 where its inputs do not agree on them."""
    found = {len(values) for values in fed.values() if values.ndim}
    return found.pop() if len(found) == 1 else 0


def agreement(baseline: Feed, candidate: Feed) -> tuple[Agreement, ...]:
    """Say how far two outputs agree, array by array; by name where the names are the same, else in order.

    Raises ValueError, in a phrase, where they cannot be held against each other.
    """
    if len(baseline) != len(candidate):
        raise ValueError(f"one gives {len(baseline)} arrays, and the other {len(candidate)}")
    names = dict(zip(baseline, candidate, strict=True))
    if baseline.keys() == candidate.keys():
        names = {name: name for name in baseline}
    for name, other in names.items():
        if baseline[name].shape != candidate[other].shape:
            shapes = [" x ".join(map(str, each.shape)) for each in (baseline[name], candidate[other])]
            raise ValueError(f"the output '{name}' is {shapes[0]} in one, and {shapes[1]} in the other")
    return tuple(_agreement(name, baseline[name], candidate[other]) for name, other in names.items())


def _agreement(name: str, one: ndarray, other: ndarray) -> Agreement:
    """Compare two arrays of one shape; where both have the same NaN or infinity, they agree."""
    import numpy as np  # noqa: PLC0415 - dear at start-up

    if one.dtype.kind not in "biufc" or other.dtype.kind not in "biufc":
        same = bool((one == other).all())
        return Agreement(
            output=name, largest=0.0 if same else inf, relative=0.0 if same else inf, cosine=float(same)
        )
    wide = np.complex128 if "c" in one.dtype.kind + other.dtype.kind else np.float64
    first, second = one.astype(wide).ravel(), other.astype(wide).ravel()
    alike = (first == second) | (np.isnan(first) & np.isnan(second))
    with np.errstate(invalid="ignore"):
        differences = np.where(alike, 0.0, np.abs(first - second))
    largest = float(np.where(np.isnan(differences), inf, differences).max(initial=0.0))
    known = np.isfinite(first) & np.isfinite(second)
    size = float(np.abs(first[known]).max(initial=0.0))
    return Agreement(
        output=name,
        largest=largest,
        relative=0.0 if not largest else largest / size if size and isfinite(largest) else inf,
        cosine=_cosine(first[known], second[known]),
    )


def _cosine(first: ndarray, second: ndarray) -> float:
    """Give the cosine of the angle between two vectors; of two that are zero it is 1."""
    import numpy as np  # noqa: PLC0415 - dear at start-up

    sizes = [float(np.abs(each).max(initial=0.0)) for each in (first, second)]
    if not all(sizes):
        return float(sizes[0] == sizes[1])
    one, other = (each / size for each, size in zip((first, second), sizes, strict=True))
    lengths = float(np.linalg.norm(one)) * float(np.linalg.norm(other))
    return float(np.clip(np.vdot(one, other).real / lengths, -1.0, 1.0))
