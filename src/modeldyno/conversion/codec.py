"""Encodes and decodes the parts of a conversion that a child process sends."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

Part = TypeVar("Part")


def encode_part(part: Any) -> bytes:
    """Encode a dataclass on one line."""
    return msgspec.json.encode(part)


def decode_part(kind: type[Part], data: bytes) -> Part:
    """Decode a dataclass that `encode_part` encoded."""
    return msgspec.json.decode(data, type=kind)
