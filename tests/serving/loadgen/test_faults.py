"""Row 6 of the reliability table: bad servers; each request is called one thing, and none hangs."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import TYPE_CHECKING

import pytest

from modeldyno.base.job.load_spec import Arrivals, Load
from modeldyno.base.result.request_outcome import RequestOutcome
from modeldyno.engine.interfaces.request_target import Target, Transport
from modeldyno.testing.server import serve_in_subprocess
from modeldyno.testing.server_faults import FAULTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.serving.loadgen.conftest import Driven

    from modeldyno.testing.server import RunningServer

TIMEOUT = 1.0
RACES = {"close-after": {RequestOutcome.RESET}}
"""A server that closes with the next request unread resets the connection: the system's doing."""
COUNTS = [32, pytest.param(1000, marks=pytest.mark.slow)]


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with serve_in_subprocess("--slow", "0.001", "--workers", "8") as running:
        yield running


def target(server: RunningServer, path: str, *, stream: bool = False) -> Target:
    message = f"POST {path} HTTP/1.1\r\nHost: test\r\nContent-Length: 2\r\n\r\nhi".encode()
    return Target(
        protocol="http",
        transport=Transport.HTTP,
        host=server.host,
        port=server.port,
        messages=(message,),
        stream=stream,
    )


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("fault", FAULTS)
def test_each_request_is_called_one_thing(
    fault: str, count: int, server: RunningServer, driven: Callable[..., Driven]
) -> None:
    """Every request ends within the timeout and a second, under a name that suits the fault."""
    load = Load(concurrency=32, requests=count, timeout=TIMEOUT)
    records = driven(
        target(server, f"/fault/{fault}/", stream=fault == "stream-error"), load, seconds=300
    ).records
    assert len(records) == count
    assert {RequestOutcome(outcome) for outcome in records.outcome} <= FAULTS[fault].outcomes | RACES.get(
        fault, set()
    )
    # The clock of a busy machine: the sweep itself is the same for one and for many.
    assert (records.end - records.sent).max() < (TIMEOUT + 1) * 1e9
    assert (records.sent >= records.due).all()


@pytest.mark.parametrize("count", COUNTS)
def test_faults_among_good_answers_are_counted_as_the_server_counts_them(
    count: int, driven: Callable[..., Driven]
) -> None:
    """A tenth of resets, truncations, and errors each: our counts are those of the server's ledger."""
    shares = ("reset-after=0.1", "truncated=0.1", "500=0.1", "429=0.1", "long=0.1")
    with serve_in_subprocess(*(word for share in shares for word in ("--fault", share))) as server:
        records = driven(target(server, "/"), Load(concurrency=8, requests=count)).records
        counted = server.truth().faults()
    recorded = {outcome: int((records.outcome == outcome).sum()) for outcome in RequestOutcome}
    assert recorded[RequestOutcome.RESET] == counted.get("reset-after", 0)
    assert recorded[RequestOutcome.TRUNCATED] == counted.get("truncated", 0)
    assert recorded[RequestOutcome.SERVER_ERROR] == counted.get("500", 0)
    assert recorded[RequestOutcome.REJECTED] == counted.get("429", 0)
    assert recorded[RequestOutcome.MALFORMED] == counted.get("long", 0)
    assert recorded[RequestOutcome.OK] == count - sum(counted.values())


def test_where_nobody_listens_every_request_is_refused(driven: Callable[..., Driven]) -> None:
    """Slots rest before they try again, so that the loop does not turn in a circle."""
    with serve_in_subprocess() as server:
        nobody = server
    load = Load(concurrency=2, requests=8)
    records = driven(target(nobody, "/"), load).records
    assert set(records.outcome) == {RequestOutcome.REFUSED}
    assert len(records) == 8


def test_idle_connections_that_the_server_closes_are_replaced(driven: Callable[..., Driven]) -> None:
    """No request fails where the server has long closed its connection when it is due."""
    with serve_in_subprocess("--idle", "0.01") as server:  # a closing that crosses a request may reset it
        load = Load(arrivals=Arrivals.CONSTANT, rate=8.0, requests=8)
        outcome = driven(target(server, "/"), load)
    assert set(outcome.records.outcome) == {RequestOutcome.OK}
    assert outcome.opened > 1


def test_retries_send_again_what_was_not_answered_and_are_counted(driven: Callable[..., Driven]) -> None:
    """A server that resets every other request answers all of them in the end."""
    with serve_in_subprocess("--fault", "reset-before=0.5") as server:
        load = Load(concurrency=4, requests=100, retries=30)
        outcome = driven(target(server, "/"), load)
        resets = server.truth().faults()["reset-before"]
    assert set(outcome.records.outcome) == {RequestOutcome.OK}
    assert outcome.records.retries.sum() == resets
    assert outcome.sent == 100 + resets


@pytest.mark.parametrize("fault", ["429-later", pytest.param("503-later", marks=pytest.mark.slow)])
def test_a_rejected_request_is_sent_again_when_the_server_wants_it(
    fault: str, driven: Callable[..., Driven]
) -> None:
    """It waits as long as `Retry-After` says, in seconds or by the server's own clock, within its latency."""
    with serve_in_subprocess("--fault", f"{fault}=0.3") as server:
        records = driven(target(server, "/"), Load(concurrency=16, requests=24, retries=20)).records
        rejections = server.truth().faults()[fault]
    assert set(records.outcome) == {RequestOutcome.OK}
    assert records.retries.sum() == rejections > 0
    seconds = (records.end - records.due) / 1e9
    assert (seconds >= records.retries).all()
    assert (seconds < records.retries + 0.9).all()


def test_a_rejected_request_is_sent_again_after_a_pause_that_grows(driven: Callable[..., Driven]) -> None:
    """Where the server does not say when; a wait beyond the timeout is not begun."""
    with serve_in_subprocess("--fault", "503=1") as server:
        records = driven(target(server, "/"), Load(concurrency=1, requests=1, retries=3)).records
    assert [*records.outcome] == [RequestOutcome.REJECTED]
    assert (records.end - records.due)[0] > (0.05 + 0.1 + 0.2) * 1e9
    assert records.retries[0] == 3
    with serve_in_subprocess("--fault", "429-later=1") as server:
        load = Load(concurrency=1, requests=1, retries=3, timeout=0.5)
        records = driven(target(server, "/"), load).records
    assert (records.outcome[0], records.retries[0]) == (RequestOutcome.REJECTED, 0)


@pytest.mark.parametrize("fault", ["truncated", "reset-after"])
def test_a_cut_answer_is_not_sent_again(fault: str, driven: Callable[..., Driven]) -> None:
    """Its work is done; the server sees each request once."""
    with serve_in_subprocess("--fault", f"{fault}=1") as server:
        records = driven(target(server, "/"), Load(concurrency=2, requests=6, retries=5)).records
        seen = len(server.truth())
    assert {RequestOutcome(outcome) for outcome in records.outcome} <= FAULTS[fault].outcomes
    assert (seen, records.retries.sum()) == (6, 0)


def test_a_server_that_dies_leaves_nothing_hanging(driven: Callable[..., Driven]) -> None:
    """What was on its way is broken or cut off, what follows refused."""

    def kill(server: RunningServer) -> None:
        while len(server.truth()) < 20:
            time.sleep(0.01)
        os.kill(server.pid, signal.SIGKILL)

    with serve_in_subprocess("--service", "constant:0.005") as server:
        killer = threading.Thread(target=kill, args=(server,))
        killer.start()
        began = time.monotonic()
        load = Load(concurrency=4, requests=100)
        records = driven(target(server, "/"), load, grace=1.0).records
        killer.join()
    assert time.monotonic() - began < 20
    assert {RequestOutcome.OK, RequestOutcome.REFUSED} <= {
        RequestOutcome(outcome) for outcome in records.outcome
    }
    assert RequestOutcome.TIMEOUT not in set(records.outcome)
