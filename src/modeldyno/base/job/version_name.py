"""Names of models, versions and aliases: ``digits``, ``digits/3``, ``digits@champion``."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING

from modeldyno.base.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Mapping

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._ +-]{0,98}[A-Za-z0-9._+-])?")
_ALIAS = re.compile(r"[A-Za-z][A-Za-z0-9._-]{0,49}")
_REFERENCE = re.compile(
    r"(?:models:/)?(?P<name>[^/@]+?)\s*(?:/(?P<number>[0-9]{1,9})|@(?P<alias>[^/@]+))?", re.DOTALL
)
_SHOWN = 60
_LONGEST_TEXT, _MOST_LABELS = 2000, 100
LARGEST_NUMBER = 999_999_999
"""Of a version: nine digits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionName:
    """A reference to a version: by its number, by an alias, or the newest one."""

    model: str
    number: int | None = None
    alias: str | None = None

    @classmethod
    def parse(cls, text: str) -> VersionName:
        """Read ``name``, ``name/3`` or ``name@alias``, also with MLflow's ``models:/`` before it.

        Raises:
            RequestError: it is none of these.
        """
        match = _REFERENCE.fullmatch(text.strip())
        if match is None:
            raise RequestError(
                f"'{text[:_SHOWN]}' names no registered model; write name, name/3 or name@alias."
            )
        number = match["number"]
        return cls(
            model=check_model_name(match["name"]),
            number=None if number is None else int(number),
            alias=None if match["alias"] is None else check_alias(match["alias"]),
        )

    def __str__(self) -> str:
        if self.alias is not None:
            return f"{self.model}@{self.alias}"
        return self.model if self.number is None else f"{self.model}/{self.number}"


def check_description(labels: Mapping[str, str], **texts: str | None) -> None:
    """Check that what is said of a version can be listed: up to 100 labels, and 2,000 characters a text.

    Raises:
        RequestError: it has more.
    """
    if len(labels) > _MOST_LABELS:
        raise RequestError(f"{len(labels):,} labels are too many; a version has up to {_MOST_LABELS}.")
    named = {f"label {name[:_SHOWN]}": f"{name}={text}" for name, text in labels.items()}
    for name, text in {**named, **texts}.items():
        if text is not None and len(text) > _LONGEST_TEXT:
            raise RequestError(
                f"The {name} has {len(text):,} characters; write up to {_LONGEST_TEXT:,}, and keep longer "
                "texts elsewhere."
            )


def check_model_name(text: str) -> str:
    """Return a model's name, unchanged; it never becomes a path.

    Raises:
        RequestError: it has other characters, or too many.
    """
    if not _NAME.fullmatch(text):
        raise RequestError(
            f"'{text[:_SHOWN]}' is no name of a model; use up to 100 letters, digits, spaces and . _ + -, "
            "the first of them a letter or digit, the last no space."
        )
    return text


def check_alias(text: str) -> str:
    """Return an alias, unchanged.

    Raises:
        RequestError: it has other characters, or too many.
    """
    if not _ALIAS.fullmatch(text):
        raise RequestError(
            f"'{text[:_SHOWN]}' is no alias; use up to 50 letters, digits and . _ -, the first of them a "
            "letter."
        )
    return text


def name_from_label(label: str) -> str:
    """Make a model's name of any text, such as a file's name: other characters become ``-``."""
    cleaned = re.sub(r"[^A-Za-z0-9._+-]+", "-", label).strip("-._+ ")[:100]
    return cleaned or "model"


_FRAMEWORKS = {"pytorch": "torch", "tf": "tensorflow", "tflite": "tensorflow-lite", "scikit-learn": "sklearn"}


def framework_name(word: str) -> str:
    """Return what a framework is called here: ``torch`` for ``PyTorch``."""
    return _FRAMEWORKS.get(word.lower(), word)


_TASKS = frozenset({"image classification", "object detection", "segmentation"})
"""Those of ModelCI, which it writes in several ways; any other text is a task as it stands."""


def task_name(word: str) -> str:
    """Return what a task is called here: ``image classification`` for ``Image_Classification``."""
    plain = word.replace("_", " ").lower()
    return plain if plain in _TASKS else word


_ENGINES = {
    "none": "torch", "pytorch": "torch", "tfs": "savedmodel", "tensorflow-serving": "savedmodel",
    "trt": "tensorrt", "ort": "onnx", "onnxruntime": "onnx",
}  # fmt: skip


def engine_name(word: str) -> str:
    """Return the form that an engine runs: ``savedmodel`` for ``TFS``, ``onnx`` for ``onnxruntime``."""
    return _ENGINES.get(word.lower(), word.lower())


# --- names in a folder of ModelCI -------------------------------------------------------------------

_KIND = re.compile(r"(?P<framework>[a-z]+)-(?P<engine>[a-z0-9]+)")
_PARTS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCiPath:
    """What the path of a model in ModelCI's folder says."""

    architecture: str
    framework: str
    """pytorch, tensorflow, onnx, sklearn, xgboost or lightgbm."""
    engine: str
    """none, onnx, torchscript, tfs, trt, tvm or custom."""
    task: str
    """With spaces, such as ``image classification``; underscores in the path."""
    version: int

    @classmethod
    def parse(cls, path: PurePath) -> ModelCiPath | None:
        """Read a path by its last four parts; None if it does not follow the rule."""
        if len(path.parts) < _PARTS:
            return None
        architecture, kind, task, file = path.parts[-_PARTS:]
        match = _KIND.fullmatch(kind.lower())
        name = PurePath(file)
        if match is None or not name.stem.isascii() or not name.stem.isdigit() or not int(name.stem):
            return None
        return cls(
            architecture=architecture,
            framework=match["framework"],
            engine=match["engine"],
            task=task_name(task.replace("_", " ")),
            version=int(name.stem),
        )


SOURCE = "source"
"""The recipe of the variant that is the registered model itself."""
_REGISTERED = re.compile(r"(?P<version>[^/@:]+(?:/[0-9]{1,9}|@[^/@\s]+)?)(?:(?<=[0-9]) (?P<recipe>[\w-]+))?")
"""A recipe follows a number, as a model's name may have spaces."""


def parse_registered(text: str) -> tuple[VersionName, str] | None:
    """Read the name of a version and of one of its variants; None if it cannot be one."""
    if match := _REGISTERED.fullmatch(text):
        with suppress(RequestError):  # such words name nothing that is registered
            return VersionName.parse(match["version"]), match["recipe"] or SOURCE
    return None
