from __future__ import annotations

import json
import os
import sys
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from modeldyno.base.errors import MissingExtra, RequestError
from modeldyno.base.job.input_spec import InputSpec
from modeldyno.base.job.knob import KnobValue, configure
from modeldyno.base.job.model_ref import ModelIdentity
from modeldyno.models.interface import Form, Model
from modeldyno.serving.backends import tensorflow_serving
from modeldyno.serving.loadgen.single_request import send_once
from modeldyno.testing.backends import DeclaredSuite

if TYPE_CHECKING:
    from collections.abc import Iterator

PORTS = {"http": 1, "grpc": 2}


def saved_model(folder: Path | None) -> Model:
    """A SavedModel in a folder, as its loader gives it."""
    return Model(
        identity=ModelIdentity(name="echo", digest="sha256:0", framework="tensorflow"),
        form=Form.TENSORFLOW,
        value=SimpleNamespace(folder=folder, name="serving_default"),
        inputs=(InputSpec(name="x", shape=("batch", 4), dtype="float32"),),
    )


class TestDeclared(DeclaredSuite):
    name = "tensorflow-serving"

    @pytest.fixture
    def model(self, tmp_path: Path) -> Model:
        """A SavedModel in a folder."""
        return saved_model(tmp_path)


def command_line(settings: dict[str, KnobValue]) -> list[str]:
    """Give the command line of a container."""
    config = configure(tensorflow_serving.knobs, settings)
    return tensorflow_serving._command("podman", Path("/m"), Path("/f/box-1"), config, PORTS, "net")


def test_the_command_line_of_a_container() -> None:
    """The model is mounted and named, both interfaces are published on the loopback, and flags come last."""
    command = command_line({"threads": 2, "config.enable_model_warmup": "false"})
    assert command[:6] == ["podman", "run", "--rm", "--init", "--name", "box-1"]
    assert "/m:/models/net/1:ro" in command
    assert "MODEL_NAME=net" in command
    assert {"--publish=127.0.0.1:1:8501", "--publish=127.0.0.1:2:8500"} <= set(command)
    assert command[command.index("tensorflow/serving:2.18.0") + 1 :] == [
        "--tensorflow_intra_op_parallelism=2", "--enable_model_warmup=false",
    ]  # fmt: skip


def test_a_gpu_has_its_own_image() -> None:
    """With the card given to the container."""
    command = command_line({"device": "cuda:1"})
    assert "--gpus=device=1" in command
    assert "tensorflow/serving:2.18.0-gpu" in command


def test_batching_is_a_file_of_parameters() -> None:
    """Only where batches are allowed."""
    config = configure(tensorflow_serving.knobs, {"max_batch": 8, "queue_delay": 500})
    assert "--batching_parameters_file=/batching/batching.pbtxt" in command_line({"max_batch": 8})
    assert "--enable_batching=true" not in command_line({})
    assert tensorflow_serving._batching(config) == (
        "max_batch_size { value: 8 }\nbatch_timeout_micros { value: 500 }\n"
    )


@contextmanager
def opened(folder: Path | None, settings: dict[str, Any]) -> Iterator[Any]:
    """Open the backend with knobs as a user writes them."""
    config = configure(tensorflow_serving.knobs, settings)
    tensorflow_serving.check(config)
    with tensorflow_serving.open(saved_model(folder), config) as session:
        yield session


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A docker that starts the ground-truth server; give the folder of what it was asked."""
    records = tmp_path / "asked"
    for folder in (tmp_path / "bin", records):
        folder.mkdir()
    fake = Path(__file__).parent / "fake_serving_container.py"
    command = tmp_path / "bin" / "docker"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} {fake} "$@"\n')
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{command.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_DOCKER", str(records))
    monkeypatch.setenv("MODELDYNO_ENGINES", str(tmp_path / "engines"))
    return records


@pytest.mark.parametrize("protocol", ["http-json", "grpc"])
def test_a_model_is_served_in_a_container_and_ended(engine: Path, tmp_path: Path, protocol: str) -> None:
    """It answers over both protocols; its first process is known, and is gone afterwards."""
    with opened(tmp_path, {"protocol": protocol, "image": "mine"}) as session:
        (record,) = engine.iterdir()
        invocation = json.loads(record.read_text())
        assert session.pid == invocation["pid"]
        assert "mine" in invocation["command"]
        x = np.ones((2, 4), np.float32)
        answer = session.arrays(send_once(session.target([{"x": x}])))
        assert [array.shape for array in answer.values()] == [(2, 4)]
    assert not Path(f"/proc/{invocation['pid']}").exists()


def test_what_cannot_be_served_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that is in no folder, and a machine without containers; each with what to do."""
    with pytest.raises(RequestError, match="convert MODEL --to savedmodel"), opened(None, {}):
        pass
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingExtra, match="docker or podman is not installed"), opened(tmp_path, {}):
        pass
    with pytest.raises(MissingExtra, match="podman is not installed"), opened(tmp_path, {"launch": "podman"}):
        pass
