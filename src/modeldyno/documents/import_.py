"""Files of other load generators -> Results, by whichever importer knows them."""

from __future__ import annotations

import csv
import hashlib
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

from modeldyno import codec, plugins
from modeldyno.core.load.foreign_load import Foreign, result
from modeldyno.errors import RequestError, UnreadableDocument

if TYPE_CHECKING:
    from pathlib import Path

    from modeldyno.core.result.result import Result

_ID = 12
"""Digits of a Result's id."""
_DAMAGED = (
    csv.Error, msgspec.MsgspecError, ArithmeticError, AttributeError, LookupError, OSError, RecursionError,
    RequestError, StopIteration, TypeError, ValueError,
)  # fmt: skip
"""What reading a damaged file may raise."""


def read(path: Path, tool: str | None = None) -> tuple[Result, ...]:
    """Read what another tool has measured: a Result for each load that it tells of.

    The same content gives the same ids: importing it twice keeps one.

    Args:
        path: the file.
        tool: the importer to read it with; None: the one that claims it.

    Raises:
        RequestError: it cannot be read, is of no tool that is known, or is damaged.
    """
    content = codec.content(path)
    file = opened(path, content)
    name = _claiming(file, tool)
    importer = plugins.importer(name)
    digest = hashlib.sha256(content).hexdigest()
    written = datetime.fromtimestamp(path.stat().st_mtime, UTC).isoformat()
    try:
        found = tuple(
            result(
                replace(each, created=each.created or written),
                id=hashlib.sha256(f"{digest} {number}".encode()).hexdigest()[:_ID],
                origin=path.name,
                digest=f"sha256:{digest}",
            )
            for number, each in enumerate(importer.read(file))
        )
    except _DAMAGED as error:
        said = " ".join(str(error).split()).rstrip(".") or type(error).__name__
        raise UnreadableDocument(
            f"{path} is damaged, or of a version of {name} that is not known: {said}."
        ) from error
    if not any(each.measurements or each.failures for each in found):
        raise UnreadableDocument(f"{path} is a file of {name}, but tells of no load.")
    return found


def opened(path: Path, content: bytes) -> Foreign:
    """Decode it once: as JSON, as lines of JSON, or as text.

    Raises:
        UnreadableDocument: it is none of these.
    """
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UnreadableDocument(f"{path} is no text, so no load generator wrote it.") from error
    return Foreign(path=path, text=text, documents=_documents(text))


def _documents(text: str) -> tuple[object, ...]:
    if not text.lstrip().startswith("{"):
        return ()
    try:
        return (msgspec.json.decode(text),)
    except (msgspec.DecodeError, RecursionError):
        pass
    try:
        return tuple(msgspec.json.decode(line) for line in text.splitlines() if line.strip())
    except (msgspec.DecodeError, RecursionError):
        return ()


def _claiming(file: Foreign, tool: str | None) -> str:
    """Give the importer that knows the file, and is the one that was named, if one was."""
    if tool and plugins.importer(tool).claims(file):
        return tool
    known = [name for name in plugins.names("importer") if plugins.importer(name).claims(file)]
    if known and not tool:
        return known[0]
    if known:
        raise UnreadableDocument(
            f"{file.path} is no file that {tool} writes, but one of {known[0]}; write --from {known[0]}."
        )
    raise UnreadableDocument(f"{file.path} {_unknown(file)}.")


def _unknown(file: Foreign) -> str:
    """Say of a file that no importer knows what it is instead."""
    if not file.text.strip():
        return "is empty; copy it again"
    document = file.documents[0] if file.documents else None
    if isinstance(document, dict) and ("kind" in document or "job" in document) and "schema" in document:
        return "is a document of ModelDyno's already: modeldyno show, compare and report take it as it is"
    names = ", ".join(plugins.names("importer"))
    return f"is no file of a load generator that is known ({names}), or is damaged; check what wrote it"
