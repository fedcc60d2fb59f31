"""The stop rule: when a model has warmed up, and when it has been measured well enough.

The rule takes calls and clock as arguments, so that the probe runs it in real time and the tests in virtual
time.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
from statistics import median_low
from typing import Literal, TypeAlias

from modeldyno.base.metrics.measurement_plan import Plan
from modeldyno.base.metrics.metric import fraction_of
from modeldyno.base.stats import statistics
from modeldyno.base.stats.drift import Drift, find_drift
from modeldyno.base.stats.statistics import Samples
from modeldyno.base.stats.units import format_percent

Phase: TypeAlias = Literal["warm-up", "steady"]


class Stop(StrEnum):
    """Why measuring ended."""

    CONVERGED = "converged"
    NOISE_FLOOR = "noise floor"
    TIME_LIMIT = "time limit"
    SAMPLE_LIMIT = "sample limit"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRuleResult:
    """The outcome of the stop rule in one process."""

    samples: Samples
    """Seconds of each steady call, in order; never empty."""
    warmup_runs: int
    """Calls before the steady ones, excluded as warm-up."""
    warmup_time: float
    """Seconds of those calls."""
    stop: Stop
    """Why measuring ended."""
    unmet: tuple[str, ...]
    """The conditions that did not hold at the end, a short phrase each; empty when converged."""
    settled: bool
    """Whether the warm-up settled within its share of the time."""
    drift: Drift | None
    """The last drift after the warm-up, even if its samples were excluded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasurementProgress:
    """The progress of a measurement, for display."""

    phase: Phase
    """The current phase of the calls."""
    samples: Samples
    """Seconds of each call of this phase so far: a view, to be copied if kept."""
    elapsed: float
    """Seconds since measuring began."""
    remaining: float | None
    """Estimated seconds left, at most up to the time limit; None before an estimate is possible."""
    value: float | None
    """The target statistic at the last check, in seconds."""
    half_width: float | None
    """Half-width of its interval at the last check, as a fraction of the value."""


def never_interrupted() -> bool:
    """Report no interruption."""
    return False


def same_plan(plan: Plan) -> Plan:
    """Return the plan as it is."""
    return plan


def ignore_progress(progress: MeasurementProgress) -> None:
    """Ignore progress."""
    del progress


_CHUNK = 0.1
"""Seconds between two checks of clock and interruption."""
_CHUNK_RUNS = 1 << 15
"""Most calls between them: times in transit to other processes take memory that is not the model's."""
_CHUNK_GROWTH = 8
"""Growth of the number of calls from one chunk to the next, while their cost is still unknown."""
_WARMUP_SHARE = 1 / 3
"""Share of the time limit that the warm-up may take."""
_WARMUP_SPAN = 0.15
"""Least seconds that the warm-up window spans; the window is also half of the calls so far."""
_WARMUP_RUNS = 50
"""Calls in the warm-up window, unless they take more than _WARMUP_PATIENCE seconds."""
_WARMUP_PATIENCE = 1.0
_WARMUP_FEWEST = 3
"""Fewest calls in the warm-up window, however slow."""
_WARMUP_CHANCE = 0.2
"""Significance level that keeps the warm-up going: weak, as a false alarm costs only a few more calls."""
_WARMUP_RELEVANT = 0.02
"""Relative change over the window that keeps the warm-up going."""
_WARMUP_GROWTH = 1.25
"""Growth of the number of calls between two checks of the warm-up window."""
_RESTARTS = 3
"""How often the steady phase may restart after a drift."""
_GROWTH = (1.2, 2.0)
"""Smallest and largest growth of the number of samples from one check to the next."""
_FLOOR_SPAN = 8
"""Growth of the samples over which the half-width must shrink; otherwise the noise floor is reached."""
_FLOOR_SHRINK = 0.75
"""Factor of the half-width that counts as no shrinking; independent samples would give 0.35."""
_NOTICEABLE_SAMPLES = 1024
"""Samples whose assessment takes memory that is noticeable next to a small model."""
_INITIAL_ROOM = 1 << 16
"""Samples that memory is reserved for from the start."""


def measure_until_stable(
    draw: Callable[[int], Samples],
    *,
    plan: Plan,
    clock: Callable[[], float],
    interrupted: Callable[[], bool] = never_interrupted,
    watch: Callable[[MeasurementProgress], None] = ignore_progress,
    agreed: Callable[[Phase], bool] | None = None,
    aside: Callable[[], AbstractContextManager[None]] | None = None,
    revise: Callable[[Plan], Plan] = same_plan,
) -> StopRuleResult:
    """Warm up, then measure until the plan is met or cannot be.

    Args:
        draw: makes up to so many timed calls and returns the seconds of each, in order; empty at the end of
        the calls, which ends the measurement. The first draw returns at least one.
        plan: what to reach, and the limits.
        clock: monotonic seconds.
        interrupted: whether to stop now; called after every chunk of calls.
        watch: receives the progress after every chunk of calls.
        agreed: called whenever a phase is complete, if several processes measure in turns: whether the others
        have completed it, too. The phases of all then cover the same time, and to keep it so, no
        drift restarts any of them.
        aside: entered around what takes memory that is not the model's: room for samples, their assessment.
        revise: returns the plan as it is by now; called after every chunk of calls, as their times may set
        limits that nobody knew before.
    """
    bench = _Sampler(
        draw=draw,
        plan=plan,
        clock=clock,
        interrupted=interrupted,
        watch=watch,
        agreed=agreed,
        aside=aside or nullcontext,
        revise=revise,
        began=clock(),
    )
    if aside is not None:
        with aside():
            _warm_up_assessment(plan)
            bench.make_room(_INITIAL_ROOM)
        bench.began = clock()
    bench.warm_up()
    stop = bench.measure()
    with bench.assessing():
        return bench.paced(stop)


def _warm_up_assessment(plan: Plan) -> None:
    """Assess made-up samples once, so that code and libraries take their memory before anything is timed."""
    times = statistics.empty_samples(_NOTICEABLE_SAMPLES)
    times[::2], times[1::2] = 1.0, 2.0
    find_drift(times, _WARMUP_CHANCE, _WARMUP_RELEVANT)
    assess(times, plan)


@dataclass(slots=True, kw_only=True)
class _Sampler:
    """The sampler: the calls made so far, and their cost.

    Costs are measured by the clock, not by the samples: a sample may be the mean of a block of calls.
    """

    draw: Callable[[int], Samples]
    plan: Plan
    clock: Callable[[], float]
    interrupted: Callable[[], bool]
    watch: Callable[[MeasurementProgress], None]
    agreed: Callable[[Phase], bool] | None
    aside: Callable[[], AbstractContextManager[None]]
    revise: Callable[[Plan], Plan]
    began: float
    room: Samples = field(default_factory=lambda: statistics.empty_samples(256))
    """Every sample so far, then free space."""
    count: int = 0
    """Samples so far."""
    begin: int = 0
    """Index of the first sample of the steady phase."""
    begin_time: float = 0.0
    """Time of that sample, in seconds since measuring began."""
    marks: list[tuple[int, float]] = field(default_factory=lambda: [(0, 0.0)])
    """Samples so far, and seconds, after each chunk."""
    settled: bool = False
    halted: bool = False
    last: Assessment | None = None
    drift: Drift | None = None

    @property
    def elapsed(self) -> float:
        """Seconds since measuring began."""
        return self.clock() - self.began

    @property
    def steady(self) -> Samples:
        """The samples of the steady phase: a view."""
        return self.room[self.begin : self.count]

    @property
    def shortest(self) -> float:
        """Least seconds of the steady phase: after an unsettled warm-up, as long as that took."""
        return max(self.plan.min_time, 0.0 if self.settled else self.begin_time)

    def may_end(self, phase: Phase) -> bool:
        """Return whether a complete phase is over."""
        return self.agreed is None or self.agreed(phase)

    def cost(self, chunks: int) -> float:
        """Return the seconds of a call in the median of the last chunks; infinite before the first."""
        marks = self.marks[-chunks - 1 :]
        costs = [(then - before) / (n - m) for (m, before), (n, then) in pairwise(marks)]
        return max(median_low(costs), 1e-9) if costs else math.inf

    def take(self, most: int, until: float) -> None:
        """Draw a chunk of at most `most` calls, to end before `until` seconds have passed."""
        previous = self.count - self.marks[-2][0] if self.count else 0
        fit = int(min(_CHUNK, until - self.elapsed) / self.cost(1))
        chunk = self.draw(max(1, min(most, fit, _CHUNK_RUNS, _CHUNK_GROWTH * previous)))
        end = self.count + len(chunk)
        if end > self.room.size:
            with self.aside():
                self.make_room(2 * end)
        self.room[self.count : end] = chunk
        if len(chunk):
            self.count = end
            self.marks.append((end, self.elapsed))
            self.plan = self.revise(self.plan)
        self.halted = self.interrupted() or not len(chunk)

    def make_room(self, size: int) -> None:
        """Reserve memory for `size` samples in all, and touch it, so that drawing takes none."""
        if size > self.room.size:
            wider = statistics.empty_samples(size)
            wider[: self.count] = self.room[: self.count]
            wider[self.count :] = 0.0
            self.room = wider

    def assessing(self) -> AbstractContextManager[None]:
        """Set the coming assessment aside from the calls if it takes noticeable memory."""
        return self.aside() if self.count >= _NOTICEABLE_SAMPLES else nullcontext()

    def tell(self, phase: Phase) -> None:
        """Report progress."""
        elapsed, last = self.elapsed, self.last
        remaining = None
        if last or phase == "steady":
            span = max(self.shortest, last.growth * last.count * self.cost(1) if last else 0.0)
            remaining = max(0.0, min(self.begin_time + span, self.plan.max_time) - elapsed)
        self.watch(
            MeasurementProgress(
                phase=phase,
                samples=self.steady,
                elapsed=elapsed,
                remaining=remaining,
                value=last.value if last else None,
                half_width=last.half_width if last else None,
            )
        )

    def warm_up(self) -> None:
        """Draw the plan's minimum, and on until a trailing window shows no drift or time is up."""
        due = max(1, self.plan.min_warmup)
        while not (
            (self.settled and self.may_end("warm-up")) or self.halted or self.elapsed >= self._warmup_limit()
        ):
            self.take(max(due, self._window()) - self.count, self._warmup_limit())
            self.tell("warm-up")
            window = self._window()
            if self.count >= max(due, window):
                with self.assessing():
                    begin = self.count - max(window, self.count // 2)
                    # The view has no name: it would keep the memory of the room when there is another.
                    self.settled = not find_drift(
                        self.room[begin : self.count], _WARMUP_CHANCE, _WARMUP_RELEVANT
                    )
                    due = math.ceil(_WARMUP_GROWTH * self.count)
                    self.make_room(due)
        # If no time is left for steady samples, the later half of these must serve.
        over = self.halted or self.elapsed >= self.plan.max_time
        self._begin_at(self.count // 2 if over else self.count)

    def _warmup_limit(self) -> float:
        """Return the seconds after which the warm-up ends; its share applies after the plan's minimum."""
        return self.plan.max_time * (1.0 if self.count < self.plan.min_warmup else _WARMUP_SHARE)

    def _window(self) -> int:
        """Return the number of calls in the warm-up window: few for a slow model."""
        cost = self.cost(len(self.marks))
        patient = min(_WARMUP_RUNS, _WARMUP_PATIENCE / cost)
        return math.ceil(max(_WARMUP_FEWEST, patient, _WARMUP_SPAN / cost))

    def _begin_at(self, index: int) -> None:
        """Let the steady phase begin at this sample; earlier ones are warm-up."""
        after = next(i for i, (count, _) in enumerate(self.marks) if count >= index)
        count, seconds = self.marks[after]
        before, earlier = self.marks[max(0, after - 1)]
        share = (count - index) / max(1, count - before)
        self.begin, self.begin_time = index, seconds - share * (seconds - earlier)

    def measure(self) -> Stop:
        """Draw steady samples, checking at growing counts, until there is a reason to stop."""
        due, restarts = self.plan.min_runs, 0
        past: list[Assessment] = []
        enough: Stop | None = None  # later draws only serve the other processes that measure in turns
        if not self.halted:
            self.tell("steady")
        while True:
            if enough and self.may_end("steady"):
                return enough
            if stop := self._reached_limit():
                return stop
            size = self.count - self.begin
            self.take((due if size < due else self.plan.max_runs) - size, self.plan.max_time)
            if self.count == self.begin:  # no more calls came: the later half of the warm-up must serve
                self._begin_at(self.count // 2)
            self.tell("steady")
            size = self.count - self.begin
            if enough or size < due or self.elapsed - self.begin_time < self.shortest:
                continue
            with self.assessing():
                self.last = assessment = assess(self.steady, self.plan)
                self.make_room(self.count + self._next_check(assessment, size) - size)
            if not assessment.unmet:
                enough = Stop.CONVERGED
            elif _is_at_noise_floor(assessment, past):
                enough = Stop.NOISE_FLOOR
            if assessment.drift and restarts < _RESTARTS and self.agreed is None:
                self.drift = assessment.drift
                self._begin_at(self.begin + assessment.drift.start)
                due, restarts, past = self.plan.min_runs, restarts + 1, []
                continue
            past.append(assessment)
            due = self._next_check(assessment, size)

    def _next_check(self, assessment: Assessment, size: int) -> int:
        """Return the number of steady samples at which the next check is due."""
        growth = min(max(1.1 * assessment.growth, _GROWTH[0]), _GROWTH[1])
        return min(self.plan.max_runs, math.ceil(size * growth))

    def _reached_limit(self) -> Stop | None:
        """Return the limit that is reached, if any; at least one steady sample comes first."""
        if self.count == self.begin:
            return None
        if self.halted:
            return Stop.INTERRUPTED
        if self.elapsed >= self.plan.max_time:
            return Stop.TIME_LIMIT
        return Stop.SAMPLE_LIMIT if self.count - self.begin >= self.plan.max_runs else None

    def paced(self, stop: Stop) -> StopRuleResult:
        """Return the measurement, assessed against the plan once more."""
        samples = self.steady.copy()
        span = self.elapsed - self.begin_time
        current = self.last is not None and self.last.count == samples.size
        assessment = self.last if self.last and current else assess(samples, self.plan)
        short, cold = span < self.shortest, self.begin < self.plan.min_warmup
        unmet = (
            *assessment.unmet,
            *([f"{span:.2g} s of at least {self.shortest:.2g} s"] if short else []),
            *([f"{self.begin} of at least {self.plan.min_warmup} samples of warm-up"] if cold else []),
        )
        return StopRuleResult(
            samples=samples,
            warmup_runs=self.begin,
            warmup_time=self.begin_time,
            stop=stop if unmet or stop is Stop.INTERRUPTED else Stop.CONVERGED,
            unmet=unmet,
            settled=self.settled,
            drift=assessment.drift or self.drift,
        )


def _is_at_noise_floor(current: Assessment, past: list[Assessment]) -> bool:
    """Return whether only precision is missing and more samples no longer improve it."""
    earlier = [
        a for a in past if a.count * _FLOOR_SPAN <= current.count and a.size >= min(a.count, DEPENDENT_SIZE)
    ]
    return current.only_wide and bool(earlier) and current.half_width > _FLOOR_SHRINK * earlier[-1].half_width


# --- what the samples say ---------------------------------------------------------------------------

DEPENDENT_SIZE = 50
"""Effective samples of the target needed if they are estimated to be worth less than half."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assessment:
    """The result of a check of the steady samples."""

    count: int
    """Samples checked."""
    size: float
    """Their effective size for the target."""
    value: float
    """The target statistic, in seconds."""
    half_width: float
    """Half-width of its interval, as a fraction of the value."""
    growth: float
    """Factor by which the samples must grow, by the square-root law; 1 if there are enough."""
    drift: Drift | None
    unmet: tuple[str, ...]
    """The conditions that do not hold, a short phrase each."""
    only_wide: bool
    """Whether the width of the target's interval is the only unmet condition."""


def assess(samples: Samples, plan: Plan) -> Assessment:
    """Assess the steady samples against the plan, except for the time that they took."""
    names = (plan.target, *plan.percentiles)
    sizes = {name: statistics.effective_size(samples, fraction_of(name)) for name in names}
    lacking = {
        name: floor
        for name, floor in _required_sizes(plan, sizes, samples.size).items()
        if sizes[name] < floor
    }
    value, half_width = _target_interval(samples, plan.target, sizes[plan.target])
    drift = find_drift(samples)
    unmet = [f"a {drift.kind} of {drift.size:+.1%} is left"] if drift else []
    if samples.size < plan.min_runs:
        unmet.append(f"{samples.size} of at least {plan.min_runs} samples")
    unmet += [f"{bound} is undecided" for bound in plan.bounds]
    for name, floor in lacking.items():
        unmet.append(f"{name} needs {floor} effective samples, has {int(sizes[name])}")
    wide = half_width > plan.precision
    only_wide = wide and not unmet
    if wide and plan.target not in lacking:
        width = f"is known to ±{format_percent(half_width)}" if half_width < math.inf else "is not bounded"
        unmet.append(f"{plan.target} {width}, the target is ±{format_percent(plan.precision)}")
    return Assessment(
        count=samples.size,
        size=sizes[plan.target],
        value=value,
        half_width=half_width,
        growth=max(1.0, (half_width / plan.precision) ** 2, *(lacking[n] / sizes[n] for n in lacking)),
        drift=drift,
        unmet=tuple(unmet),
        only_wide=only_wide,
    )


def _target_interval(samples: Samples, target: str, size: float) -> tuple[float, float]:
    """Return the target statistic and the relative half-width of its interval."""
    fraction = fraction_of(target)
    if fraction is None:
        value, (low, high) = float(samples.mean()), statistics.mean_interval(samples, size)
    else:
        value = statistics.quantile(samples, fraction)
        low, high = statistics.quantile_interval(samples, fraction, size)
    half = (high - low) / 2
    if not half:
        return value, 0.0
    return value, half / value if value else math.inf


def _required_sizes(plan: Plan, sizes: dict[str, float], n: int) -> dict[str, int]:
    """Return the effective samples that each statistic of the plan needs."""
    fractions = {name: fraction_of(name) for name in sizes}
    floors = {name: 2 if p is None else statistics.certified_floor(p) for name, p in fractions.items()}
    if sizes[plan.target] < n / 2:  # weaker correlation is as often as not a false alarm
        floors[plan.target] = max(floors[plan.target], DEPENDENT_SIZE)
    return floors
