from __future__ import annotations

from inspect import signature
from typing import TYPE_CHECKING, Any

import pytest

import modeldyno
from modeldyno.base.errors import OutOfTime, RunFailed
from modeldyno.compat.inspectors import ServerInspector
from modeldyno.engine.environment import running_servers
from modeldyno.engine.environment.running_servers import ServerRecord
from modeldyno.profiling.api.error_wording import reword_errors, reword_for_python
from modeldyno.serving.api.serve import Server

if TYPE_CHECKING:
    from modeldyno.profiling.request import Request


def test_a_live_object_is_told_of_its_example() -> None:
    """For missing inputs of a live object the error mentions example=; otherwise nothing is added."""
    output = reword_for_python("give it by `inputs`.", live=True)

    assert output == "give it by inputs=. A live object also takes its inputs as example=."
    assert reword_for_python("give it, as `inputs=x=1x3`.", live=True).endswith("as example=.")
    assert reword_for_python("give it by `vary`.", live=True) == "give it by vary=."


def test_a_limit_that_was_too_short_is_named_as_an_argument() -> None:
    """The advice is what a caller types in Python."""

    @reword_errors
    def measure(model: str) -> None:
        raise OutOfTime(f"Nothing of {model} could be measured; give more time, such as `max_time=25s`.")

    with pytest.raises(OutOfTime, match=r"such as max_time='25s'\.$"):
        measure("a.onnx")


def test_help_shows_types_as_they_are_written() -> None:
    """Signatures have no quoted types, and no lambda as a default."""
    for function in (modeldyno.profile, modeldyno.inspect, modeldyno.load):
        text = str(signature(function))

        assert "Result" in text
        assert "'Any'" not in text
        assert "lambda" not in text


def test_a_server_stands_for_its_url(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that `serve` or `servers.list` returned is given to any function of Python in place of its URL."""
    record = a_server()
    requests: list[Request] = []

    def run(request: Request, **_options: object) -> None:
        requests.append(request)
        raise RunFailed("enough")

    monkeypatch.setattr("modeldyno.serving.api.load.run_request", run)
    servers: tuple[Any, ...] = (Server(record), record, record.url)
    for server in servers:
        with pytest.raises(RunFailed, match="enough"):
            modeldyno.load(server, progress=False, store=False)
        study = modeldyno.sweep(server, space="concurrency=1,2", inputs="x=1x4", dry_run=True, progress=False)
        assert (study.job.model.locator, study.job.backend) == (record.url, "remote")

    assert {request.job().model.locator for request in requests} == {record.url}


def test_a_profiler_takes_a_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the server, or as that of a device."""
    record = a_server()
    monkeypatch.setattr(running_servers, "list_running", lambda: (record,))
    for profiler in (
        modeldyno.compat.Profiler({"name": "echo", "engine": "triton"}, Server(record)),
        modeldyno.compat.Profiler({"name": "echo", "engine": "triton"}, {"cpu": Server(record)}),
    ):
        assert isinstance(profiler.inspector, ServerInspector)
        assert profiler.inspector.endpoint is not None
        assert profiler.inspector.endpoint.port == 8123


def test_a_server_is_stopped_by_itself_or_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """`servers.stop` takes both."""
    record = a_server()
    stopped: list[ServerRecord] = []
    monkeypatch.setattr(running_servers, "find_running", lambda name: {"mine": record}[name])
    monkeypatch.setattr(running_servers, "_find", lambda name: {"mine": record}[name])
    monkeypatch.setattr(running_servers, "stop_running", stopped.append)

    modeldyno.servers.stop(Server(record))
    modeldyno.servers.stop("mine")

    assert stopped == [record, record]


def a_server() -> ServerRecord:
    """Return a server that is nowhere."""
    return ServerRecord(
        name="mine",
        model="onnx:echo.onnx",
        backend="triton",
        device="cpu",
        url="http://127.0.0.1:8123#echo,protocol=kserve-http",
        protocol="kserve-http",
        ports={"http": 8123},
        pid=0,
        ticks=0,
        started="2026-01-02T03:04:05+00:00",
        detached=False,
        log="",
    )
