"""Writes files of GGUF whose tensors are zeros, without a package."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

FIELDS: dict[str, Any] = {
    "general.architecture": "llama",
    "llama.context_length": 2048,
    "tokenizer.ggml.tokens": ["a", "b", "<end>"],
    "tokenizer.ggml.add_bos_token": True,
    "tokenizer.ggml.scores": [0.5, 1.5, 2.5],
    "llama.rope.freq_base": 10000.0,
}
TENSORS = {
    "token_embd.weight": (1, (3, 64), 384),
    "blk.0.attn_q.weight": (8, (64, 64), 64 * 68),
    "blk.0.ffn_up.weight": (12, (2, 256), 288),
    "output_norm.weight": (0, (64,), 256),
    "rope_freqs.weight": (0, (32,), 128),
}
"""Name to type, shape and bytes."""


def encode_text(value: str) -> bytes:
    """Encode a text as GGUF has it."""
    return struct.pack("<Q", len(value.encode())) + value.encode()


def encode_value(value: Any) -> bytes:
    """Encode a value with its type."""
    if isinstance(value, list):
        kind, *_ = encode_value(value[0])[:4]
        return struct.pack("<IIQ", 9, kind, len(value)) + b"".join(encode_value(each)[4:] for each in value)
    if isinstance(value, str):
        return struct.pack("<I", 8) + encode_text(value)
    form = {bool: "I?", int: "II", float: "If"}[type(value)]
    return struct.pack(f"<{form}", {bool: 7, int: 4, float: 6}[type(value)], value)


def write_gguf(
    path: Path,
    tensors: Mapping[str, tuple[int, tuple[int, ...], int]] = TENSORS,
    fields: Mapping[str, Any] = FIELDS,
    version: int = 3,
) -> Path:
    """Write a file of zeros with such a header."""
    content = struct.pack("<4sIQQ", b"GGUF", version, len(tensors), len(fields))
    content += b"".join(encode_text(name) + encode_value(value) for name, value in fields.items())
    offset = 0
    for name, (kind, shape, size) in tensors.items():
        content += encode_text(name) + struct.pack(
            f"<I{len(shape)}QIQ", len(shape), *shape[::-1], kind, offset
        )
        offset += -(-size // 32) * 32
    path.write_bytes(content + b"\0" * (-len(content) % 32 + offset))
    return path
