"""The plugin for pytest, in sessions of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

SHORT = """
from modeldyno import pytest_plugin

pytest_plugin._PROCESSES = 2
"""
TEST = """
from modeldyno import Plan

def test_speed(modeldyno_profile):
    plan = Plan(max_time=0.1, min_time=0.02, min_runs=5, precision=0.5)
    result = modeldyno_profile("call:modeldyno.testing.known_latency:steady", probes=["latency"], plan=plan)
    assert 0.001 < result["latency.min"]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A test of a model that takes 2 ms, in two processes rather than five."""
    (tmp_path / "conftest.py").write_text(SHORT)
    (tmp_path / "test_nets.py").write_text(TEST)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    return tmp_path


ALONE = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": "modeldyno.pytest_plugin"}
"""Starts pytest without all other plugins that are installed."""


def session(folder: Path, *arguments: str, **environment: str) -> tuple[int, str]:
    """Run pytest there."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, env=os.environ | environment
    )
    return done.returncode, done.stdout + done.stderr


def test_a_baseline_is_kept_held_and_broken(folder: Path) -> None:
    """Without one there is a warning; it is written when asked; what is slower than it fails."""
    path = folder / "__modeldyno__" / "test_nets" / "test_speed.json"
    code, output = session(folder, **ALONE)
    assert (code, path.exists()) == (0, False), output
    assert "UndecidedWarning: There is no baseline" in output

    code, output = session(folder, "--modeldyno-update", **ALONE)
    assert (code, path.is_file()) == (0, True), output
    assert "UndecidedWarning" not in output

    code, output = session(folder, "--modeldyno-budget", "3", **ALONE)
    assert code == 0, output
    assert "unlike hardware" not in output


EVERY_ARGUMENT = """
def test_speed(modeldyno_profile):
    modeldyno_profile(
        "call:modeldyno.testing.known_latency:steady",
        probes="latency", max_time=0.1, min_time=0.02, min_runs=5, precision=0.5,
        layers=(), max_regression=0.0001,
    )
"""


def test_the_second_day_takes_the_arguments_of_the_first(folder: Path) -> None:
    """Against a baseline as without one; what is undecided fails where that is asked for."""
    (folder / "test_nets.py").write_text(EVERY_ARGUMENT)
    code, output = session(folder, "--modeldyno-update", **ALONE)
    assert code == 0, output

    code, output = session(folder, "--modeldyno-budget", "4", "--modeldyno-undecided", "fail", **ALONE)
    assert (code, "It is undecided" in output) == (1, True), output


@pytest.mark.slow
def test_a_baseline_of_another_machine_is_told(folder: Path) -> None:
    """It is compared all the same, with the difference in words."""
    session(folder, "--modeldyno-update", **ALONE)
    path = folder / "__modeldyno__" / "test_nets" / "test_speed.json"
    document = json.loads(path.read_text())
    document["environment"]["hardware"] = {"cpu": "another"}
    path.write_text(json.dumps(document))
    code, output = session(folder, "--modeldyno-budget", "3", **ALONE)
    assert code == 0, output
    assert "unlike hardware" in output


def test_it_costs_nothing_until_it_is_used(folder: Path) -> None:
    """A session without the fixture imports nothing of ours but the plugin, which pytest finds by itself."""
    (folder / "test_nets.py").write_text(
        "import sys\n\ndef test_nothing():\n"
        "    ours = {name for name in sys.modules if name.startswith('modeldyno')}\n"
        "    light = {'modeldyno', 'modeldyno.base', 'modeldyno.base.errors', 'modeldyno.base.document',\n"
        "             'modeldyno.base.lazy_names'}\n"
        "    light |= {'modeldyno.pytest_plugin'}\n"
        "    assert 'modeldyno.pytest_plugin' in ours <= light\n"
        "    assert 'numpy' not in sys.modules\n"
    )
    code, output = session(folder, *(f"-pno:{name}" for name in ("randomly", "cov", "hypothesispytest")))
    assert code == 0, output


CHEAT = """
from time import sleep

import numpy as np

work_inputs = np.random.default_rng(1).standard_normal((8, 256)).astype(np.float32)
TABLE = {{}}


def compute(x):
    sleep(0.06)
    return np.sin(x)


class Later:
    def __init__(self, x):
        self.x, self.shape, self.dtype, self.ndim = x, x.shape, x.dtype, x.ndim

    def __array__(self, dtype=None, copy=None):
        return compute(self.x)


def honest(x):
    return compute(x)


def table(x):
    sleep(0.002)
    if x.tobytes() not in TABLE:
        TABLE[x.tobytes()] = compute(x)
    return TABLE[x.tobytes()]


def lazy(x):
    sleep(0.002)
    return Later(x)


work = {name}


def test_speed(modeldyno_profile):
    modeldyno_profile(
        "call:test_nets.py:work", metrics=["latency"],
        probes="latency", max_time=2, min_time=0.1, precision=0.5,
    )
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("table", "are answered faster than new ones"),
        ("lazy", "the work is done when the output is read"),
    ],
)
def test_what_only_seems_fast_passes_with_a_warning_alone(folder: Path, name: str, why: str) -> None:
    """Against a baseline of the honest function: undecided, which fails where that is asked for."""
    (folder / "test_nets.py").write_text(CHEAT.format(name="honest"))
    code, output = session(folder, "--modeldyno-update", **ALONE)
    assert code == 0, output

    (folder / "test_nets.py").write_text(CHEAT.format(name=name))
    code, output = session(folder, "--modeldyno-budget", "10", "--modeldyno-undecided", "fail", **ALONE)
    assert (code, "It is undecided" in output, why in " ".join(output.split())) == (1, True, True), output
