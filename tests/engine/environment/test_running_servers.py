from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

import pytest
from tests.support.fake_container import write_container_engine

from modeldyno.base.errors import RequestError, UnknownName
from modeldyno.base.system.process_tree import start_ticks
from modeldyno.engine.environment import running_servers as running
from modeldyno.engine.environment.running_servers import (
    ServerRecord,
    claim,
    find_running,
    list_running,
    stop_running,
)

if TYPE_CHECKING:
    from pathlib import Path

Start = Callable[..., ServerRecord]


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state directory of its own."""
    monkeypatch.setenv("MODELDYNO_STATE", str(tmp_path))
    return tmp_path


@pytest.fixture
def start() -> Iterator[Start]:
    """Start a process that stands for a server, and describe it."""
    processes: list[subprocess.Popen[bytes]] = []

    def started(name: str = "net", **changes: object) -> ServerRecord:
        process = subprocess.Popen(["sleep", "600"])
        processes.append(process)
        server = ServerRecord(
            name=name, model="onnx:net.onnx", backend="triton", device="cpu", url="http://127.0.0.1:8000#net",
            protocol="kserve-http", ports={"http": 8000}, pid=process.pid, ticks=start_ticks(process.pid),
            started=f"2026-01-01T00:00:{len(processes):02}+00:00", detached=True, log="net.log",
        )  # fmt: skip
        return replace(server, **changes)  # type: ignore[arg-type]

    yield started
    for process in processes:
        process.kill()
        process.wait()


def test_a_server_is_found_as_it_was_recorded(start: Start) -> None:
    """All of its fields are read back, and the URL is found by its name."""
    server = claim(start(inputs=("x=1x4:float32",)), numbered=False)

    assert find_running("net") == server
    assert running.running_inputs("net") == ("x=1x4:float32",)
    assert running.running_inputs("other") == ()
    assert running.running_at(8000) == server
    assert running.running_at(8001) is None
    assert list_running() == (server,)
    assert running.running_url("net") == "http://127.0.0.1:8000#net"
    assert running.running_url("models/net.onnx") is None


def test_servers_are_listed_in_the_order_of_their_start(start: Start) -> None:
    """Whatever their names are."""
    for name in ("b", "c", "a"):
        claim(start(name), numbered=False)

    assert [server.name for server in list_running()] == ["b", "c", "a"]


def test_a_name_that_is_taken_is_refused_or_numbered(start: Start) -> None:
    """A chosen name is refused with what to do; one that was made of the model gets a number."""
    claim(start(), numbered=False)

    with pytest.raises(RequestError, match=r"'net' runs already.*modeldyno servers stop net"):
        claim(start(), numbered=False)
    assert [claim(start(), numbered=True).name for _ in range(2)] == ["net-2", "net-3"]


def test_the_file_of_a_server_that_is_gone_is_removed_when_it_is_read(start: Start, state: Path) -> None:
    """Its process has ended, or another process has its number; the name is free again."""
    claim(start(pid=2**22 + 1), numbered=False)
    reused = start("other")
    claim(replace(reused, ticks=reused.ticks - 1), numbered=False)
    assert len(list(state.rglob("*.json"))) == 2

    assert list_running() == ()
    assert list(state.rglob("*.json")) == []
    assert claim(start(), numbered=False).name == "net"


def test_what_is_no_record_is_passed_over(start: Start) -> None:
    """A file that cannot be read is no server; a field of a later version is ignored."""
    server = claim(start(), numbered=False)
    folder = running.state_folder()
    (folder / "broken.json").write_text('{"name": ')
    (folder / "list.json").write_text("[]")
    (folder / "net.json").write_text(json.dumps({**asdict(server), "colour": "red"}))

    assert list_running() == (server,)


def test_a_stopped_server_is_gone_and_forgotten(start: Start, state: Path) -> None:
    """Its process has ended; stopping it once more does nothing."""
    server = claim(start(), numbered=False)

    stop_running(server)

    assert not server.runs
    assert list(state.rglob("*.json")) == []
    stop_running(server)


def test_a_server_that_took_the_name_is_left_alone(start: Start) -> None:
    """Stopping what had the name before does not forget who has it now."""
    first = claim(start(), numbered=False)
    stop_running(first)
    second = claim(start(), numbered=False)

    stop_running(first)

    assert find_running("net") == second


def test_a_missing_name_is_told_with_those_there_are(start: Start) -> None:
    """Nothing is stopped if one of several names is missing."""
    server = claim(start("digits"), numbered=False)

    with pytest.raises(UnknownName, match="no running server 'x'; known: digits"):
        running.named(["digits", "x"], all_servers=False)
    assert running.named([], all_servers=True) == (server,)


def test_a_container_is_stopped_by_its_own_program(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was not started here; and one with the port of a server of ours is that server."""
    server = claim(start(ports={"http": 19000}), numbered=False)
    write_container_engine(
        tmp_path / "docker",
        {"name": "box", "pid": 1, "ports": {"8000/tcp": ("", 18000)}},
        {"name": "ours", "pid": 2, "ports": {"8000/tcp": ("", 19000)}},
    )
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(RequestError, match="not started here; end it with: docker stop box"):
        running.named(["net", "box"], all_servers=False)
    assert [container.name for container in running.list_other_containers((server,))] == ["box"]


@pytest.mark.parametrize(("names", "all_servers"), [([], False), (["net"], True)])
def test_who_is_stopped_must_be_said_once(names: list[str], all_servers: bool) -> None:
    """Neither nothing nor names beside all."""
    with pytest.raises(RequestError, match="names of the servers to stop, or `all_servers`"):
        running.named(names, all_servers=all_servers)


@pytest.mark.parametrize("name", ["", "../net", "a b", "-x", ".x", "x" * 101])
def test_names_that_could_be_no_file_are_refused(name: str) -> None:
    """A name is one word of letters that any file system takes."""
    with pytest.raises(RequestError, match="is no name of a server"):
        running.check_name(name)


def test_the_folder_is_that_of_the_user_and_the_machine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """XDG_STATE_HOME is followed where the variable is not set; each machine has a folder."""
    monkeypatch.delenv("MODELDYNO_STATE")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setattr("platform.node", lambda: "m1")

    assert running.state_folder() == tmp_path / "modeldyno" / "servers" / "m1"
