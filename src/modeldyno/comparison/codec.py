"""Encodes and decodes Comparisons with their Results.

History of the schema:

1. The first.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

import msgspec

from modeldyno.base import codec
from modeldyno.comparison.change.comparison import SCHEMA, Comparison

if TYPE_CHECKING:
    from pathlib import Path

KIND = "comparison"
"""Value of the key ``kind`` in the document."""
UPGRADES: codec.Upgrades = {}


def encode(comparison: Comparison) -> bytes:
    """Encode a Comparison with its Results; NaN and infinities are null."""
    document: dict[str, Any] = {"kind": KIND, **msgspec.to_builtins(comparison)}
    document["baseline"] = codec.sealed_result(comparison.baseline)
    for contrast, plain in zip(comparison.contrasts, document["contrasts"], strict=True):
        plain["candidate"] = codec.sealed_result(contrast.candidate)
    return codec.encode_sealed(document)


def decode(data: bytes | str, *, origin: str = "the document") -> Comparison:
    """Decode a Comparison of any schema version.

    Raises:
        UnreadableDocument: it is truncated, corrupt, of another kind, or of a later schema.
    """
    with codec.explain_damage(origin, "not a ModelDyno comparison"):
        document = codec.read_kind(data, KIND, origin)
        current = codec.upgrade(document, origin, UPGRADES, SCHEMA)
        current["baseline"] = codec.upgrade_result(current["baseline"], origin)
        for contrast in current["contrasts"]:
            contrast["candidate"] = codec.upgrade_result(contrast["candidate"], origin)
            parts = [part for cause in contrast.get("causes", ()) for part in cause["parts"]]
            for varying in (*contrast["changes"], *parts):
                codec.restore_infinite_ends(varying)
            for agreement in contrast.get("outputs", ()):
                agreement.update({name: inf for name, size in agreement.items() if size is None})
        comparison = msgspec.convert(current, Comparison)
        for result in comparison.results:
            codec.check_result(result)
        return comparison


def read(path: Path) -> Comparison:
    """Read a Comparison from a file.

    Raises:
        RequestError: the file cannot be read, or is not a Comparison.
    """
    return decode(codec.read_document_bytes(path), origin=str(path))
