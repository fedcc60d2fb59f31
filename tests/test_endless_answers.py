"""Whoever waits for a peer waits no longer than its limit, whatever the peer sends."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from modeldyno.base.errors import ModelDynoError
from modeldyno.comparison import pr_comment
from modeldyno.engine.interfaces.request_target import Target, Transport
from modeldyno.engine.samplers import triton_metrics
from modeldyno.registry import webhooks
from modeldyno.registry.records.records import RegistryEvent
from modeldyno.registry.records.webhooks import Delivery, Webhook
from modeldyno.serving.loadgen.single_request import send_once
from modeldyno.serving.servers import server_process
from modeldyno.serving.servers.admin_client import AdminClient
from modeldyno.testing.endless_answers import HTTP1, HTTP2, EndlessAnswer, endless_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LIMIT = 0.2
"""Seconds that each place is given here."""
MESSAGE = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
EVENT = RegistryEvent(
    id=1, at="", actor="", kind="alias.moved", subject="net/1", detail={}, before="", hash=""
)


def first_request(port: int) -> Any:
    """Send one request of a load, as a first call, a status, metadata and statistics are."""
    target = Target(
        protocol="http", transport=Transport.HTTP, host="127.0.0.1", port=port, messages=(MESSAGE,)
    )
    return send_once(target, timeout=LIMIT)


def first_call(port: int) -> Any:
    """Make one call of gRPC."""
    place: dict[str, Any] = {"host": "127.0.0.1", "port": port}
    target = Target(protocol="x", transport=Transport.GRPC, messages=(b"x",), method="/a/b", **place)
    return send_once(target, timeout=LIMIT)


def webhook(port: int) -> Any:
    """Tell an address of an event."""
    hook = Webhook(url=f"http://127.0.0.1:{port}/hook")
    return webhooks.post_message(Delivery(id=1, webhook=hook, event=EVENT, attempts=1, token=1))


def readiness(port: int) -> Any:
    """Ask a started server whether it is ready."""
    return server_process.http_ready(port, "/v2/health/ready")


def statistics(port: int) -> Any:
    """Ask a server for its statistics, or to load a model."""
    return AdminClient(port=port, timeout=LIMIT).get("/v2/models/stats")


def device_metrics(port: int) -> Any:
    """Read a server's metrics in the form of Prometheus."""
    return triton_metrics.read_triton_devices(f"http://127.0.0.1:{port}/metrics")


def comment(port: int) -> Any:
    """Write a comment to a forge."""
    place = f"http://127.0.0.1:{port}/comments"
    thread = pr_comment.CommentThread(forge="GitHub", comments=place, one=place, change="PATCH", headers={})
    return pr_comment._call_api(thread, "GET", thread.comments)


PLACES = (first_request, webhook, readiness, statistics, device_metrics, comment)


@pytest.fixture(autouse=True)
def _short_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhooks, "_PATIENCE", LIMIT)
    monkeypatch.setattr(triton_metrics, "_TIMEOUT", LIMIT)
    monkeypatch.setattr(pr_comment, "_TIMEOUT", LIMIT)
    monkeypatch.setattr(server_process, "_READY_TIMEOUT", LIMIT)


def _cases() -> Iterator[Any]:
    """Yield each place with each shape; by default each shape at one place, the places in turn."""
    for number, (shape, answer) in enumerate(HTTP1.items()):
        for place in PLACES:
            quick = place is PLACES[number % len(PLACES)]
            marks = () if quick else (pytest.mark.slow,)
            yield pytest.param(place, answer, marks=marks, id=f"{place.__name__}: {shape}")
    for shape, answer in HTTP2.items():
        yield pytest.param(first_call, answer, id=f"first_call: {shape}")


@pytest.mark.parametrize(("wait", "answer"), [*_cases()])
def test_an_answer_without_end_is_given_up(wait: Callable[[int], Any], answer: EndlessAnswer) -> None:
    """Within its limit and a second, by an error or a refusal."""
    with endless_server(answer) as port:
        begin = time.monotonic()
        with suppress(OSError, ModelDynoError):
            wait(port)
        assert time.monotonic() - begin < LIMIT + 1.0
