"""Explain why no loader recognises an existing path, from its content; nothing of it is executed."""

from __future__ import annotations

import ast
import io
import json
import zipfile
from typing import TYPE_CHECKING, TypeGuard

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path
    from typing import IO

CONFIG = "config.json"
_WEIGHTS = {".pt", ".pth", ".bin", ".ckpt", ".safetensors"}
_ZIP, _PICKLE = b"PK\x03\x04", b"\x80"
_DAMAGE_ERRORS = (OSError, ValueError, LookupError, RuntimeError, EOFError, zipfile.BadZipFile)
"""Exceptions that a damaged archive or pickle raises."""
_CONTAINERS = {"", "builtins", "__builtin__", "collections", "numpy"}
"""Packages of containers, which hold weights but are no modules."""
_HEADER_OPS = {"PROTO", "FRAME", "MEMOIZE"}


def explain_unrecognised(path: Path, schemes: Iterable[str]) -> str:
    """Explain why, and what to write instead, as the end of a sentence that begins with the path."""
    if path.name == _GRAPH and path.is_file():
        return _SAVED_MODEL.format(path.parent)
    if path.is_dir():
        return _describe_directory(path)
    if path.suffix == ".py":
        return _describe_code(path)
    if path.name.endswith(CONFIG):
        return _describe_config(path)
    return _describe_file(path, schemes)


_DIRECTORY = (
    f"holds no model: neither a {CONFIG} of Hugging Face nor a file such as model.onnx; name a model's file"
)
_GRAPH = "saved_model.pb"
"""The file of the graph in the directory of a SavedModel."""
_SAVED_MODEL = "is the graph of a TensorFlow SavedModel; name the folder that it lies in: {}"
_KERAS = "is no Keras model, whatever its name says, or is damaged; save it again with model.save"
_TFLITE = "is no model of TensorFlow Lite, whatever its name says, or is damaged; convert it again"


def _describe_directory(path: Path) -> str:
    """Describe what a directory lacks to be a model."""
    if text := _FOREIGN.get(path.suffix.lower()):
        return text
    if (path / CONFIG).is_file():
        return f"has a {CONFIG} that {_describe_config(path / CONFIG)}"
    return _describe_repository(path) or _DIRECTORY


def _describe_repository(path: Path) -> str:
    """Name a model file in a Triton repository that has no configuration; empty if it is none."""
    files = sorted(path.glob("*/[0-9]*/model.*")) or sorted(path.glob("[0-9]*/model.*"))
    if not files:
        return ""
    return f"is a model repository without a config.pbtxt; name a model's file, such as {files[0]}"


def _describe_code(path: Path) -> str:
    """Suggest names in a Python file: classes, and functions that need no arguments."""
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError, MemoryError, RecursionError) as error:
        return f"cannot be parsed as Python ({error}); correct it there"
    names = [node.name for node in tree.body if _makes_a_model(node)]
    if not names:
        return f"is code; write a function in it that makes the model, and name it: {path}:{_MAKER}"
    listed = ", ".join(names[:_NAMES_SHOWN]) + (
        f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
    )
    # What combines the others is defined after them, so the last name is the best guess but for a `make`.
    guess = _MAKER if _MAKER in names else names[-1]
    return f"is code that defines {listed}; name what makes the model: {path}:{guess}"


def _makes_a_model(node: ast.stmt) -> TypeGuard[ast.ClassDef | ast.FunctionDef]:
    """Return whether it is a public class, or a public function callable without arguments."""
    if isinstance(node, ast.ClassDef):
        return not node.name.startswith("_")
    if not isinstance(node, ast.FunctionDef) or node.name.startswith("_"):
        return False
    arguments = node.args
    positional = len(arguments.posonlyargs) + len(arguments.args) - len(arguments.defaults)
    return not positional and None not in arguments.kw_defaults


_NAMES_SHOWN = 6
_MAKER = "make"
"""Name that the documentation gives to the function that makes a model."""
_SCRIPT = "/code/__torch__"
"""In the name of a member of each archive that torch.jit.save writes."""


def _describe_config(file: Path) -> str:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        return f"is not JSON ({error}); copy it again"
    problem = "names no model_type" if isinstance(content, dict) else "is no table of settings"
    return f"{problem}, so it is not one of transformers; give the config of a saved model"


def _describe_file(path: Path, schemes: Iterable[str]) -> str:
    try:
        with path.open("rb") as file:
            head = file.read(len(_ZIP))
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    if not head:
        return "is empty; copy it again"
    if other := _describe_tensorflow(path) or (_describe_archive(path) if head == _ZIP else ""):
        return other
    if pickled := _pickled_class(path, head):
        return (
            f"is a pickled {pickled}, and loading a pickle runs code; `trust` does not load it either, as "
            "its class must be imported first: write a function that loads it and returns the module, and "
            "name it, as file.py:make"
        )
    return _describe_ending(path, schemes)


def _describe_ending(path: Path, schemes: Iterable[str]) -> str:
    """Describe weights, and a file of which only the ending of its name says what it is."""
    if path.suffix in _WEIGHTS or _is_torch_archive(path):
        return (
            "holds weights without an architecture; write a function that builds the module, loads them by "
            f"module.load_state_dict(torch.load('{path}', weights_only=True)) and returns it, and name it, "
            "as file.py:make"
        )
    if text := _FOREIGN.get(path.suffix.lower()):
        return text
    listed = ", ".join(schemes)
    return (
        f"has content that no loader recognises; convert it to ONNX, or write scheme:{path}, with one of "
        f"the schemes {listed}"
    )


_TENSORRT = (
    "is an engine of TensorRT by its name, but not by its first bytes; build it again, or name the ONNX file "
    "that it was built from"
)
_COREML = "is a model of Core ML, by its name, which is not read; name the model that it was converted from"
_PADDLE = "is a model of PaddlePaddle, by its name; convert it to ONNX with paddle2onnx, and name that file"
_FOREIGN = {
    ".engine": _TENSORRT,
    ".plan": _TENSORRT,
    ".trt": _TENSORRT,
    ".mlmodel": _COREML,
    ".mlpackage": _COREML,
    ".pdmodel": _PADDLE,
    ".pdiparams": _PADDLE,
    ".pb": (
        "is a frozen graph of TensorFlow, by its name; convert it to ONNX with tf2onnx, and name that file, "
        "or save the model as a SavedModel"
    ),
    ".ort": "is in ONNX Runtime's own format, by its name; name the .onnx file that it was made of",
    ".gguf": "is a model of llama.cpp by its name, but not by its first bytes; download or write it again",
    ".mar": "is an archive of TorchServe, by its name; unpack it, and name the model's file in it",
}
"""What to do about formats that are not read, by the ending of a file's name."""


def _describe_tensorflow(path: Path) -> str:
    """Describe a file that has only the name of a Keras or TensorFlow Lite model; empty for any other."""
    if path.suffix == ".tflite":
        return _TFLITE
    return _KERAS if path.suffix in {".keras", ".h5"} else ""


def _describe_archive(path: Path) -> str:
    """Describe a truncated archive, one of TorchScript or one of numpy; empty for any other."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except _DAMAGE_ERRORS:
        return "is an archive whose end is missing; copy it again"
    if any(_SCRIPT in name for name in names):
        return f"is a TorchScript archive by another name; write torchscript:{path}"
    if graph := next((name for name in names if name.rpartition("/")[2] == _GRAPH), None):
        folder = path.with_suffix("") / graph.rpartition("/")[0]
        return (
            f"is a TensorFlow SavedModel in an archive; unzip it into {path.with_suffix('')}, name {folder}"
        )
    arrays = bool(names) and all(name.endswith(".npy") for name in names)
    return "holds arrays, not a model; give it with `inputs`, along with a model" if arrays else ""


def _is_torch_archive(path: Path) -> bool:
    """Return whether torch.save wrote a file, whatever its name."""
    try:
        with zipfile.ZipFile(path) as archive:
            return any(name.endswith("/data.pkl") for name in archive.namelist())
    except _DAMAGE_ERRORS:
        return False


def _pickled_class(path: Path, head: bytes) -> str:
    """Return the class of the pickled object; empty if it holds only tensors, or is no pickle."""
    try:
        with _open_zipped_pickle(path) if head == _ZIP else path.open("rb") as file:
            if file.read(1) != _PICKLE:
                return ""
            file.seek(0)
            module, _, kind = _first_class(file).rpartition(" ")
    except _DAMAGE_ERRORS:
        return ""
    if module.partition(".")[0] in _CONTAINERS or module == "torch._utils":
        return ""
    return kind if module == "__main__" else f"{module}.{kind}"


def _open_zipped_pickle(path: Path) -> IO[bytes]:
    """Return the beginning of the pickle in an archive, which may unpack to any size."""
    with zipfile.ZipFile(path) as archive:
        members = [member for member in archive.infolist() if member.filename.endswith("/data.pkl")]
        if members[0].compress_type not in _READ_IN_PARTS:
            raise ValueError("torch packs with neither")
        with archive.open(members[0]) as file:
            return io.BytesIO(file.read(_BEGINNING))


_READ_IN_PARTS = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}
"""Of the others, `zipfile` unpacks any amount to read a few bytes."""
_BEGINNING = 1 << 16
"""Bytes within which a pickle names its first class."""


def _first_class(file: IO[bytes]) -> str:
    """Return ``module class`` of the first object a pickle creates; empty for a plain container."""
    import pickletools  # only a pickle needs it, and every command imports this

    texts: list[str] = []
    for op, argument, _ in pickletools.genops(file):
        if op.name == "GLOBAL":
            return str(argument)
        if op.name == "STACK_GLOBAL":
            return " ".join(texts[-2:])
        if "UNICODE" in op.name:
            texts.append(str(argument))
        elif op.name not in _HEADER_OPS:
            return ""
    return ""
