"""Archives that torch writes: zip files, looked at without executing anything of them."""

from __future__ import annotations

import hashlib
import struct
import zipfile
from typing import TYPE_CHECKING

from modeldyno.adapters.loaders import digest

if TYPE_CHECKING:
    from pathlib import Path

_NO_CONTENT = (".debug_pkl", ".data/serialization_id")
"""Members that change from one saving to the next, or with the place of the sources."""


def members(path: Path) -> tuple[str, ...]:
    """List the members of a zip file without their common root; nothing where it is none."""
    try:
        with zipfile.ZipFile(path) as archive:
            return tuple(_inner(name) for name in archive.namelist())
    except (OSError, zipfile.BadZipFile, ValueError, RuntimeError, EOFError, struct.error):
        return ()


def content_digest(path: Path, leave_out: tuple[str, ...] = ()) -> str:
    """Digest the members by name and content: renaming the file, or saving again, changes nothing.

    Args:
        path: the archive.
        leave_out: beginnings of the names of members that do not determine the outputs.
    """
    with zipfile.ZipFile(path) as archive:
        names = {_inner(name): name for name in archive.namelist()}
        kept = sorted(n for n in names if not n.endswith(_NO_CONTENT) and not n.startswith(leave_out))
        return digest.of_parts(part for name in kept for part in (name, _member(archive, names[name])))


def _member(archive: zipfile.ZipFile, name: str) -> bytes:
    with archive.open(name) as file:
        return hashlib.file_digest(file, "sha256").digest()  # type: ignore[arg-type]  # reads in chunks


def _inner(name: str) -> str:
    return name.partition("/")[2]
