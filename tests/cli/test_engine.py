from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cli.conftest import CommandResult


@pytest.fixture
def engines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of engines with an installed Triton."""
    folder = tmp_path / "engines"
    (folder / "triton").mkdir(parents=True)
    receipt = {"versions": {"python": "3.11.7", "nvidia-pytriton": "0.7.0"}, "library": "/lib"}
    (folder / "triton" / "installed.json").write_text(json.dumps(receipt))
    monkeypatch.setenv("MODELDYNO_ENGINES", str(folder))
    return folder


def test_list_tells_what_is_there_and_how_to_get_the_rest(
    modeldyno: Callable[..., CommandResult], engines: Path
) -> None:
    """Each engine has a line: its versions and size, or the command that installs it."""
    del engines
    result = modeldyno("engine", "list")
    assert result.code == 0
    assert "triton      Triton Inference Server, python 3.11.7, nvidia-pytriton 0.7.0; " in result.out
    assert "mlserver    not installed; modeldyno engine install mlserver" in result.out


def test_path_prints_a_directory(modeldyno: Callable[..., CommandResult], engines: Path) -> None:
    """`engine path` prints the directory; for a missing engine, it says how to install it."""
    assert modeldyno("engine", "path", "triton").out == f"{engines / 'triton'}\n"
    result = modeldyno("engine", "path", "mlserver")
    assert result.code == 3
    assert "modeldyno engine install mlserver" in result.err


def test_a_misspelt_engine(modeldyno: Callable[..., CommandResult], engines: Path) -> None:
    """The nearest name is suggested, in one sentence."""
    del engines
    result = modeldyno("engine", "install", "tritn")
    assert (result.code, result.out) == (2, "")
    assert "did you mean 'triton'?" in result.err


def test_a_command_runs_with_the_libraries_of_an_engine(engines: Path) -> None:
    """Triton finds its libraries and backends; the words that follow are its own, and so is the exit code."""
    folder = engines / "triton"
    program = folder / "venv/lib/python3.11/site-packages/pytriton/tritonserver/bin/tritonserver"
    program.parent.mkdir(parents=True)
    program.write_text('#!/bin/sh\necho "$@"\necho "$LD_LIBRARY_PATH"\necho "$VIRTUAL_ENV"\nexit 7\n')
    program.chmod(0o755)
    words = (
        sys.executable,
        "-m",
        "modeldyno",
        "engine",
        "run",
        "triton",
        "tritonserver",
        "--model-repository=r",
    )
    done = subprocess.run(words, capture_output=True, text=True, check=False)

    arguments, libraries, environment = done.stdout.splitlines()
    assert arguments == f"--backend-directory={folder / 'backends'} --model-repository=r"
    assert libraries.startswith("/lib:")
    assert environment == str(folder / "venv")
    assert done.returncode == 7


def test_a_command_that_an_engine_lacks(modeldyno: Callable[..., CommandResult], engines: Path) -> None:
    """The sentence says where its commands are."""
    result = modeldyno("engine", "run", "triton", "no-such-program", "-x")
    assert result.code == 2
    assert (
        f"no command 'no-such-program'; its commands are in {engines / 'triton' / 'venv' / 'bin'}"
        in result.err
    )
