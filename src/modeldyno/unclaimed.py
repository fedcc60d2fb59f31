"""Why a path that is there is no model that a loader knows, told by its content; none of it is executed."""

from __future__ import annotations

import io
import json
import pickletools
import zipfile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path
    from typing import IO

CONFIG = "config.json"
_WEIGHTS = {".pt", ".pth", ".bin", ".ckpt", ".safetensors"}
_ZIP, _PICKLE = b"PK\x03\x04", b"\x80"
_BROKEN = (OSError, ValueError, LookupError, RuntimeError, EOFError, zipfile.BadZipFile)
"""What damage in an archive or a pickle comes to."""
_CONTAINERS = {"", "builtins", "__builtin__", "collections", "numpy"}
"""Packages of what holds weights and is no module."""
_HEADS = {"PROTO", "FRAME"}


def why_not(path: Path, schemes: Iterable[str]) -> str:
    """Say why, and what to write instead, as the end of a sentence that begins with the path.

    Args:
        path: what no loader claims.
        schemes: those of the loaders that there are.
    """
    if path.is_dir():
        file = path / CONFIG
        return f"has a {CONFIG} that {_config(file)}" if file.is_file() else _DIRECTORY
    if path.suffix == ".py":
        return f"is code; name a function in it that makes the model: {path}:make"
    if path.name.endswith(CONFIG):
        return _config(path)
    return _file(path, schemes)


_DIRECTORY = f"holds no {CONFIG}, so it is no Hugging Face model; name a model's file in it"


def _config(file: Path) -> str:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        return f"is no JSON ({error}); copy it again"
    what = "names no model_type" if isinstance(content, dict) else "is no table of settings"
    return f"{what}, so it is none of transformers; give that of a saved model"


def _file(path: Path, schemes: Iterable[str]) -> str:
    try:
        with path.open("rb") as file:
            head = file.read(len(_ZIP))
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    if not head:
        return "is empty; copy it again"
    if head == _ZIP and (archive := _archive(path)):
        return archive
    if pickled := _pickled(path, head):
        return (
            f"is a pickled {pickled}, and loading a pickle runs code; write a function that loads it and "
            "gives the module, and name it: torch:file.py:make"
        )
    if path.suffix in _WEIGHTS:
        return (
            "holds weights without an architecture; write a function that makes the module and loads "
            "them, and name it: torch:file.py:make"
        )
    known = ", ".join(schemes)
    return f"is nothing that a loader recognises by its content; write scheme:{path}, a scheme of {known}"


def _archive(path: Path) -> str:
    """Tell an archive that is cut off, and numpy's; empty of any other."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except _BROKEN:
        return "is an archive whose end is missing; copy it again"
    arrays = bool(names) and all(name.endswith(".npy") for name in names)
    return "holds arrays, not a model; give it with --input, beside a model" if arrays else ""


def _pickled(path: Path, head: bytes) -> str:
    """Name the class of what was pickled; empty where that holds tensors only, or is no pickle."""
    try:
        with _unzipped(path) if head == _ZIP else path.open("rb") as file:
            if file.read(1) != _PICKLE:
                return ""
            file.seek(0)
            module, _, kind = _class(file).rpartition(" ")
    except _BROKEN:
        return ""
    if module.partition(".")[0] in _CONTAINERS or module == "torch._utils":
        return ""
    return kind if module == "__main__" else f"{module}.{kind}"


def _unzipped(path: Path) -> IO[bytes]:
    with zipfile.ZipFile(path) as archive:
        names = [name for name in archive.namelist() if name.endswith("/data.pkl")]
        return io.BytesIO(archive.read(names[0]))


def _class(file: IO[bytes]) -> str:
    """Read a pickle, and give ``module class`` of what it makes first; empty for a plain container."""
    texts: list[str] = []
    found: str | None = None
    for op, argument, _ in pickletools.genops(file):
        if found is not None or op.name in _HEADS:
            continue
        if op.name == "GLOBAL":
            found = str(argument)
        elif op.name == "STACK_GLOBAL":
            found = " ".join(texts[-2:])
        elif "UNICODE" in op.name:
            texts.append(str(argument))
        elif op.name != "MEMOIZE":
            found = ""
    return found or ""
