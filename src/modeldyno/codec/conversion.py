"""Encodes and decodes conversions, and the parts of them that a child process sends."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from modeldyno import codec
from modeldyno.core.agreement.conversion import SCHEMA, Conversion

CONVERSION = "conversion"
"""Value of the key ``kind`` in these documents."""

Part = TypeVar("Part")


def encode(conversion: Conversion) -> bytes:
    """Encode a conversion as JSON."""
    return codec.encode_sealed({"kind": CONVERSION, **msgspec.to_builtins(conversion)})


def decode(data: bytes, *, origin: str = "the document") -> Conversion:
    """Decode a conversion of any schema version.

    Raises:
        UnreadableDocument: it is truncated, corrupt, of another kind, or of a later schema.
    """
    with codec.explain_damage(origin, "not a ModelDyno document"):
        return msgspec.convert(codec.upgrade(msgspec.json.decode(data), origin, {}, SCHEMA), Conversion)


def encode_part(part: Any) -> bytes:
    """Encode a dataclass on one line."""
    return msgspec.json.encode(part)


def decode_part(kind: type[Part], data: bytes) -> Part:
    """Decode a dataclass that `encode_part` encoded."""
    return msgspec.json.decode(data, type=kind)
