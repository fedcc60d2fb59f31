"""Engines of TensorRT and of TensorRT for RTX: two packages of one API, each of which runs its own only."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from modeldyno.base.job.input_spec import InputSpec

if TYPE_CHECKING:
    from pathlib import Path

SUFFIXES = (".engine", ".plan", ".trt")
PACKAGES = {b"ftrt": "tensorrt", b"vtrt": "tensorrt_rtx"}
"""The first bytes of an engine to the importable name of the package that built it, and runs it."""
TITLES = {"tensorrt": "TensorRT", "tensorrt_rtx": "TensorRT for RTX"}
"""Importable name to the product's name."""
DTYPES = {
    "FLOAT": "float32", "HALF": "float16", "INT8": "int8", "UINT8": "uint8", "INT32": "int32",
    "INT64": "int64", "BOOL": "bool",
}  # fmt: skip
"""TensorRT's dtypes that NumPy has."""


def package_of(path: Path) -> str | None:
    """Return the importable name of the package that runs an engine; None if the file is no engine."""
    try:
        with path.open("rb") as file:
            return PACKAGES.get(file.read(4))
    except OSError:
        return None


@dataclass(frozen=True, slots=True)
class Package:
    """An imported package, with the log that all its objects in this process write to."""

    api: Any
    log: Any
    """With `messages`, pairs of a severity and a text since they were cleared: errors and warnings."""

    @property
    def name(self) -> str:
        """The product and its version."""
        return f"{TITLES[self.api.__name__]} {self.api.__version__}"

    def last_error(self) -> str:
        """Return the cause of the latest failure in one line: the last error, or else the last warning."""
        worst = min((severity for severity, _ in self.log.messages), default=None)
        texts = [text for severity, text in self.log.messages if severity == worst]
        return " ".join(texts[-1].split()).rstrip(".") if texts else "it gives no reason"


@cache
def import_package(name: str) -> Package:
    """Import a package of TensorRT by its importable name.

    Its log is one for the process: TensorRT writes to the first that it was given.
    """
    api = import_module(name)

    class Log(api.ILogger):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            api.ILogger.__init__(self)
            self.messages: list[tuple[int, str]] = []

        def log(self, severity: Any, message: str) -> None:
            if int(severity) <= int(api.ILogger.Severity.WARNING):  # the worse, the smaller
                self.messages.append((int(severity), message))

    return Package(api, Log())


def read_inputs(path: Path) -> tuple[InputSpec, ...] | None:
    """Return the inputs that `write_inputs` described beside an engine; None if nothing did."""
    try:
        entries = json.loads(_description(path).read_text(encoding="utf-8"))["inputs"]
        return tuple(InputSpec(name=e["name"], shape=tuple(e["shape"]), dtype=e["dtype"]) for e in entries)
    except (OSError, ValueError, LookupError, TypeError):
        return None


def write_inputs(path: Path, inputs: tuple[InputSpec, ...]) -> None:
    """Describe the inputs of an engine in a file beside it: the engine itself is read on its GPU only."""
    entries = [{"name": spec.name, "shape": spec.shape, "dtype": spec.dtype} for spec in inputs]
    _description(path).write_text(json.dumps({"inputs": entries}, indent=1) + "\n", encoding="utf-8")


def described_files(path: Path) -> tuple[Path, ...]:
    """Return the file of an engine, and that of its inputs if there is one."""
    return tuple(file for file in (path, _description(path)) if file.is_file())


def _description(path: Path) -> Path:
    return path.with_name(f"{path.name}.json")
