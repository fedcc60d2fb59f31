"""What a load on several servers tells of each, from records whose truth is known."""

from __future__ import annotations

import numpy as np
from tests.serving.load.test_load_analysis import MILLI, SECOND, records

from modeldyno.base.job.load_spec import Arrivals, Load
from modeldyno.base.metrics.measurement import SATURATED, Distribution, Measurement
from modeldyno.base.result.request_outcome import RequestOutcome
from modeldyno.engine.interfaces.request_target import Replica, Target, Transport
from modeldyno.serving.load.by_server import server_doubts, server_measurements, server_names
from modeldyno.serving.load.steady_window import SteadyWindow

NAMES = ("a:8000", "b:8000")


def measure(*services: float, failed: float = 0.0, why: str = "") -> list[Measurement]:
    """A request each 10 ms, to each server in turn; service times in milliseconds, some of b's fail."""
    count = 1000
    server = np.arange(count) % len(services)
    noise = np.random.default_rng(0).normal(size=count) * 0.1 * MILLI
    service = np.array(services)[server] * MILLI + noise
    fails = (server == 1) & (np.arange(count) % 100 < 100 * failed)
    log = records(
        np.arange(count) * 10 * MILLI,
        service.astype("int64"),
        server=server,
        outcome=np.where(fails, RequestOutcome.SERVER_ERROR, RequestOutcome.OK),
    )
    window = SteadyWindow(
        records=log, begin=0, end=10 * SECOND, load=Load(arrivals=Arrivals.CONSTANT, rate=100)
    )
    return [*server_measurements(window, NAMES, why)]


def test_each_server_has_its_requests_failures_and_times() -> None:
    """Under its address."""
    values = {(m.metric, m.scope): m.value for m in measure(5, 9, failed=0.2)}
    assert values["requests", "server=a:8000"] == values["requests", "server=b:8000"] == 500
    assert values["error_rate", "server=a:8000"] == 0
    assert values["error_rate", "server=b:8000"] == 0.2
    first, second = (values["latency", f"server={name}"] for name in NAMES)
    assert isinstance(first, Distribution)
    assert isinstance(second, Distribution)
    assert (len(first), len(second)) == (500, 400)
    assert abs(first.statistic("p50") - 0.005) < 1e-4
    assert abs(second.statistic("p50") - 0.009) < 1e-4


def test_a_slower_server_is_named() -> None:
    """With the times of both; a tenth of difference, and what is void, is not worth a word."""
    (doubt,) = server_doubts(measure(5, 9))
    assert doubt.code == "servers-differ"
    assert "an answer of b:8000 takes 9.0 ms (median), of a:8000 5.0 ms" in doubt.seen
    assert not [*server_doubts(measure(5, 5.3))]
    assert not [*server_doubts(measure(5, 9, why=SATURATED))]
    assert not [*server_doubts(())]


def test_a_server_that_fails_more_is_named() -> None:
    """Rather than one that is slower: it may fail quickly."""
    (doubt,) = server_doubts(measure(9, 5, failed=0.2))
    assert "b:8000 failed in 20.0% of its requests, a:8000 in 0.0%" in doubt.seen


def test_a_server_without_an_answer_has_no_times() -> None:
    """Only its requests, which are none."""
    values = {(m.metric, m.scope): m.value for m in measure(5)}
    assert values["requests", "server=b:8000"] == 0
    assert ("error_rate", "server=b:8000") not in values
    assert ("latency", "server=b:8000") not in values
    assert not [*server_doubts(measure(5))]


def test_servers_have_the_names_of_their_addresses() -> None:
    """The first one's, then the others'."""
    target = Target(
        protocol="http", transport=Transport.HTTP, host="a", port=1, messages=(b"",),
        replicas=(Replica(host="b", port=2), Replica(host="c", port=3)),
    )  # fmt: skip
    assert server_names(target) == ("a:1", "b:2", "c:3")


def test_servers_behind_one_address_are_told_apart_by_their_paths() -> None:
    """As a gateway has them."""
    message = b"POST /a/infer HTTP/1.1\r\nHost: gateway\r\n\r\n"
    other = "POST /b/infer HTTP/1.1\r\nHost: gateway\r\n"
    target = Target(
        protocol="http",
        transport=Transport.HTTP,
        host="gateway",
        port=80,
        messages=(message,),
        replicas=(Replica(host="gateway", port=80, start=other), Replica(host="c", port=80, start=other)),
    )
    assert server_names(target) == ("gateway:80/a/infer", "gateway:80/b/infer", "c:80")
