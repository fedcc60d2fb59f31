from __future__ import annotations

import random
import socket
from typing import TYPE_CHECKING, Any

import pytest

from modeldyno.base.errors import RequestError
from modeldyno.serving.backends import mlserver, tensorflow_serving, torchserve
from modeldyno.serving.servers import paths as servers_paths
from modeldyno.serving.servers import tcp_ports

if TYPE_CHECKING:
    from pathlib import Path


def test_free_ports_are_free_and_distinct() -> None:
    """Each port can be bound, and none is given twice."""
    ports = tcp_ports.free_ports(5, random.Random(0))
    assert len(set(ports)) == 5
    for port in ports:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", port))


def test_free_ports_lie_below_those_of_outgoing_connections(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No connection that the load generator opens can take the port of a server."""
    monkeypatch.setattr(tcp_ports, "_RANGE", tmp_path / "range")
    (tmp_path / "range").write_text("30000\t60999\n")
    assert all(port < 30000 for port in tcp_ports.free_ports(20))
    (tmp_path / "range").write_text("nonsense")
    assert all(port < 32768 for port in tcp_ports.free_ports(20))


def test_a_port_in_use_is_not_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """A port that somebody listens on is taken, and where there are only such the search ends."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        assert tcp_ports.ports_in_use([port]) == (port,)
        monkeypatch.setattr(tcp_ports, "_LOWEST", port)
        monkeypatch.setattr(tcp_ports, "_highest", lambda: port + 1)
        monkeypatch.setattr(tcp_ports, "_TRIES", 3)
        with pytest.raises(RequestError, match="no 1 free ports"):
            tcp_ports.free_ports(1)
    assert tcp_ports.ports_in_use([port]) == ()


@pytest.mark.parametrize(
    ("engine", "on_cpu", "on_gpu"),
    [
        (torchserve, [8100, 8102, 8103, 8101, 8104], [8110, 8112, 8113, 8111, 8114]),
        (mlserver, [8001, 8002, 8003], [8010, 8011, 8012]),
        (tensorflow_serving, [8501, 8500], [8510, 8511]),
    ],
)
def test_a_server_listens_where_the_table_says(engine: Any, on_cpu: list[int], on_gpu: list[int]) -> None:
    """On a GPU in its column; interfaces that the table lacks come after it."""
    assert list(engine._conventional({}).values()) == on_cpu
    assert list(engine._conventional({"device": "cuda:1"}).values()) == on_gpu


def test_the_conventional_table() -> None:
    """The constants are those of the table, and a CPU's and a GPU's server do not collide."""
    assert (tcp_ports.TFS_HTTP_PORT, tcp_ports.TFS_GRPC_PORT, tcp_ports.TFS_GPU_HTTP_PORT) == (
        8501,
        8500,
        8510,
    )
    assert (tcp_ports.ONNX_HTTP_PORT, tcp_ports.ONNX_GRPC_PORT, tcp_ports.ONNX_GPU_GRPC_PORT) == (
        8001,
        8002,
        8011,
    )
    assert (tcp_ports.TORCHSCRIPT_HTTP_PORT, tcp_ports.TORCHSCRIPT_GPU_GRPC_PORT) == (8100, 8111)
    assert tcp_ports.CONVENTIONAL["trt", False] == {"http": 8200, "grpc": 8201, "metrics": 8202}
    for name in ("onnx", "torchscript", "tfs"):
        cpu, gpu = (set(tcp_ports.CONVENTIONAL[name, where].values()) for where in (False, True))
        assert not cpu & gpu


@pytest.mark.parametrize(
    ("text", "ports"),
    [
        ("free", {"http": 0, "grpc": 0}),
        ("conventional", {"http": 1, "grpc": 2}),
        ("8000, 8001", {"http": 8000, "grpc": 8001}),
    ],
)
def test_ports_that_a_user_wants(text: str, ports: dict[str, int]) -> None:
    """Ports are free ones, conventional ones, or numbers in order."""
    assert tcp_ports.parse_ports(text, {"http": 1, "grpc": 2}) == ports


@pytest.mark.parametrize("text", ["", "8000", "a,b", "1,2,3", "70000,1", "-1,2"])
def test_what_are_no_ports(text: str) -> None:
    """Anything else is refused with what would do."""
    with pytest.raises(RequestError, match=r"2 numbers \(http, grpc\)"):
        tcp_ports.parse_ports(text, {"http": 1, "grpc": 2})


def test_where_engines_lie(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Engines lie in the user's data directory, unless a variable says otherwise."""
    monkeypatch.delenv(servers_paths.VARIABLE, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    assert servers_paths.servers_root() == tmp_path / ".local" / "share" / "modeldyno" / "engines"
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert servers_paths.servers_root() == tmp_path / "data" / "modeldyno" / "engines"
    monkeypatch.setenv(servers_paths.VARIABLE, str(tmp_path / "other"))
    assert servers_paths.servers_root() == tmp_path / "other"


def test_logs_go_elsewhere_where_nothing_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A directory of engines that cannot be made is no reason not to keep a log."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(servers_paths.VARIABLE, str(tmp_path / "file" / "engines"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert servers_paths.new_log_file("a").parent == tmp_path / "modeldyno-logs"
