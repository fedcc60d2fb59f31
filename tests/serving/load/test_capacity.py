from __future__ import annotations

import math
import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from modeldyno.base.errors import RequestError
from modeldyno.base.job.load_spec import Arrivals, Load
from modeldyno.base.metrics.constraints import Answer, Constraint, Verdict
from modeldyno.base.metrics.measurement import CLIENT_LIMITED, SATURATED, Interval
from modeldyno.base.metrics.measurement_plan import Plan
from modeldyno.base.metrics.metric import Query
from modeldyno.serving.load import load_analysis
from modeldyno.serving.load.capacity import (
    Capacity,
    answer_so_far,
    load_at,
    open_load,
    propose,
    relative_excess,
    scaled_plan,
)
from modeldyno.serving.load.capacity_steps import CONCURRENCY, RATE, CapacitySearch, NextLoad, SearchEnd
from modeldyno.serving.load.load_curve import LoadPoint, raw_percentiles
from modeldyno.serving.load.request_log import COLUMNS, Records
from modeldyno.serving.load.sla_fit import bonferroni_z, fit_curve, judge_loads, limits_load, saturation_rate
from modeldyno.serving.load.steady_window import SteadyWindow

if TYPE_CHECKING:
    from collections.abc import Callable

BOUND = Constraint.parse("latency.p99 <= 100ms")
SEARCH = CapacitySearch(bounds=(BOUND,))
Z95 = 1.959964


def judged(value: float | None, half: float | None, bound: Constraint = BOUND, **answer: float) -> LoadPoint:
    """A measurement at load 1 of which only one statistic is known, with half of its interval."""
    ends = None if half is None else Interval(low=(value or 0.0) - half, high=(value or 0.0) + half)
    if answer:
        ends = Interval(low=answer["low"], high=math.inf)
    reached = Answer(query=bound.query, value=value, interval=ends)
    return LoadPoint(load=1.0, judgements=(bound.on(reached),))


def rung(load: float, value: float | None, half: float | None = 1e-6, **changes: object) -> LoadPoint:
    return replace(judged(value, half), load=load, **changes)  # type: ignore[arg-type]


def a_percentile(load: float, size: float | None, **changes: object) -> LoadPoint:
    """A load whose percentile is not certified, of so many effective answers."""
    answer = Answer(query=BOUND.query, value=None, interval=Interval(low=0.01, high=math.inf), size=size)
    return LoadPoint(load=load, judgements=(BOUND.on(answer),), **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("rungs", "load", "times"),
    [
        ([a_percentile(1, 331.0, care=2.0), a_percentile(1, 66.2), a_percentile(4, 9.0)], 1.0, 2.0),
        ([rung(2, 0.09, 0.02), rung(8, 0.3)], 2.0, 4.0 * (SEARCH.required_z / Z95) ** 2),
        ([rung(2, 0.1, 0.02)], 2.0, math.inf),
        ([a_percentile(1, None)], None, None),
        ([rung(2, 0.05), rung(3, 0.2)], None, None),
        ([], None, None),
    ],
)
def test_a_search_says_what_it_left_open(
    rungs: list[LoadPoint], load: float | None, times: float | None
) -> None:
    """The smallest load without a verdict, where measured longest, and how many times as long it takes."""
    capacity = answer_so_far(SEARCH, rungs, SearchEnd.INDISTINCT)
    if capacity.passed is not None:
        capacity = capacity.with_verification(rung(capacity.passed, 0.05))
    left = open_load(capacity)
    assert (left and left.point.load) == load
    if left is not None:
        assert left.times == pytest.approx(times)
        assert left.judgement.constraint == BOUND


def test_an_undecided_verification_is_what_a_search_left_open() -> None:
    """It is judged alone, so at 95 %."""
    capacity = answer_so_far(SEARCH, [rung(2, 0.05), rung(3, 0.2)]).with_verification(rung(2, 0.09, 0.02))
    left = open_load(capacity)
    assert left is not None
    assert left.times == pytest.approx(4.0)


def test_an_interruption_leaves_what_is_known() -> None:
    """The interval so far, and that the search did not come to its end; of no measurement, nothing."""
    capacity = answer_so_far(SEARCH, [rung(1, 0.05), rung(8, 0.2)])
    assert (capacity.passed, capacity.failed, capacity.end) == (1.0, 8.0, SearchEnd.INTERRUPTED)
    assert capacity.broke
    assert answer_so_far(SEARCH, []).verdict is Verdict.UNDECIDED


def test_a_refusal_of_all_requests_is_no_verdict_on_the_bound() -> None:
    """Nothing was answered, so that no bound is shown to be broken."""
    refused = answer_so_far(SEARCH, [rung(8, None, failure="404")], SearchEnd.REFUSED)
    assert (refused.passed, refused.end, refused.verdict) == (None, SearchEnd.REFUSED, Verdict.UNDECIDED)


def drowned(load: float, gave: float) -> LoadPoint:
    """An open loop in which so many requests per second were answered, and more were due."""
    rate = Answer(query=Query(metric="request_rate"), value=gave, interval=None)
    return rung(load, 0.5, doubts=(SATURATED,), answers=(rate,))


def uncertified(load: float, value: float, low: float, care: float = 1.0) -> LoadPoint:
    """A run too short for its p99 to be a claim."""
    raw = Answer(
        query=replace(BOUND.query, part="raw"), value=value, interval=Interval(low=low, high=math.inf)
    )
    return replace(judged(None, None, low=low), load=load, care=care, answers=(raw,))


def full_server(workers: int, service: float) -> Callable[[float], float]:
    """Latency that is flat up to so many slots, and then grows as they do."""
    return lambda load: service * max(load, workers) / workers


def find_capacity(
    search: CapacitySearch, truth: Callable[[float], float], sigma: float = 0.0, seed: int = 0
) -> Capacity:
    """Search where each measurement errs by so much, relatively, less where it takes longer."""
    rng, history = random.Random(seed), list[LoadPoint]()
    while isinstance(step := propose(search, history), NextLoad):
        assert len(history) < search.measurements
        error = sigma / math.sqrt(step.care)
        value = truth(step.load) * math.exp(rng.gauss(0, error))
        history.append(rung(step.load, value, max(Z95 * error * value, 1e-9), care=step.care))
    return step


def loads(capacity: Capacity) -> list[float]:
    return [each.load for each in capacity.rungs]


class TestWithoutNoise:
    @pytest.mark.parametrize("workers", [1, 3, 4, 16, 100])
    @pytest.mark.parametrize("service", [0.0011, 0.0062, 0.021, 0.07])
    def test_the_capacity_is_enclosed_by_neighbours_or_the_resolution(
        self, workers: int, service: float
    ) -> None:
        """Ten measurements leave nothing between, or less than was asked; at worst, a quarter."""
        truth = math.floor(workers * 0.1 / service + 1e-9)
        capacity = find_capacity(replace(SEARCH, most=100_000), full_server(workers, service))

        assert capacity.passed is not None
        assert capacity.failed is not None
        assert capacity.passed <= truth < capacity.failed
        assert (
            capacity.end in {SearchEnd.NEIGHBOURS, SearchEnd.RESOLVED}
            or capacity.failed < 1.25 * capacity.passed
        )
        assert len(capacity.rungs) <= 10

    def test_a_latency_that_shows_the_way_is_followed(self) -> None:
        """One worker of 1.1 ms: the capacity is 90, and the curve leads there without doubling."""
        assert len(find_capacity(SEARCH, full_server(1, 0.0011)).rungs) <= 6

    def test_the_search_is_a_function_of_its_history(self) -> None:
        """The same history gives the same step, and the answer holds the history."""
        capacity = find_capacity(SEARCH, full_server(4, 0.02), sigma=0.03, seed=5)

        for length in range(len(capacity.rungs)):
            step = propose(SEARCH, capacity.rungs[:length])
            assert isinstance(step, NextLoad)
            assert (step.load, step.care) == (capacity.rungs[length].load, capacity.rungs[length].care)
        assert propose(SEARCH, capacity.rungs) == capacity

    def test_the_start_may_be_too_high(self) -> None:
        """A first load that breaks the bound is lowered until one holds it."""
        capacity = find_capacity(replace(SEARCH, start=500.0), full_server(1, 0.019))

        assert (capacity.passed, capacity.failed) == (5.0, 6.0)
        assert loads(capacity)[0] == 500.0

    def test_not_even_one_slot(self) -> None:
        """A server slower than the bound holds it under no load."""
        capacity = find_capacity(replace(SEARCH, start=8.0), full_server(4, 0.5))

        assert (capacity.passed, capacity.failed, capacity.end) == (None, 1.0, SearchEnd.SMALLEST)
        assert capacity.best is None
        assert capacity.unmet == ()

    def test_a_server_that_holds_everything(self) -> None:
        """The largest load that may be tried is tried, and is an answer without an upper end."""
        capacity = find_capacity(replace(SEARCH, most=300.0), lambda _load: 0.001)

        assert (capacity.passed, capacity.failed, capacity.end) == (300.0, None, SearchEnd.LARGEST)

    def test_a_rate_is_no_whole_number(self) -> None:
        """Of an open loop the rate is searched, to the resolution."""
        search = CapacitySearch(bounds=(BOUND,), knob=RATE, start=3.0, most=1e6)
        capacity = find_capacity(search, lambda rate: 0.01 / (1 - rate / 77.7) if rate < 77.7 else 10.0)

        assert capacity.end is SearchEnd.RESOLVED
        assert capacity.passed is not None
        assert capacity.failed is not None
        assert capacity.passed < 0.9 * 77.7 < capacity.failed <= 1.05 * capacity.passed

    def test_a_rate_may_begin_too_high(self) -> None:
        """Lowered below one a second too."""
        capacity = find_capacity(
            CapacitySearch(bounds=(BOUND,), knob=RATE, start=3.0), lambda rate: 0.2 * rate
        )

        assert capacity.passed is not None
        assert capacity.failed is not None
        assert capacity.passed <= 0.5 < capacity.failed

    def test_few_measurements_leave_a_wide_interval(self) -> None:
        """The number of measurements is kept to, and the answer is what is sure by then."""
        capacity = find_capacity(replace(SEARCH, measurements=4), full_server(40, 0.01))

        assert (capacity.end, len(capacity.rungs)) == (SearchEnd.MEASUREMENTS, 4)
        assert (capacity.passed or 0) <= 400 < (capacity.failed or math.inf)


class TestWithNoise:
    @pytest.mark.no_cover
    @pytest.mark.parametrize("count", [120, pytest.param(600, marks=pytest.mark.slow)])
    @pytest.mark.parametrize("sigma", [0.02, 0.1])
    def test_the_truth_is_enclosed_in_95_of_100_searches(self, sigma: float, count: int) -> None:
        """Searches on servers of all sizes; beyond 5 % only what chance explains may miss."""
        missed, rng = 0, random.Random(1)
        for seed in range(count):
            workers, service = rng.randint(1, 30), 0.1 * math.exp(rng.uniform(-4, -0.3))
            truth = math.floor(workers * 0.1 / service)
            capacity = find_capacity(replace(SEARCH, most=10_000), full_server(workers, service), sigma, seed)
            assert len(capacity.rungs) <= 10
            missed += not (capacity.passed or 0) <= truth < (capacity.failed or math.inf)

        assert missed <= 0.05 * count

    def test_less_noise_gives_a_narrower_answer(self) -> None:
        """The interval is as wide as the noise makes it."""
        answers = [find_capacity(SEARCH, full_server(4, 0.004), sigma, seed=3) for sigma in (0.005, 0.08)]
        first, second = (math.log((c.failed or 0) / (c.passed or 1)) for c in answers)

        assert first < second

    def test_what_is_too_near_to_be_told_apart_is_left_open(self) -> None:
        """Very loud noise ends the search before its measurements are used up."""
        ends = {find_capacity(SEARCH, full_server(4, 0.004), 0.3, seed).end for seed in range(20)}

        assert SearchEnd.INDISTINCT in ends

    def test_near_the_bound_it_takes_more_time(self) -> None:
        """Far loads are measured as the Plan says, near ones for longer, and none beyond patience."""
        capacity = find_capacity(SEARCH, full_server(4, 0.004), 0.05, seed=1)
        total: dict[float, float] = {}
        for each in capacity.rungs:
            total[each.load] = total.get(each.load, 0.0) + each.care

        assert capacity.rungs[0].care == 1.0
        assert 1.0 < max(total.values()) <= SEARCH.patience + 1e-6

    @pytest.mark.no_cover
    @pytest.mark.parametrize("count", [1, pytest.param(100, marks=pytest.mark.slow)])
    def test_requests_that_share_a_queue_are_searched_through(self, count: int) -> None:
        """One lognormal worker in a closed loop, in virtual time: its correlated latencies fool nobody."""
        times = np.random.default_rng(999).lognormal(math.log(0.004), 0.5, 300_000)
        total, missed = np.concatenate(([0.0], np.cumsum(times))), 0
        for seed in range(count):
            bound = math.exp(random.Random(seed).uniform(math.log(0.02), math.log(0.2)))
            search = CapacitySearch(bounds=(replace(BOUND, bound=bound),), most=256)
            history: list[LoadPoint] = []
            while isinstance(step := propose(search, history), NextLoad):
                history.append(_queued(search, step, 1000 * seed + len(history)))
            truth = sum(_p99(total, slots) <= bound for slots in range(1, 60))
            missed += not (step.passed or 0) <= truth < (step.failed or math.inf)
            assert len(history) <= 10

        assert missed <= 0.05 * count


def _p99(total: np.ndarray, slots: int) -> float:
    return float(np.quantile(total[slots:] - total[:-slots], 0.99))


def _queued(search: CapacitySearch, step: NextLoad, seed: int) -> LoadPoint:
    """Twenty seconds of a worker to whom each slot comes back at once; the first tenth is left out."""
    slots, seconds = round(step.load), 20.0 * step.care
    ends = np.cumsum(np.random.default_rng(seed).lognormal(math.log(0.004), 0.5, int(330 * seconds)))
    ends = ends[ends < 1.1 * seconds]
    due = np.concatenate((np.zeros(slots), ends))[: ends.size]
    columns: dict[str, Any] = {name: np.zeros(ends.size, dtype) for name, dtype in COLUMNS.items()}
    for name, column in {"due": due, "sent": due, "first": ends, "end": ends}.items():
        columns[name] = (column * 1e9).astype("int64") + 1
    window = SteadyWindow(
        records=Records(**columns),
        begin=int(1e8 * seconds),
        end=int(1.1e9 * seconds),
        load=Load(concurrency=slots),
    )
    measured = tuple(load_analysis.measurements(window))
    judgements = tuple(bound.judge(measured) for bound in search.bounds)
    return LoadPoint(
        load=step.load,
        judgements=judgements,
        answers=tuple(raw_percentiles(judgements, measured)),
        care=step.care,
    )


class TestSteps:
    """One decision at a time; the history says all."""

    def test_the_first_load(self) -> None:
        """Nothing is known: the start, rounded up."""
        assert propose(replace(SEARCH, start=2.5), []) == NextLoad(load=3.0)

    def test_a_jump_is_bounded(self) -> None:
        """However far away the bound seems: 16 times in a closed loop, four in an open one."""
        history = [rung(1, 0.0001), rung(2, 0.0001)]

        assert propose(SEARCH, history) == NextLoad(load=32.0)
        assert propose(replace(SEARCH, knob=RATE), history) == NextLoad(load=8.0)
        assert propose(SEARCH, [rung(1, 0.05), rung(2, 0.05)]) == NextLoad(load=8.0)

    def test_a_latency_just_at_the_bound_leads_on(self) -> None:
        """It is held, and the next load is greater, whatever the curve says."""
        exact = rung(4, BOUND.bound, 0.0)

        step = propose(SEARCH, [rung(2, 0.05, 0.0), exact])
        assert isinstance(step, NextLoad)
        assert step.load == 5.0

    def test_without_a_curve_the_load_is_doubled_halved_and_bisected(self) -> None:
        """A bound of 0 has no ratios: the search does without."""
        none = Constraint.parse("error_rate <= 0%")
        search = CapacitySearch(bounds=(none,), start=8)

        def at(load: float, value: float) -> LoadPoint:
            return replace(judged(value, 1e-9 if value else None, none), load=load)

        assert propose(search, [at(8, 0.0)]) == NextLoad(load=16.0)
        assert propose(search, [at(8, 0.2)]) == NextLoad(load=4.0)
        assert propose(search, [at(8, 0.0), at(16, 0.2)]) == NextLoad(load=11.0)
        middle = replace(judged(0.1, 0.2, none), load=11)
        assert propose(search, [at(8, 0.0), at(16, 0.2), middle]) == NextLoad(load=11.0)
        long = replace(middle, care=8.0)
        answer = propose(search, [at(8, 0.0), at(16, 0.2), long])
        assert isinstance(answer, Capacity)
        assert answer.end is SearchEnd.INDISTINCT

    def test_a_percentile_that_is_no_claim_asks_for_longer_runs(self) -> None:
        """Near the bound a run that was too short is followed by one three times as long."""
        step = propose(SEARCH, [rung(1, 0.02), uncertified(4, 0.09, 0.08)])
        far = propose(SEARCH, [uncertified(1, 0.02, 0.015)])

        assert isinstance(step, NextLoad)
        assert isinstance(far, NextLoad)
        assert step.care >= 3.0
        assert far.care == 1.0

    def test_an_undecided_largest_load_is_measured_for_longer(self) -> None:
        """Until patience ends; then it is left open."""
        search = replace(SEARCH, most=8.0)
        history = [rung(4, 0.05), rung(8, 0.1, 0.01)]
        assert propose(search, history) == NextLoad(load=8.0, care=1.0)
        answer = propose(search, [*history, rung(8, 0.1, 0.01, care=7.0)])
        assert isinstance(answer, Capacity)
        assert (answer.passed, answer.failed, answer.end) == (4.0, None, SearchEnd.INDISTINCT)

    def test_an_undecided_smallest_load_is_measured_for_longer(self) -> None:
        """One slot, about the bound: again, and then left open."""
        history = [rung(1, 0.1, 0.02), rung(2, 0.2)]
        assert propose(SEARCH, history) == NextLoad(load=1.0, care=1.0)
        answer = propose(SEARCH, [rung(1, 0.1, 0.02, care=8.0), rung(2, 0.2)])
        assert isinstance(answer, Capacity)
        assert (answer.passed, answer.failed, answer.end) == (None, 2.0, SearchEnd.INDISTINCT)

    def test_a_dispute_is_measured_again(self) -> None:
        """A load that failed below one that passed: the one known less well is looked at again."""
        history = [rung(1, 0.02), rung(8, 0.2, care=2.0), rung(16, 0.05), rung(32, 0.5)]
        assert propose(SEARCH, history) == NextLoad(load=16.0, care=1.0)

        history = [replace(each, care=8.0) for each in history]
        answer = propose(SEARCH, history)
        assert isinstance(answer, Capacity)
        assert (answer.passed, answer.failed, answer.end) == (1.0, 32.0, SearchEnd.DISPUTED)

    def test_a_limited_client_ends_the_climb_when_it_is_so_again(self) -> None:
        """Where the client is the limit nothing is broken by the server, and more load shows nothing."""
        limited = rung(8, 0.5, doubts=(CLIENT_LIMITED,))
        assert propose(SEARCH, [rung(4, 0.05), limited]) == NextLoad(load=8.0)
        answer = propose(SEARCH, [rung(4, 0.05), limited, limited])

        assert isinstance(answer, Capacity)
        assert (answer.passed, answer.failed, answer.end) == (4.0, None, SearchEnd.CLIENT)

    def test_a_client_that_was_limited_once_is_no_limit(self) -> None:
        """The second measurement of the same load counts alone."""
        history = [rung(4, 0.05), rung(8, 0.5, doubts=(CLIENT_LIMITED,)), rung(8, 0.07)]
        (_, again) = judge_loads(history, z=Z95, rate=False)
        step = propose(SEARCH, history)

        assert (again.verdict, again.limited, again.runs, again.care) == (Verdict.HELD, False, 2, 1.0)
        assert isinstance(step, NextLoad)
        assert step.load > 8

    def test_a_rate_that_the_client_did_not_keep_is_not_held(self) -> None:
        """Whatever the server did with less; of a closed loop it holds for so many slots."""
        limited = rung(8, 0.05, doubts=(CLIENT_LIMITED,))

        verdicts = [judge_loads([limited], z=Z95, rate=rate)[0].verdict for rate in (True, False)]
        assert verdicts == [Verdict.UNDECIDED, Verdict.HELD]

    def test_a_drowned_server_tells_where_its_capacity_lies(self) -> None:
        """400/s were due and 130/s answered: what is tried next lies about that, not half-way to 400."""
        search = CapacitySearch(bounds=(BOUND,), knob=RATE, start=100.0)
        held, under = rung(100, 0.03), propose(search, [rung(100, 0.03), drowned(400, 130)])
        assert isinstance(under, NextLoad)
        assert 100 < under.load < 1.1 * 130
        first = propose(search, [drowned(400, 130)])
        assert first == NextLoad(load=pytest.approx(0.75 * 130))  # type: ignore[arg-type]
        # More than it gave then was held after all: it tells nothing.
        more = [held, rung(200, 0.04), drowned(400, 130)]
        assert saturation_rate(judge_loads(more, z=Z95, rate=True)) is None
        # A server that failed, or whose rate nobody counted, tells nothing either.
        bare = [replace(drowned(400, 130), answers=()), LoadPoint(load=500.0, failure="it died")]
        assert saturation_rate(judge_loads(bare, z=Z95, rate=True)) is None

    def test_a_backlog_that_is_worked_off_breaks_no_bound_at_once(self) -> None:
        """More was answered than was due, so the latency is that of a stall before: it is measured again."""
        search = CapacitySearch(bounds=(BOUND,), knob=RATE)

        def answering(gave: float, value: float) -> LoadPoint:
            ends = Interval(low=0.98 * gave, high=1.02 * gave)
            rate = Answer(query=Query(metric="request_rate"), value=gave, interval=ends)
            return rung(150, value, answers=(rate,))

        drained, steady = answering(214, 0.9), answering(150, 0.02)
        history = [rung(50, 0.02), drained, drowned(400, 200)]
        assert propose(search, history) == NextLoad(load=150.0)
        (again,) = judge_loads([drained, steady], z=Z95, rate=True)
        assert (again.verdict, again.limited) == (Verdict.HELD, False)
        # Twice the same is no chance, and an answer within the bound is one.
        assert judge_loads([drained, drained], z=Z95, rate=True)[0].verdict is Verdict.BROKEN
        assert judge_loads([answering(214, 0.02)], z=Z95, rate=True)[0].verdict is Verdict.HELD

    def test_what_is_surely_too_much_takes_no_longer_than_planned(self) -> None:
        """Above the rate that a drowned server kept up, the shortest run shows it."""
        search = CapacitySearch(bounds=(BOUND,), knob=RATE)
        history = [uncertified(100, 0.08, 0.05, care=3.0), drowned(400, 130), rung(90, 0.07)]
        steps = [propose(search, history)]
        history += [rung(125, 0.12, 0.05, care=8.0), rung(118, 0.09, 0.03, care=8.0)]
        steps.append(propose(search, history))
        for step in steps:
            assert isinstance(step, NextLoad)
            assert step.care == 1.0 if step.load > 1.06 * 130 else step.care > 1.0

    def test_the_rate_of_an_infinite_latency_is_told_by_points_on_both_sides(self) -> None:
        """One worker of 10 ms, whose latency is 10 ms over what is left: the curve sees 100/s."""
        points = judge_loads([rung(r, 0.01 / (1 - r / 100)) for r in (20, 50, 80, 95)], z=Z95, rate=True)
        there, blind = fit_curve(points, rate=True), fit_curve(points)

        assert there is not None
        assert blind is not None
        assert there.crossing == pytest.approx(90, rel=0.01)
        assert there.slope == pytest.approx(9, rel=0.3)
        assert abs(blind.crossing - 90) > 3

    def test_what_only_lacks_a_longer_run_is_built_upon(self) -> None:
        """Nothing is sure to hold, and 100/s would if it were a claim: the first load is not lowered."""
        search = CapacitySearch(bounds=(BOUND,), knob=RATE)
        history = [uncertified(10, 0.02, 0.01), uncertified(100, 0.04, 0.03), drowned(400, 130)]
        step = propose(search, history)

        assert isinstance(step, NextLoad)
        assert step.load > 60
        assert step.care == 3.0

    @pytest.mark.parametrize(
        "history",
        [
            [
                uncertified(1, 0.02, 0.016),
                LoadPoint(load=2.0, failure="it died"),
                uncertified(3, 0.06, 0.048, care=3),
            ],
            [uncertified(2, 0.057, 0.045), rung(5, 0.22, 0.022), uncertified(10, 0.063, 0.051)],
            [
                uncertified(1, 0.02, 0.016, care=2.0),
                uncertified(10, 0.63, 0.5, care=2.0),
                rung(20, 0.089, 0.027),
            ],
        ],
    )
    def test_a_load_of_a_closed_loop_is_a_whole_number(self, history: list[LoadPoint]) -> None:
        """Also where a quarter of a load that only lacks a longer run is less than one slot."""
        step = propose(SEARCH, history)

        assert isinstance(step, NextLoad)
        assert step.load >= 1
        assert step.load == int(step.load)

    def test_a_lower_rate_is_measured_for_as_many_requests(self) -> None:
        """Nothing is a claim: a quarter of the rate takes four times as long, as far as patience goes."""
        search = CapacitySearch(bounds=(BOUND,), knob=RATE)
        step = propose(search, [uncertified(40, 0.3, 0.05), drowned(120, 110)])
        assert step == NextLoad(load=pytest.approx(10, rel=0.2), care=pytest.approx(4, rel=0.2))  # type: ignore[arg-type]
        answer = propose(search, [uncertified(40, 0.3, 0.05, care=8.0), drowned(120, 110)])
        assert isinstance(answer, Capacity)
        assert (answer.end, answer.verdict) == (SearchEnd.INDISTINCT, Verdict.UNDECIDED)

    def test_a_rate_that_is_rather_broken_is_followed_by_a_longer_run(self) -> None:
        """It is measured three times as long a little above, and not by little steps."""
        search = CapacitySearch(bounds=(BOUND,), knob=RATE)
        step = propose(search, [rung(10, 0.05), rung(40, 0.12, 0.03)])

        assert isinstance(step, NextLoad)
        assert step.load > 40
        assert step.care == 3.0

    def test_a_wide_gap_in_which_nothing_was_measured_is_halved(self) -> None:
        """Where noise bent the curve so that it sees no way on, and until the gaps are narrow."""
        search = CapacitySearch(bounds=(BOUND,), knob=RATE)
        history = [rung(20, 0.06, 0.01), rung(200, 0.3, 0.01), rung(150, 0.11, 0.1, care=8.0)]
        step = propose(search, history)

        assert step == NextLoad(load=pytest.approx(math.sqrt(20 * 150)), care=8.0)  # type: ignore[arg-type]

    def test_a_saturated_server_has_failed_an_open_loop(self) -> None:
        """Above capacity there is no steady state, whatever the latency was until then."""
        search = CapacitySearch(bounds=(BOUND,), knob=RATE)
        drowned = rung(8, 0.05, doubts=(SATURATED,))
        answer = propose(replace(search, measurements=2), [rung(4, 0.05), drowned])

        assert isinstance(answer, Capacity)
        assert (answer.passed, answer.failed, answer.broke) == (4.0, 8.0, ())

    def test_a_failure_is_a_load_that_failed(self) -> None:
        """A server that died under a load does not hold it."""
        died = LoadPoint(load=8.0, failure="it crashed")
        answer = propose(replace(SEARCH, measurements=2), [rung(4, 0.05), died])

        assert isinstance(answer, Capacity)
        assert (answer.passed, answer.failed) == (4.0, 8.0)

    def test_between_what_cannot_be_told_apart_nothing_is_measured(self) -> None:
        """All between is nearer to the bound than patience reaches."""
        history = [rung(20, 0.09, 0.004, care=8.0), rung(23, 0.11, 0.004, care=8.0)]
        answer = propose(SEARCH, [rung(1, 0.01), *history])

        assert isinstance(answer, Capacity)
        assert (answer.passed, answer.failed, answer.end) == (20.0, 23.0, SearchEnd.INDISTINCT)


class TestAnswer:
    def test_it_tells_what_broke_first_and_by_how_much(self) -> None:
        """Of two bounds broken at once the one that is farther beyond comes first."""
        mean = Constraint.parse("latency.mean <= 50ms")
        search = CapacitySearch(bounds=(BOUND, mean), measurements=2)

        def both(load: float, p99: float, middle: float) -> LoadPoint:
            parts = (judged(p99, 1e-6), judged(middle, 1e-6, mean))
            return LoadPoint(load=load, judgements=tuple(part.judgements[0] for part in parts))

        answer = propose(search, [both(1, 0.05, 0.01), both(2, 0.11, 0.1)])
        assert isinstance(answer, Capacity)
        assert [j.constraint for j in answer.broke] == [mean, BOUND]
        assert [relative_excess(j) for j in answer.broke] == pytest.approx([1.0, 0.1])

    def test_what_is_beyond_is_a_share_of_the_bound(self) -> None:
        """Of a percentile that is no claim, at least by its lower end; of a bound of 0, by any amount."""
        (sure,) = uncertified(4, 0.3, 0.2).judgements
        none = Constraint.parse("error_rate <= 0%")
        least = Constraint.parse("throughput >= 100/s")
        open_ended = Answer(query=least.query, value=None, interval=Interval(low=-math.inf, high=80.0))

        assert relative_excess(sure) == pytest.approx(1.0)
        assert relative_excess(judged(0.1, None, none).judgements[0]) == math.inf
        assert relative_excess(least.on(open_ended)) == pytest.approx(0.2)

    def test_a_bound_on_a_rate_is_told_and_does_not_steer(self) -> None:
        """More load does not break a throughput; where the best load lacks what was asked for, it is told."""
        rate = Constraint.parse("throughput >= 100/s")
        judgement = rate.on(Answer(query=rate.query, value=60.0, interval=Interval(low=59, high=61)))

        def both(load: float, p99: float) -> LoadPoint:
            return LoadPoint(load=load, judgements=(*judged(p99, 1e-6).judgements, judgement))

        search = CapacitySearch(bounds=(BOUND, rate), measurements=2)
        answer = propose(search, [both(1, 0.05), both(2, 0.2)])
        assert isinstance(answer, Capacity)
        assert (answer.passed, answer.failed) == (1.0, 2.0)
        assert answer.unmet == (judgement,)
        assert answer.verdict is Verdict.BROKEN

    def test_the_longest_measurement_is_quoted_until_a_fresh_server_has_spoken(self) -> None:
        """And the fresh server's verdict is that of the bounds that limit the load."""
        answer = propose(
            replace(SEARCH, measurements=3), [rung(1, 0.05), rung(1, 0.051, care=2.0), rung(2, 0.2)]
        )
        assert isinstance(answer, Capacity)
        assert answer.best is not None
        assert answer.best.care == 2.0
        assert answer.confirmed is None

        for value, half, verdict in [
            (0.05, 0.01, Verdict.HELD),
            (0.2, 0.01, Verdict.BROKEN),
            (0.1, 0.01, Verdict.UNDECIDED),
        ]:
            checked = answer.with_verification(rung(1, value, half))
            assert checked.confirmed is verdict
            assert checked.best == checked.verified
            assert checked.verdict is verdict
        assert answer.verdict is Verdict.UNDECIDED
        assert answer.with_verification(LoadPoint(load=1.0, failure="no start")).confirmed is Verdict.BROKEN

    @pytest.mark.parametrize(
        ("end", "failed", "verdict"),
        [
            (SearchEnd.SMALLEST, 1.0, Verdict.BROKEN),
            (SearchEnd.MEASUREMENTS, 0.1, Verdict.BROKEN),
            (SearchEnd.MEASUREMENTS, None, Verdict.UNDECIDED),
            (SearchEnd.INDISTINCT, 2.0, Verdict.UNDECIDED),
            (SearchEnd.CLIENT, None, Verdict.UNDECIDED),
        ],
    )
    def test_where_nothing_passed_it_is_broken_or_open(
        self, end: SearchEnd, failed: float | None, verdict: Verdict
    ) -> None:
        """Broken where all that was tried broke it; open where the search could not tell."""
        assert Capacity(search=SEARCH, rungs=(), end=end, passed=None, failed=failed).verdict is verdict


class TestSearch:
    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"bounds": ()}, "No bound limits the load"),
            ({"bounds": (Constraint.parse("throughput >= 1/s"),)}, "No bound limits the load"),
            ({"start": 0.0}, "cannot go from 0 to 1024"),
            ({"start": 2000.0}, "cannot go from 2000 to 1024"),
            ({"most": math.inf}, "to inf"),
            ({"measurements": 0}, "needs at least one measurement"),
            ({"resolution": 0.0}, "must be positive"),
            ({"patience": 0.5}, "below 1"),
        ],
    )
    def test_what_cannot_be_searched_is_refused(self, changes: dict[str, object], message: str) -> None:
        """In one sentence, before anything is measured."""
        with pytest.raises(RequestError, match=message):
            replace(SEARCH, **changes)  # type: ignore[arg-type]

    def test_which_bounds_limit_a_load(self) -> None:
        """Those that more load can break."""
        limiting = ["latency.p99 <= 1s", "error_rate < 1%"]
        others = ["throughput >= 1/s", "latency.p50 >= 1s", "goodput <= 9/s"]

        assert [limits_load(Constraint.parse(text)) for text in limiting] == [True, True]
        assert [limits_load(Constraint.parse(text)) for text in others] == [False, False, False]

    def test_a_load_is_changed_by_its_knob(self) -> None:
        """The slots of a closed loop, the rate of an open one; nothing else."""
        closed = Load(concurrency=2, timeout=5.0)
        open_ = Load(arrivals=Arrivals.POISSON, rate=10.0, concurrency=64)

        assert load_at(closed, CONCURRENCY, 7.0) == replace(closed, concurrency=7)
        assert load_at(open_, RATE, 12.5) == replace(open_, rate=12.5)
        limited = replace(closed, duration=10.0, requests=100)
        assert load_at(limited, CONCURRENCY, 2, 1.5) == replace(closed, duration=15.0, requests=150)

    def test_care_is_time_and_precision(self) -> None:
        """Four times the time, half the width, and the judged percentile certified."""
        plan = scaled_plan(Plan(percentiles=("p50",)), 4.0, (BOUND, Constraint.parse("throughput >= 1/s")))

        assert (plan.min_time, plan.max_time, plan.min_runs) == (4.0, 80.0, 80)
        assert (plan.precision, plan.percentiles) == (0.01, ("p50", "p99"))


class TestKnown:
    def test_a_verdict_must_be_surer_than_one_alone(self) -> None:
        """What is held at 95 % is not yet sure where ten looks are taken."""
        near = rung(1, 0.095, 0.0049)

        assert near.judgements[0].verdict is Verdict.HELD
        assert judge_loads([near], z=Z95, rate=False)[0].verdict is Verdict.HELD
        assert judge_loads([near], z=bonferroni_z(10), rate=False)[0].verdict is Verdict.UNDECIDED

    def test_measurements_of_one_load_are_joined(self) -> None:
        """Two that agree decide what neither could; the longer counts for more."""
        parts = [rung(1, 0.094, 0.007), rung(1, 0.096, 0.007, care=3.0)]

        (together,) = judge_loads(parts, z=Z95, rate=False)
        assert [judge_loads([part], z=Z95, rate=False)[0].verdict for part in parts] == [
            Verdict.UNDECIDED
        ] * 2
        assert together.verdict is Verdict.UNDECIDED
        assert together.excess == pytest.approx(math.log(0.0955 / 0.1))
        (sure,) = judge_loads([rung(1, 0.094, 0.007), rung(1, 0.0941, 0.007)], z=Z95, rate=False)
        assert sure.verdict is Verdict.HELD
        assert sure.care == 2.0

    def test_what_contradicts_itself_is_less_sure(self) -> None:
        """Two measurements farther apart than their intervals allow widen the joint one."""
        (point,) = judge_loads([rung(1, 0.07, 0.001), rung(1, 0.095, 0.001)], z=Z95, rate=False)

        assert point.verdict is Verdict.UNDECIDED

    def test_a_number_seen_once_is_taken_as_it_is(self) -> None:
        """Without an interval there is nothing to join: the last one counts."""
        (point,) = judge_loads([rung(1, 0.2, None), rung(1, 0.05, None)], z=Z95, rate=False)

        assert point.verdict is Verdict.HELD

    def test_a_limited_client_breaks_nothing_and_may_hold(self) -> None:
        """Its own delay makes a latency longer, never shorter."""
        slow, fine = (
            judge_loads([rung(1, value, doubts=(CLIENT_LIMITED,))], z=Z95, rate=False)[0]
            for value in (0.5, 0.05)
        )

        assert (slow.verdict, slow.broken, slow.excess) == (Verdict.UNDECIDED, (), None)
        assert fine.verdict is Verdict.HELD

    def test_a_quantile_without_any_interval_has_a_large_error(self) -> None:
        """The curve believes it least."""
        nothing = Interval(low=-math.inf, high=math.inf)
        raw = Answer(query=replace(BOUND.query, part="raw"), value=0.09, interval=nothing)
        bare = replace(judged(None, None), answers=(raw,))

        assert judge_loads([bare], z=Z95, rate=False)[0].error == 1.0

    def test_the_curve_goes_through_two_points_and_bends_upwards_beyond(self) -> None:
        """A line between what held and broke; beyond what is known, steeper than what was seen."""
        two = fit_curve(judge_loads([rung(4, 0.05), rung(16, 0.2)], z=Z95, rate=False))
        flat = fit_curve(judge_loads([rung(1, 0.05), rung(4, 0.05)], z=Z95, rate=False))

        assert two is not None
        assert flat is not None
        assert [two.crossing, two.slope] == pytest.approx([8.0, 1.0])
        assert flat.crossing < 4 * 2**2
        assert fit_curve([]) is None


def test_a_query_of_its_own_is_no_part_of_another() -> None:
    """The plain quantile is found beside the certified one, and apart from it."""
    result = uncertified(1, 0.2, 0.1)

    assert result.find("latency", "p99") is None
    assert result.find("latency", "p99", "raw") is not None
    assert Query(metric="latency", statistic="p99") == BOUND.query
