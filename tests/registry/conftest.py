"""A registry in a store of its own, with a small model and measurements that take no time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.databases import postgres, server, url
from tests.support.registry import DIGEST, a_measurement

from modeldyno.base import plugins
from modeldyno.base.job.input_spec import InputSpec
from modeldyno.base.job.model_ref import ModelIdentity
from modeldyno.engine.runtime.identify import IdentifiedModel
from modeldyno.profiling.run import JudgedResult
from modeldyno.registry import canary, execute
from modeldyno.registry import register as registering

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from modeldyno.base.result.result import Result
    from modeldyno.engine.runtime.measured_region import Region
    from modeldyno.profiling.request import Request
    from modeldyno.registry.interface import Registry

__all__ = ["postgres", "server", "url"]


@pytest.fixture
def registry(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    """Give the registry of an empty store, in a file and then on a server; commands find it, too."""
    monkeypatch.setenv("MODELDYNO_STORE", url)
    monkeypatch.setattr("modeldyno.engine.environment.device_lock._folder", lambda: tmp_path)
    monkeypatch.setattr(canary, "is_due", lambda _store, _target: False)
    monkeypatch.setattr("modeldyno.registry.worker._GIVE_WAY", 0.0)
    with plugins.store() as store:
        yield store.registry


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that is taken for a model without being loaded; its digest is that of its content."""
    path = tmp_path / "net.onnx"
    path.write_bytes(b"weights")

    def identify(ref: Any, *, trust: bool, limits: object = None) -> IdentifiedModel:
        del trust, limits
        content = Path(ref.locator).read_bytes()
        digest = DIGEST if content == b"weights" else f"sha256:{content.hex():0<64}"
        return IdentifiedModel(
            identity=ModelIdentity(name="net", digest=digest, framework="onnx"),
            inputs=(InputSpec(name="x", shape=("batch", 4), dtype="float32"),),
            kind="onnx",
            backend="onnxruntime",
            files=(str(Path(ref.locator)),),
        )

    monkeypatch.setattr(registering, "identify_model", identify)
    return path


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[Request]:
    """Answer every measurement at once; returns the requests."""
    requests: list[Request] = []

    def measure(request: Request, *, guard: Region, **_watch: Any) -> JudgedResult:
        with guard():
            requests.append(request)
            return JudgedResult(result=a_measurement(request))

    monkeypatch.setattr(execute, "run_request", measure)
    return requests


@pytest.fixture
def with_result(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[Result], Result]], None]:
    """Give a function that lets each measurement end in another Result."""

    def change(how: Callable[[Result], Result]) -> None:
        monkeypatch.setattr(
            execute, "run_request", lambda request, **_: JudgedResult(result=how(a_measurement(request)))
        )

    return change
