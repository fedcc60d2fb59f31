from __future__ import annotations

import json
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
