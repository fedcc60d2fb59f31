"""``keras:m.keras``, ``keras:m.h5`` and ``keras:file.py:factory``: models of Keras 3.

A saved model is data unless it holds functions (Lambda layers), which need trust. A factory takes no
arguments and returns a model, or a pair of one and its inputs. Keras computes with what KERAS_BACKEND says:
TensorFlow, or PyTorch or JAX.
"""

from __future__ import annotations

import os
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modeldyno.base.errors import RequestError, TrustRequired, short_reason
from modeldyno.models.interface import Executes, Model
from modeldyno.models.load_stages import describing
from modeldyno.models.loaders import digest, keras_model, python_source

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modeldyno.base.job.model_ref import ModelRef

executes = Executes.NAMED
backend = keras_model.BACKENDS.get(os.environ.get("KERAS_BACKEND", ""), "tensorflow")
requires: tuple[str, ...] = ("keras", backend)

_SUFFIXES = {".keras", ".h5", ".hdf5"}
_HEADS = (b"PK\x03\x04", b"\x89HDF")
_DATES = {"metadata.json"}
"""Members of an archive that tell when and by which version it was saved."""


def claims(path: Path) -> bool:
    """Claim a file by its suffix and its first bytes."""
    return path.suffix.lower() in _SUFFIXES and digest.read_head(path, 4) in _HEADS


def load(ref: ModelRef, *, seed: int, trust: bool) -> Model:
    """Load the file, or call the factory.

    Raises:
        RequestError: the file is missing, damaged or needs classes that Keras does not know, or the factory
            returns no model.
        TrustRequired: it holds functions, and is not trusted.
    """
    if python_source.is_named_in_file(Path(ref.locator)) or not Path(ref.locator).suffix:
        return _call_factory(ref, seed)
    path = Path(ref.locator)
    if not path.is_file():
        raise RequestError(f"There is no file '{path}'; give the path of a .keras or .h5 file.")
    value = _read(path, trust=trust)
    with describing():
        model = keras_model.describe_model(value, path.stem, digest.digest_parts(_content(path)))
        return replace(model, file_bytes=path.stat().st_size)


look = load
"""Nothing is known of such a model without loading it."""


def _read(path: Path, *, trust: bool) -> Any:
    import keras  # optional, and heavy

    try:
        return keras.saving.load_model(path, compile=False, safe_mode=not trust)
    except Exception as error:
        if not trust and "unsafe" in str(error):
            raise TrustRequired(
                f"'{path}' holds functions, which run when it is called; give `trust` if you know where it "
                "comes from."
            ) from error
        raise RequestError(
            f"Keras {keras.__version__} cannot load '{path}': {short_reason(error)}; if it has layers of "
            "your own, write a function that loads it, and name it as keras:file.py:function."
        ) from error


def _content(path: Path) -> Iterator[bytes | str]:
    """Yield the members of an archive by name and content, or the bytes of an older file."""
    if not zipfile.is_zipfile(path):
        yield path.read_bytes()
        return
    with zipfile.ZipFile(path) as archive:
        for name in sorted({*archive.namelist()} - _DATES):
            yield name
            yield archive.read(name)


def _call_factory(ref: ModelRef, seed: int) -> Model:
    import keras  # optional, and heavy

    keras.utils.set_random_seed(seed)
    source = python_source.import_object(ref.scheme, ref.locator)
    value = source.value
    if not keras_model.is_keras_model(value) and callable(value):
        if required := python_source.required_parameters(value):
            raise RequestError(f"'{ref}' needs {', '.join(required)}, but a factory takes no arguments.")
        value = value()
    model, example = value if isinstance(value, tuple) and len(value) == 2 else (value, None)
    if not keras_model.is_keras_model(model):
        raise RequestError(
            f"'{ref}' returns {type(model).__name__}, not a model of Keras or a pair of one and its inputs."
        )
    with describing():
        return keras_model.describe_model(model, source.label, keras_model.model_digest(model), example)
