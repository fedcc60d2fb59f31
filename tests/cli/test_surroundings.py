"""The command in surroundings that are unlike those of a developer: each condition is made real."""

from __future__ import annotations

import json
import os
import pty
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

COMMAND = [sys.executable, "-m", "modeldyno"]
SHELL = f"{sys.executable} -m modeldyno"
MODEL = """\
import time


def slow(x=1):
    time.sleep(0.002)
    return x
"""
BRIEF = ("--max-time", "300ms", "--precision", "0.5")
NOBODY = 65534
READER = "-all,+dac_read_search"
"""May read every file, as the Python of a test may lie in a folder of its user, and nothing else."""
UNPRIVILEGED = [
    "setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups",
    f"--inh-caps={READER}", f"--ambient-caps={READER}", f"--bounding-set={READER}",
]  # fmt: skip


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.py"
    path.write_text(MODEL)
    return path


def ran(
    command: list[str], folder: Path, *, status: int = 0, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run a command with a store of its own; its status is as expected, and no bug is told."""
    store = {"MODELDYNO_STORE": f"sqlite:///{folder}/store.db"}
    process = subprocess.run(
        command, check=False, capture_output=True, text=True, encoding="utf-8", cwd=folder,
        env=os.environ | store | variables, timeout=120,
    )  # fmt: skip
    text = process.stdout + process.stderr
    assert process.returncode == status, text
    assert "this is a bug" not in text
    assert "Traceback" not in text
    return process


def can_unmount_proc() -> bool:
    return (
        shutil.which("unshare") is not None
        and subprocess.run(
            ["unshare", "-m", "mount", "-t", "tmpfs", "none", "/proc"], check=False, capture_output=True
        ).returncode
        == 0
    )


@pytest.mark.skipif(not can_unmount_proc(), reason="only root may hide /proc")
def test_without_proc_calls_are_measured_and_what_is_not_known_is_said(model: Path, tmp_path: Path) -> None:
    """Times need no /proc; memory, processor time and noise do, and are not told as zero."""
    path = tmp_path / "result.json"
    script = f"mount -t tmpfs none /proc && {SHELL} profile call:{model}:slow {' '.join(BRIEF)} --json {path}"
    printed = ran(["unshare", "-m", "sh", "-c", script], tmp_path).stdout
    result = json.loads(path.read_text())
    metrics = {measurement["metric"] for measurement in result["measurements"]}
    assert "slow answers in " in printed
    assert "latency" in metrics
    assert not metrics & {"process_memory", "cpu_utilization", "foreign_cpu", "steal"}
    (reason,) = (doubt["seen"] for doubt in result["doubts"] if doubt["code"] == "unwatched")
    assert "memory, processor time and noise are not known" in reason


@pytest.mark.skipif(not can_unmount_proc(), reason="only root may hide /proc")
def test_without_proc_nothing_that_a_model_started_is_left(tmp_path: Path) -> None:
    """What is in the group of the command is ended with it, as the tree of processes cannot be read."""
    model = tmp_path / "model.py"
    model.write_text(
        "import subprocess\nchild = subprocess.Popen(['sleep', '600.25'])\n\n\ndef slow(x=1):\n    return x\n"
    )
    script = f"mount -t tmpfs none /proc && {SHELL} profile call:{model}:slow {' '.join(BRIEF)} -q"
    ran(["unshare", "-m", "sh", "-c", script], tmp_path)
    commands = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
    assert b"sleep\x00600.25\x00" not in commands


def test_a_removed_working_directory_is_said(tmp_path: Path) -> None:
    """A sentence, as of a wrong request; help and version need no directory."""
    gone = tmp_path / "gone"
    gone.mkdir()
    for words, status in (("list", 2), ("--version", 0), ("--help", 0)):
        gone.mkdir(exist_ok=True)
        printed = ran(["sh", "-c", f"cd {gone} && rmdir {gone} && {SHELL} {words}"], tmp_path, status=status)
        if status:
            assert printed.stderr.startswith("modeldyno: The working directory has been removed; ")


@pytest.mark.parametrize("closed", [pytest.param(">&-", marks=pytest.mark.slow), "<&- >&- 2>&-"])
def test_closed_streams_change_neither_work_nor_exit_code(closed: str, model: Path, tmp_path: Path) -> None:
    """The result is stored and written as ever, and a wrong request is one."""
    path = tmp_path / "result.json"
    words = f"profile call:{model}:slow --max-time 300ms --precision 0.5 --json {path}"
    ran(["sh", "-c", f"{SHELL} {words} {closed}"], tmp_path)
    assert json.loads(path.read_text())["measurements"]
    assert (tmp_path / "store.db").exists()
    ran(["sh", "-c", f"{SHELL} nonsense {closed}"], tmp_path, status=2)


def test_names_that_are_not_ascii_are_read_in_the_locale_c(model: Path, tmp_path: Path) -> None:
    """Also where Python's own mode for it is switched off; paths, tags and output are UTF-8."""
    folder = tmp_path / "modèle €"
    folder.mkdir()
    named = model.rename(folder / "lenteur_é.py")
    path = tmp_path / "résultat.json"
    words = ["profile", f"call:{named}:slow", *BRIEF, "--tag", "été", "--json", str(path)]
    ascii_only: dict[str, Any] = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    assert "lenteur_é.slow answers in" in ran([*COMMAND, *words], tmp_path, **ascii_only).stdout
    assert json.loads(path.read_text("utf-8"))["job"]["model"]["locator"].endswith("lenteur_é.py:slow")
    assert "été" in ran([*COMMAND, "list"], tmp_path, **ascii_only).stdout


@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None, reason="only root may become another user"
)
def test_an_unprivileged_user_with_a_read_only_home_measures(model: Path, tmp_path: Path) -> None:
    """The result is printed; that it cannot be stored is a warning with what to do, of `tag` an error."""
    for path in (model, *tmp_path.parents):
        if path.is_relative_to(tmp_path.parents[1]):
            path.chmod(path.stat().st_mode | 0o055)
    tmp_path.chmod(0o755)
    home, temporary = tmp_path / "home", tmp_path / "tmp"
    for folder, mode in ((home, 0o555), (temporary, 0o1777)):
        folder.mkdir()
        folder.chmod(mode)
    own: dict[str, Any] = {
        "HOME": str(home),
        "TMPDIR": str(temporary),
        "MODELDYNO_STORE": f"sqlite:///{home}/a/store.db",
    }
    words = ["profile", f"call:{model}:slow", *BRIEF]
    printed = ran([*UNPRIVILEGED, *COMMAND, *words], tmp_path, **own)
    assert "slow answers in " in printed.stdout
    assert "process_memory.max" in printed.stdout
    assert "the result is not stored" in printed.stderr
    assert "writable" in printed.stderr
    assert not any(home.iterdir())
    assert (
        "MODELDYNO_STORE"
        in ran([*UNPRIVILEGED, *COMMAND, "tag", "abc", "x"], tmp_path, status=4, **own).stderr
    )


def error_in_a_terminal(folder: Path, **variables: str) -> str:
    """Return what a terminal gets on standard error of a command that is wrong."""
    controller, terminal = pty.openpty()
    subprocess.run(
        [*COMMAND, "show", "nothing"], check=False, stdout=subprocess.DEVNULL, stderr=terminal, cwd=folder,
        env=os.environ | {"MODELDYNO_STORE": f"sqlite:///{folder}/store.db"} | variables, timeout=120,
    )  # fmt: skip
    os.close(terminal)
    with os.fdopen(controller, "rb") as read:
        return read.read1().decode()


def test_an_error_begins_in_red_in_a_terminal_alone(tmp_path: Path) -> None:
    """A pipe gets the bare sentence, and so does who asks for no colour."""
    plain = ran([*COMMAND, "show", "nothing"], tmp_path, status=2).stderr

    assert plain.startswith("modeldyno: The store has no result")
    assert error_in_a_terminal(tmp_path).startswith("\x1b[31m\x1b[1mmodeldyno:\x1b[0m The store has no")
    assert error_in_a_terminal(tmp_path, NO_COLOR="1").startswith("modeldyno: The store has no")
