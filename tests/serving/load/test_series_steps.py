"""A load series as a log: what is next, what a measurement adds, and what other bounds say."""

from __future__ import annotations

import random
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Any

import pytest

from modeldyno.base.job.job import Job
from modeldyno.base.job.load_spec import Arrivals, Load
from modeldyno.base.job.model_ref import ModelRef
from modeldyno.base.metrics.constraints import Answer, Constraint, Verdict, bounds_of_answers
from modeldyno.base.metrics.doubt import Doubt
from modeldyno.base.metrics.measurement import Distribution, Interval, Measurement
from modeldyno.base.metrics.metric import Query
from modeldyno.base.result.result import FailureKind, Result
from modeldyno.serving.load.capacity import Capacity
from modeldyno.serving.load.capacity_steps import RATE, CapacitySearch, NextLoad, SearchEnd
from modeldyno.serving.load.load_curve import LoadCurve, LoadPoint
from modeldyno.serving.load.series_steps import (
    add_load,
    answer_again,
    end_in_time,
    job_at_load,
    judge_again,
    missing_loads,
    next_load,
    search_again,
    step_within,
    unknown_loads,
    without_unfinished,
)
from modeldyno.testing.sample_studies import SimulatedTrials

if TYPE_CHECKING:
    from collections.abc import Callable

JOB = Job(model=ModelRef(scheme="url", locator="m"), backend="remote", probes=("load",), load=Load())
BOUND, HALF = (Constraint.parse(f"latency.mean <= {ms}ms") for ms in (33, 15))
INTERRUPTED = Doubt(code="interrupted", seen="the run was interrupted", advice="let it end")


def slots(fails: Callable[[float], bool] = lambda _load: False) -> SimulatedTrials:
    """Four workers of 10 ms: more slots than that wait in proportion."""

    def latency(point: dict[str, Any]) -> float:
        return 0.01 * max(float(point["concurrency"]), 4) / 4

    return SimulatedTrials(
        rate=lambda point: 1 / latency(point),
        fails=lambda point: FailureKind.SERVER if fails(float(point["concurrency"])) else None,
    )


def a_curve(*loads: int, **changes: Any) -> LoadCurve:
    curve = LoadCurve(knob="concurrency", loads=loads, rungs=(), bounds=(BOUND,), job=JOB, id="c" * 12)
    return replace(curve, **changes)


def a_search(**limits: Any) -> Capacity:
    search = CapacitySearch(bounds=(BOUND,), **limits)
    return Capacity(
        search=search, rungs=(), end=SearchEnd.INTERRUPTED, passed=None, failed=None, job=JOB, id="5" * 12
    )


def in_any_order(measurement: Measurement) -> Measurement:
    """Return times that do not depend on each other, so that their intervals are narrow."""
    if not isinstance(measurement.value, Distribution):
        return measurement
    usual = measurement.value.statistic("p50")
    samples = [usual * (1 + random.Random(n).gauss(0, 0.02)) for n in range(200)]
    return replace(measurement, value=Distribution.of(samples))


class Log:
    """Measures series on a server that is simulated, and keeps the Results."""

    def __init__(self, server: SimulatedTrials | None = None) -> None:
        self.server = server or slots()
        self.results: dict[str, Result] = {}

    def result(self, series: LoadCurve | Capacity, step: NextLoad) -> Result:
        """Measure one load."""
        job = job_at_load(series, step)
        result = self.server(job, fresh=step.fresh)(job, watch=lambda _event: None)
        result = replace(result, measurements=tuple(map(in_any_order, result.measurements)))
        self.results[result.id] = result
        return result

    def step(self, series: Any, *doubts: Doubt, **more: Any) -> Any:
        """Measure the next load."""
        step = next_load(series)
        assert step is not None
        result = self.result(series, step)
        return add_load(series, step, replace(result, doubts=(*result.doubts, *doubts)), **more)

    def to_the_end(self, series: Any) -> Any:
        """Measure every load that is left."""
        while next_load(series) is not None:
            series = self.step(series)
        return series


def loads(series: LoadCurve | Capacity) -> list[float]:
    return [rung.load for rung in series.rungs]


class TestLadder:
    def test_each_load_is_measured_once(self) -> None:
        """In the order asked for; what was measured before is not measured again."""
        log = Log()
        curve = log.to_the_end(a_curve(1, 2))
        further = log.to_the_end(replace(curve, loads=(1, 2, 4, 8)))

        assert loads(further) == [1, 2, 4, 8]
        assert further.rungs[:2] == curve.rungs
        assert [job.load.concurrency for _, job in log.server.jobs if job.load] == [1, 2, 4, 8]

    def test_the_first_load_tells_the_model_and_the_machine(self) -> None:
        """They are what a resumption compares; the name is the model's."""
        curve = Log().step(a_curve(1, 2))

        assert curve.model is not None
        assert (curve.model.digest, curve.name) == (SimulatedTrials(rate=len).digest, "digits")
        assert curve.environment.hardware["cores"] == 2
        failed = Log(slots(lambda _load: True)).result(a_curve(1), NextLoad(load=1.0))
        assert add_load(curve, NextLoad(load=2.0), replace(failed, model=None)).model == curve.model

    def test_it_ends_where_more_load_brings_no_more(self) -> None:
        """Unless the loads were listed; smaller loads that are missing are measured anyway."""
        climbing = Log().to_the_end(a_curve(4, 8, 16, 32, 64, until_plateau=True))
        assert loads(climbing) == [4, 8, 16]
        assert missing_loads(climbing) == (32, 64)
        assert loads(Log().to_the_end(replace(climbing, loads=(2, 4, 8, 16)))) == [4, 8, 16, 2]
        assert loads(Log().to_the_end(replace(climbing, until_plateau=False)))[-2:] == [32, 64]

    def test_a_failure_and_an_interruption_end_it(self) -> None:
        """A resumption measures both loads again."""
        failed = Log(slots(lambda load: load == 2)).to_the_end(a_curve(1, 2, 4))
        assert loads(failed) == [1, 2]
        interrupted = Log().step(Log().step(a_curve(1, 2, 4)), INTERRUPTED)
        assert next_load(interrupted) is None
        for series in (failed, interrupted):
            assert loads(Log().to_the_end(without_unfinished(series))) == [1, 2, 4]


class TestSearch:
    def test_it_ends_with_a_verification(self) -> None:
        """The load that passed is measured again on a fresh server, and nothing after that."""
        log = Log()
        capacity = log.to_the_end(a_search())

        assert capacity.passed == 12
        assert capacity.verified is not None
        assert [fresh for fresh, _ in log.server.jobs] == [False] * len(capacity.rungs) + [True]
        assert capacity.knob == "concurrency"

    def test_it_stands_as_interrupted_until_it_ends(self) -> None:
        """What is stored of a search whose process was killed says so."""
        begun = Log().step(a_search())

        assert (begun.end, begun.passed) == (SearchEnd.INTERRUPTED, 1)

    def test_an_interrupted_load_is_the_last(self) -> None:
        """A resumption measures it again."""
        interrupted = Log().step(Log().step(a_search()), INTERRUPTED)
        assert next_load(interrupted) is None
        assert interrupted.end is SearchEnd.INTERRUPTED
        assert loads(without_unfinished(interrupted)) == [1]

    def test_an_interrupted_verification_is_made_again(self) -> None:
        """The search itself had ended."""
        log = Log()
        capacity = a_search()
        while not (step := next_load(capacity)) or not step.fresh:
            capacity = log.step(capacity)
        interrupted = log.step(capacity, INTERRUPTED)
        assert next_load(interrupted) is None
        again = without_unfinished(interrupted)
        assert next_load(again) == step
        assert without_unfinished(log.step(again)).verified is not None

    def test_a_server_that_refuses_everything_ends_it(self) -> None:
        """A resumption begins anew; a failure among answers is a load that is too large."""
        failing = Log(slots(lambda _load: True))
        refused = failing.step(a_search(), refused=True)
        assert (next_load(refused), refused.end) == (None, SearchEnd.REFUSED)
        assert loads(without_unfinished(refused)) == []
        log = Log(slots(lambda load: load > 6))
        capacity = log.to_the_end(a_search())
        assert (capacity.passed, capacity.failed) == (6, 7)
        assert without_unfinished(capacity) == capacity
        assert log.step(log.step(a_search()), refused=True).end is not SearchEnd.REFUSED

    def test_a_larger_limit_goes_on(self) -> None:
        """What was verified before no longer counts once a larger load passes."""
        log = Log()
        small = log.to_the_end(a_search(most=2))
        assert (small.passed, small.end, small.verified.load) == (2, SearchEnd.LARGEST, 2)
        same = search_again(small, small.search, log.results.get)
        assert same == small
        large = log.to_the_end(search_again(small, replace(small.search, most=64), log.results.get))
        assert (large.passed, large.verified.load) == (12, 12)
        assert large.rungs[: len(small.rungs)] == small.rungs

    @pytest.mark.parametrize(
        ("passed", "care", "left", "measured"),
        [
            (None, 1.0, 3.0, 1.0),
            (None, 8.0, 9.0, 4.5),  # if it passes, its verification takes as long
            (None, 1.0, 1.9, None),
            (2.0, 8.0, 9.0, 4.5),
            (6.0, 8.0, 9.0, 3.0),
            (6.0, 8.0, 6.5, None),
        ],
    )
    def test_a_load_leaves_time_for_a_verification(
        self, passed: float | None, care: float, left: float, measured: float | None
    ) -> None:
        """That of itself, or of the load that passed; if there is too little, there is no load."""
        capacity = a_search()
        if passed is not None:
            capacity = replace(capacity, passed=4.0, rungs=(LoadPoint(load=4.0, care=passed),))

        step = step_within(capacity, NextLoad(load=8.0, care=care), left)
        assert (None if step is None else step.care) == measured
        verification = step_within(capacity, NextLoad(load=4.0, care=6.0, fresh=True), left)
        assert verification == NextLoad(load=4.0, care=max(1.0, min(6.0, left)), fresh=True)

    def test_at_the_end_of_its_time_only_the_verification_is_left(self) -> None:
        """It is of the load that passed so far; a resumed search goes on."""
        log = Log()
        begun = log.step(log.step(a_search()))
        ended = end_in_time(begun)
        assert ended.passed is not None
        assert next_load(ended) == NextLoad(load=ended.passed, fresh=True)
        verified = log.step(ended)
        assert (verified.end, verified.verified.load) == (SearchEnd.TIME, ended.passed)
        assert next_load(verified) is None
        assert log.to_the_end(without_unfinished(verified)).passed == 12

    def test_a_rate_is_searched_by_its_knob(self) -> None:
        """The Job has the rate, longer where more care is taken, and certifies the bound's percentile."""
        job = replace(JOB, load=Load(arrivals=Arrivals.POISSON, rate=5.0, requests=10))
        bound = Constraint.parse("latency.p99 <= 1s")
        search = CapacitySearch(bounds=(bound,), knob=RATE, start=5.0)
        capacity = replace(a_search(), search=search, job=job)
        next_job = job_at_load(capacity, NextLoad(load=20.0, care=2.0))

        assert next_job.load == Load(arrivals=Arrivals.POISSON, rate=20.0, requests=20)
        assert next_job.plan.percentiles == ("p99",)


class TestOtherBounds:
    def test_loads_are_judged_again_by_their_results(self) -> None:
        """A search goes on from what is known about the other bound."""
        log = Log()
        before = log.to_the_end(a_search())
        made = len(log.server.jobs)
        after = search_again(before, replace(before.search, bounds=(HALF,)), log.results.get)

        assert loads(after) == loads(before)
        assert {j.constraint for rung in after.rungs for j in rung.judgements} == {HALF}
        assert after.verified is None
        ended = log.to_the_end(replace(after, search=replace(after.search, measurements=20)))
        assert ended.passed == 5
        assert len(log.server.jobs) - made < made

    def test_a_search_begins_with_the_loads_of_a_curve(self) -> None:
        """Its bounds are not those of the curve."""
        log = Log()
        curve = log.to_the_end(a_curve(1, 4, 16, bounds=()))
        capacity = search_again(curve, CapacitySearch(bounds=(BOUND,)), log.results.get)

        assert (capacity.passed, capacity.failed, capacity.id) == (4, 16, curve.id)
        assert log.to_the_end(capacity).passed == 12

    def test_without_a_result_the_answers_are_judged(self) -> None:
        """A bound on what they do not have is undecided, and the load unknown."""
        curve = Log().to_the_end(a_curve(1, 64))
        judged_again = judge_again(curve, (HALF,), lambda _id: None)
        assert [rung.judgements[0].verdict for rung in judged_again.rungs] == [Verdict.HELD, Verdict.BROKEN]
        assert unknown_loads(judged_again) == ()

        other = judge_again(curve, (Constraint.parse("send_lag.p99 <= 1ms"),), lambda _id: None)
        assert unknown_loads(other) == other.rungs
        assert other.rungs[0].judgements[0].verdict is Verdict.UNDECIDED
        failed = replace(other, rungs=tuple(replace(rung, failure="no answer") for rung in other.rungs))
        assert unknown_loads(failed) == ()

    def test_what_a_load_was_doubted_for_stays(self) -> None:
        """The doubts that were raised when it was measured, and its failure."""
        log = Log()
        curve = replace(log.to_the_end(a_curve(1)), job=None)
        rung = replace(curve.rungs[0], doubts=("saturated",), failure="gone")
        judged = judge_again(replace(curve, rungs=(rung,)), (HALF,), log.results.get)

        assert (judged.rungs[0].doubts, judged.rungs[0].failure) == (("saturated",), "gone")
        unstored = judge_again(replace(curve, rungs=(replace(rung, result=""),)), (HALF,), log.results.get)
        assert unstored.rungs[0].failure == "gone"

    def test_the_goodput_of_another_latency_is_left_out(self) -> None:
        """The loads to come count by the new one, of every model on the server."""
        goodput = Answer(query=Query(metric="goodput"), value=7.0, interval=Interval(low=0.0, high=inf))
        point = LoadPoint(load=1, answers=(goodput,))
        job = replace(JOB, beside=(replace(JOB, name="b"),))
        curve = a_curve(1, rungs=(point,), job=job)
        same = judge_again(curve, (BOUND, Constraint.parse("error_rate <= 1%")), lambda _id: None)
        assert same.rungs[0].answers == (goodput,)
        assert same.job == job

        other = judge_again(curve, (HALF,), lambda _id: None)
        assert other.rungs[0].answers == ()
        assert other.job is not None
        assert [each.load and each.load.within for each in (other.job, *other.job.beside)] == [0.015, 0.015]
        assert judge_again(replace(curve, job=replace(JOB, load=None)), (HALF,), lambda _id: None).job == (
            replace(JOB, load=None)
        )

    @pytest.mark.parametrize(
        ("bound", "end", "passed", "verdict"),
        [
            ("latency.mean <= 33ms", SearchEnd.JUDGED, 4, Verdict.UNDECIDED),
            ("latency.mean <= 1ms", SearchEnd.SMALLEST, None, Verdict.BROKEN),
            ("latency.mean <= 60s", SearchEnd.LARGEST, 64, Verdict.UNDECIDED),
        ],
    )
    def test_an_answer_measures_nothing(
        self, bound: str, end: SearchEnd, passed: float | None, verdict: Verdict
    ) -> None:
        """It says which of the loads hold and break the bound; what is in between is open."""
        log = Log()
        curve = log.to_the_end(a_curve(1, 4, 64))
        search = CapacitySearch(bounds=(Constraint.parse(bound),), most=64)
        answer = answer_again(curve, search, log.results.get)

        assert (answer.end, answer.passed, answer.verdict) == (end, passed, verdict)
        assert len(log.server.jobs) == 3


def test_the_latency_of_good_answers_is_the_smallest_bound() -> None:
    """Of the whole, and not of a part, another metric or a lower bound."""
    texts = ("latency.p50 <= 2s", "latency.p99 <= 1s", "latency.p99@b <= 1ms", "latency.p50 >= 1us")

    assert bounds_of_answers(map(Constraint.parse, texts)) == {"latency": 1.0}
    assert not bounds_of_answers((Constraint.parse("error_rate <= 1%"),))
