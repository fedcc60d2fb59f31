"""A load ladder and a search for capacity, on a server with known behaviour."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from modeldyno.base.errors import RequestError
from modeldyno.base.job.load_spec import Arrivals, Load
from modeldyno.base.metrics.constraints import Constraint
from modeldyno.base.metrics.measurement_plan import Plan
from modeldyno.base.result.result import FailureKind
from modeldyno.engine.runtime.trial_executor import subprocess_executors
from modeldyno.engine.trace.carbon import Emission
from modeldyno.profiling.request import Request
from modeldyno.profiling.run import INTERRUPTED, run_request
from modeldyno.reports import terminal
from modeldyno.serving.load.capacity_steps import RATE, CapacitySearch, SearchEnd
from modeldyno.serving.load.series_steps import next_load
from modeldyno.serving.loadtest.resume import resume_search
from modeldyno.serving.loadtest.series import begin_curve, begin_search, measure_loads
from modeldyno.serving.views import page as load_page
from modeldyno.testing.server import serve_in_subprocess

if TYPE_CHECKING:
    from collections.abc import Iterator

PLAN = Plan(max_time=1.5, min_time=0.3, precision=0.5)
LONG = replace(PLAN, max_time=8 * PLAN.max_time)
"""Of a search: each load takes at most an eighth, as PLAN says."""
BOUND = Constraint.parse("latency.p50 <= 45ms")


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """Two workers that take 20 ms per request: up to five slots wait at most 60 ms."""
    with serve_in_subprocess("--service", "constant:0.02", "--workers", "2") as running:
        yield f"http://127.0.0.1:{running.port}#echo"


@pytest.fixture(scope="module")
def hanging() -> Iterator[str]:
    """A server that describes its model, and answers nothing else."""
    with serve_in_subprocess("--fault", "hang=1") as running:
        yield f"http://127.0.0.1:{running.port}#echo"


def a_request(url: str, load: Load | None = None, plan: Plan = PLAN) -> Request:
    """Return a request for a load on the server."""
    return Request(
        model=url, settings={}, inputs=("x=1x4",), probes=("load",), load=load, plan=plan,
        require=("latency.p50 <= 45ms",),
    )  # fmt: skip


def test_a_ladder_is_measured_on_one_server(server: str) -> None:
    """Each rung is yielded as soon as it is measured, with the ladder so far."""
    steps = list(measure_loads(begin_curve(a_request(server), (1, 2, 8))))
    assert [len(ladder.rungs) for _, ladder in steps] == [1, 2, 3]
    rates = [outcome.result["request_rate"] or 0 for outcome, _ in steps]
    assert rates[0] < rates[1]
    assert rates[2] < 1.5 * rates[1]
    ladder = steps[-1][1]
    assert [rung.load for rung in ladder.by_load] == [1, 2, 8]
    assert ladder.model == steps[0][0].result.model is not None


@pytest.mark.slow  # a curve for a product of two numbers
def test_each_load_has_its_carbon(server: str) -> None:
    """Of the power to assume, in the result and in the curve: twice the rate is half of it."""
    emission = Emission.parse("360g/kWh", "100W")
    steps = list(measure_loads(begin_curve(a_request(server), (1, 2)), emission=emission))
    answers = [rung.find("carbon") for rung in steps[-1][1].by_load]
    assert [answer.value for answer in answers if answer] == [
        outcome.result["carbon"] for outcome, _ in steps
    ]
    for outcome, _ in steps:
        assert (outcome.result["carbon"] or 0) * (outcome.result["throughput"] or 0) == pytest.approx(10.0)


def test_the_first_request_is_given_up_when_any_would_be(hanging: str) -> None:
    """A server that never answers is not awaited longer than `--request-timeout` says."""
    [(outcome, _)] = measure_loads(begin_curve(a_request(hanging, Load(concurrency=1, timeout=0.5)), (1,)))
    [failure] = outcome.result.failures
    assert failure.where == "first call"
    assert failure.message.endswith("did not answer within 0.5 s")


def test_a_server_that_never_answers_is_given_up_at_the_time_limit(hanging: str) -> None:
    """Its first request is awaited no longer than the load may take, whatever a request may take."""
    request = replace(a_request(hanging, Load(concurrency=1)), plan=Plan(max_time=1.0))
    begin = time.monotonic()
    [failure] = run_request(request).result.failures

    assert (failure.where, failure.kind) == ("first call", FailureKind.ERROR)
    assert "did not answer within" in failure.message
    assert time.monotonic() - begin < 30  # and not the minute that a request may take


def test_a_series_ends_at_the_first_load_of_a_server_that_never_answers(hanging: str) -> None:
    """A ladder and a search alike."""
    request = replace(a_request(hanging, Load(concurrency=1)), plan=Plan(max_time=0.5))
    for series in (begin_curve(request, (1, 2)), begin_search(request)):
        assert len(list(measure_loads(series))) == 1


@pytest.mark.slow
def test_a_trial_is_no_limit_of_the_first_request() -> None:
    """A look of a second would make a model fail that loads at its first request."""
    with serve_in_subprocess("--service", "constant:0.9") as running:
        request = a_request(f"http://127.0.0.1:{running.port}#echo", Load(concurrency=1))
        job = replace(request, plan=Plan(max_time=0.1, min_time=0.0)).job()
        with subprocess_executors(lambda: 0) as room:
            result = room(job, fresh=False)(job, watch=lambda _event: None)
    assert (result["first_call"] or 0) >= 0.9


@pytest.mark.slow  # tests/serving/api/test_load.py finds one
def test_a_search_brackets_the_largest_load_that_holds(server: str) -> None:
    """With two workers of 20 ms, four slots wait for 40 ms, and eight for 80."""
    what = CapacitySearch(bounds=(BOUND,), start=2, most=16, measurements=4, patience=2.0)
    *_, (outcome, answer) = measure_loads(replace(begin_search(a_request(server)), search=what))
    # Five, of which one waits for two before it, take 60 ms; on a busy machine nothing may be sure of two.
    assert answer.passed is None or answer.passed <= 4
    assert (answer.verified is None) is (answer.passed is None)
    assert answer.verified is None or outcome.result.id == answer.verified.result


def test_a_search_ends_within_its_time(server: str) -> None:
    """All loads and the verification together; it says that the time was over, and goes on when resumed."""
    request = a_request(server, plan=replace(PLAN, max_time=3.0))
    begin = time.monotonic()
    *_, (_, answer) = measure_loads(begin_search(request, most=4096, measurements=100))
    assert time.monotonic() - begin < 3.0 + 2.0  # the start of a process
    assert answer.end is SearchEnd.TIME
    assert "its time of 3 s was over (--max-time)" in terminal.text(load_page.blocks(answer))
    assert next_load(resume_search(answer, max_time=60.0)) is not None


@pytest.mark.slow  # a search that is interrupted verifies nothing either
def test_a_search_that_nothing_passes_verifies_nothing(server: str) -> None:
    """If not even one request at a time meets the bound, there is nothing to verify."""
    bound = Constraint.parse("latency.p50 <= 5ms")
    what = CapacitySearch(bounds=(bound,), start=1, measurements=3)
    *_, (_, answer) = measure_loads(replace(begin_search(a_request(server)), search=what))
    assert answer.passed is None
    assert answer.verified is None


@pytest.mark.slow
def test_a_search_that_is_interrupted_says_what_it_knows(server: str) -> None:
    """The current measurement is the last; nothing is verified."""
    steps = []
    for step in measure_loads(begin_search(a_request(server, plan=LONG), most=64, measurements=9)):
        steps.append(step)
        if len(steps) == 2:
            os.kill(os.getpid(), signal.SIGINT)
    outcome, answer = steps[-1]
    assert outcome.exit_code == INTERRUPTED
    assert len(steps) == 3
    assert answer.end is SearchEnd.INTERRUPTED
    assert [rung.result for rung in answer.rungs] == [each.result.id for each, _ in steps]
    assert answer.verified is None


def test_what_cannot_be_searched_is_refused(server: str) -> None:
    """A series of loads needs a server, and one server is one process."""
    with pytest.raises(RequestError, match="leave out `processes`"):
        begin_curve(a_request(server, plan=replace(PLAN, processes=2)), (1, 2))
    local = Request(model="call:modeldyno.testing.known_latency:steady", settings={}, plan=PLAN)
    with pytest.raises(RequestError, match="a series of loads needs a server"):
        begin_curve(local, (1, 2))


@pytest.mark.slow
def test_a_rate_is_searched_in_an_open_loop(server: str) -> None:
    """Two workers of 20 ms do 100 requests a second: the largest rate that holds is lower."""
    load = Load(arrivals=Arrivals.POISSON, rate=20)
    search = begin_search(a_request(server, load), most=400, measurements=6)
    assert search.knob == RATE
    *_, (_, answer) = measure_loads(search)
    assert answer.passed is None or answer.passed < 110


@pytest.mark.parametrize(
    "load",
    [
        Load(concurrency=8),
        pytest.param(Load(arrivals=Arrivals.CONSTANT, rate=50.0), marks=pytest.mark.slow),
    ],
)
def test_a_search_ends_at_the_first_load_where_the_server_refuses_all(server: str, load: Load) -> None:
    """A model that the server lacks fails under any load, so no smaller load is tried."""
    missing = f"{server.partition('#')[0]}/fault/400/#echo"
    *before, (_, answer) = measure_loads(begin_search(a_request(missing, load)))
    assert not before
    assert (answer.end, answer.passed) == (SearchEnd.REFUSED, None)
