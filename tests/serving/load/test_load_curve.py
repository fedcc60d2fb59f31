from __future__ import annotations

from math import inf

import pytest

from modeldyno.base.errors import RequestError
from modeldyno.base.metrics.constraints import Answer, Constraint, Verdict
from modeldyno.base.metrics.doubt import Doubt
from modeldyno.base.metrics.measurement import (
    CLIENT_LIMITED,
    SATURATED,
    Distribution,
    Interval,
    Measurement,
    observed_number,
)
from modeldyno.base.metrics.metric import Query
from modeldyno.base.result.result import Failure, FailureKind
from modeldyno.serving.load.load_curve import (
    LoadCurve,
    LoadPoint,
    doubling_loads,
    ends_at_plateau,
    parse_ladder,
    single_concurrency,
    worth_climbing,
)
from modeldyno.testing.sample_results import a_small_result


def rung(load: float, rate: float | None, mean: float | None, *doubts: str, error: float = 0.01) -> LoadPoint:
    """A load whose rate and mean latency are known to within a share of them."""
    by_name = {"request_rate": rate, "latency": mean}
    answers = tuple(
        Answer(
            query=Query(metric=metric, statistic="mean" if metric == "latency" else None),
            value=value,
            interval=Interval(low=value * (1 - error), high=value * (1 + error)),
        )
        for metric, value in by_name.items()
        if value is not None
    )
    return LoadPoint(load=load, answers=answers, doubts=doubts)


def full_server(workers: int, *loads: int, error: float = 0.01) -> LoadCurve:
    """A closed loop on so many workers of 10 ms: the rate grows up to their number, then the latency does."""
    rungs = (
        rung(load, 100.0 * min(load, workers), 0.01 * max(load, workers) / workers, error=error)
        for load in loads
    )
    return LoadCurve(knob="concurrency", rungs=tuple(rungs))


class TestKnee:
    @pytest.mark.parametrize("workers", [2, 4, 8, 16])
    def test_it_is_where_the_server_is_just_full(self, workers: int) -> None:
        """With k workers it is at k, between the rungs beside it, wherever the ladder ends."""
        for last in (32, 64, 512):
            knee = full_server(workers, *doubling_loads(1, last)).knee
            assert knee is not None
            assert (knee.low, knee.load, knee.high) == (workers / 2, workers, workers * 2)

    def test_one_worker_is_full_with_one_request(self) -> None:
        """There is no smaller load, so that the knee is at the first rung."""
        knee = full_server(1, 1, 2, 4).knee

        assert knee is not None
        assert (knee.low, knee.load, knee.high) == (1, 1, 2)

    def test_noise_widens_it(self) -> None:
        """Rungs that cannot be told from the best one may be the knee as well."""
        knee = full_server(4, 1, 2, 3, 4, 5, 6, 8, 16, error=0.1).knee

        assert knee is not None
        assert knee.load == 4
        assert (knee.low, knee.high) == (2, 6)

    def test_a_curve_that_still_bends_has_none(self) -> None:
        """The knee may lie beyond the last rung."""
        assert full_server(64, 1, 2, 4, 8).knee is None
        assert LoadCurve(knob="concurrency", rungs=()).knee is None

    @pytest.mark.parametrize("lost", [rung(4, None, 0.01), rung(4, 400.0, None), rung(4, 400.0, 0.0)])
    def test_a_rung_without_figures_is_left_out(self, lost: LoadPoint) -> None:
        """Neither rate nor latency can be missing."""
        ladder = LoadCurve(knob="concurrency", rungs=(*full_server(4, 1, 2, 8, 16).rungs, lost))

        assert ladder.knee is not None
        assert ladder.knee.load in {2, 8}

    def test_an_interval_that_reaches_0_leaves_the_knee_open(self) -> None:
        """A latency of which nothing is known may be any."""
        ladder = full_server(4, 1, 2, 4, 8)
        wide = Answer(
            query=Query(metric="latency", statistic="mean"), value=0.02, interval=Interval(low=0.0, high=1.0)
        )
        last = LoadPoint(load=8, answers=(ladder.rungs[-1].answers[0], wide))

        assert LoadCurve(knob="concurrency", rungs=(*ladder.rungs[:-1], last)).knee is None


class TestPlateau:
    def test_it_begins_where_more_load_gives_no_more(self) -> None:
        """Beyond the intervals; the order of measuring does not matter."""
        ladder = full_server(4, 16, 1, 8, 2, 4)

        assert [each.load for each in ladder.by_load] == [1, 2, 4, 8, 16]
        assert ladder.plateau == 4
        assert ladder.decline is None

    def test_a_growing_throughput_has_none(self) -> None:
        """Nor has one rung alone."""
        assert full_server(64, 1, 2, 4).plateau is None
        assert full_server(64, 1).plateau is None

    def test_a_decline_is_told(self) -> None:
        """Throughput that falls beyond its best, by more than the intervals."""
        ladder = LoadCurve(
            knob="concurrency",
            rungs=(rung(1, 100, 0.01), rung(2, 190, 0.01), rung(4, 189, 0.02), rung(8, 150, 0.05)),
        )

        assert ladder.decline == 8
        assert LoadCurve(knob="concurrency", rungs=()).decline is None

    def test_what_says_nothing_of_the_server_counts_for_nothing(self) -> None:
        """A client at its limit, or an overload, is no point of the curve; samples stand in for requests."""
        limited = rung(8, 900, 0.02, CLIENT_LIMITED)
        drowned = rung(16, 100, 5.0, SATURATED)
        ladder = LoadCurve(knob="rate", rungs=(*full_server(2, 1, 2, 4).rungs, limited, drowned))
        answer = Answer(query=Query(metric="throughput"), value=5.0)
        samples = LoadCurve(knob="rate", rungs=tuple(LoadPoint(load=n, answers=(answer,)) for n in (1, 2)))

        assert (ladder.plateau, ladder.decline) == (2, None)
        assert samples.plateau == 1


class TestClimb:
    def test_two_rungs_without_gain_end_it(self) -> None:
        """One may be chance."""
        assert worth_climbing(LoadCurve(knob="concurrency", rungs=()))
        assert worth_climbing(full_server(4, 1, 2, 4, 8))
        assert not worth_climbing(full_server(4, 1, 2, 4, 8, 16))

    @pytest.mark.parametrize(
        "last",
        [rung(8, 1, 1, SATURATED), rung(8, 1, 1, CLIENT_LIMITED), LoadPoint(load=8, failure="it crashed")],
    )
    def test_nothing_is_to_be_learnt_beyond_an_overload_or_a_failure(self, last: LoadPoint) -> None:
        """More load would only show more of it."""
        assert not worth_climbing(
            LoadCurve(knob="concurrency", rungs=(*full_server(64, 1, 2, 4).rungs, last))
        )


class TestLoads:
    @pytest.mark.parametrize(
        ("text", "loads"),
        [
            ("1,2,4", (1, 2, 4)),
            (" 3 ", (3,)),
            ("1:8", (1, 2, 4, 8)),
            ("3:20", (3, 6, 12, 20)),
            ("512:", (512, 1024)),
            ("1..4", (1, 2, 3, 4)),
            ("1..9:4", (1, 5, 9)),
            ("1..16*2", (1, 2, 4, 8, 16)),
        ],
    )
    def test_a_ladder_is_read(self, text: str, loads: tuple[int, ...]) -> None:
        """A list, or what is doubled up to the end."""
        assert parse_ladder(text) == loads

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "1,1",
            "4,2",
            "0,1",
            "8:4",
            "a",
            "1:b",
            "0:8",
            "4..1",
            "1..2:0.5",
            ",".join(map(str, range(1, 99))),
        ],
    )
    def test_what_is_no_ladder_is_refused(self, text: str) -> None:
        """In one sentence with an example."""
        with pytest.raises(
            RequestError, match=r"is not a ladder; write up to 64 rising concurrencies: 1,2,4,8"
        ):
            parse_ladder(text)


def test_only_a_ladder_that_doubles_ends_at_the_plateau() -> None:
    """One whose loads were named is measured whole."""
    assert [ends_at_plateau(text) for text in ("1:64", "1,2", "1..9:2")] == [True, False, False]


BOUND = Constraint.parse("latency.p99 <= 50ms")


def test_a_rung_keeps_what_the_ladder_shows() -> None:
    """Figures with their intervals, verdicts, codes of doubts and the first failure; not the samples."""
    times = [0.01 + i * 7919 % 2000 * 1e-6 for i in range(2000)]
    latency = Measurement(metric="latency", value=Distribution.of(times))
    result = a_small_result(
        measurements=(
            latency,
            observed_number("request_rate", 80.0, interval=Interval(low=79.0, high=81.0)),
            observed_number("queue_time", 0.002),
            observed_number("client_cpu", 0.3, scope="driver 0"),
            observed_number("client_cpu", 0.4, scope="driver 1"),
            observed_number("load_time", 3.0),
        ),
        doubts=(Doubt(code="drift", seen="s", advice="a"), Doubt(code="drift", seen="t", advice="a")),
        failures=(Failure(where="load", kind=FailureKind.ERROR, message="it broke"),),
    )
    kept = LoadPoint.of(result, 4, (BOUND,), care=2.0)

    assert (kept.load, kept.care, kept.result, kept.failure) == (4, 2.0, result.id, "it broke")
    assert kept.doubts == ("drift",)
    assert [judgement.verdict for judgement in kept.judgements] == [Verdict.HELD]
    p99, rate, cpu = kept.find("latency", "p99"), kept.find("request_rate"), kept.find("client_cpu")
    assert p99 == result.ask("latency.p99")
    assert rate is not None
    assert cpu is not None
    assert (rate.value, cpu.value) == (80.0, 0.3)
    assert kept.find("load_time") is None
    assert kept.find("latency", "p99", "raw") is None


def test_a_percentile_that_is_no_claim_is_kept_as_a_hint() -> None:
    """Beside the verdict that it leaves open; a bound on what was not measured gives none."""
    few = Measurement(metric="latency", value=Distribution.of([0.01] * 50))
    other = Constraint.parse("service_time.p99 <= 1s")
    kept = LoadPoint.of(a_small_result(measurements=(few,)), 1, (BOUND, other))

    assert [judgement.verdict for judgement in kept.judgements] == [Verdict.UNDECIDED] * 2
    hint = kept.find("latency", "p99", "raw")
    assert hint is not None
    assert hint.value == 0.01
    assert kept.find("service_time", "p99", "raw") is None


def judged_ladder(*times: float | None) -> LoadCurve:
    """Return a ladder of loads 1, 2, 3 and so on with these p99 in seconds; None of too few answers."""
    bound = Constraint.parse("latency.p99 <= 50ms")
    rungs = []
    for load, time in enumerate(times, 1):
        ends = Interval(low=0.0, high=inf) if time is None else Interval(low=time, high=time)
        judgement = bound.on(Answer(query=bound.query, value=time, interval=ends))
        rungs.append(LoadPoint(load=float(load), judgements=(judgement,)))
    return LoadCurve(knob="concurrency", rungs=tuple(reversed(rungs)))


@pytest.mark.parametrize(
    ("times", "verdict", "held"),
    [
        ((0.01, 0.02, 0.06), Verdict.BROKEN, 2.0),
        ((0.01, 0.06, 0.02), Verdict.BROKEN, 1.0),
        ((0.06,), Verdict.BROKEN, None),
        ((None, 0.02), Verdict.HELD, 2.0),
        ((0.01, None), Verdict.UNDECIDED, 1.0),
    ],
)
def test_a_bound_of_a_ladder_is_judged_by_all_loads(
    times: tuple[float | None, ...], verdict: Verdict, held: float | None
) -> None:
    """Broken by any of them; undecided where the largest is, as smaller ones have fewer answers."""
    ladder = judged_ladder(*times)
    (bound,) = ladder.judged

    assert ladder.verdict is bound.verdict is verdict
    assert (None if bound.held is None else bound.held[0].load) == held
    broken = sum(time is not None and time > 0.05 for time in times)
    assert len(bound.of_verdict(Verdict.BROKEN)) == broken


def test_a_ladder_without_bounds_holds() -> None:
    """Nothing was asked of it."""
    assert LoadCurve(knob="concurrency", rungs=()).verdict is Verdict.HELD


def test_beside_rates_there_is_one_concurrency() -> None:
    """The most requests in flight; several would be another curve."""
    assert single_concurrency("8") == 8
    with pytest.raises(RequestError, match="Several rates and several values of `concurrency` exclude"):
        single_concurrency("1,2")
