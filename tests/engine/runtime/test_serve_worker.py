from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support import tiny_onnx

import modeldyno
from modeldyno.base.errors import MissingExtra, RequestError, RunFailed
from modeldyno.base.system.process_tree import list_process_tree, start_ticks
from modeldyno.serving.serve import serve_model

if TYPE_CHECKING:
    from modeldyno.base.job.knob import KnobValue

BACKEND = '''"""Serves any ONNX model by the server whose timing is known."""
import os
import sys
import time
from contextlib import contextmanager

from modeldyno.base import plugins
from modeldyno.serving.backends import base
from modeldyno.engine.interfaces.request_target import Endpoint
from modeldyno.serving.servers.server_process import Launch, http_ready

requires, accepts, serves = (), frozenset({"onnx"}), True
knobs = (base.knob("device"), base.knob("config"), base.ports_knob({"http": 8000}), base.knob("batch_size"))

def check(config):
    base.check(config, {"http": 8000})

@contextmanager
def open(model, config):
    if config.get("config.broken"):
        raise OSError("no such engine")
    if config.get("config.leave") and os.fork() == 0:  # it keeps every descriptor open
        os.setsid()
        time.sleep(600)
        os._exit(0)
    launch = Launch(
        name="known",
        command=lambda _folder, ports: [
            sys.executable, "-m", "modeldyno.testing.server", "--port", str(ports["http"])
        ],
        ports=base.choose_ports(config, {"http": 8000}),
        ready=lambda ports: http_ready(ports["http"], "/v2/health/ready"),
        grace=0.0,
    )
    def session(server, control):
        place = Endpoint(
            host="127.0.0.1", port=server.ports["http"], model="echo", protocol="kserve-http",
            options={"binary": False},
        )
        return base.ServerSession(
            client=plugins.client("kserve-http"), endpoint=place, control=control, server=server,
            pid=server.pid, software={},
        )
    with base.open_server_session(launch, "http", session) as opened:
        yield opened
'''


@pytest.fixture(autouse=True)
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a backend ``known`` that every child process finds, and a state of its own."""
    info = tmp_path / "site" / "known-0.1.dist-info"
    info.mkdir(parents=True)
    (tmp_path / "site" / "known_backend.py").write_text(BACKEND)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: known\nVersion: 0.1\n")
    (info / "entry_points.txt").write_text("[modeldyno.backends]\nknown = known_backend\n")
    path = os.pathsep.join(filter(None, (str(tmp_path / "site"), os.environ.get("PYTHONPATH"))))
    monkeypatch.setenv("PYTHONPATH", path)
    monkeypatch.setenv("MODELDYNO_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("MODELDYNO_ENGINES", str(tmp_path / "engines"))
    return tmp_path


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a process that finds the backend."""
    return subprocess.run(
        [sys.executable, "-m", "modeldyno", *arguments], capture_output=True, text=True, check=False
    )


def marked(word: str) -> set[int]:
    """Return the processes that were started with a word in their environment."""
    pids = set()
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            pids |= {int(path.parent.name)} if word.encode() in path.read_bytes() else set()
    return pids - {os.getpid()}


def is_gone(family: dict[int, int]) -> bool:
    """Wait until none of the processes is left."""
    deadline = time.monotonic() + 60
    while any(start_ticks(pid) == ticks for pid, ticks in family.items()):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def test_a_detached_server_answers_under_its_name_until_it_is_stopped(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command ends, and the server alone stays: it is listed, loaded and stopped by its name."""
    model, word = tiny_onnx.mlp(site), uuid.uuid4().hex
    monkeypatch.setenv("MODELDYNO_TEST_MARK", word)
    arguments = ("--backend", "known", "--detach", "--name", "mine", "--input", "x=1x4")
    started = run("serve", str(model), *arguments, "--set", "config.leave=1")
    assert started.returncode == 0, started.stderr
    url, load, stop = started.stdout.splitlines()
    assert url.startswith("mine is served by known: http://127.0.0.1:")
    assert load == "  load it: modeldyno load mine -c 16"
    assert stop == "  stop it: modeldyno servers stop mine"
    (server,) = modeldyno.servers.list()
    assert (server.name, server.backend, server.detached) == ("mine", "known", True)
    family = {pid: start_ticks(pid) for pid in list_process_tree(server.pid)}
    assert marked(word) == set(family)
    try:
        result = modeldyno.load(
            "mine", requests=20, inputs="x=1x4", probes=["load"], store=False, progress=False
        )
        assert result["requests@ok"] == 20
        ((_, usage),) = modeldyno.servers.list(stats=True)
        assert (usage.memory or 0) > 1e6
        assert (usage.threads or 0) >= 2
    finally:
        modeldyno.servers.stop("mine")
    assert is_gone(family)
    assert modeldyno.servers.list() == ()


def test_a_server_ends_with_the_command_that_started_it(site: Path) -> None:
    """Killed with -9, it leaves no process; the name is free again, and nothing is listed."""
    model = tiny_onnx.mlp(site)
    arguments = ("serve", str(model), "--backend", "known", "--name", "mine", "--input", "x=1x4")
    with subprocess.Popen(
        [sys.executable, "-m", "modeldyno", *arguments], stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline().startswith("mine is served by known")
        (server,) = modeldyno.servers.list()
        assert not server.detached
        family = {pid: start_ticks(pid) for pid in list_process_tree(server.pid)}
        owner.kill()
    assert len(family) >= 2
    assert is_gone(family)
    assert modeldyno.servers.list() == ()


def test_a_server_that_does_not_start_leaves_nothing_and_says_why(site: Path) -> None:
    """What the backend raised is told in one sentence, with exit code 4."""
    model = tiny_onnx.mlp(site)
    failed = run("serve", str(model), "--backend", "known", "--set", "config.broken=1")
    assert failed.returncode == RunFailed.exit_code
    assert "The server could not be started: OSError: no such engine" in failed.stderr
    assert modeldyno.servers.list() == ()


NET = """
import torch

def make():
    return torch.nn.Linear(1, 1)
"""


@pytest.mark.slow  # a child imports torch
def test_a_language_model_is_served_by_any_command(site: Path) -> None:
    """What speaks OpenAI's protocol is found by its name, and loaded with prompts."""
    pytest.importorskip("torch")
    (site / "net.py").write_text(NET)
    settings: dict[str, KnobValue] = {
        "command": f"{sys.executable} -m modeldyno.testing.server --port {{port}}",
        "health": "/v2/health/ready",
        "model": "echo",
    }
    server = serve_model(f"torch:{site / 'net.py'}:make", backend="openai", settings=settings, name="llm")
    try:
        assert (server.name, server.protocol) == ("llm", "openai")
        result = modeldyno.load("llm", requests=10, probes=["load"], store=False, progress=False)
        assert result["requests@ok"] == 10
    finally:
        modeldyno.servers.stop("llm")


def test_what_starts_no_server_is_refused(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A URL is on a server already, a runtime in a process is none, and a live object has no reference."""
    model = tiny_onnx.mlp(site)
    with pytest.raises(RequestError, match="is on a server already"):
        modeldyno.serve("http://127.0.0.1:8000#echo")
    monkeypatch.setenv("MODELDYNO_ENGINES", str(site / "engines"))
    kept = site / "repository" / "mlp"
    (kept / "1").mkdir(parents=True)
    model.rename(kept / "1" / "model.onnx")
    (kept / "config.pbtxt").write_text('name: "mlp"\nplatform: "onnxruntime_onnx"\nmax_batch_size: 4\n')
    with pytest.raises(MissingExtra, match="modeldyno engine install triton"):
        modeldyno.serve(f"{kept.parent}#mlp")
    model = kept / "1" / "model.onnx"
    with pytest.raises(RequestError, match="'onnxruntime' starts no server"):
        modeldyno.serve(model, backend="onnxruntime")
    with pytest.raises(RequestError, match="device is set twice"):
        serve_model(str(model), backend="triton", settings={"device": "cpu"}, device="cpu")
