"""Sample series (comparisons, ladders, capacities, trends), for tests of code that reads or shows them."""

from __future__ import annotations

from math import inf

from modeldyno.base.metrics.constraints import Answer, Constraint
from modeldyno.base.metrics.measurement import Interval
from modeldyno.base.metrics.metric import Query
from modeldyno.comparison.change.comparison import CandidateComparison, Change, ChangeVerdict, Comparison
from modeldyno.comparison.change.trend import Reading, Trend, trend
from modeldyno.serving.load.capacity import Capacity
from modeldyno.serving.load.capacity_steps import CapacitySearch, SearchEnd
from modeldyno.serving.load.load_curve import LoadCurve, LoadPoint
from modeldyno.testing.sample_results import a_result, a_small_result

BOUND = Constraint.parse("latency.p99 <= 30ms")
_CREATED = "2026-01-02T03:04:05.678+00:00"


def a_rung(load: float) -> LoadPoint:
    """Return the point of four workers of 10 ms in a closed loop; with one slot its p99 is not certified."""
    latency = 0.01 * max(load, 4) / 4
    certified = load > 1
    answers = (
        _answer("request_rate", 100.0 * min(load, 4)),
        _answer("latency.p50", latency),
        _answer("latency.mean", latency),
        _answer("latency.p99", 2 * latency if certified else None),
        _answer("queue_time", max(1e-4, latency - 0.01)),
        _answer("compute_time", 0.008),
        _answer("service_time.mean", latency + 0.001),
    )
    return LoadPoint(
        load=load, answers=answers, judgements=(BOUND.on(answers[3]),), result=f"{int(load):012x}"
    )


def _answer(query: str, value: float | None) -> Answer:
    ends = Interval(low=0.0, high=inf) if value is None else Interval(low=0.9 * value, high=1.1 * value)
    return Answer(query=Query.parse(query), value=value, interval=ends, why="" if value else "too few")


def a_ladder() -> LoadCurve:
    """Return a ladder with its knee at four."""
    rungs = tuple(map(a_rung, (1, 2, 4, 8, 16)))
    return LoadCurve(knob="concurrency", rungs=rungs, id="1add" * 3, created=_CREATED, name="mlp")


def a_capacity() -> Capacity:
    """Return the answer of a search: four slots meet the bound, eight do not."""
    return Capacity(
        search=CapacitySearch(bounds=(BOUND,)),
        rungs=tuple(map(a_rung, (1, 4, 8))),
        end=SearchEnd.RESOLVED,
        passed=4.0,
        failed=8.0,
        broke=a_rung(8).judgements,
        verified=a_rung(4),
        id="cafe" * 3,
        created=_CREATED,
        name="mlp",
    )


def a_comparison() -> Comparison:
    """Return an undecided comparison."""
    change = Change(
        query=Query.parse("latency.p50"),
        baseline=1e-3,
        candidate=None,
        difference=None,
        interval=Interval(low=-inf, high=inf),
        outcome=ChangeVerdict.UNDECIDED,
        why="too few",
    )
    return Comparison(
        id="c0" * 6,
        created=_CREATED,
        baseline=a_result(),
        contrasts=(CandidateComparison(candidate=a_small_result(), changes=(change,)),),
    )


def a_trend() -> Trend:
    """Return a history of twenty results with a step at an upgrade, and a lasting regression."""
    readings = [
        Reading(
            result=f"{place:012x}",
            created=f"2026-01-{1 + place:02}T00:00:00+00:00",
            value=value,
            interval=Interval(low=0.98 * value, high=1.02 * value),
            digest="new" if place >= _CHANGED else "old",
            hardware={"cores": 2},
            software={"torch": "2.2" if place >= _UPGRADED else "2.1"},
        )
        for place in range(20)
        for value in (
            1e-3 * _LEVELS[(place >= _UPGRADED) + (place >= _CHANGED)] * (1 + 0.004 * (place % 3 - 1)),
        )
    ]
    return trend("mlp", Query.parse("latency.p50"), readings, setup=("backend torch",))


_UPGRADED, _CHANGED = 6, 13
_LEVELS = (1.2, 1.0, 1.15)
