"""Encodes and decodes documents whose JSON is the plain form of their fields."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from modeldyno.base import codec

if TYPE_CHECKING:
    from modeldyno.base.document import StoredDocument

Kept = TypeVar("Kept", bound="StoredDocument")


def encode(document: StoredDocument, **derived: Any) -> bytes:
    """Encode a document as JSON; an unbounded end of an interval is null.

    Derived data, such as the replicas that a demand takes, is for other programs, and ignored on reading.
    """
    plain = {"kind": document.KIND, **msgspec.to_builtins(document), **msgspec.to_builtins(derived)}
    return codec.encode_sealed(plain)


def decode(document_type: type[Kept], data: bytes, *, origin: str = "the document") -> Kept:
    """Decode a document of any schema version; the newest is the default of its field ``schema``.

    Raises:
        UnreadableDocument: it is truncated, corrupt, of another kind, or of a later schema.
    """
    newest: Any = {field.name: field.default for field in fields(document_type)}["schema"]  # type: ignore[arg-type]
    with codec.explain_damage(origin, "not a ModelDyno document"):
        document = codec.upgrade(msgspec.json.decode(data), origin, {}, newest)
        return msgspec.convert(_restore_infinite_ends(document), document_type)


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
