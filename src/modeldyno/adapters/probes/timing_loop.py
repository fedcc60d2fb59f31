"""Timing of prepared calls: the innermost loop of the product."""

from __future__ import annotations

from array import array
from contextlib import contextmanager, nullcontext
from functools import partial
from itertools import cycle, pairwise
from math import ceil
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from modeldyno.core.metrics import doubt
from modeldyno.core.metrics.doubt import Doubt
from modeldyno.core.metrics.measurement import Distribution, Measurement
from modeldyno.core.metrics.stop_rule import pace
from modeldyno.core.result.result import Found, Progressed
from modeldyno.interfaces import WatchStage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from modeldyno.core.metrics.measurement_plan import Plan
    from modeldyno.core.metrics.stop_rule import Paced, Progress
    from modeldyno.core.stats.statistics import Samples
    from modeldyno.interfaces import Subject

CLOCK = "perf_counter_ns"
_REPORT_GROWTH = 1.5
"""Growth of the samples from one provisional measurement to the next."""
_MANY = 1024
"""Samples whose way to the parent takes memory that shows beside a small model."""


def each(calls: tuple[Callable[[], Any], ...]) -> Callable[[int], Samples]:
    """Give a function that times n calls one by one, cycling through the payloads; seconds."""
    import numpy as np  # noqa: PLC0415 - dear at start-up

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


def in_blocks(calls: tuple[Callable[[], Any], ...], shortest: float) -> Callable[[int], Samples]:
    """Give a function that times n blocks of calls made back to back; seconds of one call.

    A block has as many calls as take about `shortest` seconds, so that the clock costs nothing;
    longer calls are blocks of their own.
    """
    import numpy as np  # noqa: PLC0415 - dear at start-up

    endless = cycle(calls)
    size = 1

    def block() -> float:
        begin = perf_counter_ns()
        for _, call in zip(range(size), endless, strict=False):
            call()
        return (perf_counter_ns() - begin) * 1e-9 / size

    def draw(n: int) -> Samples:
        nonlocal size
        times = np.fromiter((block() for _ in range(n)), float, n)
        size = max(1, ceil(shortest / max(float(times.min()), 1e-9)))
        return times

    return draw


def clock_facts(reads: int = 2001) -> dict[str, float]:
    """Measure the clock: its smallest step and what reading it costs, seconds."""
    stamps = [perf_counter_ns() for _ in range(reads)]
    steps = sorted(b - a for a, b in pairwise(stamps))
    smallest = next((step for step in steps if step > 0), 1)
    return {"clock_resolution": smallest * 1e-9, "timer_cost": steps[len(steps) // 2] * 1e-9}


def distribution(paced: Paced) -> Distribution:
    """Turn what pacing gave into a Distribution."""
    return Distribution.of(
        paced.samples,
        stop=str(paced.stop),
        unmet=paced.unmet,
        warmup_dropped=paced.warmup_runs,
        warmup_time=paced.warmup_time,
        clock=CLOCK,
        **clock_facts(),
    )


def paced(
    subject: Subject,
    plan: Plan,
    draw: Callable[[int], Samples],
    metric: str,
    *,
    warming: Callable[[], object] | None = None,
) -> Paced:
    """Draw in the timed pass until the plan is met; in turns with other processes, where there are any.

    Args:
        subject: what is measured.
        plan: what to reach.
        draw: makes so many timed calls.
        metric: what the progress is told of.
        warming: an untimed call, to be made before those that follow the turn of another.
    """
    baton = subject.baton
    found = pace(
        baton.in_turns(draw, warming),
        plan=plan,
        clock=baton.clock,
        interrupted=subject.interrupted,
        watch=reporting(subject, metric),
        agreed=baton.agreed,
        aside=partial(aside, subject),
    )
    subject.mark(WatchStage.OURS)  # what becomes of the samples takes memory, too
    return found


@contextmanager
def aside(subject: Subject) -> Iterator[None]:
    """Do work of ours within the timed pass: its time and its memory are not the model's."""
    subject.mark(WatchStage.OURS)
    yield
    subject.mark(WatchStage.TIMED)


def reporting(subject: Subject, metric: str) -> Callable[[Progress], None]:
    """Give a watcher that passes progress on, and now and then what was measured so far.

    The provisional measurements are what is saved if this process does not live to the end.
    """
    due = 1.0

    def watch(progress: Progress) -> None:
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
            with aside(subject) if len(samples) >= _MANY else nullcontext():
                so_far = Distribution.of(samples, stop="interrupted", unmet=("it was cut off",), clock=CLOCK)
                subject.watch(Found(measurement=Measurement(metric=metric, value=so_far)))

    return watch


def doubts_of(metric: str, paced: Paced, plan: Plan) -> Iterator[Doubt]:
    """Doubts of one steady state: those of its course, and of its Distribution."""
    yield from course_doubts(metric, paced)
    yield from doubt.of_distribution(metric, distribution(paced), plan.percentiles)


def course_doubts(metric: str, paced: Paced) -> Iterator[Doubt]:
    """Doubts of the course of one steady state: drift, and an unsettled warm-up."""
    if paced.drift is not None:
        yield Doubt(
            code="drift",
            seen=f"{metric}: a {paced.drift.kind} of {paced.drift.size:+.1%} was seen after the warm-up",
            advice="look for throttling, a neighbour or a growing cache; run it longer with --max-time",
        )
    if not paced.settled:
        yield Doubt(
            code="unsettled",
            seen=f"{metric}: the times had not settled when the warm-up's share of the time was used up",
            advice="give it more time with --max-time",
        )
