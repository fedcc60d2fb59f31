"""Records as JSON: what lists and conditions need is in columns, the rest in the document."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from modeldyno.errors import RequestError, StoreError

Record = TypeVar("Record")


def encode(record: Any) -> bytes:
    """Encode a record.

    Raises:
        RequestError: a text in it is none, such as a path whose bytes are no characters.
    """
    try:
        return msgspec.json.encode(record)
    except UnicodeEncodeError as error:
        raise RequestError(f"{error.object[:60]!r} cannot be stored: it is not valid Unicode.") from None


def decode(data: bytes, kind: type[Record]) -> Record:
    """Decode a record; what an older ModelDyno did not write has its default.

    Raises:
        StoreError: it is damaged, or of a later ModelDyno.
    """
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, TypeError) as error:
        raise StoreError(
            f"A {kind.__name__.lower()} in the registry is damaged, or of a later ModelDyno ({error}); "
            "upgrade ModelDyno, or name another store with MODELDYNO_STORE."
        ) from error
