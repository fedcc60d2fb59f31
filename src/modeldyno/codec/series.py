"""Encodes and decodes Conclusions: comparisons, load curves and searches for the largest load."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec

from modeldyno import codec
from modeldyno.core.comparison.comparison import Comparison
from modeldyno.core.comparison.saved_kinds import KINDS, SeriesDocument, kind_of
from modeldyno.core.load.load_curve import SCHEMA
from modeldyno.errors import RequestError, UnreadableDocument

if TYPE_CHECKING:
    from pathlib import Path

_MALFORMED = (msgspec.MsgspecError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""Errors that reading a damaged document may raise."""


def encode(conclusion: SeriesDocument, **derived: Any) -> bytes:
    """Encode a Conclusion as JSON; an unbounded end of an interval is null.

    Data derived from a load series, such as the replicas that a demand takes, is for other programs, and
    ignored on reading.
    """
    if isinstance(conclusion, Comparison):
        return codec.encode_comparison(conclusion)
    plain = {"kind": kind_of(conclusion), **msgspec.to_builtins(conclusion), **msgspec.to_builtins(derived)}
    return codec.encode_document(plain)


def decode(data: bytes | str, *, origin: str = "the document") -> SeriesDocument:
    """Decode a Conclusion of any schema version.

    Raises:
        UnreadableDocument: it is truncated, corrupt, of another kind, or of a later schema.
    """
    try:
        document = msgspec.json.decode(data)
        kind = KINDS.get(str(document.pop("kind", ""))) if isinstance(document, dict) else None
        if kind is None:
            return _refuse(f"{origin} is JSON, but not a ModelDyno comparison, load curve or load search.")
        if kind is Comparison:
            return codec.decode_comparison(data, origin=origin)
        if document["schema"] > SCHEMA:
            return _refuse(
                f"{origin} has schema {document['schema']}, but this ModelDyno reads up to {SCHEMA}; "
                "upgrade ModelDyno."
            )
        return msgspec.convert(_restore_infinite_ends(document), kind)
    except UnreadableDocument:
        raise
    except (*_MALFORMED, RequestError) as error:
        reason = " ".join(str(error).split()).rstrip(".")
        raise UnreadableDocument(f"{origin} is damaged or not a ModelDyno document: {reason}.") from error


def _refuse(why: str) -> NoReturn:
    raise UnreadableDocument(why)


def _restore_infinite_ends(part: Any) -> Any:
    """Restore the infinite ends of all intervals in a document."""
    match part:
        case dict():
            ends = part.get("interval")
            if isinstance(ends, dict):
                low, high = ends["low"], ends["high"]
                part["interval"] = {
                    "low": -inf if low is None else low,
                    "high": inf if high is None else high,
                }
            return {key: _restore_infinite_ends(value) for key, value in part.items()}
        case list():
            return [_restore_infinite_ends(item) for item in part]
        case _:
            return part


def read(path: Path) -> SeriesDocument:
    """Read a Conclusion from a file.

    Raises:
        RequestError: the file cannot be read, or is not a Conclusion.
    """
    return decode(codec.read_document_bytes(path), origin=str(path))
