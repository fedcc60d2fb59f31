"""OpenVINO sends nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from modeldyno.base.system.variables import without_telemetry

if TYPE_CHECKING:
    from pathlib import Path

SCRIPT = """
import os, sys
os.environ.pop("CI", None)
forks = []
os.register_at_fork(before=lambda: forks.append(1))
import modeldyno
made = modeldyno.convert("examples/digits/digits.onnx", to="openvino", output=sys.argv[1], inline=True)
assert made["openvino"].verdict == "agrees", made
from openvino.tools import ovc
assert not ovc.telemetry.consent
assert not forks
"""


def test_an_import_and_a_conversion_send_nothing(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """No process is forked for a message, and the switch of the telemetry is off."""
    pytest.importorskip("openvino_telemetry")
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "out")]
    done = subprocess.run(command, cwd=request.config.rootpath, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("before", [None, "false"])
def test_the_environment_is_as_before(monkeypatch: pytest.MonkeyPatch, before: str | None) -> None:
    """Whether it is a CI job, others may want to know."""
    monkeypatch.delenv("CI", raising=False)
    if before is not None:
        monkeypatch.setenv("CI", before)
    with without_telemetry():
        assert os.environ["CI"] == "true"
    assert os.environ.get("CI") == before
