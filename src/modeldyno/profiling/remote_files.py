"""``s3://bucket/models/net.onnx``: files of an object store, fetched once and kept while they are the same.

Any system of fsspec that has a name below can be read; its library takes the credentials from the environment
or its own files, and they appear in no message.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shutil
import tempfile
from pathlib import Path, PurePosixPath
from typing import Any

from modeldyno.base.errors import MissingExtra, RequestError, StoreUnavailable
from modeldyno.engine.environment.peaks import cache_directory

_LIBRARIES = {
    "s3": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "az": "adlfs", "abfs": "adlfs", "memory": "fsspec",
}  # fmt: skip
"""Scheme of a URL to the package that reads it."""
_REMOTE = re.compile(rf"(?:{'|'.join(_LIBRARIES)})://.*", re.DOTALL)
_STAMPS = ("ETag", "etag", "md5Hash", "content_md5", "LastModified", "last_modified", "mtime", "created")
"""What systems call that which changes with a file; its size is looked at, too."""
_SECRET = re.compile("SECRET|TOKEN|KEY|PASSWORD", re.IGNORECASE)


def is_remote(text: str) -> bool:
    """Return whether a word is the URL of files in an object store."""
    return _REMOTE.fullmatch(text) is not None


def fetch_remote(url: str) -> Path:
    """Return the path on this machine of a file, or of a folder with all its files.

    A file comes with those beside it whose names begin like its own, such as ``net.onnx.data``. What has the
    same names, sizes and ETags as at the last time is not fetched again.

    Raises:
        RequestError: there is nothing of this name, or the URL has credentials in it.
        MissingExtra: the package for this system is not installed.
        StoreUnavailable: it cannot be read now.
    """
    from fsspec.core import url_to_fs  # slow to import, and few models are there

    scheme, _, rest = url.partition("://")
    if "@" in rest.partition("/")[0]:
        raise RequestError(
            f"A {scheme}:// URL with credentials would be stored with each result; give them in the "
            "environment, and leave them out of the URL."
        )
    try:
        system, base = url_to_fs(url)
    except ImportError as error:
        raise MissingExtra(
            f"{scheme}:// needs a package that is not installed: pip install '{_LIBRARIES[scheme]}'."
        ) from error
    try:
        system.invalidate_cache()
        root, files = _list_files(system, base.rstrip("/"))
        folder = _fetch(system, url, root, files)
    except FileNotFoundError as error:
        raise RequestError(f"There is no '{url}'; check the bucket and the name.") from error
    except (RequestError, StoreUnavailable):
        raise
    except Exception as error:  # each system of fsspec raises errors of its own
        raise StoreUnavailable(f"'{url}' cannot be read: {_without_secrets(error)}.") from error
    return folder / PurePosixPath(base.rstrip("/")).name


def _list_files(system: Any, base: str) -> tuple[PurePosixPath, dict[str, Any]]:
    """Return the folder above what is named, and each file to fetch with what the system says of it."""
    root = PurePosixPath(base).parent
    if not system.isfile(base):
        below = system.find(base, detail=True)
        if not below:
            raise FileNotFoundError(base)
        return root, {name: info for name, info in below.items() if not name.endswith("/")}
    own = PurePosixPath(base)
    alike = (own.name, f"{own.stem}.")  # net.onnx.data, net.onnx_data, net.bin
    beside = (info for info in system.ls(str(root), detail=True) if info["type"] == "file")
    return root, {info["name"]: info for info in beside if PurePosixPath(info["name"]).name.startswith(alike)}


def _fetch(system: Any, url: str, root: PurePosixPath, files: dict[str, Any]) -> Path:
    """Return the folder of the files in the cache; it is there whole or not at all."""
    state = [(name, info["size"], *_stamp(info)) for name, info in sorted(files.items())]
    digest = hashlib.sha256(repr((url.partition(":")[0], str(root), state)).encode()).hexdigest()[:32]
    kept = (cache_directory() or Path(tempfile.mkdtemp(prefix="modeldyno-"))) / "remote"
    folder = kept / digest
    if folder.is_dir() and all(_is_whole(folder / _inside(name, root), files[name]) for name in files):
        return folder
    unfinished = folder.with_name(f"{digest}.{secrets.token_hex(4)}.part")
    try:
        for name, info in files.items():
            target = unfinished / _inside(name, root)
            target.parent.mkdir(parents=True, exist_ok=True)
            system.get_file(name, str(target))
            if not _is_whole(target, info):
                raise StoreUnavailable(f"'{url}' changed, or was cut off, while it was fetched; try again.")
        shutil.rmtree(folder, ignore_errors=True)
        unfinished.rename(folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return folder


def _stamp(info: dict[str, Any]) -> tuple[str, ...]:
    return tuple(f"{name}={info[name]}" for name in _STAMPS if info.get(name) is not None)


def _is_whole(path: Path, info: dict[str, Any]) -> bool:
    return path.is_file() and path.stat().st_size == info["size"]


def _inside(name: str, root: PurePosixPath) -> PurePosixPath:
    """Return the path of a file below the folder, after a check that it leads nowhere else."""
    relative = PurePosixPath(name).relative_to(root)
    if ".." in relative.parts or relative.is_absolute() or "\0" in name:
        raise RequestError(f"The name '{name}' leads out of its folder; name a file of the store by itself.")
    return relative


def _without_secrets(error: Exception) -> str:
    """Return the text of an error without what the environment calls a key, a secret or a token."""
    text = str(error).strip().partition("\n")[0].rstrip(".") or type(error).__name__
    for name, value in os.environ.items():
        if _SECRET.search(name) and len(value) >= _SHORTEST_SECRET:
            text = text.replace(value, "…")
    return text


_SHORTEST_SECRET = 6
