"""Times prepared calls: the innermost measurement loop."""

from __future__ import annotations

from array import array
from contextlib import contextmanager, nullcontext
from functools import partial
from itertools import cycle, pairwise
from math import ceil
from typing import TYPE_CHECKING, Any

from modeldyno.base.clock import ClockCheck, perf_counter_ns
from modeldyno.base.metrics import doubt
from modeldyno.base.metrics.doubt import Doubt
from modeldyno.base.metrics.measurement import Distribution, Measurement
from modeldyno.base.metrics.stop_rule import measure_until_stable
from modeldyno.base.result.result import Progressed
from modeldyno.models.load_stages import WatchStage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from modeldyno.base.metrics.measurement_plan import Plan
    from modeldyno.base.metrics.stop_rule import MeasurementProgress, StopRuleResult
    from modeldyno.base.stats.statistics import Samples
    from modeldyno.engine.interfaces.probe import ProbeContext

CLOCK = "perf_counter_ns"
_BLOCK_GROWTH = 8
"""Largest growth of the first block of calls: the very first call may be slow."""
_REPORT_GROWTH = 1.5
"""Growth of the samples from one provisional measurement to the next."""
_MANY_SAMPLES = 1024
"""From so many samples on, sending them to the parent takes memory that shows next to a small model."""


def time_each_call(calls: tuple[Callable[[], Any], ...]) -> Callable[[int], Samples]:
    """Return a function that times n calls one by one, cycling through the payloads; seconds."""
    import numpy as np  # slow to import

    endless = cycle(calls)

    def draw(n: int) -> Samples:
        times = array("q", (0,)) * n
        clock = perf_counter_ns
        for i, call in zip(range(n), endless, strict=False):
            begin = clock()
            call()
            times[i] = clock() - begin
        seconds = np.frombuffer(times, dtype=np.int64).astype(np.float64)
        seconds *= 1e-9
        return seconds

    return draw


def time_one_call(call: Callable[[], Any]) -> tuple[float, Any]:
    """Return the seconds of one call, and its output."""
    clock = perf_counter_ns
    begin = clock()
    output = call()
    return (clock() - begin) * 1e-9, output


def time_call_blocks(calls: tuple[Callable[[], Any], ...], shortest: float) -> Callable[[int], Samples]:
    """Return a function that times n blocks of back-to-back calls; seconds per call.

    A block has as many calls as take about `shortest` seconds, so that the clock's overhead is negligible;
    a longer call is a block of its own. The first block is lengthened until it is long enough: shorter ones
    would tell the stop rule a wrong cost of the next draw.
    """
    import numpy as np  # slow to import

    endless = cycle(calls)
    size = 1

    def block() -> float:
        begin = perf_counter_ns()
        for _, call in zip(range(size), endless, strict=False):
            call()
        return (perf_counter_ns() - begin) * 1e-9 / size

    def blocks(n: int) -> Iterator[float]:
        nonlocal size
        seconds = block()
        while size * seconds < shortest:
            size = min(_BLOCK_GROWTH * size, max(size + 1, ceil(shortest / max(seconds, 1e-9))))
            seconds = block()
        yield seconds
        yield from (block() for _ in range(n - 1))

    def draw(n: int) -> Samples:
        nonlocal size
        times = np.fromiter(blocks(n), float, n)
        size = max(1, ceil(shortest / max(float(times.min()), 1e-9)))
        return times

    return draw


def clock_facts(reads: int = 2001) -> dict[str, float]:
    """Measure the clock's resolution and the cost of reading it, in seconds."""
    stamps = [perf_counter_ns() for _ in range(reads)]
    steps = sorted(b - a for a, b in pairwise(stamps))
    smallest = next((step for step in steps if step > 0), 1)
    return {"clock_resolution": smallest * 1e-9, "timer_cost": steps[len(steps) // 2] * 1e-9}


def distribution(result: StopRuleResult) -> Distribution:
    """Return the Distribution of the samples, with how they were taken."""
    return Distribution.of(
        result.samples,
        stop=str(result.stop),
        unmet=result.unmet,
        warmup_dropped=result.warmup_runs,
        warmup_time=result.warmup_time,
        clock=CLOCK,
        **clock_facts(),
    )


def measure_timed_pass(
    subject: ProbeContext,
    plan: Plan,
    draw: Callable[[int], Samples],
    metric: str,
    *,
    warming: Callable[[], object] | None = None,
) -> StopRuleResult:
    """Draw samples in the timed pass until the plan is met, alternating with other processes, if any.

    Args:
        subject: what is measured.
        plan: when to stop.
        draw: makes n timed calls and returns their seconds.
        metric: the metric named in progress reports.
        warming: an untimed call to make after another process had its turn.

    Raises:
        WrongClock: the clock does not keep time, so that nothing is measured and no limit of time holds.
    """
    turns, drawn = subject.turns, subject.turns.in_turns(draw, warming)
    check_clock = ClockCheck()

    def checked(n: int) -> Samples:
        samples = drawn(n)
        if len(samples):
            check_clock(float(samples.min()), float(samples.sum()))
        return samples

    result = measure_until_stable(
        checked,
        plan=plan,
        clock=turns.clock,
        interrupted=subject.interrupted,
        watch=progress_reporter(subject, metric),
        agreed=turns.agreed,
        aside=partial(profiler_work, subject),
    )
    subject.mark(WatchStage.PROFILER)  # processing the samples takes memory, too
    return result


@contextmanager
def profiler_work(subject: ProbeContext) -> Iterator[None]:
    """Mark profiler work within the timed pass: its time and memory do not count for the model."""
    subject.mark(WatchStage.PROFILER)
    yield
    subject.mark(WatchStage.TIMED)


def progress_reporter(subject: ProbeContext, metric: str) -> Callable[[MeasurementProgress], None]:
    """Return a watcher that reports progress and, now and then, a provisional measurement.

    The provisional measurements are what remains if this process is killed.
    """
    due = 1.0

    def watch(progress: MeasurementProgress) -> None:
        nonlocal due
        samples = progress.samples
        subject.watch(
            Progressed(
                stage=f"{metric}: {progress.phase}",
                runs=len(samples),
                left=progress.remaining,
                value=progress.value,
                precision=progress.half_width,
            )
        )
        if metric == "latency" and progress.phase == "steady" and len(samples) >= due:
            due = _REPORT_GROWTH * len(samples)
            with profiler_work(subject) if len(samples) >= _MANY_SAMPLES else nullcontext():
                provisional = Distribution.of(
                    samples, stop="interrupted", unmet=("it was cut off",), clock=CLOCK
                )
                subject.watch(Measurement(metric=metric, value=provisional))

    return watch


def steady_state_doubts(
    metric: str, result: StopRuleResult, times: Distribution, plan: Plan
) -> Iterator[Doubt]:
    """Yield the doubts of a steady state: of its stability and of its Distribution.

    The Distribution is the one of the document: another would have another reading of the clock.
    """
    yield from stability_doubts(metric, result)
    yield from doubt.distribution_doubts(metric, times, plan.percentiles)


def stability_doubts(metric: str, result: StopRuleResult, longer: str = "max_time") -> Iterator[Doubt]:
    """Yield the doubts about the stability of a steady state: drift, and an unsettled warm-up."""
    if result.drift is not None:
        yield Doubt(
            code="drift",
            seen=f"{metric}: a {result.drift.kind} of {result.drift.size:+.1%} was seen after the warm-up",
            advice="look for throttling, a noisy neighbour or a growing cache; run it longer with "
            f"`{longer}`",
        )
    if not result.settled:
        yield Doubt(
            code="unsettled",
            seen=f"{metric}: the times had not settled when the warm-up's share of the time was used up",
            advice=f"give it more time with `{longer}`",
        )
