"""Encodes and decodes load curves, searches for the largest load, and conversions."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from modeldyno import codec
from modeldyno.core.agreement.conversion import Conversion
from modeldyno.core.load.capacity import Capacity
from modeldyno.core.load.load_curve import SCHEMA, LoadCurve

Series = TypeVar("Series", bound=LoadCurve | Capacity | Conversion)


def encode(kind: str, series: LoadCurve | Capacity | Conversion, **derived: Any) -> bytes:
    """Encode a series as JSON; an unbounded end of an interval is null.

    Derived data, such as the replicas that a demand takes, is for other programs, and ignored on reading.
    """
    return codec.encode_sealed({"kind": kind, **msgspec.to_builtins(series), **msgspec.to_builtins(derived)})


def decode(series_type: type[Series], data: bytes, *, origin: str = "the document") -> Series:
    """Decode a series of any schema version.

    Raises:
        UnreadableDocument: it is truncated, corrupt, of another kind, or of a later schema.
    """
    with codec.explain_damage(origin, "not a ModelDyno document"):
        document = codec.upgrade(msgspec.json.decode(data), origin, {}, SCHEMA)
        return msgspec.convert(_restore_infinite_ends(document), series_type)


def _restore_infinite_ends(part: Any) -> Any:
    """Restore the infinite ends of all intervals in a document."""
    match part:
        case dict():
            inner = codec.restore_infinite_ends(part)
            return {key: _restore_infinite_ends(value) for key, value in inner.items()}
        case list():
            return [_restore_infinite_ends(item) for item in part]
        case _:
            return part
