from __future__ import annotations

import math
import re
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pytest

from modeldyno.base.metrics import stop_rule
from modeldyno.base.metrics.measurement_plan import Plan
from modeldyno.base.metrics.stop_rule import MeasurementProgress, Stop, StopRuleResult, measure_until_stable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modeldyno.base.stats.statistics import Samples


@dataclass(slots=True, kw_only=True)
class Model:
    """A model in virtual time: the duration of a call is a function of its number and the time."""

    duration: Callable[[int, float], float]
    overhead: float = 0.0
    now: float = 5.0
    chunks: list[int] = field(default_factory=list)
    """Calls of each chunk."""

    def draw(self, n: int) -> Samples:
        """Make n calls."""
        made = sum(self.chunks)
        self.chunks.append(n)
        taken = np.empty(n)
        for i in range(n):
            taken[i] = self.duration(made + i, self.now - 5.0)
            self.now += float(taken[i]) + self.overhead
        return taken

    def clock(self) -> float:
        """Tell the virtual time."""
        return self.now


def noisy(call: float, sigma: float = 0.02, seed: int = 0) -> Callable[[int, float], float]:
    rng = np.random.default_rng(seed)
    return lambda _i, _t: call * math.exp(sigma * rng.standard_normal())


def paced(model: Model, **settings: object) -> StopRuleResult:
    return measure_until_stable(model.draw, plan=Plan(**settings), clock=model.clock)  # type: ignore[arg-type]


def test_a_steady_model_converges() -> None:
    """A model with little noise has converged when the least time and samples are there."""
    model = Model(duration=noisy(0.01))
    result = paced(model)
    assert result.stop is Stop.CONVERGED
    assert result.unmet == ()
    assert result.settled
    assert result.drift is None
    assert 50 <= result.warmup_runs <= 100
    assert result.warmup_time == pytest.approx(0.01 * result.warmup_runs, rel=0.05)
    assert 1.0 <= result.samples.sum() <= 1.3


def test_the_samples_are_the_calls_after_the_warm_up_in_order() -> None:
    """Nothing between the warm-up and the end is left out, repeated or moved."""
    rng = np.random.default_rng(0)
    calls = 0.01 * np.exp(0.02 * rng.standard_normal(1000))
    model = Model(duration=lambda i, _t: float(calls[i]))
    result = paced(model)
    made = sum(model.chunks)
    assert result.samples.tolist() == calls[result.warmup_runs : made].tolist()


def test_a_slow_model_spends_three_calls_on_warming_up() -> None:
    """A call of 1 s is dropped three times, no more."""
    result = paced(Model(duration=noisy(1.0, sigma=0.005)), max_time=40.0)
    assert result.warmup_runs == 3
    assert result.stop is Stop.CONVERGED
    assert result.samples.size == 20


@pytest.mark.parametrize("least", [0, 3, 4, 20])
def test_a_plan_may_ask_for_more_warm_up_than_the_evidence_does(least: int) -> None:
    """A steady model of 1 s is warmed up by as many calls as were asked for, and by three at least."""
    result = paced(Model(duration=noisy(1.0, sigma=0.005)), max_time=100.0, min_warmup=least)
    assert result.warmup_runs == max(3, least)
    assert result.settled
    assert result.samples.size == 20
    assert result.stop is Stop.CONVERGED


def test_a_least_warm_up_does_not_end_one_that_has_not_settled() -> None:
    """Calls that become faster for a second are all warm-up, though ten were enough for the plan."""
    usual = noisy(0.01)
    result = paced(Model(duration=lambda i, t: usual(i, t) * (1 + 4 * math.exp(-t / 0.2))), min_warmup=10)
    assert result.settled
    assert result.warmup_time > 0.8


def test_the_warm_up_that_was_asked_for_may_take_more_than_its_share_of_the_time() -> None:
    """Sixteen calls of 1 s are made, though a third of 20.5 s is less than seven; five steady ones follow."""
    result = paced(Model(duration=noisy(1.0, sigma=0.005)), max_time=20.5, min_warmup=16)
    assert (result.warmup_runs, result.samples.size) == (16, 5)
    assert result.stop is Stop.TIME_LIMIT


def test_a_warm_up_that_does_not_fit_is_told() -> None:
    """Where the time ends before it does, the later half of the calls serves, and says what it lacks."""
    result = paced(Model(duration=noisy(1.0, sigma=0.005)), max_time=10.0, min_warmup=16)
    assert (result.warmup_runs, result.samples.size) == (5, 5)
    assert not result.settled
    assert result.stop is Stop.TIME_LIMIT
    assert result.unmet[-1] == "5 of at least 16 samples of warm-up"


def test_a_slow_first_call_does_not_shorten_the_warm_up() -> None:
    """A first call of 1 s before calls of 1 ms neither serves as the window nor as a sample."""
    usual = noisy(0.001)
    model = Model(duration=lambda i, t: usual(i, t) if i else 1.0)
    result = paced(model)
    assert result.samples.max() < 0.002
    assert result.warmup_time > 1.14


def test_a_fast_model_is_warmed_up_for_long_enough() -> None:
    """Calls of 100 us are drawn for 0.15 s at least before they count."""
    result = paced(Model(duration=noisy(1e-4)), min_time=0.2)
    assert result.warmup_time >= 0.145
    assert result.samples.size >= 1900


def test_a_fading_warm_up_is_dropped_and_counted() -> None:
    """Calls that become faster for a second are all warm-up."""
    usual = noisy(0.01)
    result = paced(Model(duration=lambda i, t: usual(i, t) * (1 + 4 * math.exp(-t / 0.2))))
    assert result.settled
    assert result.warmup_time > 0.8
    assert float(np.median(result.samples)) == pytest.approx(0.01, rel=0.01)


def test_a_warm_up_that_never_ends_is_told() -> None:
    """Without a settled warm-up, as long again must be steady, or the time limit says what is left."""
    usual = noisy(0.01)
    result = paced(Model(duration=lambda i, t: usual(i, t) * (1 + t)), max_time=9.0)
    assert not result.settled
    assert result.warmup_time >= 3.0
    assert result.stop is Stop.TIME_LIMIT
    assert any("is left" in unmet for unmet in result.unmet)


def test_a_level_shift_restarts_the_steady_phase() -> None:
    """The samples before a jump are moved to the warm-up, counted, and the drift is kept."""
    usual = noisy(0.01, sigma=0.1)
    result = paced(Model(duration=lambda i, t: usual(i, t) * (1.3 if t > 1.2 else 1.0)))
    assert result.stop is Stop.CONVERGED
    assert result.drift is not None
    assert result.drift.kind == "level shift"
    assert result.warmup_time == pytest.approx(1.2, abs=0.15)
    assert float(np.median(result.samples)) == pytest.approx(0.013, rel=0.04)


def test_lasting_drift_ends_at_the_time_limit() -> None:
    """A climb that goes on is named as what is left."""
    usual = noisy(0.01, sigma=0.1)
    result = paced(Model(duration=lambda i, t: usual(i, t) * (1 + 0.3 * max(0.0, t - 1.0))))
    assert result.stop is Stop.TIME_LIMIT
    assert result.drift is not None
    assert result.unmet[0] == f"a {result.drift.kind} of {result.drift.size:+.1%} is left"


def test_the_time_limit_is_overrun_by_a_call_at_most() -> None:
    """The last chunk is cut to what fits, and what is missing is named."""
    model = Model(duration=noisy(0.3, sigma=0.5, seed=1))
    result = paced(model, max_time=8.0)
    assert result.stop is Stop.TIME_LIMIT
    assert 8.0 <= model.now - 5.0 < 9.5
    assert re.fullmatch(r"p50 is known to ±[\d.]+%, the target is ±2.0%", result.unmet[-1])


def test_no_chunk_is_longer_than_a_tenth_of_a_second() -> None:
    """Whatever a call takes, the clock is looked at about every 0.1 s."""
    model = Model(duration=lambda _i, _t: 1e-3)
    paced(model)
    assert max(model.chunks) <= 100


def test_a_call_longer_than_the_limit_still_gives_a_sample() -> None:
    """One call that takes longer than the limit is the sample that comes back."""
    result = paced(Model(duration=lambda _i, _t: 100.0))
    assert result.samples.tolist() == [100.0]
    assert result.warmup_runs == 0
    assert result.stop is Stop.TIME_LIMIT
    assert not result.settled
    assert "p50 needs 11 effective samples, has 1" in result.unmet
    assert "1 of at least 20 samples" in result.unmet


def test_a_call_longer_than_the_rest_of_the_time_gives_a_sample() -> None:
    """After a warm-up that took most of the time, one call more is made and counted."""
    result = paced(Model(duration=lambda _i, _t: 15.0), max_time=20.0)
    assert result.samples.tolist() == [15.0]
    assert result.warmup_runs == 1


def test_the_sample_limit_stops() -> None:
    """Exactly max_runs samples come back, and the least time not reached is named."""
    result = paced(Model(duration=noisy(1e-3)), max_runs=64)
    assert result.samples.size == 64
    assert result.stop is Stop.SAMPLE_LIMIT
    assert result.unmet == ("0.064 s of at least 1 s",)


def test_limits_that_meet_the_plan_are_convergence() -> None:
    """Where everything is met when the limit is reached, measuring has converged."""
    result = paced(Model(duration=noisy(1e-3)), max_runs=64, min_time=0.06)
    assert result.stop is Stop.CONVERGED


@pytest.mark.parametrize(("after", "phase"), [(3, "warm-up"), (40, "steady")])
def test_an_interrupted_run_gives_what_there_is(after: int, phase: str) -> None:
    """An interruption is heeded after the chunk, and the samples so far come back."""
    model = Model(duration=noisy(0.02, sigma=0.3))
    reports: list[MeasurementProgress] = []
    result = measure_until_stable(
        model.draw,
        plan=Plan(),
        clock=model.clock,
        interrupted=lambda: len(model.chunks) >= after,
        watch=reports.append,
    )
    assert result.stop is Stop.INTERRUPTED
    assert len(model.chunks) == after
    assert reports[-1].phase == phase
    assert result.samples.size >= 1
    assert result.samples.size + result.warmup_runs == sum(model.chunks)


def test_a_coarse_clock_is_the_noise_floor() -> None:
    """Where the interval is as wide as a tick of the clock, more samples do not help, and it stops."""
    rng = np.random.default_rng(3)
    result = paced(Model(duration=lambda _i, _t: 0.01 * rng.integers(1, 3)), max_time=300.0)
    assert result.stop is Stop.NOISE_FLOOR
    assert result.unmet[0].startswith("p50 is known to ")
    assert result.samples.sum() < 100


def test_a_requested_percentile_is_certified() -> None:
    """Measuring goes on until a requested percentile has its floor of samples."""
    result = paced(Model(duration=noisy(0.01)), percentiles=("p99",))
    assert result.stop is Stop.CONVERGED
    assert result.samples.size >= 662


def test_an_uncertified_percentile_is_named() -> None:
    """A requested percentile for which the time was too short is named with what it has."""
    result = paced(Model(duration=noisy(0.01)), percentiles=("p99",), max_time=4.0)
    assert result.stop is Stop.TIME_LIMIT
    assert result.unmet[0].startswith("p99 needs 662 effective samples, has ")


@pytest.mark.parametrize("target", ["mean", "p90"])
def test_another_target_is_measured_to_its_precision(target: str) -> None:
    """The target may be the mean or any percentile."""
    result = paced(Model(duration=noisy(0.01, sigma=0.2)), target=target)
    assert result.stop is Stop.CONVERGED
    assert result.samples.size > 200


def test_correlated_samples_are_drawn_for_longer() -> None:
    """Correlated samples must be worth fifty before their own width is believed."""
    rng = np.random.default_rng(4)
    state = 0.0

    def duration(_i: int, _t: float) -> float:
        nonlocal state
        state = 0.9 * state + math.sqrt(0.19) * rng.standard_normal()
        return 0.01 * math.exp(0.01 * state)

    result = paced(Model(duration=duration))
    assert result.stop is Stop.CONVERGED
    assert result.samples.size > 300


@pytest.mark.parametrize("target", ["mean", "p50"])
def test_calls_of_no_duration_are_measured(target: str) -> None:
    """Calls under the resolution of the clock measure as exactly zero."""
    model = Model(duration=lambda _i, _t: 0.0, overhead=1e-3)
    result = paced(model, target=target)
    assert result.stop is Stop.CONVERGED
    assert not result.samples.any()


def test_a_median_of_zero_has_no_relative_width() -> None:
    """Where the median is zero but not its interval, no precision is ever reached."""
    result = paced(Model(duration=lambda i, _t: 0.01 * (i % 2), overhead=1e-3), max_time=4.0)
    assert result.unmet == ("p50 is not bounded, the target is ±2.0%",)
    assert result.stop is not Stop.CONVERGED


def test_samples_may_be_means_of_blocks() -> None:
    """The rule goes by its clock: a sample may stand for many calls made back to back."""
    model = Model(duration=noisy(0.02))
    result = measure_until_stable(lambda n: model.draw(n) / 1000, plan=Plan(), clock=model.clock)
    assert result.stop is Stop.CONVERGED
    assert result.samples.size == pytest.approx(50, abs=8)
    assert result.warmup_time == pytest.approx(0.02 * result.warmup_runs, rel=0.05)


def test_phases_go_on_until_their_end_is_agreed() -> None:
    """Sides that are compared begin and end together; after each chunk it is asked."""
    phases: list[str] = []

    def agreed(phase: str) -> bool:
        phases.append(phase)
        return phases.count(phase) > 2

    alone, model = paced(Model(duration=noisy(0.01))), Model(duration=noisy(0.01))
    result = measure_until_stable(model.draw, plan=Plan(), clock=model.clock, agreed=agreed)
    assert phases == ["warm-up"] * 3 + ["steady"] * 3
    assert result.stop is Stop.CONVERGED
    assert result.settled
    assert result.warmup_runs > alone.warmup_runs
    assert 10 < len(result.samples) - len(alone.samples) < 40  # two chunks of 0.1 s


def test_a_noise_floor_is_agreed_upon_too() -> None:
    """Or one side would end where the other goes on; the time limit holds for both."""
    rng = np.random.default_rng(3)
    model = Model(duration=lambda _i, _t: 0.01 * rng.integers(1, 3))
    result = measure_until_stable(
        model.draw, plan=Plan(max_time=200.0), clock=model.clock, agreed=lambda phase: phase == "warm-up"
    )
    assert result.stop is Stop.TIME_LIMIT
    assert result.samples.sum() > 150


def test_sides_that_are_compared_do_not_begin_anew() -> None:
    """What makes one drift makes the others drift, and they would no longer cover the same time."""
    model = Model(duration=lambda _i, t: 0.01 if t < 3 else 0.012)
    result = measure_until_stable(
        model.draw, plan=Plan(min_time=6.0), clock=model.clock, agreed=lambda _phase: True
    )
    assert result.drift is not None
    assert result.samples[0] == pytest.approx(0.01)


def test_progress_is_told_with_an_estimate() -> None:
    """Whoever watches hears of each chunk, and after the first check how long it will take."""
    model = Model(duration=noisy(0.01, sigma=0.3))
    reports: list[MeasurementProgress] = []
    measure_until_stable(model.draw, plan=Plan(), clock=model.clock, watch=reports.append)
    assert len(reports) == len(model.chunks) + 1  # and of the beginning of the steady phase
    assert reports[0].phase == "warm-up"
    assert reports[0].remaining is reports[0].value is reports[0].half_width is None
    assert reports[-1].phase == "steady"
    assert [p.elapsed for p in reports] == sorted(p.elapsed for p in reports)
    progress = next(p for p in reports if p.value is not None)
    assert progress.remaining == pytest.approx(reports[-1].elapsed - progress.elapsed, rel=0.4)
    assert progress.value == pytest.approx(0.01, rel=0.1)
    assert progress.half_width is not None
    assert 0.02 < progress.half_width < 0.2


def test_the_steady_phase_is_told_before_its_first_call() -> None:
    """Whoever counts calls of the steady phase hears of it when none of them has been made."""
    model = Model(duration=noisy(0.01))
    made: list[int] = []
    measure_until_stable(
        model.draw,
        plan=Plan(),
        clock=model.clock,
        watch=lambda progress: made.append(sum(model.chunks)) if progress.phase == "steady" else None,
    )
    result = paced(Model(duration=noisy(0.01)))
    assert made[0] == result.warmup_runs


@pytest.mark.parametrize("calls", [1, 30, 100])
def test_where_nothing_more_comes_what_came_is_given(calls: int) -> None:
    """A draw of nothing ends it, in the warm-up or after it; the samples so far come back."""
    model = Model(duration=noisy(0.01))

    def draw(n: int) -> Samples:
        return model.draw(min(n, calls - sum(model.chunks)))

    result = measure_until_stable(draw, plan=Plan(), clock=model.clock)
    assert result.stop is Stop.INTERRUPTED
    assert result.warmup_runs + result.samples.size == calls
    assert result.samples.size > 0


def test_a_steady_phase_in_which_nothing_comes_is_the_later_half_of_the_warm_up() -> None:
    """There is always a sample to tell of."""
    model = Model(duration=noisy(0.01))
    warm = paced(Model(duration=noisy(0.01))).warmup_runs
    result = measure_until_stable(
        lambda n: model.draw(n) if sum(model.chunks) < warm else np.empty(0), plan=Plan(), clock=model.clock
    )
    assert (result.warmup_runs, result.samples.size) == (warm // 2, warm - warm // 2)


def test_nobody_need_watch_or_interrupt() -> None:
    """The defaults neither interrupt nor do anything with progress."""
    assert not stop_rule.never_interrupted()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"min_runs": 0}, "`min_runs` is 0"),
        ({"max_runs": 0}, "`max_runs` is 0"),
        ({"min_warmup": -1}, "`min_warmup` is -1, but must not be negative"),
        ({"min_time": -1.0}, "`min_time` is -1.0"),
        ({"max_time": 0.0}, "`max_time` is 0.0"),
        ({"max_time": math.inf}, "`max_time` is inf"),
        ({"precision": 0.0}, "`precision` is 0.0"),
        ({"processes": 0}, "`processes` is 0"),
        ({"seed": -1}, "`seed` is -1"),
        ({"timeout": 0.0}, "`timeout` and `memory_limit`"),
        ({"memory_limit": -5}, "`timeout` and `memory_limit`"),
        ({"pin": (-1,)}, "`pin` is"),
        ({"pin": (2, 2)}, "`pin` is"),
        ({"target": "median"}, "'median' is not a percentile"),
        ({"percentiles": ("p99", "p0")}, "'p0' is not a percentile"),
    ],
)
def test_a_plan_that_cannot_be_carried_out_is_refused(settings: dict[str, object], message: str) -> None:
    """What is wrong with a plan is said in one sentence when it is made."""
    with pytest.raises(ValueError, match=message):
        Plan(**settings)  # type: ignore[arg-type]


def test_a_sensible_plan_is_accepted() -> None:
    """Every setting has a value that is fine."""
    plan = Plan(timeout=5.0, memory_limit=1 << 30, pin=(0, 1), target="mean", percentiles=("p99.9",))
    assert plan.target == "mean"


class Aside:
    """Counts how often the assessment was set aside, and after how many samples."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.after: list[int] = []

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Note the calls made so far."""
        self.after.append(sum(self.model.chunks))
        yield


def test_the_assessment_of_many_samples_is_set_aside() -> None:
    """Before the first call, and wherever so many samples are assessed that their memory would show."""
    model = Model(duration=noisy(1e-5, sigma=0.5))
    aside = Aside(model)
    result = measure_until_stable(model.draw, plan=Plan(precision=0.001), clock=model.clock, aside=aside)

    assert aside.after[0] == 0
    assert len(aside.after) > 2
    assert min(aside.after[1:]) >= 1024
    assert result.samples.size > 10_000


def test_few_samples_are_assessed_where_they_are() -> None:
    """A slow model is not disturbed: its samples take no memory that shows."""
    model = Model(duration=noisy(0.01))
    aside = Aside(model)
    measure_until_stable(model.draw, plan=Plan(), clock=model.clock, aside=aside)

    assert aside.after == [0]
