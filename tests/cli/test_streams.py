"""Standard streams that are closed, full, or read by nobody: the exit code is right, and nothing is a bug."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

MODELDYNO = f"{sys.executable} -m modeldyno"


@pytest.mark.parametrize(
    ("command", "code", "says"),
    [
        ("list >&-", 0, ""),
        ("schema result >&-", 0, ""),
        ("list >&- 2>&- <&-", 0, ""),
        ("show nothing 2>&-", 2, ""),
        ("show nothing 2>/dev/full", 2, ""),
        ("show nothing >&- 2>/dev/full", 2, ""),
        ("list >/dev/full", 4, "Cannot write to standard output: No space left on device"),
        ("list >/dev/full 2>/dev/full", 4, ""),
    ],
)
def test_a_stream_that_nobody_reads_changes_no_exit_code(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: str, code: int, says: str
) -> None:
    """A closed one is as the null device; an error that cannot be printed has its code all the same."""
    monkeypatch.setenv("MODELDYNO_STORE", f"sqlite:///{tmp_path / 'store.db'}")
    ended = subprocess.run(
        ["bash", "-c", f"{MODELDYNO} {command}"], capture_output=True, text=True, timeout=60, check=False
    )

    assert ended.returncode == code, ended.stderr
    assert says in ended.stderr
    assert "bug" not in ended.stderr
