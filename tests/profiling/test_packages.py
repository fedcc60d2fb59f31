"""A package is unpacked once, and only its own bytes stand for it."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

from modeldyno.profiling.packages import PackageRecord, open_package, write_package

if TYPE_CHECKING:
    from pathlib import Path


def a_package(folder: Path, content: bytes) -> Path:
    """Write a package of one file."""
    model = folder / "model"
    model.mkdir(parents=True)
    (model / "m.onnx").write_bytes(content)
    record = PackageRecord(
        name="m", form="onnx", scheme="onnx", file="model/m.onnx", why="", agreement="", digest=""
    )
    write_package(folder / "m.zip", record, model, {})
    return folder / "m.zip"


def test_a_package_with_equal_checksums_is_another_package(tmp_path: Path) -> None:
    """Whoever opens one after the other gets the model of each: a CRC-32 is easily made to agree."""
    first, second = b"plumless", b"buckeroo"
    assert zlib.crc32(first) == zlib.crc32(second)

    packages = [a_package(tmp_path / name, content) for name, content in (("a", first), ("b", second))]

    assert [open_package(path)[1].read_bytes() for path in packages] == [first, second]
    assert open_package(packages[0])[1] == open_package(packages[0])[1]
