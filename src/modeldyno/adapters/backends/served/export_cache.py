"""Caches exports of torch modules: an export takes seconds, and each server start needs one.

The key of an export covers all that it may depend on: the model's digest, its inputs, the versions of the
libraries, and the user's own code (the digest covers the modules' classes only).
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

    from modeldyno.interfaces.loader import Feed, Model

_FORMAT_VERSION = 1
"""Increase when the way of exporting models changes."""
_METADATA = "about.json"


def key(model: Model, inputs: tuple[InputSpec, ...], example: Feed) -> str:
    """Return the cache key of a model's export; empty if its code may change unseen: it is not cached."""
    if model.borrowed:  # a live object, perhaps from a notebook, whose functions have no file
        return ""
    shapes = {name: (array.shape, array.dtype.str) for name, array in example.items()}
    parts = [
        _FORMAT_VERSION,
        model.identity.digest,
        inputs,
        shapes,
        sys.version,
        *_versions(model),
        *_source_digests(),
    ]
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def fetch(key: str, path: Path) -> tuple[InputSpec, ...] | None:
    """Link a cached export to a path and return the model's outputs; None if it is not cached."""
    entry = file_cache.find_cached(key) if key else None
    if entry is None:
        return None
    try:
        metadata = json.loads((entry / _METADATA).read_text(encoding="utf-8"))
        file_cache.link_or_copy(entry / path.name, path)
        return tuple(InputSpec(**{**spec, "shape": tuple(spec["shape"])}) for spec in metadata)
    except (OSError, ValueError, KeyError, TypeError):  # just removed by another process, or damaged
        path.unlink(missing_ok=True)
        return None


def store(key: str, path: Path, outputs: tuple[InputSpec, ...]) -> None:
    """Add an export to the cache."""
    if not key:
        return
    metadata = path.parent / _METADATA
    metadata.write_text(
        json.dumps([{"name": spec.name, "shape": spec.shape, "dtype": spec.dtype} for spec in outputs]),
        encoding="utf-8",
    )
    file_cache.cache_files(key, (path, metadata))
    metadata.unlink()


def _versions(model: Model) -> Iterator[str]:
    """Yield the versions of torch and of the libraries that define the model's classes."""
    packages = {"torch"} | {type(part).__module__.partition(".")[0] for part in model.value.modules()}
    for name in sorted(packages):
        yield f"{name} {getattr(sys.modules.get(name), '__version__', '')}"


def _source_digests() -> Iterator[str]:
    """Yield digests of all imported source files outside of installed packages: the user's own code."""
    installed = tuple(
        str(Path(path).resolve())
        for name, path in sysconfig.get_paths().items()
        if name in {"stdlib", "platstdlib", "purelib", "platlib"}
    )
    own_package = str(Path(__file__).parents[3])
    files = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
    for path in sorted(str(Path(file).resolve()) for file in files if file):
        if path.endswith(".py") and not path.startswith((*installed, own_package)):
            try:
                yield hashlib.sha256(Path(path).read_bytes()).hexdigest()
            except OSError:
                continue
