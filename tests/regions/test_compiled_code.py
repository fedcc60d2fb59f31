"""A script that compiles its model is followed as it runs: compiled, and as one operator of each call."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING

import pytest

from modeldyno.base import codec
from modeldyno.base.result.trace_data import EventKind

if TYPE_CHECKING:
    from pathlib import Path

    from modeldyno.base.result.result import Result

SCRIPT = """
    import torch


    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(8, 8)

        def forward(self, x):
            assert torch.compiler.is_compiling()  # what runs eagerly fails
            return torch.relu(self.layer(x))


    class Scale:
        @torch.compile(backend="eager")
        def scaled(self, x):
            return x * 2 + 1


    net = torch.compile(Net().eval(), backend="eager")
    own = torch.nn.Linear(8, 8).eval()
    own.compile(backend="eager")
    x = torch.ones(4, 8)
    with torch.no_grad():
        for _ in range(6):
            y = net(x)
        for _ in range(3):
            z = Scale().scaled(y)
        own(x)
        own(torch.ones(4, 8) + z)
    assert isinstance(net, torch._dynamo.OptimizedModule)
"""


def followed(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> tuple[Result, str]:
    """Follow a script, as a user does; return the Result, and what was printed."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("MODELDYNO_STORE", f"sqlite:///{folder}/store.db")
    (folder / "work.py").write_text(textwrap.dedent(script))
    command = [sys.executable, "-m", "modeldyno", "run", "--ops", "--json", "r.json", "work.py"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    printed = done.stdout + done.stderr
    assert done.returncode == 0, printed
    return codec.read(folder / "r.json"), printed


def test_compiled_code_runs_compiled_and_is_one_operator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first call, which compiles, stands apart; what is called besides has its own names, as always."""
    pytest.importorskip("torch")
    result, printed = followed(tmp_path, monkeypatch, SCRIPT)
    assert result.activity is not None
    calls = {row.name: row.calls for row in result.activity.executed if row.kind is EventKind.OPERATOR}

    assert (calls["compiling Net"], calls["compiled Net"]) == (1, 5)
    assert (calls["compiling scaled"], calls["compiled scaled"]) == (1, 2)
    assert calls["torch.ones"] == 2
    assert not {"torch.relu", "torch.nn.functional.linear", "mul"} & calls.keys()
    assert "hooks" not in printed


def test_a_script_without_operators_says_what_was_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And where its time is told; nothing is claimed of copies that nobody could see."""
    _, printed = followed(tmp_path, monkeypatch, "print(sum(i * i for i in range(300_000)))")
    text = " ".join(printed.split())

    assert "operators: none of torch ran here, so --ops has nothing to list" in text
    assert "the table of lines has the time of all Python" in text
    assert "no unnecessary copies" not in text
    assert "traced-operators" not in text
    assert "work.py:1" in text
