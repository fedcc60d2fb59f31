"""Imports files of other load generators as Results."""

from __future__ import annotations

import csv
import hashlib
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeVar

import msgspec

from modeldyno.base import codec, plugins
from modeldyno.base.errors import RequestError, UnreadableDocument
from modeldyno.exchange.reconciliation import Reconciliation
from modeldyno.exchange.reconciliation import reconcile as reconcile_load
from modeldyno.serving.load.foreign_load import ForeignFile, ForeignLoad, foreign_result

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from modeldyno.base.result.result import Result

_Converted = TypeVar("_Converted")
_ID_LENGTH = 12
"""Digits of a Result's id."""
_DAMAGE_ERRORS = (
    csv.Error, msgspec.MsgspecError, ArithmeticError, AttributeError, LookupError, OSError, RecursionError,
    RequestError, StopIteration, TypeError, ValueError,
)  # fmt: skip
"""Errors that reading a damaged file may raise."""


def read(path: Path, tool: str | None = None) -> tuple[Result, ...]:
    """Read the measurements of another tool: a Result for each load in the file.

    The same content gives the same ids, so importing a file twice does not duplicate it.

    Args:
        path: the file.
        tool: the importer to use; if None, the one that claims the file.

    Raises:
        RequestError: it cannot be read, is of an unknown tool, or is damaged.
    """
    content = codec.read_document_bytes(path)
    digest = hashlib.sha256(content).hexdigest()
    written = datetime.fromtimestamp(path.stat().st_mtime, UTC).isoformat()

    def to_result(load: ForeignLoad, number: int) -> Result:
        return foreign_result(
            replace(load, created=load.created or written),
            id=hashlib.sha256(f"{digest} {number}".encode()).hexdigest()[:_ID_LENGTH],
            origin=path.name,
            digest=f"sha256:{digest}",
        )

    name, results = _convert_loads(decode_file(path, content), tool, to_result)
    if not any(item.measurements or item.failures for item in results):
        raise UnreadableDocument(f"{path} is a file of {name}, but has no load.")
    return results


def read_loads(path: Path, tool: str | None = None) -> tuple[ForeignLoad, ...]:
    """Read the loads in a file of another tool as it reports them.

    Raises:
        RequestError: it cannot be read, is of an unknown tool, or is damaged.
    """
    file = decode_file(path, codec.read_document_bytes(path))
    return _convert_loads(file, tool, lambda load, _: load)[1]


def _convert_loads(
    file: ForeignFile, tool: str | None, convert: Callable[[ForeignLoad, int], _Converted]
) -> tuple[str, tuple[_Converted, ...]]:
    """Return the tool that wrote a file, and its loads, each converted with its number."""
    name = _find_importer(file, tool)
    try:
        return name, tuple(convert(*pair[::-1]) for pair in enumerate(plugins.importer(name).read(file)))
    except _DAMAGE_ERRORS as error:
        reason = " ".join(str(error).split()).rstrip(".") or type(error).__name__
        raise UnreadableDocument(
            f"{file.path} is damaged or of an unknown version of {name}: {reason}."
        ) from error


def decode_file(path: Path, content: bytes) -> ForeignFile:
    """Decode a file as JSON, JSON lines or text.

    Raises:
        UnreadableDocument: it is not text.
    """
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UnreadableDocument(f"{path} is not a text file, so no load generator wrote it.") from error
    return ForeignFile(path=path, text=text, documents=_parse_json(text))


def _parse_json(text: str) -> tuple[object, ...]:
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


def _find_importer(file: ForeignFile, tool: str | None) -> str:
    """Return the importer that claims the file; if a tool was named, it must be that one."""
    if tool and plugins.importer(tool).claims(file):
        return tool
    answers = plugins.answers("importer", lambda importer: importer.claims(file))
    claiming = next((name for name, claims in answers if claims), None)
    if claiming and not tool:
        return claiming
    if claiming:
        raise UnreadableDocument(
            f"{file.path} is not a file of {tool}, but of {claiming}; import it as that."
        )
    raise UnreadableDocument(f"{file.path} {_describe_unknown(file)}.")


def _describe_unknown(file: ForeignFile) -> str:
    """Describe a file that no importer claims."""
    if not file.text.strip():
        return "is empty; copy it again"
    document = file.documents[0] if file.documents else None
    if isinstance(document, dict) and ("kind" in document or "job" in document) and "schema" in document:
        return "is already a ModelDyno document: use it with modeldyno show, compare and report"
    names = ", ".join(plugins.names("importer"))
    return f"is not a file of a known load generator ({names}), or is damaged; check what wrote it"


def reconcile(ours: Result, path: Path, tool: str | None = None) -> tuple[Reconciliation, ...]:
    """Split the differences between a Result and each load in a file of another tool.

    Args:
        ours: a load of ModelDyno.
        path: the file.
        tool: the importer to use; if None, the one that claims the file.

    Raises:
        RequestError: the file cannot be read, is of an unknown tool, or is damaged.
    """
    return tuple(reconcile_load(load, ours) for load in read_loads(path, tool))
