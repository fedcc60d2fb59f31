"""Temporary folders of processes, and what killed ones leave."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from modeldyno.base.system.temporary_folder import own_folder

if TYPE_CHECKING:
    import pytest

KILLED = """
import os, signal
from modeldyno.base.system.temporary_folder import own_folder
folder = own_folder("convert")
print(folder.name, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_process_left_is_removed_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And nothing else: neither of living processes, nor of other containers, nor of other programs."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    killed = subprocess.run([sys.executable, "-c", KILLED], capture_output=True, text=True, check=False)
    left = Path(killed.stdout.strip())
    others = [tmp_path / "modeldyno-convert-1-2-3-x", tmp_path / "modeldyno-convert-x", tmp_path / "other"]
    for folder in others:
        folder.mkdir()
    assert left.is_dir()

    with own_folder("variant") as first, own_folder("variant") as second:
        assert not left.exists()
        assert Path(first).is_dir()
        assert Path(second).is_dir()

    assert sorted(tmp_path.iterdir()) == sorted(others)
