"""Compression of requests and answers: gzip, and deflate with the wrapper of zlib."""

from __future__ import annotations

import zlib

COMPRESSIONS = ("gzip", "deflate")
_WRAPPERS = {"gzip": 31, "deflate": 15}
_ANY_WRAPPER = 47
_MOST = 1 << 31
"""Bytes that an answer may have when decompressed."""


def compress(data: bytes, name: str) -> bytes:
    """Compress data as ``gzip`` or ``deflate``."""
    compressor = zlib.compressobj(wbits=_WRAPPERS[name])
    return compressor.compress(data) + compressor.flush()


def decompress(data: bytes) -> bytes:
    """Return decompressed data; raise ValueError (a phrase) if it is neither, incomplete or too large."""
    decompressor = zlib.decompressobj(wbits=_ANY_WRAPPER)
    try:
        plain = decompressor.decompress(data, _MOST)
    except zlib.error:
        raise ValueError("the answer is not what gzip or deflate make") from None
    if not decompressor.eof:
        raise ValueError("the answer is compressed and incomplete, or too large")
    return plain
