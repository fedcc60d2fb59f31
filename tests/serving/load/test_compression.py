"""Compression of requests and answers."""

from __future__ import annotations

import gzip
import zlib

import pytest

from modeldyno.engine.interfaces.request_target import COMPRESSIONS, compress, decompress


@pytest.mark.parametrize("name", COMPRESSIONS)
def test_what_is_compressed_is_had_again(name: str) -> None:
    """By either name, and smaller meanwhile."""
    data = b"again and " * 100

    assert decompress(compress(data, name)) == data
    assert len(compress(data, name)) < len(data)


def test_the_forms_are_those_of_the_protocols() -> None:
    """HTTP and gRPC mean the formats of gzip and of zlib."""
    assert gzip.decompress(compress(b"a", "gzip")) == b"a"
    assert zlib.decompress(compress(b"a", "deflate")) == b"a"


@pytest.mark.parametrize(
    ("data", "message"),
    [(b"plain", "not what gzip"), (compress(b"a", "gzip")[:-3], "incomplete")],
    ids=["plain", "cut"],
)
def test_what_cannot_be_decompressed_is_an_error(data: bytes, message: str) -> None:
    """Neither format, or cut short."""
    with pytest.raises(ValueError, match=message):
        decompress(data)
