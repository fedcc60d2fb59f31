"""A shell in an empty folder, as every journey begins."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from tests.support.shell import EXAMPLES, Shell

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """Return a shell in an empty folder."""
    folder = tmp_path / "work"
    folder.mkdir()
    return Shell(folder=folder)


@pytest.fixture
def digits(shell: Shell) -> str:
    """Put the classifier of the examples with its test set into the folder; give its name."""
    for name in ("digits.onnx", "test.npz"):
        shutil.copy(EXAMPLES / "digits" / name, shell.folder / name)
    return "digits.onnx"
