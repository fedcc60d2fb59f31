from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.fake_container import write_container_engine

from modeldyno.base.errors import RequestError
from modeldyno.engine.environment.containers import find_container, find_container_at, list_containers
from modeldyno.profiling.resolve_model import resolve_reference

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def engines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A path with nothing on it."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("MODELDYNO_STATE", str(tmp_path / "state"))
    return tmp_path


TFS: dict[str, Any] = {
    "name": "serving",
    "pid": 4711,
    "ports": {"8500/tcp": ("0.0.0.0", 18500), "8501/tcp": ("0.0.0.0", 18501)},
    "env": ["MODEL_NAME=resnet", "PATH=/bin"],
}


@pytest.mark.parametrize("program", ["docker", "podman"])
def test_a_container_is_found_by_its_name(engines: Path, program: str) -> None:
    """With its ports, and its first process; whichever of the two programs knows it."""
    write_container_engine(engines / program, TFS)
    container = find_container("serving")
    assert container is not None
    assert (container.name, container.program, container.pid) == ("serving", program, 4711)
    assert container.ports == {8500: ("127.0.0.1", 18500), 8501: ("127.0.0.1", 18501)}
    assert find_container("other") is None


def test_its_server_is_where_http_is_spoken(engines: Path) -> None:
    """TensorFlow Serving is told from its port, and its model from its environment."""
    write_container_engine(engines / "docker", TFS)
    ref = resolve_reference("serving")
    assert (ref.scheme, ref.locator) == ("url", "http://127.0.0.1:18501#resnet")
    assert resolve_reference("serving#other").locator == "http://127.0.0.1:18501#other"


@pytest.mark.parametrize(
    ("ports", "url"),
    [
        ({"8001/tcp": ("", 1), "8000/tcp": ("", 2), "8002/tcp": ("", 3)}, "http://127.0.0.1:2"),
        ({"9999/tcp": ("10.0.0.7", 4)}, "http://10.0.0.7:4"),
        ({"53/udp": ("", 5), "80/tcp": ("::", 6)}, "http://127.0.0.1:6"),
        ({"8080/tcp": None}, None),
    ],
)
def test_one_of_several_ports_is_chosen(engines: Path, ports: dict[str, Any], url: str | None) -> None:
    """That of a known server's HTTP, else the first; ports that are not published are none."""
    write_container_engine(engines / "docker", {"name": "box", "pid": 1, "ports": ports})
    container = find_container("box")
    assert container is not None
    assert container.url == url


def test_a_container_in_the_network_of_the_host_has_the_ports_of_its_image(engines: Path) -> None:
    """They are published nowhere."""
    write_container_engine(engines / "podman", {"name": "box", "pid": 1, "host": ["8000/tcp", "8002/tcp"]})
    container = find_container("box")
    assert container is not None
    assert container.url == "http://127.0.0.1:8000"


def test_containers_are_listed_in_the_order_of_their_start(engines: Path) -> None:
    """Those that publish a port; one that both programs know is listed once."""
    other = {"name": "other", "pid": 4712, "ports": {"80/tcp": ("", 1)}, "started": "2025-12-31T00:00:00Z"}
    silent = {"name": "silent", "pid": 4713}
    write_container_engine(engines / "docker", TFS, other, silent, {**TFS, "name": "old", "running": False})
    write_container_engine(engines / "podman", other)

    assert [(one.name, one.program) for one in list_containers()] == [
        ("other", "docker"),
        ("serving", "docker"),
    ]


def test_a_container_that_ends_meanwhile_hides_no_other(engines: Path) -> None:
    """The program then fails, and tells of those that are left."""
    write_container_engine(engines / "docker", TFS)
    program = (engines / "docker").read_text()
    (engines / "docker").write_text(program.replace('print(document["Id"])', 'print(document["Id"], "gone")'))

    assert [one.name for one in list_containers()] == ["serving"]


def test_a_container_is_found_by_a_port_that_it_publishes(engines: Path) -> None:
    """The process that listens is the engine's own."""
    write_container_engine(engines / "docker", TFS)
    container = find_container_at(18501)
    assert container is not None
    assert container.pid == 4711
    assert find_container_at(99) is None


def test_one_that_has_stopped_or_publishes_nothing_is_no_server(engines: Path) -> None:
    """The first is not found; of the second it is said what is missing."""
    write_container_engine(engines / "docker", {**TFS, "running": False})
    assert find_container("serving") is None
    write_container_engine(engines / "docker", {"name": "serving", "pid": 1, "ports": {}})
    with pytest.raises(RequestError, match=r"'serving' publishes no port .* --publish"):
        resolve_reference("serving")


def test_an_engine_that_fails_or_talks_nonsense_finds_nothing(engines: Path) -> None:
    """As without its daemon."""
    for body in ("echo '[]'; exit 1", "echo 'no json'", f"echo '{json.dumps([{}])}'"):
        (engines / "docker").write_text(f"#!/bin/sh\n{body}\n")
        (engines / "docker").chmod(0o755)
        assert find_container("serving") is None
