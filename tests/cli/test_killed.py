"""Commands that get SIGTERM or SIGKILL at any moment of their work."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from modeldyno.base import plugins
from modeldyno.stores import lookup as documents_lookup
from modeldyno.testing.server import RunningServer, serve_in_subprocess

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MODEL = """
import os, pathlib, time
here = pathlib.Path(__file__).parent
with open(here / "processes", "a") as file:
    file.write(f"{os.getpid()}\\n")

def answer():
    (here / "called").touch()
    time.sleep(0.004)
    return 1.0

def answer_rows(x):
    return answer()
"""
COMMANDS = {
    "profile": ("profile", "call:model.py:answer", "--min-time", "20s", "--max-time", "30s"),
    "compare": (
        "compare", "call:model.py:answer", "call:model.py:answer", "--min-rounds", "15", "--run-time", "1s",
        "--min-time", "0.2s",
    ),
    "sweep": (
        "sweep", "call:model.py:answer_rows", "--input", "x=batchx4", "--space", "batch_size=1,2,4,8,16,32",
        "--maximize", "batch_rate", "--min-time", "2s", "--max-time", "60s",
    ),
    "advise": ("advise", "call:model.py:answer", "--max-time", "60s"),
    "load": (
        "load", "URL", "--input", "x=1x4", "--concurrency", "4", "--duration", "30s", "--max-time", "30s"
    ),
}  # fmt: skip
"""Each would take long."""
PROCESSES = {"profile": 1, "compare": 6, "sweep": 2, "advise": 1}
"""Processes that have loaded the model by the time that there is something to save."""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a model and a store."""
    (tmp_path / "model.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MODELDYNO_STORE", f"sqlite:///{tmp_path}/store.db")
    return tmp_path


@pytest.fixture
def mark(monkeypatch: pytest.MonkeyPatch) -> str:
    """An environment variable that marks every process of the test."""
    word = uuid.uuid4().hex
    monkeypatch.setenv("MODELDYNO_TEST_MARK", word)
    return word


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    """A server that takes 5 ms for each request; no process of the commands."""
    with serve_in_subprocess("--service", "constant:0.005") as running:
        yield running


def start(arguments: tuple[str, ...], server: RunningServer) -> subprocess.Popen[str]:
    url = f"http://127.0.0.1:{server.port}#echo"
    command = [sys.executable, "-m", "modeldyno", *(url if word == "URL" else word for word in arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def wait_until(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.05)


def alive(mark: str) -> list[str]:
    result = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark.encode() in path.read_bytes() and int(path.parent.name) != os.getpid():
                result.append((path.parent / "cmdline").read_text().replace("\0", " "))
        except OSError:
            continue
    return result


def left(mark: str, patience: float = 8.0) -> list[str]:
    deadline = time.monotonic() + patience
    while alive(mark) and time.monotonic() < deadline:
        time.sleep(0.05)
    return alive(mark)


@pytest.mark.parametrize(
    "command",
    ["profile", "load", *(pytest.param(n, marks=pytest.mark.slow) for n in ("compare", "sweep", "advise"))],
)
def test_sigterm_saves_what_was_measured(place: Path, mark: str, server: RunningServer, command: str) -> None:
    """The document is readable, no process is left, and the exit code is that of SIGTERM."""
    begun = _answered(server)
    process = start((*COMMANDS[command], "--json", "saved.json"), server)
    if command == "load":
        wait_until(lambda: _answered(server) > begun + 300, process)
    else:
        wait_until(lambda: _processes(place) >= PROCESSES[command] and (place / "called").exists(), process)
        time.sleep(1.5)

    process.terminate()
    output, _ = process.communicate(timeout=60)

    assert process.returncode == 143, output
    if command == "advise":
        assert json.loads((place / "saved.json").read_text())["baseline"]
    else:
        documents_lookup.find_any(str(place / "saved.json"))
    assert "Traceback" not in output
    assert left(mark) == []


def _answered(server: RunningServer) -> int:
    return int(server.counters()["inference_count"])


def _processes(place: Path) -> int:
    listed = place / "processes"
    return len(set(listed.read_text().split())) if listed.exists() else 0


SHORT = {
    "inspect": ("inspect", "model.onnx", "--json", "saved.json"),
    "report": ("report", "before.json", "-o", "saved.html"),
    "profile": (
        "profile", "call:model.py:answer", "--min-time", "0.2s", "--max-time", "1s", "--json", "saved.json"
    ),
    "load": (
        "load", "URL", "--input", "x=1x4", "--concurrency", "2", "--duration", "1s", "--max-time", "2s",
        "--json", "saved.json",
    ),
    "compare": (
        "compare", "call:model.py:answer", "call:model.py:answer", "--min-rounds", "2", "--max-rounds", "2",
        "--run-time", "0.3s", "--min-time", "0.1s", "--json", "saved.json",
    ),
    "sweep": (
        "sweep", "call:model.py:answer_rows", "--input", "x=batchx4", "--space", "batch_size=1,2",
        "--maximize", "batch_rate", "--min-time", "0.1s", "--max-time", "5s", "--json", "saved.json",
    ),
}  # fmt: skip
"""Each ends by itself within seconds."""


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("command", "times"),
    [("profile", 1), *(pytest.param(command, 50, marks=pytest.mark.slow) for command in SHORT)],
)
def test_a_command_that_is_killed_at_any_moment_leaves_nothing_half_done(
    place: Path, mark: str, server: RunningServer, command: str, times: int
) -> None:
    """After kill -9 no process is left; a document is whole or absent; the store still works."""
    if command == "inspect":
        _write_onnx(place)
    if command == "report":
        assert _ran(("profile", *SHORT["profile"][1:-1], "before.json"), server) == 0
    began = time.monotonic()
    first = _ran(SHORT[command], server)
    span = time.monotonic() - began
    assert first in {0, 1, 5}
    moments = random.Random(0)
    saved = place / SHORT[command][-1]
    for _ in range(times):
        saved.unlink(missing_ok=True)
        process = start(SHORT[command], server)
        time.sleep(moments.uniform(0, span))
        process.kill()
        output, _ = process.communicate()

        assert "Traceback" not in output
        assert left(mark) == []
        if saved.exists():
            is_page = saved.suffix == ".html"
            assert (
                saved.read_text().rstrip().endswith("</html>")
                if is_page
                else documents_lookup.find_any(str(saved))
            )
    with plugins.store() as store:
        list(store.find())
    if times > 1:
        assert _ran(SHORT[command], server) == first


def _ran(arguments: tuple[str, ...], server: RunningServer) -> int:
    process = start(arguments, server)
    output, _ = process.communicate(timeout=120)
    assert "Traceback" not in output
    return process.returncode


def _write_onnx(place: Path) -> None:
    helper = pytest.importorskip("onnx.helper")
    import onnx

    shape = [1, 4]
    tensors = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "graph", tensors[:1], tensors[1:])
    onnx.save(helper.make_model(graph), place / "model.onnx")
