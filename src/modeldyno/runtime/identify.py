"""Load a model in a child process and say what it is: loading may run the model's code.

``python -m modeldyno.runtime.identify``: the order comes as JSON on standard input, and the answer goes
as JSON to standard output; what the model prints goes to standard error.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import msgspec

from modeldyno import plugins
from modeldyno.core.spec.input_spec import InputSpec
from modeldyno.core.spec.model_ref import ModelIdentity, ModelRef
from modeldyno.core.stats.units import BYTES, format_quantity
from modeldyno.environment import machine
from modeldyno.environment.process_tree import (
    end_with_parent,
    list_process_tree,
    resident_size,
    tree_memory,
)
from modeldyno.errors import MissingExtra, ModelDynoError, RequestError, TrustRequired
from modeldyno.interfaces.converter import source_kind
from modeldyno.interfaces.loader import Executes, ListsFiles
from modeldyno.runtime.exit_cause import ExitObserver
from modeldyno.runtime.failures import whole_traceback

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


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadLimits:
    """What loading a model may take."""

    seconds: float = 600.0
    memory: int | None = None
    """Bytes of all its processes; None for what is free, less a reserve."""

    @property
    def bytes(self) -> int:
        """The limit of memory."""
        return self.memory or machine.spare_memory()


_POLL = 0.05
"""Seconds between two looks at a child."""


def identify_model(ref: ModelRef, *, trust: bool, limits: LoadLimits | None = None) -> IdentifiedModel:
    """Load a model in a child process, which is ended if it takes more than it may.

    Raises:
        RequestError: it cannot be loaded, or takes too long or too much memory.
        TrustRequired: its file runs code, and `trust` was not given.
        MissingExtra: an optional package is not installed.
    """
    observer = ExitObserver.begin(machine.memory_limit())
    # Files, not pipes: a process that the model has started, and that stays, would keep a pipe open.
    with tempfile.TemporaryFile() as answer, tempfile.TemporaryFile() as errors:
        child = subprocess.Popen(
            [sys.executable, "-m", "modeldyno.runtime.identify"],
            stdin=subprocess.PIPE,
            stdout=answer,
            stderr=errors,
        )
        with child:
            assert child.stdin is not None
            with suppress(BrokenPipeError):
                child.stdin.write(msgspec.json.encode({"ref": ref, "trust": trust}))
                child.stdin.close()
            try:
                over = _wait(child, limits or LoadLimits())
            finally:
                _end(child)
        if over:
            raise RequestError(f"{ref} cannot be loaded: {over}.")
        reply, last_line = _decoded(answer), _last_line(errors)
    if reply is None:
        _, how = observer.outcome(child.returncode)
        raise RequestError(
            f"{ref} cannot be loaded: {how}" + (f"; it said: {last_line}" if last_line else ".")
        )
    if "error" in reply:
        refusal = _ERRORS.get(reply["kind"], RequestError)(reply["error"])
        refusal.add_note(f"In the child process:\n{reply['trace']}")
        raise refusal
    return msgspec.convert(reply, IdentifiedModel)


def _wait(child: subprocess.Popen[bytes], limits: LoadLimits) -> str:
    """Wait until a child has ended; return which limit it broke, or nothing."""
    most, until = limits.bytes, time.monotonic() + limits.seconds
    while True:
        with suppress(subprocess.TimeoutExpired):
            child.wait(_POLL)
            return ""
        if time.monotonic() > until:
            return f"it takes longer than {limits.seconds:g} s"
        # The resident size is quick to read, and never below what counts.
        tree = list_process_tree(child.pid)
        if sum(map(resident_size, tree)) > most and tree_memory(tree) > most:
            return f"it takes more than {format_quantity(most, BYTES, 3)} of memory"


def _end(child: subprocess.Popen[bytes]) -> None:
    """End a child that has not ended, and what it has started."""
    if child.poll() is None:
        for pid in reversed(list_process_tree(child.pid)):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


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
        reply = msgspec.json.encode(_identify(ref, trust=order["trust"]))
    except ModelDynoError as error:
        refused = {"kind": type(error).__name__, "error": str(error), "trace": whole_traceback(error)}
        reply = msgspec.json.encode(refused)
    except Exception as error:  # noqa: BLE001 - whatever the model's code raises is told
        what = " ".join(f"{type(error).__name__}: {error}".split())[:_LAST_WORDS]
        text = f"{ref} cannot be loaded: its code raised {what}"
        refused = {"kind": "RequestError", "error": text, "trace": whole_traceback(error)}
        reply = msgspec.json.encode(refused)
    with os.fdopen(answer, "wb") as stream:
        stream.write(reply)


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
