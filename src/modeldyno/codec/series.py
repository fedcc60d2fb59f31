"""Conclusions to JSON and back: comparisons, ladders of loads, answers of a search for the largest load."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec

from modeldyno import codec
from modeldyno.core.comparison.comparison import Comparison
from modeldyno.core.comparison.saved_kinds import KINDS, Conclusion, kind_of
from modeldyno.core.load.load_curve import SCHEMA
from modeldyno.errors import RequestError, UnreadableDocument

if TYPE_CHECKING:
    from pathlib import Path

_MALFORMED = (msgspec.MsgspecError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What reading a damaged document may raise."""


def encode(found: Conclusion, **derived: Any) -> bytes:
    """Give the JSON of a Conclusion; an end of an interval that is not bounded is null.

    What was derived of several loads, such as the replicas that a demand takes, is there for other programs,
    and ignored on reading.
    """
    if isinstance(found, Comparison):
        return codec.encode_comparison(found)
    plain = {"kind": kind_of(found), **msgspec.to_builtins(found), **msgspec.to_builtins(derived)}
    return codec.encode_document(plain)


def decode(data: bytes | str, *, origin: str = "the document") -> Conclusion:
    """Read a Conclusion of any schema that was ever written.

    Raises:
        UnreadableDocument: it is truncated, corrupt, of another kind, or of a later schema.
    """
    try:
        document = msgspec.json.decode(data)
        kind = KINDS.get(str(document.pop("kind", ""))) if isinstance(document, dict) else None
        if kind is None:
            return _foreign(f"{origin} is JSON, but no comparison, ladder or search of ModelDyno.")
        if kind is Comparison:
            return codec.decode_comparison(data, origin=origin)
        if document["schema"] > SCHEMA:
            return _foreign(
                f"{origin} has schema {document['schema']}, and this ModelDyno reads up to {SCHEMA}; "
                "upgrade ModelDyno."
            )
        return msgspec.convert(_unbounded(document), kind)
    except UnreadableDocument:
        raise
    except (*_MALFORMED, RequestError) as error:
        said = " ".join(str(error).split()).rstrip(".")
        raise UnreadableDocument(f"{origin} is damaged, or no ModelDyno document: {said}.") from error


def _foreign(why: str) -> NoReturn:
    raise UnreadableDocument(why)


def _unbounded(part: Any) -> Any:
    """Put back the ends of intervals that are none, wherever they stand."""
    match part:
        case dict():
            ends = part.get("interval")
            if isinstance(ends, dict):
                low, high = ends["low"], ends["high"]
                part["interval"] = {
                    "low": -inf if low is None else low,
                    "high": inf if high is None else high,
                }
            return {key: _unbounded(value) for key, value in part.items()}
        case list():
            return [_unbounded(each) for each in part]
        case _:
            return part


def read(path: Path) -> Conclusion:
    """Read a Conclusion from a file.

    Raises:
        RequestError: the file cannot be read, or is none.
    """
    return decode(codec.content(path), origin=str(path))
