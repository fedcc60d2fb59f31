from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING

import numpy as np
import pytest

from modeldyno.base.errors import RequestError
from modeldyno.base.job.load_spec import Load
from modeldyno.base.metrics.doubt import Doubt
from modeldyno.base.metrics.measurement import Distribution, Interval, Measurement
from modeldyno.base.metrics.metric import Query
from modeldyno.base.result.where import KeptNumber, kept_numbers
from modeldyno.comparison.change.comparison import ChangeVerdict
from modeldyno.comparison.change.trend import Reading, Trend, default_query, history_setup, trend
from modeldyno.testing.sample_results import a_failed_result, a_result, a_small_result

if TYPE_CHECKING:
    from collections.abc import Sequence

LATENCY = Query.parse("latency.p50")
WOBBLE = (0.0, 0.01, -0.01, 0.004, -0.006)


def readings(values: Sequence[float], query: Query = LATENCY, **changes: dict[int, str]) -> list[Reading]:
    """A history; `changes` says from which place on which fact has which value."""

    def fact(name: str, place: int) -> str:
        by_place = changes.get(name, {})
        return next((by_place[at] for at in sorted(by_place, reverse=True) if at <= place), "first")

    del query
    return [
        Reading(
            result=f"{place:012x}",
            created=f"2026-01-{1 + place // 24:02}T{place % 24:02}:00:00+00:00",
            value=value,
            interval=Interval(low=value * 0.99, high=value * 1.01),
            digest=fact("digest", place),
            hardware={"processor": fact("processor", place)},
            software={"torch": fact("torch", place)},
        )
        for place, value in enumerate(values)
    ]


def wobbling(*levels: tuple[float, int]) -> list[float]:
    """Numbers that scatter by about 1 % around each level, for so many results."""
    return [level * (1 + WOBBLE[n % 5]) for level, number in levels for n in range(number)]


def of(values: Sequence[float], query: Query = LATENCY, **changes: dict[int, str]) -> Trend:
    return trend("m", query, readings(values, query, **changes))


class TestTrend:
    def test_a_step_to_the_worse_is_a_regression(self) -> None:
        """More latency from one result on is one, with the size and the interval of the step."""
        history = of(wobbling((1.0, 12), (1.1, 12)), digest={12: "other"})

        (step,) = history.regressions
        assert step.at == 12
        assert step.change == pytest.approx(0.1, abs=0.01)
        assert step.interval.low < 0.1 < step.interval.high
        assert step.mark is not None
        assert step.mark.model
        assert step.outcome is ChangeVerdict.WORSE
        assert [len(level) for level in history.levels] == [12, 12]
        assert history.noise == pytest.approx(0.007, abs=0.004)
        assert history.detectable == 0.03

    def test_a_noisy_history_hides_a_change(self) -> None:
        """Of changes that it says would have been seen nine in ten are, and of half that size few."""
        source, share = np.random.default_rng(3), {1.0: 0, 0.4: 0}
        for _ in range(60):
            noise = np.exp(source.normal(0, 0.15, 12))
            visible = of(noise.tolist()).visible
            for part in share:
                step = np.repeat((1.0, (1 + visible) ** part), 6)
                share[part] += bool(of((noise * step).tolist()).steps)

        assert share[1.0] >= 0.85 * 60
        assert share[0.4] <= 0.5 * 60

    def test_few_results_show_no_change(self) -> None:
        """A step needs three results before it and as many after."""
        assert of([1.0] * 5).visible == inf
        assert of([1.0] * 6).visible == 0.03

    def test_less_of_what_is_better_more_of_is_a_regression(self) -> None:
        """Of throughput it is the fall, and the rise is better."""
        rate = Query.parse("throughput")
        assert of(wobbling((1.1, 12), (1.0, 12)), rate).regressions
        (step,) = of(wobbling((1.0, 12), (1.1, 12)), rate).steps
        assert step.outcome is ChangeVerdict.BETTER

    def test_what_is_neither_is_undecided(self) -> None:
        """A step of a metric without a better way is told, and is no regression."""
        history = of(wobbling((1.0, 12), (1.1, 12)), Query.parse("requests"))
        assert [step.outcome for step in history.steps] == [ChangeVerdict.UNDECIDED]
        assert not history.regressions

    def test_what_was_undone_is_no_regression(self) -> None:
        """A step that a later one took back does not stand."""
        history = of(wobbling((1.0, 12), (1.2, 12), (1.0, 12)))
        assert [step.standing for step in history.steps] == [False, True] or not history.regressions
        assert history.steps[0].standing is False
        assert not history.regressions

    @pytest.mark.parametrize("fact", ["torch", "processor"])
    @pytest.mark.parametrize("at", [11, 12, 13])
    def test_a_change_of_the_environment_is_not_blamed_on_the_model(self, fact: str, at: int) -> None:
        """A step with another version, or another machine, at its place or beside it, is no regression."""
        when = {"torch": {0: "1.0"}, "processor": {0: "1.0"}, fact: {at: "2.0"}}
        history = of(
            wobbling((1.0, 12), (1.2, 12)),
            digest={12: "other"},
            torch=when["torch"],
            processor=when["processor"],
        )

        (step,) = history.steps
        assert not step.blamed
        assert not history.regressions
        assert step.mark is not None
        assert step.mark.model
        facts = (*step.mark.software, *step.mark.hardware)
        assert [(each.name, each.candidate) for each in facts] == [(fact, "2.0")]

    @pytest.mark.parametrize(
        ("slower", "disturbed", "blamed"),
        [
            (1.2, range(12, 24), False),
            (1.2, range(18, 24), False),
            (1.2, range(19, 24), True),
            (1.2, range(24), True),  # they were there before
            (1.2, range(12), True),
            (0.8, range(12), False),  # it was slow because of them
            (0.8, range(12, 24), True),
        ],
    )
    def test_others_on_the_cores_are_not_blamed_on_the_model(
        self, slower: float, disturbed: range, *, blamed: bool
    ) -> None:
        """A step to results most of which were disturbed, as those before were not, is no regression."""
        history = [
            replace(reading, disturbed=place in disturbed)
            for place, reading in enumerate(readings(wobbling((1.0, 12), (slower, 12))))
        ]

        (step,) = trend("m", LATENCY, history).steps

        assert step.blamed is blamed

    def test_a_result_says_whether_it_was_disturbed(self) -> None:
        """By its doubts, which its head has."""
        others = Doubt(code="interference", seen="other processes kept 1 core busy", advice="")
        result = a_result(samples=[0.01] * 400, doubts=())

        for doubts, disturbed in (((), False), ((others,), True)):
            reading = Reading.of(replace(result, doubts=doubts), LATENCY)
            assert reading is not None
            assert reading.disturbed is disturbed

    def test_a_change_elsewhere_excuses_nothing(self) -> None:
        """What changed long before a step did not make it."""
        history = of(wobbling((1.0, 12), (1.2, 12)), torch={4: "2.0"})
        assert history.regressions
        assert [mark.at for mark in history.marks] == [4]

    def test_the_newest_are_named_when_they_lie_far_off(self) -> None:
        """One or two make no level; which side they lie on must be one."""
        assert of([*wobbling((1.0, 12)), 1.3]).astray == (12,)
        assert of([*wobbling((1.0, 12)), 1.3, 1.25]).astray == (12, 13)
        assert of([*wobbling((1.0, 12)), 0.7, 1.3]).astray == (13,)
        assert of(wobbling((1.0, 12))).astray == ()
        assert of([1.0]).astray == ()

    def test_order_is_by_time(self) -> None:
        """The history may come in any order."""
        history = readings(wobbling((1.0, 12), (1.1, 12)))
        assert trend("m", LATENCY, history[::-1]) == trend("m", LATENCY, history)

    def test_an_interval_that_is_open_tells_nothing(self) -> None:
        """A result without an interval, or with an open one, weighs what others do on the average."""
        history = readings(wobbling((1.0, 12), (1.1, 12)))
        history[3] = replace(history[3], interval=None)
        history[4] = replace(history[4], interval=Interval(low=0.5, high=inf))
        assert len(trend("m", LATENCY, history).steps) == 1
        bare = [replace(each, interval=None) for each in history]
        assert len(trend("m", LATENCY, bare).steps) == 1

    def test_nothing_has_no_trend(self) -> None:
        """An empty history, and one with zeros, are refused in a sentence."""
        with pytest.raises(RequestError, match="no history of latency"):
            trend("m", LATENCY, [])
        with pytest.raises(RequestError, match="is 0 in some results"):
            of([0.0, 1.0])


class TestReading:
    def test_it_is_one_number_of_a_result(self) -> None:
        """With its interval, and what else may have changed."""
        result = a_result()
        reading = Reading.of(result, Query.parse("throughput"))

        assert reading is not None
        assert (reading.value, reading.interval) == (6200.5, Interval(low=6100.0, high=6300.0))
        assert reading.software == result.environment.software
        assert result.model is not None
        assert reading.digest == result.model.digest

    def test_what_is_no_claim_is_none(self) -> None:
        """Nor is what failed, and what was not measured."""
        assert Reading.of(a_result(), Query.parse("latency.p99")) is None
        assert Reading.of(a_failed_result(), LATENCY) is None
        assert Reading.of(a_small_result(), LATENCY) is None

    @pytest.mark.parametrize("name", ["throughput", "latency.mean", "latency.p50", "parameters"])
    def test_a_kept_number_reads_as_the_result_does(self, name: str) -> None:
        """A history needs no samples: value and interval are those of the whole Result."""
        result, query = a_result(), Query.parse(name)
        head, number = replace(result, measurements=()), kept_numbers(result)[name]

        assert Reading.of_number(head, number) == Reading.of(result, query)

    def test_a_number_that_is_no_claim_is_none(self) -> None:
        """Of too few samples, or of a failure."""
        number = KeptNumber(value=2.0, raw=2.0, low=None, high=3.0)

        assert Reading.of_number(a_result(), replace(number, value=None)) is None
        assert Reading.of_number(a_failed_result(), number) is None
        bounded = Reading.of_number(a_result(), number)
        assert bounded is not None
        assert bounded.interval == Interval(low=-inf, high=3.0)

    def test_a_result_without_a_model_has_no_digest(self) -> None:
        """A loader that tells none leaves it empty."""
        reading = Reading.of(a_result(model=None), Query.parse("throughput"))
        assert reading is not None
        assert reading.digest == ""


class TestSetup:
    def test_it_is_the_job_without_model_and_care(self) -> None:
        """Another model or Plan is the same setup; another knob, input or load is another one."""
        result = a_result()
        other = replace(result.job, plan=replace(result.job.plan, processes=5), name="x")
        assert history_setup(replace(result, job=other)) == history_setup(result)
        knob = replace(result.job, config={**result.job.config, "threads": 1})
        load = replace(result.job, load=Load(concurrency=4))
        assert len({history_setup(replace(result, job=job)) for job in (result.job, knob, load)}) == 3

    def test_the_usual_query_is_the_typical_time(self) -> None:
        """Of calls or of training steps, or the throughput; of nothing it is that of calls."""
        step = Measurement(metric="step_time", value=Distribution.of((1.0, 2.0)))
        assert str(default_query(a_result())) == "latency.p50"
        assert str(default_query(a_small_result(measurements=(step,)))) == "step_time.p50"
        assert str(default_query(a_small_result())) == "latency.p50"
