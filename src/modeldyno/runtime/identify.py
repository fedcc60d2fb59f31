"""Load a model in a child process and say what it is: loading may run the model's code.

``python -m modeldyno.runtime.identify``: the order comes as JSON on standard input, and the answer goes
as JSON to standard output; what the model prints goes to standard error.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import msgspec

from modeldyno import plugins
from modeldyno.core.spec.input_spec import InputSpec
from modeldyno.core.spec.model_ref import ModelIdentity, ModelRef
from modeldyno.environment import machine
from modeldyno.environment.process_tree import end_with_parent
from modeldyno.errors import MissingExtra, ModelDynoError, RequestError, TrustRequired
from modeldyno.interfaces.converter import source_kind
from modeldyno.interfaces.loader import Executes, ListsFiles
from modeldyno.runtime.exit_cause import ExitObserver

if TYPE_CHECKING:
    from modeldyno.interfaces.loader import Loader

_LAST_WORDS = 300
"""Characters of what a model says that are told."""
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
    observer = ExitObserver.begin(machine.memory_limit())
    # Files, not pipes: a process that the model has started, and that stays, would keep a pipe open.
    with tempfile.TemporaryFile() as answer, tempfile.TemporaryFile() as words:
        child = subprocess.run(
            [sys.executable, "-m", "modeldyno.runtime.identify"],
            input=msgspec.json.encode({"ref": ref, "trust": trust}),
            stdout=answer,
            stderr=words,
            check=False,
        )
        told, said = _decoded(answer), _last_line(words)
    if told is None:
        _, how = observer.outcome(child.returncode)
        raise RequestError(f"{ref} cannot be loaded: {how}" + (f"; it said: {said}" if said else "."))
    if "error" in told:
        raise _ERRORS.get(told["kind"], RequestError)(told["error"])
    return msgspec.convert(told, IdentifiedModel)


def _decoded(file: IO[bytes]) -> dict[str, Any] | None:
    """Return the answer of a child; None if it gave none."""
    file.seek(0)
    try:
        return msgspec.json.decode(file.read(), type=dict[str, Any])
    except msgspec.MsgspecError:
        return None


def _last_line(file: IO[bytes]) -> str:
    """Return the last line that is not empty, and not more than its beginning."""
    file.seek(max(0, file.seek(0, os.SEEK_END) - (1 << 16)))
    lines = [line for line in file.read().decode(errors="replace").splitlines() if line.strip()]
    return lines[-1].strip()[:_LAST_WORDS] if lines else ""


def main() -> None:
    """Carry out the order read from standard input."""
    end_with_parent()
    answer = os.dup(1)
    os.dup2(2, 1)  # what the model prints, natively as well, must not mix with the answer
    order = msgspec.json.decode(sys.stdin.buffer.read(), type=dict[str, Any])
    ref = msgspec.convert(order["ref"], ModelRef)
    try:
        told = msgspec.json.encode(_identify(ref, trust=order["trust"]))
    except ModelDynoError as error:
        told = msgspec.json.encode({"kind": type(error).__name__, "error": str(error)})
    except Exception as error:  # noqa: BLE001 - whatever the model's code raises is told
        what = " ".join(f"{type(error).__name__}: {error}".split())[:_LAST_WORDS]
        text = f"{ref} cannot be loaded: its code raised {what}"
        told = msgspec.json.encode({"kind": "RequestError", "error": text})
    with os.fdopen(answer, "wb") as stream:
        stream.write(told)


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
