"""Reads the labels of labelled samples, and refuses files that have none or too many."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from modeldyno.base.errors import RequestError
from modeldyno.engine.data import data_files
from modeldyno.models import random_arrays

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy import ndarray

    from modeldyno.models.interface import Feed

NAMES = ("label", "labels", "y")
"""Names under which labels are looked for, unless one is given."""
EVERY = 10**9
"""More samples than any file has."""


def read_samples(source: str, like: Feed) -> Feed:
    """Return the inputs of all labelled samples of `read_labels`, in the dtypes of `like`.

    Raises:
        RequestError: an input is missing, has another number of samples, or does not fit its dtype.
    """
    path, names = _find_file(source)
    labels = read_labels(source)[1]
    data = data_files.read_data_file(path, tuple(like), EVERY, labels=names)
    if isinstance(data, list) or any(len(array) != len(labels) for array in data.values()):
        raise RequestError(
            f"{path} has {len(labels)} labels, but another number of samples; give one label for each."
        )
    return {
        name: random_arrays.convert_dtype(array, _dtype_name(like[name]), f"{path}: '{name}'")
        for name, array in data.items()
    }


def first_outputs(data: Feed, size: int, call: Callable[[Feed], Feed]) -> ndarray:
    """Call a model with all samples, and return its first output: a row for each sample.

    Args:
        data: the samples; not empty.
        size: samples of one call; the last call is filled with the last sample.
        call: inputs -> outputs.

    Raises:
        RequestError: the first output needs one row per sample.
    """
    import numpy as np  # slow to import

    count = len(next(iter(data.values())))
    parts = []
    for start in range(0, count, size):
        rows = np.minimum(np.arange(start, start + size), count - 1)
        first = next(iter(call({name: array[rows] for name, array in data.items()}).values()), None)
        if first is None or first.shape[:1] != (size,):
            raise RequestError("The first output of the model needs one row per sample.")
        parts.append(first[: count - start])
    return np.concatenate(parts)


def _dtype_name(array: ndarray) -> str:
    return "string" if array.dtype.kind in "OU" else str(array.dtype.name)


def read_labels(source: str) -> tuple[Path, ndarray]:
    """Return the file of labelled samples, perhaps followed by ``:`` and the name of the labels, and these.

    Raises:
        RequestError: the file is missing or damaged, has no labels, or no array with a row for each of them.
    """
    path, names = _find_file(source)
    arrays = data_files.read_data_file(path, names, EVERY, optional=names)
    present = [name for name in names if not isinstance(arrays, list) and name in arrays]
    if isinstance(arrays, list) or not present:
        raise RequestError(
            f"{path} has no labels under {', '.join(names)}; save them so, or write {path.name}:NAME."
        )
    labels = arrays[present[0]]
    others = data_files.row_counts(path)
    others.pop(present[0], None)
    if not labels.ndim:
        raise RequestError(f"{path} has a single number for '{present[0]}'; give one label for each sample.")
    if others and len(labels) not in others.values():
        listed = ", ".join(f"{name} {rows:,}" for name, rows in others.items())
        raise RequestError(
            f"{path} has {len(labels):,} labels, but another number of samples ({listed}); give one label "
            "for each."
        )
    return path, labels


def _find_file(source: str) -> tuple[Path, tuple[str, ...]]:
    """Return the file, and the names under which its labels may be."""
    text, _, name = source.rpartition(":")
    path, names = (Path(text), (name,)) if text and not Path(source).exists() else (Path(source), NAMES)
    return path.expanduser(), names
