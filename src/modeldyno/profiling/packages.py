"""A package: one zip file with a model, the samples it is measured with, and how it came about.

Wherever a model is named, such a file may be: it is unpacked once, beside other files that are fetched.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import shutil
import tempfile
import zipfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from modeldyno.base.errors import RequestError
from modeldyno.base.job.input_spec import InputSpec
from modeldyno.engine.environment.peaks import cache_directory

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy import ndarray

SUFFIX = ".zip"
_RECORD = "package.json"
_KIND = "modeldyno-package"
_LONGEST_RECORD = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageRecord:
    """What a package says of its model."""

    name: str
    form: str
    """What the model became, such as ``openvino``."""
    scheme: str
    """The loader that reads it."""
    file: str
    """Its path in the package."""
    why: str
    """The sentence by which it was chosen."""
    agreement: str
    """The sentence on whether it is still the model."""
    digest: str
    inputs: tuple[InputSpec, ...] = ()
    """What it is measured with; a ``source`` lies beside the file."""
    software: dict[str, str] | None = None
    kind: str = _KIND
    schema: int = 1


def write_package(path: Path, record: PackageRecord, folder: Path, documents: Mapping[str, bytes]) -> None:
    """Write a package, whole or not at all.

    Args:
        path: the file.
        record: what it says of its model.
        folder: the folder of the model, whose name is the first part of the record's `file`.
        documents: further files by name.

    Raises:
        RequestError: it cannot be written.
    """
    unfinished = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        with zipfile.ZipFile(unfinished, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(_RECORD, msgspec.json.format(msgspec.json.encode(record)))
            for name, content in documents.items():
                archive.writestr(name, content)
            for file in sorted(folder.rglob("*")):
                if file.is_file():
                    archive.write(file, f"{folder.name}/{file.relative_to(folder)}")
        unfinished.replace(path)
    except OSError as error:
        raise RequestError(f"Cannot write {path}: {error.strerror or error}.") from error
    finally:
        unfinished.unlink(missing_ok=True)


def is_package(path: Path) -> bool:
    """Return whether a path is a package."""
    return path.suffix.lower() == SUFFIX and path.is_file() and _read_record(path) is not None


def open_package(path: Path) -> tuple[PackageRecord, Path]:
    """Unpack a package, unless it has been; return what it says, and the path of its model.

    Raises:
        RequestError: it is damaged, or a file would lie outside of its folder.
    """
    record = _read_record(path)
    assert record is not None
    with path.open(
        "rb"
    ) as file:  # others of the same checksums must not be taken for what was unpacked before
        digest = hashlib.file_digest(file, "sha256").hexdigest()[:32]
    with zipfile.ZipFile(path) as archive:
        folder = (cache_directory() or Path(tempfile.mkdtemp(prefix="modeldyno-"))) / "packages" / digest
        if not folder.is_dir():
            unfinished = folder.with_name(f"{digest}.{secrets.token_hex(4)}.part")
            try:
                _unpack(archive, unfinished)
                unfinished.replace(folder)
            except (OSError, zipfile.BadZipFile) as error:
                if not folder.is_dir():  # else another process was quicker
                    raise RequestError(f"{path} cannot be unpacked: {error}.") from error
            finally:
                shutil.rmtree(unfinished, ignore_errors=True)
    return record, folder / record.file


def _unpack(archive: zipfile.ZipFile, folder: Path) -> None:
    for info in archive.infolist():
        if not (folder / info.filename).resolve().is_relative_to(folder.resolve()):
            raise RequestError(f"The package has a file '{info.filename}' that would lie outside of it.")
    archive.extractall(folder)


def _read_record(path: Path) -> PackageRecord | None:
    try:
        with zipfile.ZipFile(path) as archive:
            if archive.getinfo(_RECORD).file_size > _LONGEST_RECORD:
                return None
            document: Any = json.loads(archive.read(_RECORD))
    except (OSError, KeyError, ValueError, zipfile.BadZipFile):
        return None
    if not isinstance(document, dict) or document.get("kind") != _KIND:
        return None
    try:
        return msgspec.convert(document, PackageRecord)
    except msgspec.ValidationError as error:
        raise RequestError(f"{path} is a damaged package: {error}.") from error


def inputs_beside(record: PackageRecord, file: Path) -> tuple[InputSpec, ...]:
    """Return what the model of a package is measured with, with the paths of its files."""
    return tuple(
        spec if spec.source is None else replace(spec, source=str(file.parent / Path(spec.source).name))
        for spec in record.inputs
    )


def read_samples(inputs: Iterable[Any]) -> dict[str, ndarray]:
    """Return the samples that inputs name a file of, by the names of the inputs."""
    import numpy as np  # slow to import

    samples: dict[str, ndarray] = {}
    for spec in inputs:
        if not isinstance(spec, InputSpec) or spec.source is None or not spec.source.endswith(".npz"):
            continue
        with np.load(spec.source, allow_pickle=False) as file:
            if spec.name in file.files:
                samples[spec.name] = file[spec.name]
    return samples
