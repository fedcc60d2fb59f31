"""A pickle that leaves a file behind when it is loaded."""

from __future__ import annotations

import pickle
import zipfile
from pathlib import Path


class _Canary:
    def __init__(self, nest: Path) -> None:
        self.nest = nest

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return Path.touch, (self.nest,)  # type: ignore[return-value]


def pickled(nest: Path) -> bytes:
    """Give a pickle that touches `nest`."""
    return pickle.dumps(_Canary(nest), protocol=2)


def poison(archive: Path, target: Path, nest: Path, *members: str) -> Path:
    """Copy a zip archive with these members replaced by the canary, or added."""
    with zipfile.ZipFile(archive) as source, zipfile.ZipFile(target, "w") as sink:
        root = source.namelist()[0].partition("/")[0]
        poisoned = {f"{root}/{member}" for member in members}
        for name in {*source.namelist(), *poisoned}:
            sink.writestr(name, pickled(nest) if name in poisoned else source.read(name))
    return target
