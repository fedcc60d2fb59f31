"""Exports of torch modules that are kept: to make one takes seconds, and each server start needs it.

The key of an export is all that it may depend on: the model's digest, its inputs, the versions of what it is
made with, and the user's own code, of which the digest holds the classes of the modules alone.
"""

from __future__ import annotations

import hashlib
import json
import sys
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING

from modeldyno.core.spec.input_spec import InputSpec
from modeldyno.servers import file_cache

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modeldyno.interfaces import Feed, Model

_FORMAT = 1
"""To be raised when models are exported in another way."""
_ABOUT = "about.json"


def key(model: Model, inputs: tuple[InputSpec, ...], example: Feed) -> str:
    """Name the export of a model; empty for one that must not be kept, as its code may change unseen."""
    if model.borrowed:  # a live object, perhaps of a notebook, whose functions have no file
        return ""
    shapes = {name: (array.shape, array.dtype.str) for name, array in example.items()}
    parts = [_FORMAT, model.identity.digest, inputs, shapes, sys.version, *_versions(model), *_sources()]
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def fetch(key: str, path: Path) -> tuple[InputSpec, ...] | None:
    """Put the export at a path, and give the model's outputs; None where it is not kept."""
    entry = file_cache.find(key) if key else None
    if entry is None:
        return None
    try:
        about = json.loads((entry / _ABOUT).read_text(encoding="utf-8"))
        file_cache.link(entry / path.name, path)
        return tuple(InputSpec(**{**each, "shape": tuple(each["shape"])}) for each in about)
    except (OSError, ValueError, KeyError, TypeError):  # somebody has just removed or damaged it
        path.unlink(missing_ok=True)
        return None


def store(key: str, path: Path, outputs: tuple[InputSpec, ...]) -> None:
    """Keep an export."""
    if not key:
        return
    about = path.parent / _ABOUT
    about.write_text(
        json.dumps([{"name": each.name, "shape": each.shape, "dtype": each.dtype} for each in outputs]),
        encoding="utf-8",
    )
    file_cache.keep(key, (path, about))
    about.unlink()


def _versions(model: Model) -> Iterator[str]:
    """Give the versions of the libraries that the model's classes are from, and of torch."""
    tops = {"torch"} | {type(part).__module__.partition(".")[0] for part in model.value.modules()}
    for name in sorted(tops):
        yield f"{name} {getattr(sys.modules.get(name), '__version__', '')}"


def _sources() -> Iterator[str]:
    """Digest the files of all code that was imported and is installed in no environment: the user's own."""
    installed = tuple(
        str(Path(path).resolve())
        for name, path in sysconfig.get_paths().items()
        if name in {"stdlib", "platstdlib", "purelib", "platlib"}
    )
    ours = str(Path(__file__).parents[3])
    found = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
    for path in sorted(str(Path(file).resolve()) for file in found if file):
        if path.endswith(".py") and not path.startswith((*installed, ours)):
            try:
                yield hashlib.sha256(Path(path).read_bytes()).hexdigest()
            except OSError:
                continue
