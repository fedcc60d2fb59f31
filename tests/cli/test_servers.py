from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner
from tests.support.fake_container import write_container_engine

import modeldyno
from modeldyno.cli import cli

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine where a container of Docker runs, and no server of ours; its process is ours."""
    write_container_engine(
        tmp_path / "docker",
        {
            "name": "serving",
            "image": "docker.io/tensorflow/serving:2.18",
            "pid": os.getpid(),
            "ports": {"8501/tcp": ("0.0.0.0", 18501)},
            "env": ["MODEL_NAME=resnet"],
        },
    )
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("MODELDYNO_STATE", str(tmp_path / "state"))


def test_containers_are_listed_below_the_servers() -> None:
    """With the name that `load` takes, and where it finds the server."""
    result = CliRunner().invoke(cli, ["servers"])

    assert result.exit_code == 0
    assert result.output.splitlines()[-1].split() == [
        "serving", "serving:2.18", "docker", "http://127.0.0.1:18501#resnet", "2026-01-02", "03:04",
    ]  # fmt: skip


def test_what_a_container_uses_is_that_of_its_processes() -> None:
    """As of a server that we started; JSON has every field."""
    result = CliRunner().invoke(cli, ["servers", "--stats", "--json", "-"])
    document = json.loads(result.stdout)

    assert document["servers"] == []
    (entry,) = document["containers"]
    assert entry["usage"]["memory"] > 1e6
    assert (entry["program"], entry["ports"]) == ("docker", {"8501": "127.0.0.1:18501"})


def test_they_are_listed_in_python_too() -> None:
    """Beside those that we started."""
    assert modeldyno.servers.list() == ()
    assert [one.name for one in modeldyno.servers.containers()] == ["serving"]
    ((one, usage),) = modeldyno.servers.containers(stats=True)
    assert (one.image, usage.threads > 0) == ("docker.io/tensorflow/serving:2.18", True)
