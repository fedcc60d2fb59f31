from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modeldyno.base.errors import RequestError
from modeldyno.base.job.load_spec import Arrivals, Load
from modeldyno.base.metrics.constraints import Answer
from modeldyno.base.metrics.measurement import Distribution, Measurement, observed_number
from modeldyno.base.metrics.metric import Query
from modeldyno.base.result.request_outcome import RequestOutcome
from modeldyno.base.result.result import Environment
from modeldyno.comparison.change.build import CompareOptions, compare_results
from modeldyno.serving.load.foreign_load import (
    ForeignLoad,
    ForeignRequest,
    definition_doubt,
    foreign_records,
    foreign_result,
    outcome_of_error,
    reported_value,
)

if TYPE_CHECKING:
    from modeldyno.base.result.result import Result

MS = 1_000_000
OPEN = Load(arrivals=Arrivals.CONSTANT, rate=100.0)


def a_load(**more: object) -> ForeignLoad:
    """Two hundred requests of 4 to 5 ms, one after the other."""
    requests = tuple(
        ForeignRequest(sent=at * 5 * MS, end=at * 5 * MS + (4 + at % 2) * MS) for at in range(200)
    )
    fields: dict[str, object] = {"tool": "bench", "load": Load(concurrency=1), "requests": requests, **more}
    return ForeignLoad(**fields)  # type: ignore[arg-type]


def a_result(foreign: ForeignLoad) -> Result:
    return foreign_result(foreign, id="0123456789ab", origin="bench.json", digest="sha256:00")


def codes(result: Result) -> list[str]:
    return [doubt.code for doubt in result.doubts]


def test_requests_give_what_our_own_load_would() -> None:
    """From the records come distributions with intervals, and rates."""
    made = a_result(a_load(model="m", url="http://host:8000", version="1.2"))

    assert made.ask("latency.p50").value == pytest.approx(0.004)
    assert made.ask("latency.mean").interval is not None
    assert made["request_rate"] == pytest.approx(200 / (199 * 0.005 + 0.005), rel=1e-3)
    assert str(made.job.model) == "url:http://host:8000#m"
    assert made.environment.software == {"bench": "1.2"}
    assert made.environment.conditions == {"imported_from": "bench.json", "content": "sha256:00"}
    assert made.name == "m"
    assert not made.failures


def test_what_counts_from_the_sending_is_no_latency_of_an_open_loop() -> None:
    """Where nobody tells when requests were due, an open loop has a service time and no latency."""
    closed, opened = a_result(a_load()), a_result(a_load(load=OPEN))

    assert closed.find("latency") is not None
    assert closed.find("send_lag") is None
    assert opened.find("latency") is None
    assert opened.find("service_time") is not None
    assert "from-send" in codes(closed)
    assert "from-send" in codes(opened)


def test_a_due_time_that_is_told_counts() -> None:
    """Latency is then from when it was due."""
    due = tuple(
        replace(each, sent=each.sent + MS, end=each.end + MS, due=each.sent) for each in a_load().requests
    )
    made = a_result(a_load(load=OPEN, requests=due))

    assert made.ask("latency.p50").value == pytest.approx(0.005)
    assert made.ask("send_lag.p50").value == pytest.approx(0.001)
    assert "from-send" not in codes(made)


def test_a_window_that_is_told_leaves_the_rest_out() -> None:
    """Requests before the steady part are in no distribution, and no doubt says otherwise."""
    whole, cut = a_result(a_load()), a_result(a_load(window=(500 * MS, 1001 * MS)))

    assert whole["requests@ok"] == 200
    assert cut["requests@ok"] == 100
    assert "whole-load" in codes(whole)
    assert "whole-load" not in codes(cut)


def test_a_metric_that_is_untold_is_left_out() -> None:
    """What the requests would give wrongly is not given."""
    assert a_result(a_load(untold=frozenset({"throughput"}))).find("throughput") is None


def test_pieces_of_streams_give_the_first_token() -> None:
    """A stream whose pieces are told has its time to first token."""
    streams = tuple(
        replace(each, pieces=(each.sent + MS, each.sent + 2 * MS), tokens=2) for each in a_load().requests
    )
    made = a_result(a_load(requests=streams))

    assert made.ask("time_to_first_token.p50").value == pytest.approx(0.001)
    assert made.ask("inter_token_latency.p50").value == pytest.approx(0.001)


def test_figures_stand_as_they_were_told() -> None:
    """A statistic without samples is a number at its name, asked for like any other, without an interval."""
    figures = (
        *reported_value("latency", 12.0, "mean", 1e-3),
        *reported_value("latency", 50.0, "p99", 1e-3),
        *reported_value("throughput", 80.0),
    )
    made = a_result(a_load(requests=(), figures=figures))

    assert made["latency.mean"] == pytest.approx(0.012)
    assert made.ask("latency.mean").interval is None
    assert made.ask("latency.mean").observed
    assert made["throughput"] == 80
    assert "no-samples" in codes(made)
    assert made.name == "bench"


def test_a_percentile_that_was_told_is_a_claim_only_of_enough_requests() -> None:
    """Below the floor it is null, and .raw gives it."""
    figures = (*reported_value("latency", 0.05, "p99"), *reported_value("requests", 661, "ok"))
    few = a_result(a_load(requests=(), figures=figures))
    enough = a_result(a_load(requests=(), figures=(*figures[:1], *reported_value("requests", 662, "ok"))))
    none = a_result(a_load(requests=(), figures=figures[:1]))

    assert few.ask("latency.p99").value is None
    assert "661 requests" in few.ask("latency.p99").why
    assert few["latency.p99.raw"] == 0.05
    assert enough["latency.p99"] == 0.05
    assert none.ask("latency.p99").value is None
    with pytest.raises(RequestError, match="was not measured as a whole"):
        few.ask("latency.p50")


def test_what_requests_tell_holds_over_figures() -> None:
    """A figure of a metric that the requests give is dropped, and so are statistics beside samples."""
    both = a_result(a_load(figures=tuple(reported_value("request_rate", 1.0))))
    times = Measurement(metric="latency", value=Distribution.of([0.001] * 20))
    beside = a_result(
        a_load(
            requests=(),
            figures=(times, *reported_value("latency", 9.0, "p50"), *reported_value("latency", 9.0, "p50")),
        )
    )

    assert both["request_rate"] != 1.0
    assert beside["latency.p50"] == 0.001
    assert [m.scope for m in beside.measurements] == [""]


@pytest.mark.parametrize("value", [None, float("nan"), float("inf"), -1.0])
def test_what_is_no_number_is_no_figure(value: float | None) -> None:
    """Nothing stands for what was not told."""
    assert list(reported_value("latency", value, "p50")) == []


def test_failed_requests_are_in_no_latency() -> None:
    """They are counted, and doubted."""
    made = a_result(
        a_load(
            requests=(
                *a_load().requests,
                ForeignRequest(sent=900 * MS, end=901 * MS, outcome=RequestOutcome.TIMEOUT),
            )
        )
    )

    assert made["requests@timeout"] == 1
    assert made.ask("latency.n").value == 200
    assert "failed-requests" in codes(made)


def test_a_load_without_an_answer_has_failed() -> None:
    """Its Result says so."""
    made = a_result(a_load(requests=(ForeignRequest(sent=1, end=2, outcome=RequestOutcome.REFUSED),)))

    assert made.failures[0].message == "none of 1 requests was answered well"


def test_a_load_that_drifts_is_doubted() -> None:
    """A service time that rises through the load is no steady one."""
    rising = tuple(
        ForeignRequest(sent=at * 50 * MS, end=at * 50 * MS + (10 + at // 10) * MS) for at in range(300)
    )

    assert "drift" in codes(a_result(a_load(requests=rising)))


def test_other_definitions_are_doubts() -> None:
    """They follow what is said of every import."""
    gap = definition_doubt("throughput", "it counts otherwise")
    made = a_result(a_load(gaps=(gap,)))

    assert gap in made.doubts
    assert gap.advice
    assert (
        gap
        in a_result(a_load(gaps=(gap,), requests=(), figures=tuple(reported_value("throughput", 1.0)))).doubts
    )


@settings(deadline=None)
@given(st.integers(-10, 10), st.integers(-10, 10), st.integers(-10, 10))
def test_times_that_run_backwards_are_refused(due: int, sent: int, end: int) -> None:
    """A request is due, sent and ended in this order, at no time before zero."""
    request = ForeignRequest(due=due, sent=sent, end=end)
    if 0 <= due <= sent <= end:
        assert len(foreign_records([request])) == 1
    else:
        with pytest.raises(RequestError, match="A request is due, sent and ended at"):
            foreign_records([request])


@pytest.mark.parametrize("pieces", [(-MS,), (9 * MS, 8 * MS), (2**62,)])
def test_pieces_that_no_clock_gives_are_refused(pieces: tuple[int, ...]) -> None:
    """A piece comes after the sending and after the one before it."""
    with pytest.raises(RequestError, match="The pieces of a request sent at 0 ns are out of order"):
        foreign_records([ForeignRequest(sent=0, end=MS, pieces=pieces)])


@pytest.mark.parametrize("times", [(0.001, -1.0), (0.001, 1e16)])
def test_a_figure_that_nothing_can_have_measured_is_refused(times: tuple[float, ...]) -> None:
    """Samples below zero or without end, as a damaged report has them, and such numbers."""
    samples = Measurement(metric="service_time", value=Distribution.of(times))
    number = observed_number("throughput", 1e300)
    for figure in (samples, number):
        with pytest.raises(RequestError, match=f"{figure.metric} is .*, which nothing can have measured"):
            a_result(a_load(requests=(), figures=(figure,)))


def test_a_number_of_another_scope_is_no_statistic() -> None:
    """A query with a scope, or of a metric that has none told, is answered as ever."""
    figures = [observed_number("latency", 1.0, scope="p50"), observed_number("throughput", 2.0)]

    assert Answer.to(Query.parse("latency@p50"), figures).value == 1.0
    assert Answer.to(Query.parse("throughput"), figures).value == 2.0
    assert [m.reported_statistic for m in figures] == ["p50", ""]
    assert Measurement(metric="latency", value=Distribution.of([1.0]), scope="p50").reported_statistic == ""
    assert observed_number("latency", 1.0, scope="encoder").reported_statistic == ""


def test_a_comparison_with_an_import_is_marked() -> None:
    """It is not refused, as nothing is known to differ; that nothing is known is a doubt."""
    ours = replace(a_result(a_load()), environment=Environment(hardware={"cores": 8}))
    ours = replace(ours, job=replace(ours.job, backend="remote"))
    both = compare_results(ours, a_result(a_load()), CompareOptions(metrics=("service_time.p50",)))

    assert [doubt.code for doubt in both.doubts] == ["imported", "not-in-turns"]
    assert both.changes[0].baseline == both.changes[0].candidate
    assert "imported" not in [doubt.code for doubt in compare_results(ours, ours, CompareOptions()).doubts]


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        ("Too Many Requests", RequestOutcome.REJECTED),
        ("HTTP status 418", RequestOutcome.CLIENT_ERROR),
        ("Server error '502 Bad Gateway' for url 'http://host:429'", RequestOutcome.SERVER_ERROR),
        ("status 499", RequestOutcome.CANCELLED),
        ("status unknown: request timed out", RequestOutcome.TIMEOUT),
        ("Request was cancelled", RequestOutcome.CANCELLED),
        ("Connection refused", RequestOutcome.REFUSED),
        ("Server disconnected", RequestOutcome.TRUNCATED),
        ("Connection reset by peer", RequestOutcome.RESET),
        ("429 bottles", RequestOutcome.SERVER_ERROR),
    ],
)
def test_the_error_of_a_tool_says_how_a_request_ended(error: str, outcome: RequestOutcome) -> None:
    """By its status, the phrase of one, or the words of Python's exceptions."""
    assert outcome_of_error(error) is outcome


def test_first_tokens_count_from_the_sending_by_their_name() -> None:
    """A tool that says elsewhere when requests were due has no other time of them in its figures."""
    figure = observed_number("time_to_first_token", 0.2, scope="p50")
    for elsewhere in (False, True):
        load = ForeignLoad(tool="t", load=Load(), figures=(figure,), due_elsewhere=elsewhere)
        result = foreign_result(load, id="a", origin="f", digest="d")
        assert result["first_token_service_time.p50.raw"] == 0.2
        assert (result.find("time_to_first_token", "p50") is None) == elsewhere
