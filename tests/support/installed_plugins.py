"""Packages with plugins, installed in a folder as pip would, for processes that are started beside it."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def install_package(
    folder: Path, files: Mapping[str, str], groups: Mapping[str, Mapping[str, str]], name: str = "dyno-evil"
) -> None:
    """Write a package's modules and the metadata by which its entry points are found, version 1.2."""
    info = folder / f"{name.replace('-', '_')}-1.2.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n")
    sections = (f"[modeldyno.{group}]\n" + "".join(f"{k} = {v}\n" for k, v in entries.items())
                for group, entries in groups.items())  # fmt: skip
    (info / "entry_points.txt").write_text("\n".join(sections))
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)


def run_beside(
    folder: Path, *arguments: str, cwd: Path | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run ``python ARGUMENTS`` where the packages of a folder are installed, too."""
    path = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH", ""))))
    return subprocess.run(
        [sys.executable, *arguments], cwd=cwd or folder, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": path, "COLUMNS": "300", **variables}, timeout=900,
    )  # fmt: skip
