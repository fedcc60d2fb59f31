"""The difference between two load generators, where the truth is known: each part is what was put in."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from modeldyno.base.job.load_spec import Arrivals, Load
from modeldyno.base.metrics.measurement import Distribution, Measurement, observed_number
from modeldyno.base.stats.statistics import quantile
from modeldyno.exchange.import_ import read_loads
from modeldyno.exchange.reconciliation import NEAREST, RULES, DifferenceRow, Reconciliation, reconcile
from modeldyno.exchange.views.reconciliation import headline
from modeldyno.serving.load.foreign_load import ForeignLoad, ForeignRequest, definition_doubt
from modeldyno.testing.sample_results import a_result

if TYPE_CHECKING:
    from modeldyno.base.result.result import Result
    from modeldyno.exchange.reconciliation import DifferenceRow

GOLDEN = Path(__file__).parents[2] / "exchange" / "importers" / "golden"
MILLI = 1_000_000
OPEN = Load(arrivals=Arrivals.POISSON, rate=100.0)


def service_times(seed: int, count: int = 2000) -> np.ndarray:
    """Return seconds that one server takes, whoever asks."""
    return np.random.default_rng(seed).gamma(20, 5e-3 / 20, count)


def our_result(lag: float = 0.002, warmup: float = 1.0) -> Result:
    """Return our load: a queue in the client delays each request by `lag` seconds."""
    service = service_times(0)
    how = {"warmup_time": warmup}
    spreads = {"latency": service + lag, "service_time": service, "time_to_first_token": service / 2}
    measurements = tuple(
        Measurement(metric=metric, value=Distribution.of(samples, **how))
        for metric, samples in spreads.items()
    )
    return a_result(measurements=measurements, doubts=())


def sent_at(times: np.ndarray) -> tuple[ForeignRequest, ...]:
    """Return requests sent at 100/s that took so many seconds."""
    sent = ((1 + np.arange(times.size)) * 10 * MILLI).tolist()
    return tuple(
        ForeignRequest(sent=at, end=round(at + took * 1e9)) for at, took in zip(sent, times, strict=True)
    )


def parts_of(row: DifferenceRow) -> list[float]:
    """Return the parts of a difference that are known; they add up to it."""
    return [
        part
        for part in (row.rule, row.warmup, row.definition, row.server, row.client, row.left)
        if part is not None
    ]


def their_requests(slow: int = 100, extra: float = 0.0, *, due: bool = False) -> tuple[ForeignRequest, ...]:
    """Return requests at 100/s whose first `slow` ones took 20 ms longer; all took `extra` seconds longer."""
    times = service_times(1) + extra
    times[:slow] += 0.02
    requests = sent_at(times)
    return tuple(replace(each, due=each.sent - 2 * MILLI) for each in requests) if due else requests


def report(rule: str, requests: tuple[ForeignRequest, ...], **changes: object) -> ForeignLoad:
    """Return what a tool with a percentile rule reports of its requests."""
    times = np.array([(request.end - request.sent) * 1e-9 for request in requests])
    figures = [observed_number("service_time", float(times.mean()), scope="mean")]
    for name, p in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99)):
        figures.append(observed_number("service_time", RULES[rule](times, p), scope=name))
    foreign = ForeignLoad(tool="other", load=OPEN, requests=requests, figures=tuple(figures))
    return replace(foreign, **changes)  # type: ignore[arg-type]


def row_of(reconciliation: Reconciliation, statistic: str, metric: str = "service_time") -> DifferenceRow:
    """Return the row of a figure."""
    return next(row for row in reconciliation.rows if (row.metric, row.statistic) == (metric, statistic))


@pytest.mark.parametrize("rule", RULES)
def test_the_parts_add_up_to_the_difference(rule: str) -> None:
    """Whatever the rule, reported less ours is the sum of all parts."""
    reconciliation = reconcile(report(rule, their_requests()), our_result())
    assert rule in reconciliation.rules
    for row in reconciliation.rows:
        assert sum(parts_of(row)) == pytest.approx(row.theirs - row.ours, abs=1e-12)


def test_each_part_is_what_was_put_in() -> None:
    """A rule, 20 ms in a hundred first requests, a queue of 2 ms in the client, and the same server."""
    requests = their_requests()
    reconciliation = reconcile(report("linear interpolation", requests), our_result())
    times = np.array([(request.end - request.sent) * 1e-9 for request in requests])
    row = row_of(reconciliation, "p99")
    assert reconciliation.dropped == 1.0
    assert row.rule == pytest.approx(float(np.quantile(times, 0.99)) - quantile(times, 0.99))
    assert row.warmup == pytest.approx(quantile(times, 0.99) - quantile(times[100:], 0.99))
    assert (row.warmup or 0.0) > 0.01
    assert row.definition == pytest.approx(-0.002)
    assert row.is_noise
    assert row_of(reconciliation, "mean").warmup == pytest.approx(0.001, rel=0.01)


def test_another_server_is_left_and_is_no_chance() -> None:
    """Ten milliseconds that no definition explains stay in what is left, whose interval leaves out 0."""
    reconciliation = reconcile(report(NEAREST, their_requests(slow=0, extra=0.01)), our_result())
    row = row_of(reconciliation, "p50")
    assert row.left == pytest.approx(0.01, rel=0.02)
    assert row.interval is not None
    assert row.interval.low < 0.01 < row.interval.high
    assert row.is_noise is False


@pytest.mark.no_cover
def test_chance_is_called_chance_in_nearly_all_cases() -> None:
    """Of one server, at least 93 of 100 differences of the median are called chance."""
    chance = 0
    for seed in range(200):
        requests = sent_at(service_times(seed + 10, 300))
        reconciliation = reconcile(report(NEAREST, requests, window=(0, 10**12)), our_result())
        chance += row_of(reconciliation, "p50").is_noise is True
    assert chance >= 0.93 * 200


def test_a_tool_that_counts_from_the_due_time_has_no_part_for_it() -> None:
    """Its latency is compared with ours; a service time that it does not report follows from its rule."""
    figures = (
        observed_number("latency", 0.0071, scope="p50"),
        observed_number("latency", 0.03, scope="p99.9"),
    )
    reconciliation = reconcile(report(NEAREST, their_requests(due=True), figures=figures), our_result())
    row = row_of(reconciliation, "p50", "latency")
    assert (row.compared, row.definition) == ("latency", 0.0)
    assert [each.statistic for each in reconciliation.rows if each.metric == "latency"] == ["p50"]
    assert row_of(reconciliation, "p90").rule == 0.0
    assert reconciliation.rules == ()  # none gives 30 ms
    assert reconciliation.notes == ("latency: no rule gives its percentiles from the reported requests",)


def test_figures_without_requests_leave_the_rule_in_what_is_left() -> None:
    """Neither rule nor warm-up can be computed, and there is no interval; the rest still adds up."""
    figures = tuple(observed_number(metric, 0.006, scope="p50") for metric in ("service_time", "latency"))
    gaps = (definition_doubt("service_time", "it ends with the last piece"),)
    reconciliation = reconcile(ForeignLoad(tool="other", load=OPEN, figures=figures, gaps=gaps), our_result())
    row = row_of(reconciliation, "p50")
    assert (row.rule, row.warmup, row.interval, row.is_noise) == (None, None, None, None)
    assert sum(parts_of(row)) == pytest.approx(row.theirs - row.ours)
    assert (reconciliation.requests, reconciliation.notes) == (
        0,
        ("service_time: it ends with the last piece",),
    )


def with_account(result: Result, *, outside: float) -> Result:
    """Return a result whose server tells 1 ms of queue and 3 ms of compute."""
    stages = {"queue_time": 0.001, "compute_time": 0.003, "network_time": outside}
    added = tuple(observed_number(metric, value) for metric, value in stages.items())
    return replace(result, measurements=(*result.measurements, *added))


def test_the_client_is_a_part_where_both_know_the_time_of_the_server() -> None:
    """A client that is half a millisecond slower at a server that is 2 ms slower: each is told apart."""
    ours = with_account(our_result(lag=0.0), outside=0.0005)
    mean = service_times(0).mean()
    figures = (
        observed_number("service_time", mean + 0.0025, scope="mean"),
        observed_number("service_time", 0.006, scope="p50"),
        observed_number("queue_time", 0.002),
        observed_number("compute_time", 0.004),
        observed_number("network_time", 0.001),
    )
    reconciliation = reconcile(ForeignLoad(tool="other", load=OPEN, figures=figures), ours)
    row = row_of(reconciliation, "mean")
    assert row.server == pytest.approx(0.002)
    assert row.client == pytest.approx(0.0005)
    assert row.left == pytest.approx(0, abs=1e-12)
    assert sum(parts_of(row)) == pytest.approx(row.theirs - row.ours)
    assert (row_of(reconciliation, "p50").client, reconciliation.no_client) == (None, "")
    alone = replace(reconciliation, rows=(row,))
    assert "0 is how it is measured, +2.5 ms is left" in headline(alone)


def test_a_report_without_the_time_of_the_server_says_why_the_client_is_no_part() -> None:
    """Of the report or of ours: the sentence names which of the two lacks it."""
    figures = (observed_number("service_time", 0.006, scope="mean"),)
    plain = ForeignLoad(tool="other", load=OPEN, figures=figures)
    stage_figures = (observed_number("queue_time", 0.001), observed_number("network_time", 0.001))
    whole = replace(plain, figures=(*figures, *stage_figures))
    account = "has no time of the server itself (queue, compute)"
    assert reconcile(plain, our_result()).no_client == f"the report of other {account}"
    reconciliation = reconcile(whole, our_result())
    assert (reconciliation.no_client, row_of(reconciliation, "mean").client) == (
        f"this result {account}",
        None,
    )
    parts = tuple(replace(figure, scope="p50") for figure in stage_figures)
    of_median = replace(plain, figures=(*figures, *parts))
    reconciliation = reconcile(of_median, with_account(our_result(), outside=0.001))
    assert (reconciliation.no_client, row_of(reconciliation, "mean").client) == (
        f"the report of other {account}",
        None,
    )


def test_how_late_a_client_sends_is_told_where_it_is_reported() -> None:
    """Two milliseconds, as its requests were due so long before they were sent."""
    with_due = report(NEAREST, their_requests(due=True))
    theirs, ours = reconcile(with_due, our_result()).sent_late
    assert theirs == pytest.approx(0.002)
    assert ours is None
    assert reconcile(report(NEAREST, their_requests()), our_result()).sent_late == (None, None)


def test_a_window_of_the_tool_is_taken_as_its_steady_state() -> None:
    """A tool that leaves out its own warm-up loses no more."""
    requests = their_requests()
    window = (requests[100].sent, requests[-1].end + 1)
    reconciliation = reconcile(report(NEAREST, requests, window=window), our_result())
    assert reconciliation.dropped == 0
    assert row_of(reconciliation, "mean").warmup == pytest.approx(0.001, rel=0.01)


def test_times_of_streams_and_failures() -> None:
    """The first token counts from the sending; what failed, and what we did not measure, has no row."""
    requests = their_requests()
    streamed = tuple(
        replace(each, pieces=(first, max(first, each.end)))
        for each in requests
        for first in [each.sent + 2 * MILLI]
    )
    figures = (observed_number("time_to_first_token", 0.002, scope="p50"),)
    reconciliation = reconcile(report(NEAREST, streamed, figures=figures), our_result())
    assert row_of(reconciliation, "p50", "time_to_first_token").rule == pytest.approx(0.0)
    failed = tuple(replace(each, outcome=type(each.outcome).RESET) for each in requests)
    assert reconcile(report(NEAREST, failed), our_result()).rows[0].rule is None
    nothing = a_result(measurements=(observed_number("latency", 0.1), observed_number("service_time", 0.1)))
    assert reconcile(report(NEAREST, requests), nothing).rows == ()
    assert reconcile(report(NEAREST, requests), replace(nothing, measurements=())).dropped == 0


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("loadgen_server/mlperf_log_summary.txt", "rank n p + 1"),
        ("loadgen_single/mlperf_log_trace.json", "rank n p + 1"),
        ("aiperf_closed/profile_export_aiperf.json", "linear interpolation"),
        ("aiperf_open/profile_export_aiperf.json", "linear interpolation"),
        ("vllm_closed.json", "linear interpolation"),
        ("guidellm_poisson.json", "cumulative share"),
        ("guidellm_concurrent.json", "cumulative share"),
    ],
)
def test_real_reports_show_their_percentile_rule(name: str, rule: str) -> None:
    """Of files that the tools wrote, every percentile of a request is what one rule makes of the requests."""
    (load,) = read_loads(GOLDEN / name)
    reconciliation = reconcile(load, our_result())
    assert rule in reconciliation.rules
    assert reconciliation.rows
    assert all(sum(parts_of(row)) == pytest.approx(row.theirs - row.ours) for row in reconciliation.rows)
    assert all(row.interval is None or row.interval.high <= inf for row in reconciliation.rows)
