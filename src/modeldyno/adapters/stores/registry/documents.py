"""Records as JSON: what lists and conditions need is in columns, the rest in the document."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

Record = TypeVar("Record")


def encode(record: Any) -> bytes:
    """Encode a record."""
    return msgspec.json.encode(record)


def decode(data: bytes, kind: type[Record]) -> Record:
    """Decode a record; what an older ModelDyno did not write has its default."""
    return msgspec.json.decode(data, type=kind)
