"""Digests of model content: equal content has an equal digest, whatever its path."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_CHUNK = 1 << 20


def digest_parts(parts: Iterable[bytes | memoryview | str]) -> str:
    """Digest a sequence of parts; each is prefixed by its length, so that boundaries count."""
    state = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        state.update(str(len(data) if isinstance(data, bytes) else data.nbytes).encode() + b":")
        state.update(data)
    return f"sha256:{state.hexdigest()}"


def digest_structure(parts: Iterable[bytes | memoryview | str]) -> str:
    """Digest a model's structure without its weights; such a digest never equals that of a whole model."""
    return digest_parts(parts).replace("sha256:", "structure:", 1)


def digest_files(paths: Iterable[Path]) -> str:
    """Digest files by name and content, ordered by name."""
    return digest_parts(
        part for path in sorted(paths, key=lambda p: p.name) for part in (path.name, digest_file(path))
    )


def read_head(path: Path, size: int) -> bytes:
    """Return the first bytes of a file; none of what is no file, or cannot be read."""
    try:
        if path.is_file():
            with path.open("rb") as file:
                return file.read(size)
    except OSError:
        pass
    return b""


def digest_file(path: Path) -> str:
    """Digest the content of a file."""
    state = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            state.update(chunk)
    return state.hexdigest()
