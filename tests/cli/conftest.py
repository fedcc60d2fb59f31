from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from modeldyno.cli import main

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@dataclass(frozen=True)
class CommandResult:
    code: int
    out: str
    err: str


@pytest.fixture
def modeldyno(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Callable[..., CommandResult]:
    """The command line, with a store, locks of devices and a working directory of its own."""

    def own_locks() -> Path:
        folder = tmp_path / ".locks"
        folder.mkdir(exist_ok=True)
        return folder

    monkeypatch.setenv("MODELDYNO_STORE", f"sqlite:///{tmp_path}/store.db")
    monkeypatch.setattr("modeldyno.engine.environment.device_lock._folder", own_locks)
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> CommandResult:
        with pytest.raises(SystemExit) as left:
            main(arguments)
        out, err = capfd.readouterr()
        assert isinstance(left.value.code, int)
        return CommandResult(code=left.value.code, out=out, err=err)

    return run
