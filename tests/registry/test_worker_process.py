"""Workers that a command starts: one for what it has queued, or one for each device."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from modeldyno.cli import cli
from modeldyno.engine.environment.idle import IdleRule
from modeldyno.registry import worker, worker_process
from modeldyno.registry.interface import Outcome
from modeldyno.registry.records.records import TaskState
from modeldyno.registry.register import Registration, register
from modeldyno.registry.targets import target_here
from modeldyno.registry.worker import WorkerOptions, new_worker, run_worker
from modeldyno.registry.worker_process import run_on_each_device

if TYPE_CHECKING:
    from modeldyno.profiling.request import Request
    from modeldyno.registry.interface import Registry

ROOT = Path(__file__).parents[2]


def write_device(options: WorkerOptions) -> int:
    """Write which device a worker is for; the exit code is its number."""
    Path(f"{options.device.replace(':', '-')}.txt").write_text(str(options.once), encoding="utf-8")
    return 0 if options.device == "cpu" else 5


def test_each_device_has_a_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """But for one that is never to be used; the largest exit code is returned."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(worker_process, "devices_here", lambda: ("cpu", "cuda:0", "cuda:1"))

    code = run_on_each_device(WorkerOptions(once=True, never_on=("cuda:1",)), write_device)

    assert code == 5
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        "cpu.txt": "True", "cuda-0.txt": "True",
    }  # fmt: skip


def test_a_worker_that_ends_when_all_is_done_waits_for_what_was_put_off_for_a_moment(
    registry: Registry, model: Path, measured: list[Request], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not for what is put off for half an hour."""
    register(Registration(model=str(model), convert=False), registry)
    pauses: list[float] = []
    monkeypatch.setattr(worker, "pause", lambda seconds, _interrupts: pauses.append(seconds))
    first = registry.claim(new_worker(target_here()))
    assert first is not None
    registry.finish(first, Outcome(state=TaskState.DEFERRED, again_in=1800.0), "me")

    run_worker(WorkerOptions(until_done=True, idle=IdleRule(samples=0)))

    assert len(measured) == 2
    assert pauses.count(WorkerOptions().poll) == 0


QUICK = """
[worker]
idle-cpu = "100%"
for = "0s"
"""


@pytest.mark.slow
@pytest.mark.timeout(150)
def test_registering_a_model_has_it_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has started a worker; the one that the command starts measures, and ends by itself."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MODELDYNO_STORE", f"sqlite:///{tmp_path}/store.db")
    monkeypatch.setenv("MODELDYNO_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("MODELDYNO_WORKER", "yes")
    (tmp_path / "modeldyno.toml").write_text(QUICK)
    (tmp_path / "brief.yaml").write_text("convert: []\nbatch_sizes: [1]\nmax_time: 300ms\n")
    digits = str(ROOT / "examples" / "digits" / "digits.onnx")
    typed("registry", "policy", "-f", "brief.yaml")

    output = typed("registry", "add", digits, "--policy", "brief")

    assert "a worker was started, and ends when nothing is left to do" in output
    pid, log = output.partition("process is ")[2].splitlines()[0].split(", its log ")
    deadline = time.monotonic() + 120
    while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert "digits/1 source: batch 1: onnxruntime" in Path(log).read_text()
    assert "onnxruntime" in typed("registry", "show", "digits")
    assert "a worker was started" not in typed("registry", "add", digits, "--policy", "brief")


def typed(*words: str) -> str:
    command = [sys.executable, "-m", "modeldyno", *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_the_log_of_a_worker_begins_with_when_and_how_it_ends(registry: Registry) -> None:
    """Several workers write to one log; who reads it must know which to end, and that it ends by itself."""
    del registry
    done = CliRunner().invoke(cli, ["worker", "--until-done"])

    assert done.exit_code == 0, done.output
    assert re.match(
        r"20\d\d-\d\d-\d\d \d\d:\d\d UTC: Waiting for tasks for cpu; it ends when nothing is left for the "
        rf"next ten minutes; before that, SIGINT or SIGTERM to process {os.getpid()} ends it\.\n",
        done.output,
    )
