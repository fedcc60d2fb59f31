from __future__ import annotations

import http.client
import os
import re
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from modeldyno.base.errors import ServerFailed
from modeldyno.base.system.process_tree import list_process_tree
from modeldyno.serving.servers.server_process import Launch, describe_exit_code, read_tail, run_server
from modeldyno.serving.servers.tcp_ports import free_ports

Make = Callable[..., Launch]


def get(port: int, path: str = "/", patience: float = 30.0) -> bytes:
    """Ask the server for a path, for so many seconds."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=patience)
    try:
        connection.request("GET", path)
        return connection.getresponse().read()
    finally:
        connection.close()


def test_a_server_is_ready_when_it_is_given_and_gone_afterwards(fake: Make) -> None:
    """The server answers inside the context; outside, its processes and its directory are gone."""
    with run_server(fake(daemons=1)) as server:
        assert get(server.ports["http"]) == b"hello"
        assert server.ended() == ""
        family = list_process_tree(server.pid)
        assert len(family) == 3
    assert not any(Path(f"/proc/{pid}").exists() for pid in family)
    assert not Path(server.folder).exists()


def test_its_environment_is_ours_with_changes(fake: Make) -> None:
    """A variable can be set for the server, and taken away."""
    code = "import os; print('error', sorted({'WORD', 'HOME', 'PATH'} & set(os.environ)))"
    with pytest.raises(ServerFailed) as failed, run_server(fake(code)):
        pass
    assert "['PATH', 'WORD']" in str(failed.value)


def test_a_server_that_ends_tells_why(fake: Make, engines: Path) -> None:
    """One sentence has the exit code, the cause and the place of the log; the log's errors go beside it."""
    code = "print('error 7: a first sign', flush=True); raise RuntimeError('no such model')"
    with pytest.raises(ServerFailed) as failed, run_server(fake(code)):
        pass
    (log,) = (engines / "logs").iterdir()
    assert str(failed.value) == f"fake ended with exit code 1: RuntimeError: no such model; its log is {log}"
    assert failed.value.log.splitlines() == ["error 7: a first sign", "RuntimeError: no such model"]


def test_a_log_of_llamacpp_tells_why(fake: Make) -> None:
    """Its own error is the cause, not what the program around it says last; heads of lines are left out."""
    lines = (
        "0.00.018.983 E llama_model_load: error loading model: no such architecture",
        "0.00.018.989 E srv    load_model: failed to load model, 'm.gguf'",
    )
    code = f"print({chr(10).join(lines)!r}, flush=True); raise RuntimeError('Failed to init server.')"
    with pytest.raises(ServerFailed) as failed, run_server(fake(code)):
        pass
    assert ": llama_model_load: error loading model: no such architecture; its log" in str(failed.value)
    assert "load_model: failed to load model, 'm.gguf'" in failed.value.log.splitlines()


def test_a_command_that_is_not_there(fake: Make) -> None:
    """A program that cannot be started is named."""
    launch = replace(fake(), command=lambda _folder, _ports: ["/no/such/program"])
    with pytest.raises(ServerFailed, match="No such file or directory: /no/such/program"), run_server(launch):
        pass


def test_a_server_that_is_never_ready_is_given_up(fake: Make, tmp_path: Path) -> None:
    """When the time is up it is ended, and the error says so."""
    code = "import time; time.sleep(600)"
    with (
        pytest.raises(ServerFailed, match=r"was not ready after 0\.2 s"),
        run_server(fake(code, patience=0.2)),
    ):
        pass
    assert list((tmp_path / "temporary").glob("modeldyno-fake-*")) == []


def test_a_server_that_tries_for_ever_is_given_up(fake: Make) -> None:
    """Where the log says that there is no hope, nobody waits until the time is up."""
    code = "import time; print('ValueError: 7\\nno worker is left', flush=True); time.sleep(600)"
    launch = replace(fake(code, patience=300.0), hopeless=re.compile("no worker"))
    with pytest.raises(ServerFailed, match="will not be ready: ValueError: 7"), run_server(launch):
        pass


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="shared memory has no names here")
def test_shared_memory_goes_with_the_server(fake: Make) -> None:
    """What is named after the server's directory is removed with it, also where the server is killed."""
    code = (
        "import os, pathlib\n"
        "pathlib.Path('/dev/shm', os.path.basename(os.getcwd()) + '_region').touch()\n"
        + fake().command(Path(), {"http": 1})[2]
    )
    with run_server(replace(fake(code), grace=0.0)) as server:
        region = Path("/dev/shm", f"{Path(server.folder).name}_region")
        assert region.exists()
    assert not region.exists()


def test_it_is_told_when_a_server_ends_by_itself(fake: Make) -> None:
    """A server that ends in the middle of its work says how, and the context can still be left."""
    with run_server(fake()) as server:
        get(server.ports["http"], "/end")
        server.guard.wait(60)
        assert server.ended() == "ended with exit code 3"


def test_files_that_cannot_be_written_leave_nothing(fake: Make, tmp_path: Path) -> None:
    """When the command cannot be made, the guard and the directory go."""

    def refuse(_folder: Path, _ports: dict[str, int]) -> list[str]:
        raise ZeroDivisionError

    before = set(list_process_tree(os.getpid()))
    with pytest.raises(ZeroDivisionError), run_server(replace(fake(), command=refuse)):
        pass
    assert set(list_process_tree(os.getpid())) <= before
    assert list((tmp_path / "temporary").glob("modeldyno-fake-*")) == []


def test_a_port_that_is_taken_is_named(fake: Make) -> None:
    """A port that the user wants and another has is refused before anything is started."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(ServerFailed, match=f"cannot use port {port}"), run_server(fake(port=port)):
            pass


def test_another_free_port_is_tried(fake: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """A free port that another takes before the server does costs another try, no failure."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        ports = [other.getsockname()[1]]
        monkeypatch.setattr(
            "modeldyno.serving.servers.server_process.free_ports",
            lambda count: (ports.pop(),) if ports else free_ports(count),
        )
        with run_server(replace(fake(), ready=answers_hello)) as server:
            assert get(server.ports["http"]) == b"hello"
        assert ports == []


def test_a_fault_of_its_own_costs_another_start(fake: Make, tmp_path: Path) -> None:
    """What a server is known to die of now and then is tried again, and only that."""
    mark = tmp_path / "was here"
    code = (
        f"import pathlib\nmark = pathlib.Path({str(mark)!r})\n"
        "if not mark.exists():\n"
        "    mark.touch()\n"
        "    raise RuntimeError('lost the race')\n" + fake().command(Path(), {"http": 1})[2]
    )
    with pytest.raises(ServerFailed, match="lost the race"), run_server(fake(code)):
        pass
    mark.unlink()
    with run_server(replace(fake(code), passing=re.compile("lost the race"))) as server:
        assert get(server.ports["http"]) == b"hello"


def answers_hello(ports: dict[str, int]) -> bool:
    """Ask whether it is our server."""
    try:
        return get(ports["http"], patience=1.0) == b"hello"
    except OSError:
        return False


def test_the_log_is_kept(fake: Make, engines: Path) -> None:
    """The log outlives the server, and the oldest beyond twenty are removed."""
    logs = engines / "logs"
    logs.mkdir(parents=True)
    for number in range(30):
        old = logs / f"old-{number:02}.log"
        old.write_text("")
        os.utime(old, (number, number))
    code = "print('the error of the day')"
    with pytest.raises(ServerFailed), run_server(fake(code)):
        pass
    kept = sorted(path.name for path in logs.iterdir())
    assert len(kept) == 20
    assert "old-10.log" not in kept
    assert "old-29.log" in kept
    (newest,) = logs.glob("fake-*.log")
    assert "the error of the day" in newest.read_text()


@pytest.mark.parametrize(
    ("code", "text"),
    [(0, "ended with exit code 0"), (-9, "was ended by SIGKILL"), (-200, "was ended by signal 200")],
)
def test_an_end_is_put_in_words(code: int, text: str) -> None:
    """Exit codes and signals are told apart."""
    assert describe_exit_code(code) == text


def test_the_tail_begins_with_a_whole_line(tmp_path: Path) -> None:
    """The end of a long log begins where a line does; a log that is not there is empty."""
    path = tmp_path / "a.log"
    path.write_text("first line\nsecond\nthird\n")
    assert read_tail(path, 12) == "third"
    assert read_tail(path) == "first line\nsecond\nthird"
    assert read_tail(tmp_path / "none.log") == ""


def test_a_server_that_is_slow_to_come_is_waited_for(fake: Make) -> None:
    """Readiness is asked for again and again, until it is there."""
    code = (
        f"import time; time.sleep(1)\nimport sys; sys.argv[2] = '0'\n{fake().command(Path(), {'http': 1})[2]}"
    )
    begin = time.monotonic()
    with run_server(fake(code)) as server:
        assert get(server.ports["http"]) == b"hello"
        assert time.monotonic() - begin > 1
