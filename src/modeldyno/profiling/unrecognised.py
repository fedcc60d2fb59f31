"""Why a path that is there is no model that a loader knows, told by its content; none of it is executed."""

from __future__ import annotations

import ast
import io
import json
import pickletools
import zipfile
from typing import TYPE_CHECKING, TypeGuard

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
    if path.name == _GRAPH and path.is_file():
        return _SAVED_MODEL.format(path.parent)
    if path.is_dir():
        file = path / CONFIG
        if (path / _GRAPH).is_file():
            return _SAVED_MODEL.format(path)
        return f"has a {CONFIG} that {_config(file)}" if file.is_file() else _repository(path) or _DIRECTORY
    if path.suffix == ".py":
        return _code(path)
    if path.name.endswith(CONFIG):
        return _config(path)
    return _file(path, schemes)


_DIRECTORY = (
    f"holds no model: neither a {CONFIG} of Hugging Face nor a file such as model.onnx; name a model's file"
)
_GRAPH = "saved_model.pb"
"""What a SavedModel keeps its graph in, in its directory."""
_SAVED_MODEL = (
    "is a TensorFlow SavedModel, which is not run here; convert it to ONNX (pip install tf2onnx; "
    "python -m tf2onnx.convert --saved-model {} --output model.onnx), or give the URL of a server that has it"
)
_KERAS = (
    "is a Keras model, which is not run here; convert it to ONNX (in Python, with Keras 3: "
    'model.export("model.onnx", format="onnx")), or profile a function that calls it: call:file.py:function'
)
_TFLITE = (
    "is a TensorFlow Lite model, which is not run here; convert it to ONNX (pip install tf2onnx; "
    "python -m tf2onnx.convert --tflite {} --output model.onnx)"
)


def _repository(path: Path) -> str:
    """Name a model's file in a repository of Triton's whose configuration is left to Triton; else empty."""
    files = sorted(path.glob("*/[0-9]*/model.*")) or sorted(path.glob("[0-9]*/model.*"))
    if not files:
        return ""
    return f"is a model repository without a config.pbtxt; name a model's file, such as {files[0]}"


def _code(path: Path) -> str:
    """Name what is in a Python file and may be the model: classes, and functions that need no arguments."""
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError) as error:
        return f"is no Python that can be read ({error}); correct it there"
    names = [node.name for node in tree.body if _makes_a_model(node)]
    if not names:
        return f"is code; write a function in it that makes the model, and name it: {path}:make"
    known = ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")
    # What is made of others is defined after them.
    return f"is code, with {known} in it; name what makes the model: {path}:{names[-1]}"


def _makes_a_model(node: ast.stmt) -> TypeGuard[ast.ClassDef | ast.FunctionDef]:
    """Whether it is a public class, or a public function that can be called without arguments."""
    if isinstance(node, ast.ClassDef):
        return not node.name.startswith("_")
    if not isinstance(node, ast.FunctionDef) or node.name.startswith("_"):
        return False
    given = node.args
    positional = len(given.posonlyargs) + len(given.args) - len(given.defaults)
    return not positional and None not in given.kw_defaults


_NAMED = 6


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
    if other := _of_tensorflow(path) or (_archive(path) if head == _ZIP else ""):
        return other
    if pickled := _pickled(path, head):
        return (
            f"is a pickled {pickled}, and loading a pickle runs code; --trust does not load it either, as "
            "its class must be imported first: write a function that loads it and gives the module, and name "
            "it, as file.py:make"
        )
    if path.suffix in _WEIGHTS:
        return (
            "holds weights without an architecture; write a function that makes the module and loads "
            "them, and name it, as file.py:make"
        )
    known = ", ".join(schemes)
    return f"is nothing that a loader recognises by its content; write scheme:{path}, a scheme of {known}"


def _of_tensorflow(path: Path) -> str:
    """Say what to do with a model of Keras or TensorFlow Lite; empty of any other file."""
    with path.open("rb") as file:
        head = file.read(8)
    if head[4:] == b"TFL3" or path.suffix == ".tflite":
        return _TFLITE.format(path)
    return _KERAS if path.suffix in {".keras", ".h5"} else ""


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
