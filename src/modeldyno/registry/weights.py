"""Copies of models' files: content-addressed, so that equal content is kept once and a name is never a path.

The store of the copies is a folder or any place that fsspec reaches. A file is written under another name
first, in a folder to disk, and renamed, so that what is there is whole.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shutil
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import fsspec
from fsspec.implementations.local import LocalFileSystem

from modeldyno.base.errors import RequestError, StoreError, StoreUnavailable
from modeldyno.registry.records.records import WeightFile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from modeldyno.registry.records.records import EvaluationData, Variant, Version

VARIABLE = "MODELDYNO_WEIGHTS"
"""Names the place of the copies; by default a folder beside the store."""
_DIGEST = re.compile("[0-9a-f]{64}")
_ABANDONED = 3600.0
"""Seconds after which a file that nobody writes to any more was left by a process that was killed."""


def place(beside_store: Path) -> str:
    """Return where copies are kept: a folder, or a URL of fsspec."""
    return os.environ.get(VARIABLE) or str(beside_store)


def keep(files: Sequence[Path], root: Path, where: str) -> tuple[WeightFile, ...]:
    """Copy files; those whose content is there already are not copied again, unless it is damaged.

    Args:
        files: all below `root`.
        root: the folder that paths are relative to.
        where: the folder or URL of the copies.

    Raises:
        StoreError: they cannot be read or written.
    """
    system, base = _file_system(where)
    if _is_local(system):
        _sweep(Path(base))
    kept = []
    for file in files:
        try:
            relative = PurePosixPath(*file.relative_to(root).parts)
            digest, size = _digest(file), file.stat().st_size
            kept.append(WeightFile(path=str(relative), digest=f"sha256:{digest}", size=size))
            _put(system, file, base, kept[-1])
        except StoreError:
            raise
        except Exception as error:  # each system of fsspec raises errors of its own
            raise StoreUnavailable(f"{file} cannot be copied to {where}: {_error_text(error)}.") from error
    return tuple(kept)


def fetch(version: Version | Variant | EvaluationData, where: str) -> Path:
    """Return the path of a version's or variant's model on this machine; what is not there yet is fetched.

    All who use the files of a version get them here, and never others: what is there with another digest is
    fetched again.

    Raises:
        StoreUnavailable: the place of the copies cannot be used now.
        StoreError: a file is missing, or damaged.
    """
    system, base = _file_system(where)
    folder = _cache(system, base) / hashlib.sha256(repr(version.files).encode()).hexdigest()[:32]
    for file in version.files:
        target = folder / _inside(file.path)
        if target.is_file() and _is_as_registered(target, file):
            continue
        blob = _blob(base, file)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            _get(system, blob, target, file.digest)
        except StoreError:
            raise
        except FileNotFoundError:
            raise StoreError(
                f"The copy of {file.path} of {version.name} is not in {where} any more."
            ) from None
        except Exception as error:  # each system of fsspec raises errors of its own
            raise StoreUnavailable(
                f"{file.path} of {version.name} cannot be fetched from {where}: {_error_text(error)}."
            ) from error
    return folder if version.entry == "." else folder / _inside(version.entry)


def export(version: Version, where: str, target: Path) -> Path:
    """Copy a version's files to a folder that the user names; return the path of the model.

    Raises:
        RequestError: something is there already.
        StoreError: a copy is missing, or cannot be written.
    """
    check_new_folder(target)
    source = fetch(version, where)
    root = source if version.entry == "." else source.parents[len(PurePosixPath(version.entry).parts) - 1]
    try:
        for file in version.files:
            copy = target / _inside(file.path)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(root / _inside(file.path), copy)
            if not _is_as_registered(copy, file):
                raise StoreError(f"{file.path} of {version.name} was changed while it was copied; try again.")
    except OSError as error:
        raise StoreError(f"{target} cannot be written: {_error_text(error)}.") from error
    return target if version.entry == "." else target / version.entry


def check_new_folder(target: Path) -> None:
    """Refuse to write into what is there already, unless it is an empty folder.

    Raises:
        RequestError: it is no folder, or is not empty.
    """
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise RequestError(f"{target} is there already; name a new folder, or an empty one.")


def _file_system(where: str) -> tuple[Any, str]:
    if "://" not in where:  # a folder, whatever its name: to fsspec, a colon may mean a chain of systems
        return LocalFileSystem(), str(Path(where).absolute())
    try:
        system, base = fsspec.core.url_to_fs(where)
    except (ImportError, ValueError) as error:
        raise RequestError(f"{VARIABLE} '{where}' cannot be used: {error}.") from error
    return system, base


def _put(system: Any, file: Path, base: str, kept: WeightFile) -> None:
    blob = _blob(base, kept)
    if system.exists(blob) and _is_whole(system, blob, kept):
        return
    system.makedirs(str(PurePosixPath(blob).parent), exist_ok=True)
    unfinished = f"{blob}.{secrets.token_hex(4)}.part"
    try:
        system.put_file(str(file), unfinished)
        if not _is_whole(system, unfinished, kept):
            raise StoreError(f"{file} changed while it was copied; register it when it is finished.")
        if _is_local(system):
            _settle(Path(unfinished), Path(blob))
        else:
            system.mv(unfinished, blob)
    finally:
        with suppress(OSError):
            if system.exists(unfinished):
                system.rm_file(unfinished)


def _settle(unfinished: Path, blob: Path) -> None:
    """Bring a file to disk, read-only, and give it its name: the registry's transaction relies on it."""
    with unfinished.open("rb+") as stream:
        os.fsync(stream.fileno())
    unfinished.chmod(0o444)
    unfinished.replace(blob)
    folder = os.open(blob.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _sweep(base: Path) -> None:
    """Delete what processes that were killed have left unfinished."""
    oldest = datetime.now(UTC).timestamp() - _ABANDONED  # as the file system counts: its times are absolute
    for unfinished in base.glob("sha256/*/*.part"):
        with suppress(OSError):
            if unfinished.stat().st_mtime < oldest:
                unfinished.unlink()


def _get(system: Any, blob: str, target: Path, digest: str) -> None:
    unfinished = target.with_name(f"{target.name}.{secrets.token_hex(4)}.part")
    try:
        if _is_local(system):
            with suppress(OSError):  # another file system: copied below
                unfinished.hardlink_to(blob)
        if not unfinished.exists():
            system.get_file(blob, str(unfinished))
        if _digest(unfinished) != digest.removeprefix("sha256:"):
            raise StoreError(
                f"The copy {blob} is damaged: its digest is wrong; remove it, and register the model again."
            )
        unfinished.replace(target)
    finally:
        unfinished.unlink(missing_ok=True)


def _cache(system: Any, base: str) -> Path:
    """Return the folder for models as they were: beside local copies, else in the user's cache."""
    if _is_local(system):
        return Path(base) / "models"
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "modeldyno" / "models"


def _is_local(system: Any) -> bool:
    protocols = (system.protocol,) if isinstance(system.protocol, str) else system.protocol
    return "file" in protocols


def _blob(base: str, file: WeightFile) -> str:
    digest = file.digest.removeprefix("sha256:")
    if not _DIGEST.fullmatch(digest):
        raise StoreError(f"The registry names the digest '{digest[:64]}' of {file.path}; it is damaged.")
    return f"{base}/sha256/{digest[:2]}/{digest}"


def _error_text(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def _inside(path: str) -> PurePosixPath:
    """Return a relative path, after a check that it leads nowhere else."""
    relative = PurePosixPath(path)
    if relative.is_absolute() or ".." in relative.parts or "\0" in path or not relative.parts:
        raise StoreError(f"The registry names the file '{path}', which is outside its model; it is damaged.")
    return relative


def _is_as_registered(path: Path, file: WeightFile) -> bool:
    """Return whether a file on this machine has the content that was registered.

    It is read once by a process, and again when it has changed: by its inode, its size, or one of its times.
    That of its last change of status is set by the kernel alone, so that whoever writes other content and
    restores the time of the content is found, too. File systems count in ticks of milliseconds, so a file
    is read again unless it had rested when it was read.
    """
    status = path.stat()
    state = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    if status.st_size != file.size:
        return False
    read_before = _DIGESTS.get(path)
    if read_before is None or read_before[0] != state:
        read_before = (state, _digest(path))
        if abs(datetime.now(UTC).timestamp() - status.st_ctime) > _REST:
            _DIGESTS[path] = read_before
    return read_before[1] == file.digest.removeprefix("sha256:")


_DIGESTS: dict[Path, tuple[tuple[int, ...], str]] = {}
"""File to its state when it was read, and the digest of its content."""
_REST = 2.0
"""Seconds since its last change after which a file has rested."""


def _is_whole(system: Any, path: str, file: WeightFile) -> bool:
    """Return whether a copy has its content; elsewhere, where that would mean to fetch it, its size."""
    if _is_local(system):
        return _digest(Path(path)) == file.digest.removeprefix("sha256:")
    return bool(system.size(path) == file.size)


def _digest(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
