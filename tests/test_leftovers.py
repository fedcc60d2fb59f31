"""What a model leaves behind is gone when the command that loaded it ends, and what it prints is bounded."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support import leftovers

if TYPE_CHECKING:
    from collections.abc import Iterator

MODEL = f"call:{leftovers.__file__}:answer"
BRIEF = ("--max-time", "0.3s", "--min-time", "0.1s")
COMMANDS = {
    "registry add": ("registry", "add", MODEL, "--name", "left", "--policy", "none"),
    "profile": ("profile", MODEL, *BRIEF),
    "inspect": ("inspect", MODEL),
    "load": ("load", MODEL, "-c", "1", "--duration", "1s"),
    "sweep": ("sweep", MODEL, "--space", "batch_size=1", "--max-trials", "1", *BRIEF),
    "compare": ("compare", MODEL, MODEL, "--max-time", "10s"),
    "convert": ("convert", MODEL, "--to", "onnx", "-o", "made"),
    "explain": ("explain", MODEL, "--max-time", "10s"),
}
NAMES = [kind.__name__ for kind in leftovers.KINDS]
QUICK = [("registry add", "two_forks_in_sessions"), ("profile", "daemon")]
LIMITED = 'ulimit -f 524288; exec "$@"'
"""Limits a file to 256 MiB, far below what `flood` prints; no process with threads must fork for it."""


@pytest.fixture
def mark(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """Environment entry by which every process started by the test is recognised."""
    word = uuid.uuid4().hex
    monkeypatch.setenv("MODELDYNO_TEST_MARK", word)
    monkeypatch.setenv("MODELDYNO_STORE", f"sqlite:///{tmp_path / 'store.db'}")
    monkeypatch.setenv("MODELDYNO_STATE", str(tmp_path / "state"))
    return word


def left(mark: str) -> list[str]:
    """Return the command lines of processes, and the names of shared memory, that are left after a moment."""
    deadline = time.monotonic() + 5
    while (remaining := [*_processes(mark), *_segments(mark)]) and time.monotonic() < deadline:
        time.sleep(0.05)
    return remaining


def _processes(mark: str) -> Iterator[str]:
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if int(path.name) != os.getpid() and mark.encode() in (path / "environ").read_bytes():
                yield (path / "cmdline").read_text().replace("\0", " ")
        except OSError:
            continue


def _segments(mark: str) -> Iterator[str]:
    return (path.name for path in Path("/dev/shm").glob(f"*{mark}*"))


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("command", "kind"),
    [
        pytest.param(command, kind, marks=() if (command, kind) in QUICK else pytest.mark.slow)
        for command in COMMANDS
        for kind in NAMES
    ],
)
def test_nothing_is_left(
    command: str, kind: str, mark: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Of each of 22 kinds, in each command that loads a model, which ends by itself and prints little."""
    monkeypatch.setenv("MODELDYNO_TEST_LEFTOVER", kind)
    begin = time.monotonic()
    with (tmp_path / "printed").open("w+b") as printed:
        ended = subprocess.run(
            ["sh", "-c", LIMITED, "sh", sys.executable, "-m", "modeldyno", *COMMANDS[command]],
            stdout=printed,
            stderr=printed,
            cwd=tmp_path,
            timeout=200,
            check=False,
        )
        printed.seek(0)
        text = printed.read().decode()

    assert left(mark) == []
    assert ended.returncode in range(6), text
    assert len(text) < 20_000
    assert "Traceback" not in text, text
    assert time.monotonic() - begin < 150
