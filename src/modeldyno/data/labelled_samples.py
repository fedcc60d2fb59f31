"""Reads the labels of labelled samples, and refuses files that have none or too many."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from modeldyno.data import data_files
from modeldyno.errors import RequestError

if TYPE_CHECKING:
    from numpy import ndarray

NAMES = ("label", "labels", "y")
"""Names under which labels are looked for, unless one is given."""
EVERY = 10**9
"""More samples than any file has."""


def read_labels(source: str) -> tuple[Path, ndarray]:
    """Return the file of labelled samples, perhaps followed by ``:`` and the name of the labels, and these.

    Raises:
        RequestError: the file is missing or damaged, has no labels, or no array with a row for each of them.
    """
    text, _, name = source.rpartition(":")
    path, names = (Path(text), (name,)) if text and not Path(source).exists() else (Path(source), NAMES)
    path = path.expanduser()
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
        known = ", ".join(f"{name} {rows:,}" for name, rows in others.items())
        raise RequestError(
            f"{path} has {len(labels):,} labels, but another number of samples ({known}); give one label for "
            "each."
        )
    return path, labels
