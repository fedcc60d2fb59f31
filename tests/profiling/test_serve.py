from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from modeldyno.base import plugins
from modeldyno.base.errors import RequestError, RunFailed
from modeldyno.engine.environment.device_state import DeviceState
from modeldyno.engine.environment.devices import DeviceReading
from modeldyno.serving import serve
from modeldyno.serving.serve import serve_model

if TYPE_CHECKING:
    from pathlib import Path

    from modeldyno.base.job.job import Job

Order = tuple["Job", str, bool, "int | None"]


@pytest.fixture
def orders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Order]:
    """Start nothing; give what would be started."""
    placed: list[Order] = []
    monkeypatch.setenv("MODELDYNO_STATE", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my net.onnx").write_bytes(b"")
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved" / "saved_model.pb").write_bytes(b"")

    def start_server(job: Job, name: str, *, numbered: bool, owner: int | None) -> None:
        placed.append((job, name, numbered, owner))

    monkeypatch.setattr(serve, "start_server", start_server)
    return placed


def test_a_model_is_served_by_triton_under_its_own_name(orders: list[Order]) -> None:
    """With a number if that is taken; the server ends with this process."""
    serve_model("my net.onnx", backend=None, settings={}, device="cuda:1", ports="conventional")
    ((job, name, numbered, owner),) = orders
    assert (job.backend, name, numbered) == ("triton", "my-net", True)
    assert (job.config["device"], job.config["ports"]) == ("cuda:1", "conventional")
    assert owner is not None


@pytest.mark.parametrize("word", ["tensorflow", "tfs", "tensorflow-serving"])
def test_tensorflow_means_its_server(orders: list[Order], word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The backend of that name calls the model in a process."""
    monkeypatch.setattr(plugins, "missing", lambda _modules: [])
    serve_model("saved", backend=word, settings={}, name="mine", detach=True)
    ((job, name, numbered, owner),) = orders
    assert (job.backend, name, numbered, owner) == ("tensorflow-serving", "mine", False, None)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"backend": "onnxruntime"},
            "'onnxruntime' starts no server; choose llamacpp, mlserver, .* or triton",
        ),
        ({"backend": "remote"}, "'remote' starts no server; choose llamacpp"),
        ({"backend": "inspector"}, "'inspector' starts no server; choose llamacpp"),
        (
            {"backend": "nosuch"},
            r"starts a server 'nosuch'; known: llamacpp, mlserver, openai, .*, torchserve, triton\.$",
        ),
        ({"backend": "triten"}, "'triten'; did you mean 'triton'"),
        ({"settings": {"device": "cpu"}, "device": "cuda"}, "device is set twice: cuda and cpu"),
        ({"name": "a b"}, "'a b' is no name of a server"),
        ({"ports": "many"}, "ports takes free, conventional or 3 numbers"),
    ],
)
def test_what_cannot_be_served_is_refused_before_anything_starts(
    orders: list[Order], options: dict[str, Any], message: str
) -> None:
    """In a sentence."""
    with pytest.raises(RequestError, match=message):
        serve_model("my net.onnx", **{"backend": "triton", "settings": {}, **options})
    assert orders == []


def test_a_failure_on_a_gpu_says_what_was_looked_for(
    orders: list[Order], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no device is seen; where one is, or none was asked for, the failure stands alone."""
    reading = DeviceReading(devices=(), source="There is no NVIDIA device.")

    def fail(*_args: object, **_named: object) -> None:
        raise RunFailed("It ended.")

    monkeypatch.setattr(serve, "start_server", fail)
    monkeypatch.setattr(serve, "read_devices", lambda: reading)
    with pytest.raises(
        RunFailed, match=r"It ended. No device was seen for cuda:1. There is no NVIDIA device."
    ):
        serve_model("my net.onnx", backend=None, settings={}, device="cuda:1")
    with pytest.raises(RunFailed, match=r"^It ended.$"):
        serve_model("my net.onnx", backend=None, settings={})
    reading = replace(reading, devices=(DeviceState(index=0, uuid="GPU-1", name="T"),))
    with pytest.raises(RunFailed, match=r"^It ended.$"):
        serve_model("my net.onnx", backend=None, settings={"device": "cuda:1"})
    assert orders == []
