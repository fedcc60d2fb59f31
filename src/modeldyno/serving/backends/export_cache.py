"""Caches exports of torch modules: an export takes seconds, and each server start needs one.

The key of an export covers all that it may depend on: the model's digest, its inputs, the versions of the
libraries, and the user's own code (the digest covers the modules' classes only).

Computing it needs the loaded model. Beside the exports the cache therefore keeps what is known of a model
that comes from files and installed packages only, under a digest of all of these: a lookup that loads
nothing. If anything has changed, the model is loaded, and its key computed.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from modeldyno.base.job.input_spec import InputSpec
from modeldyno.base.job.model_ref import ModelIdentity
from modeldyno.base.system.installed_packages import installed_folders
from modeldyno.models.interface import Form, Model
from modeldyno.serving.servers import file_cache

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from modeldyno.models.interface import Feed

_FORMAT_VERSION = 1
"""Increase when the way of exporting models changes."""
_METADATA = "about.json"
_MODEL = "model.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recalled:
    """Stands for a module that is not loaded, as its export was cached; the `value` of a `Model`."""

    file: str
    """Name of the export."""
    versions: tuple[str, ...]
    """Of its packages, as `key` has them."""
    load: Callable[[], Model]
    """Loads it, if the export is needed after all."""


def key(model: Model, inputs: tuple[InputSpec, ...], example: Feed) -> str:
    """Return the cache key of a model's export; empty if its code may change unseen: it is not cached."""
    if model.borrowed:  # a live object, perhaps from a notebook, whose functions have no file
        return ""
    shapes = {name: (array.shape, array.dtype.str) for name, array in example.items()}
    recalled = model.value if isinstance(model.value, Recalled) else None
    parts = [
        _FORMAT_VERSION,
        model.identity.digest,
        inputs,
        shapes,
        sys.version,
        *(recalled.versions if recalled else (*_versions(model), *_source_digests())),
    ]
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def recall(source: str, load: Callable[[], Model]) -> Model | None:
    """Return a model whose export was cached, by its `source`, without loading it; None if unknown."""
    entry = file_cache.find_cached(_source_key(source)) if source else None
    if entry is None:
        return None
    load = cache(load)

    def encode(texts: Sequence[str], length: int | None) -> Feed:
        tokenizer = load().encode
        assert tokenizer is not None
        return tokenizer(texts, length)

    try:
        kept = json.loads((entry / _MODEL).read_text(encoding="utf-8"))
        return Model(
            identity=ModelIdentity(**{**kept["identity"], "tags": tuple(kept["identity"]["tags"])}),
            form=Form.TORCH,
            value=Recalled(file=kept["file"], versions=tuple(kept["versions"]), load=load),
            inputs=tuple(InputSpec(**{**spec, "shape": tuple(spec["shape"])}) for spec in kept["inputs"]),
            limits=kept["limits"],
            file_bytes=kept["file_bytes"],
            encode=encode if kept["encodes"] else None,
        )
    except (OSError, ValueError, KeyError, TypeError):  # just removed by another process, or damaged
        return None


def remember(model: Model, path: Path) -> None:
    """Keep what `recall` needs of a model that has been exported to a file, if its source is known."""
    own_code = next(_source_digests(), None)
    described = model.inputs and all(spec.shape is not None for spec in model.inputs)
    more = model.doubts or model.assumed or model.example or model.candidates or model.guesses
    if not model.source or own_code or not described or more or model.undeclared or model.borrowed:
        return
    kept = {
        "identity": asdict(model.identity),
        "file": path.name,
        "versions": tuple(_versions(model)),
        "inputs": [asdict(spec) for spec in model.inputs],
        "limits": dict(model.limits),
        "file_bytes": model.file_bytes,
        "encodes": model.encode is not None,
    }
    description = path.parent / _MODEL
    description.write_text(json.dumps(kept), encoding="utf-8")
    file_cache.cache_files(_source_key(model.source), (description,))
    description.unlink()


def _source_key(source: str) -> str:
    return hashlib.sha256(f"source {_FORMAT_VERSION} {source}".encode()).hexdigest()


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
    installed = installed_folders()
    own_package = str(Path(__file__).parents[2])
    files = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
    for path in sorted(str(Path(file).resolve()) for file in files if file):
        if path.endswith(".py") and not path.startswith((*installed, own_package)):
            try:
                yield hashlib.sha256(Path(path).read_bytes()).hexdigest()
            except OSError:
                continue
