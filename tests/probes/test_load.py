"""The probe ``load`` against a server whose every request is known."""

from __future__ import annotations

import csv
import json
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from modeldyno.core.load import Arrivals, Load
from modeldyno.core.measurement import Distribution
from modeldyno.core.observation import Observation
from modeldyno.core.plan import Plan
from modeldyno.request import Request
from modeldyno.run import run
from modeldyno.testing.server import serving

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from modeldyno.core.result import Result

PLAN = Plan(max_time=2.0, min_time=0.4, precision=0.3)
"""Short, and content with little: what is asserted is no matter of speed."""


@contextmanager
def server(*arguments: str) -> Iterator[str]:
    """Run a server; give the URL of its model."""
    with serving(*arguments) as running:
        yield f"http://127.0.0.1:{running.port}#echo"


@pytest.fixture(scope="module")
def steady() -> Iterator[str]:
    """A server that takes 4 ms for each request, one after the other."""
    with server("--service", "constant:0.004") as url:
        yield url


def asked(url: str, load: Load | None = None, plan: Plan = PLAN, **more: Any) -> Request:
    """Ask for a load on a server."""
    return Request(model=url, settings={}, inputs=("x=1x4",), load=load, plan=plan, **more)


def loaded(url: str, load: Load | None = None, **more: Any) -> Result:
    """Put a load on a server."""
    return run(asked(url, load, **more).job())


def spread(result: Result, metric: str) -> Distribution:
    """Give a distribution of a Result."""
    found = result.find(metric)
    assert found is not None
    assert isinstance(found.value, Distribution)
    return found.value


def codes(result: Result) -> set[str]:
    """Name the doubts."""
    return {doubt.code for doubt in result.doubts}


def test_a_closed_loop_gives_every_number_of_a_load(steady: str) -> None:
    """Latency, rates, errors, and the stages of the server's own account come of one closed loop."""
    result = loaded(steady, Load(concurrency=2))
    assert not result.failures
    assert spread(result, "latency").statistic("min") >= 0.004
    assert result["error_rate"] == 0
    for metric in ("throughput", "request_rate", "in_flight", "client_time", "queue_time", "network_time"):
        assert (result[metric] or 0) > 0, metric
    assert result["compute_time"] == pytest.approx(0.004, rel=0.5)
    assert "no-account" not in codes(result)


def test_the_parts_of_a_request_sum_to_its_service_time(steady: str) -> None:
    """What the server tells of a request and the rest of it are the whole."""
    result = loaded(steady, Load(concurrency=2))
    parts = ("queue_time", "compute_input_time", "compute_time", "compute_output_time", "network_time")
    assert sum(result[part] or 0 for part in parts) == pytest.approx(
        spread(result, "service_time").statistic("mean"), rel=0.05
    )


def test_an_open_loop_offers_its_rate_whatever_the_server_does() -> None:
    """More than a server can do is due all the same; its latency is then no claim."""
    with server("--service", "constant:0.05") as url:
        result = loaded(url, Load(arrivals=Arrivals.CONSTANT, rate=100))
    assert result["offered_rate"] == pytest.approx(100, rel=0.2)
    assert (result["request_rate"] or 0) < 30
    assert spread(result, "latency").void == "saturated"
    assert result["latency.p50"] is None
    assert "saturated" in codes(result)
    assert result.judge("latency.p50 <= 1ms").verdict == "broken"


def test_errors_are_counted_by_their_kind() -> None:
    """A server that refuses half of its requests has the other half as its rate."""
    with server("--service", "constant:0.002", "--fault", "503=0.5") as url:
        result = loaded(url, Load(concurrency=2))
    assert result["error_rate"] == pytest.approx(0.5, abs=0.25)
    assert result["requests@rejected"]
    assert "failed-requests" in codes(result)


def test_a_server_that_answers_nothing_well_is_a_failure() -> None:
    """Where no request succeeds there is no latency, and the run failed."""
    with server("--fault", "500=1") as url:
        result = loaded(url, Load(concurrency=1, timeout=1))
    assert result.failures
    assert result.find("latency") is None


def test_so_many_requests_are_measured_as_were_asked_for(steady: str) -> None:
    """A number of requests is counted after the warm-up, and is no reason for doubt."""
    result = loaded(steady, Load(concurrency=1, requests=50), plan=replace(PLAN, max_time=20))
    assert len(spread(result, "latency")) >= 25


def test_a_duration_is_the_length_of_the_window(steady: str) -> None:
    """What is asked for by its length ends by it."""
    result = loaded(steady, Load(concurrency=1, duration=0.5))
    assert spread(result, "latency").stop == "duration"


def test_a_goodput_counts_what_is_within_the_bound(steady: str) -> None:
    """A bound on the latency says what a good answer is."""
    result = run(asked(steady, Load(concurrency=1), require=("latency.p50 <= 10s",)).job())
    assert result.job.load is not None
    assert result.job.load.within == 10
    assert result["goodput"] == result["request_rate"]


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".npz"])
def test_every_request_can_be_had(steady: str, tmp_path: Path, suffix: str) -> None:
    """Records are written in the format of their suffix, all of them."""
    path = tmp_path / f"records{suffix}"
    result = loaded(steady, Load(concurrency=1), observation=Observation(records=str(path)))
    (artifact,) = result.artifacts
    assert artifact.name == "records"
    assert rows(path) > len(spread(result, "latency"))


def rows(path: Path) -> int:
    """Count the requests in a file."""
    if path.suffix == ".npz":
        return int(np.load(path)["due"].size)
    lines = path.read_text(encoding="utf-8").splitlines()
    if path.suffix == ".jsonl":
        return sum(json.loads(line)["outcome"] == "ok" for line in lines)
    return sum(row["outcome"] == "ok" for row in csv.DictReader(lines))


def test_a_stream_gives_the_times_of_its_tokens() -> None:
    """A text that comes in pieces has a time to the first token, and one for each that follows."""
    with serving("--pace", "0.005", "--tokens", "8") as running:
        settings = {"stream": True, "max_tokens": 8}
        url = f"http://127.0.0.1:{running.port}#echo,protocol=openai"
        result = run(Request(model=url, settings=settings, load=Load(concurrency=1), plan=PLAN).job())
    assert not result.failures
    assert spread(result, "time_per_output_token").statistic("p50") >= 0.004
    assert spread(result, "time_to_first_token").statistic("min") > 0
    assert (result["token_rate"] or 0) > 0


def test_a_model_within_a_process_takes_no_load() -> None:
    """A load on what is called within a process is refused, with what to do."""
    request = Request(
        model="call:modeldyno.testing.truth:steady", settings={}, load=Load(concurrency=2), plan=PLAN
    )
    with pytest.raises(Exception, match="a load needs a server: choose one with --backend triton"):
        request.job()
