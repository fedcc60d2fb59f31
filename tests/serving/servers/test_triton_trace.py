"""What a real Triton wrote of two requests is read: one over HTTP, one over gRPC."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from modeldyno.engine.interfaces.server_stats import RequestStamps
from modeldyno.serving.load.request_stages import RequestStage
from modeldyno.serving.servers import triton_trace
from modeldyno.serving.servers.admin_client import AdminClient
from modeldyno.serving.servers.triton_trace import TritonTrace, parse_trace, trace_flags

GOLDEN = Path(__file__).parents[2] / "golden"
HTTP = RequestStamps(
    sent=87808200654831,
    ends=(
        87808200721556, 87808200788931, 87808200829131, 87808200954024, 87808364366810, 87808364421848,
        87808364452498,
    ),
)  # fmt: skip


class Control(AdminClient):
    """Remembers what is posted."""

    def post(self, path: str, body: Any = None) -> Any:
        """Take it."""
        self.headers = {**self.headers, path: json.dumps(body)}


def a_trace(folder: Path) -> TritonTrace:
    """Return the trace of a server that answers here."""
    return TritonTrace(control=Control(port=0), model="net", folder=folder)


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_the_stamps_of_a_request_are_in_the_order_of_its_stages(protocol: str) -> None:
    """One ends each stage but the last, later than the client sent it, by the same clock."""
    events = json.loads((GOLDEN / f"triton_trace_{protocol}.json").read_text())
    stamps = list(parse_trace(events))
    assert len(stamps) == 2
    for each in stamps:
        assert len(each.ends) == len(RequestStage) - 1
        assert all(before <= after for before, after in pairwise((each.sent, *each.ends)))
        assert each.ends[-1] - each.sent < 1_000_000_000
    assert protocol == "grpc" or stamps[0] == HTTP


def test_a_request_without_all_stamps_or_without_an_id_is_left_out() -> None:
    """One that failed, one of another client, and a composing model, which has no id."""
    events = json.loads((GOLDEN / "triton_trace_http.json").read_text())
    failed = [event for event in events if "QUEUE_START" not in str(event)]
    foreign = [{**event, "request_id": "a"} if "request_id" in event else event for event in events]
    nameless = [{**event, "request_id": ""} if "request_id" in event else event for event in events]
    assert [*parse_trace(failed), *parse_trace(foreign), *parse_trace(nameless)] == []


@pytest.mark.parametrize("events", [[{}], [1], [{"id": 1, "timestamps": [{}]}]])
def test_what_is_no_trace_is_refused(events: list[Any]) -> None:
    """In a phrase."""
    with pytest.raises(ValueError, match="no trace of Triton"):
        list(parse_trace(events))


def test_a_server_begins_without_tracing(tmp_path: Path) -> None:
    """Its settings are those of the model alone, and change while it runs."""
    assert "--trace-config=level=OFF" in trace_flags(tmp_path)
    assert f"--trace-config=triton,file={tmp_path}/requests.json" in trace_flags(tmp_path)
    trace = a_trace(tmp_path)
    trace.begin(11)
    (setting,) = trace.control.headers.items()
    assert setting == ("/v2/models/net/trace/setting", '{"trace_level": ["TIMESTAMPS"], "trace_rate": "11"}')
    trace.end()
    assert list(trace.control.headers.values()) == ['{"trace_level": ["OFF"]}']


def test_a_trace_is_read_once_it_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server is waited for; what was read is not read again; a server that writes nothing is an error."""
    monkeypatch.setattr(triton_trace, "_PATIENCE", 0.1)
    text = (GOLDEN / "triton_trace_http.json").read_text()
    path = tmp_path / "requests.json.0"
    path.write_text(text[:100])
    monkeypatch.setattr("time.sleep", lambda _seconds: path.write_text(text))
    trace = a_trace(tmp_path)
    assert trace.read()[0] == HTTP
    monkeypatch.undo()
    monkeypatch.setattr(triton_trace, "_PATIENCE", 0.1)
    with pytest.raises(OSError, match="has not written"):
        trace.read()
