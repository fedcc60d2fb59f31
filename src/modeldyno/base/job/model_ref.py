"""The reference to a model, and the identity of the loaded model."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import PurePath

from modeldyno.base.errors import RequestError

_SCHEME = re.compile(r"(?P<scheme>[a-z][a-z0-9-]+):(?P<locator>.*)", re.DOTALL)
_URL = re.compile(r"(?:https?|grpcs?)://.*", re.DOTALL | re.IGNORECASE)

LIVE = "object"
"""The scheme of a live object of a process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRef:
    """``scheme:locator``; the scheme is the name of a loader."""

    scheme: str
    locator: str
    registered: str | None = field(default=None, compare=False)
    """The name that a registry has for it, with its number: ``digits/3``, ``digits/3 onnx`` or
    ``models:/iris/3``; or its URL in an object store, ``s3://bucket/net.onnx``. None for what has none, and
    in documents of earlier versions. It is loaded by `scheme` and `locator` all the same."""

    @property
    def argument(self) -> str:
        """What a command is given to mean this model: its registered name, or the reference."""
        return self.registered or str(self)

    @property
    def live(self) -> bool:
        """Whether it is a live object, which no command and no other process can name."""
        return self.scheme == LIVE

    @classmethod
    def parse(cls, text: str) -> ModelRef:
        """Read ``scheme:locator``; text without a scheme is a path, with the scheme ``""``.

        The URL of a server needs no scheme of its own: its scheme is ``url``.

        Raises:
            RequestError: the text, or what follows the scheme, is empty.
        """
        match = _SCHEME.fullmatch(text)
        scheme, locator = (match["scheme"], match["locator"]) if match else ("", text)
        if _URL.fullmatch(text):
            scheme, locator = "url", text
        if not locator.strip():
            raise RequestError(f"'{text}' names no model; write scheme:locator or a path.")
        return cls(scheme=scheme, locator=locator)

    def __str__(self) -> str:
        return f"{self.scheme}:{self.locator}" if self.scheme else self.locator


EVERY_MODEL = "model"
"""Stem of every file of a model in directories of Hugging Face and Triton, where the directory names it."""


def names_of_file(locator: str) -> tuple[str, ...]:
    """List the names that the model of a file may have: its stem, and for ``model.onnx`` those around it."""
    path = PurePath(locator)
    folders = [path.parent.name, path.parent.parent.name] if path.stem == EVERY_MODEL else []
    return (*(name for name in folders if name and not name.isdigit()), path.stem)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelIdentity:
    """The identity of a model: a digest of its content, and a readable name."""

    name: str
    digest: str
    """``sha256:`` and 64 hexadecimal digits over the content that determines the outputs."""
    framework: str
    """Its framework: onnx, torch, python."""
    tags: tuple[str, ...] = field(default=())
