"""Archives that torch writes: zip files, read without executing anything in them."""

from __future__ import annotations

import hashlib
import struct
import zipfile
from typing import TYPE_CHECKING

from modeldyno.models.loaders import digest

if TYPE_CHECKING:
    from pathlib import Path

_VOLATILE = (".debug_pkl", ".data/serialization_id")
"""Members that differ between two saves of the same model, or with the location of the sources."""


def archive_members(path: Path) -> tuple[str, ...]:
    """List the members of a zip file without their common root; empty if it is not a zip file."""
    try:
        with zipfile.ZipFile(path) as archive:
            return tuple(_inner(name) for name in archive.namelist())
    except (OSError, zipfile.BadZipFile, ValueError, RuntimeError, EOFError, struct.error):
        return ()


def content_digest(path: Path, leave_out: tuple[str, ...] = ()) -> str:
    """Digest the members by name and content, so that renaming or saving again changes nothing.

    Args:
        path: the archive.
        leave_out: prefixes of the names of members that do not affect the outputs.
    """
    with zipfile.ZipFile(path) as archive:
        names = {_inner(name): name for name in archive.namelist()}
        content_names = sorted(n for n in names if not n.endswith(_VOLATILE) and not n.startswith(leave_out))
        return digest.digest_parts(
            part for name in content_names for part in (name, _member(archive, names[name]))
        )


def _member(archive: zipfile.ZipFile, name: str) -> bytes:
    with archive.open(name) as file:
        return hashlib.file_digest(file, "sha256").digest()  # type: ignore[arg-type]  # reads in chunks


def _inner(name: str) -> str:
    return name.partition("/")[2]
