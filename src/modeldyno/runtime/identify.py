"""Load a model in a child process and say what it is: loading may run the model's code.

``python -m modeldyno.runtime.identify``: the order comes as JSON on standard input, and the answer goes
as JSON to standard output.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from modeldyno import plugins
from modeldyno.core.spec.input_spec import InputSpec
from modeldyno.core.spec.model_ref import ModelIdentity, ModelRef
from modeldyno.environment.process_tree import end_with_parent
from modeldyno.errors import MissingExtra, ModelDynoError, RequestError, TrustRequired
from modeldyno.interfaces.converter import source_kind
from modeldyno.interfaces.loader import Executes, ListsFiles

if TYPE_CHECKING:
    from modeldyno.interfaces.loader import Loader

_ERRORS = {kind.__name__: kind for kind in (MissingExtra, TrustRequired, RequestError)}


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentifiedModel:
    """What a model is, and which files it consists of."""

    identity: ModelIdentity
    inputs: tuple[InputSpec, ...]
    kind: str
    """What conversions start from, as `source_kind` gives it."""
    backend: str
    """The backend that runs it unless another is named."""
    files: tuple[str, ...]
    """Absolute paths of all its files; empty if it is no file, or code that may need others."""


def identify_model(ref: ModelRef, *, trust: bool) -> IdentifiedModel:
    """Load a model in a child process.

    Raises:
        RequestError: it cannot be loaded.
        TrustRequired: its file runs code, and `trust` was not given.
        MissingExtra: an optional package is not installed.
    """
    child = subprocess.run(
        [sys.executable, "-m", "modeldyno.runtime.identify"],
        input=msgspec.json.encode({"ref": ref, "trust": trust}),
        capture_output=True,
        check=False,
    )
    answer = child.stdout.decode(errors="replace").strip().splitlines()
    if not answer:
        lines = child.stderr.decode(errors="replace").strip().splitlines() or [
            f"exit code {child.returncode}"
        ]
        raise RequestError(f"{ref} cannot be loaded: its process ended: {lines[-1]}")
    told = json.loads(answer[-1])
    if "error" in told:
        raise _ERRORS.get(told["kind"], RequestError)(told["error"])
    return msgspec.convert(told, IdentifiedModel)


def main() -> None:
    """Carry out the order read from standard input."""
    end_with_parent()
    order = json.loads(sys.stdin.buffer.read())
    answer, sys.stdout = sys.stdout, sys.stderr  # what the model prints must not mix with the answer
    try:
        told = msgspec.json.encode(_identify(msgspec.convert(order["ref"], ModelRef), trust=order["trust"]))
    except ModelDynoError as error:
        told = msgspec.json.encode({"kind": type(error).__name__, "error": str(error)})
    except Exception as error:  # noqa: BLE001 - whatever the model's code raises is told
        text = f"it raised {type(error).__name__}: {error}"
        told = msgspec.json.encode({"kind": "RequestError", "error": f"The model cannot be loaded: {text}"})
    answer.write("\n" + told.decode() + "\n")
    answer.flush()


def _identify(ref: ModelRef, *, trust: bool) -> IdentifiedModel:
    loader = plugins.loader(ref.scheme)
    plugins.require(loader.requires, f"model {ref}")
    model = loader.load(ref, seed=0, trust=trust)
    return IdentifiedModel(
        identity=model.identity,
        inputs=model.inputs,
        kind=source_kind(model),
        backend=loader.backend,
        files=tuple(str(path.absolute()) for path in _files(loader, ref)),
    )


def _files(loader: Loader, ref: ModelRef) -> list[Path]:
    """Return the files of a model that is data; code may import others, and stays where it is."""
    path = Path(ref.locator).expanduser()
    if loader.executes is Executes.NAMED or not path.exists():
        return []
    if isinstance(loader, ListsFiles):
        return list(loader.files(ref))
    if path.is_dir():
        return [file for file in sorted(path.rglob("*")) if file.is_file() and not _is_hidden(file, path)]
    return [path]


def _is_hidden(file: Path, root: Path) -> bool:
    return any(part.startswith(".") for part in file.relative_to(root).parts)


if __name__ == "__main__":
    main()
