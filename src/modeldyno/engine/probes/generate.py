"""The probe ``generate``: latency and rate of token generation, by prompt and output length."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, cast

from modeldyno.base.clock import perf_counter, perf_counter_ns
from modeldyno.base.metrics import doubt
from modeldyno.base.metrics.measurement import Distribution, Measurement
from modeldyno.base.stats import statistics
from modeldyno.base.stats.statistics import Samples
from modeldyno.engine.interfaces.probe import Pass
from modeldyno.engine.interfaces.session import CanGenerate, Decoding
from modeldyno.engine.probes import timing_loop
from modeldyno.engine.trace import token_metrics
from modeldyno.engine.trace.token_metrics import GenerationLength

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modeldyno.base.metrics.doubt import Doubt
    from modeldyno.base.metrics.measurement_plan import Plan
    from modeldyno.engine.interfaces.probe import ProbeContext

needs = CanGenerate
pass_ = Pass.TIMED


def measure(subject: ProbeContext, plan: Plan) -> Iterator[Measurement | Doubt]:
    """Generate for each pair of lengths until the plan is met; all of them share its time.

    Raises:
        RequestError: the model cannot generate, or not at these lengths.
    """
    runs = _prepare_runs(subject)
    end = perf_counter() + plan.max_time
    doubts: list[Doubt] = []
    for index, run in enumerate(runs):
        if not subject.interrupted():
            run.draw(1)  # the first sequence of new lengths also compiles and allocates
        if subject.interrupted():
            break
        share = token_metrics.share_measurement_plan(plan, end - perf_counter(), len(runs) - index)
        for entry in _measure_run(run, subject, share):
            if isinstance(entry, Measurement):
                yield entry
            else:
                doubts.append(entry)
    complete = (run.sizes for run in runs if run.extent.generated in run.sizes)
    growths = (token_metrics.cache_bytes_per_token(sizes, subject.samples) for sizes in complete)
    if grown := [growth for growth in growths if growth is not None]:
        # The maximum: a full sliding window, or a cache allocated at full size, does not grow.
        yield Measurement(metric="kv_cache_per_token", value=max(grown), scope="measured")
    yield from token_metrics.merge_similar_doubts(doubts)


@dataclass(slots=True, kw_only=True)
class _Run:
    """Generations at one pair of lengths, and their measurements."""

    extent: GenerationLength
    decoding: Decoding
    interrupted: Callable[[], bool]
    steps: list[Samples] = field(default_factory=list)
    """Seconds of each token, by sequence; only the last sequence may be incomplete, by an interruption."""
    sizes: dict[int, int] = field(default_factory=dict)
    """Cache bytes of the first sequence, by the number of tokens generated."""

    def draw(self, n: int) -> Samples:
        """Generate n sequences, fewer if interrupted; return the seconds of each."""
        np = statistics.load_numpy()
        before = len(self.steps)
        while len(self.steps) < before + n:
            self.steps.append(np.frombuffer(self._sequence(), dtype=np.int64) * 1e-9)
            if self.interrupted():
                break
        totals: Samples = np.array([float(steps.sum()) for steps in self.steps[before:]])
        return totals

    def _sequence(self) -> array[int]:
        """Generate one sequence; return the nanoseconds of each token."""
        times, clock, last = array("q"), perf_counter_ns, self.extent.generated
        with closing(self.decoding.tokens()) as tokens:
            for position in range(1, last + 1):
                begin = clock()
                next(tokens)
                times.append(clock() - begin)
                if position in {1, 2, last} and not self.steps:
                    self.sizes[position] = self.decoding.cache_bytes()
                if self.interrupted():
                    break
        return times

    def complete_steps(self, count: int) -> Samples:
        """Return the steps of the last sequences, without an incomplete one.

        If that is the only one, fall back on those of the warm-up, except for the first.
        """
        np = statistics.load_numpy()
        length = self.extent.generated
        complete = [steps for steps in self.steps[-count:] if len(steps) == length]
        complete = complete or [steps for steps in self.steps[1:] if len(steps) == length]
        steps_array: Samples = np.array(complete, dtype=np.float64).reshape(-1, length)
        return steps_array


def _prepare_runs(subject: ProbeContext) -> list[_Run]:
    """Prepare every prompt, so that unsupported requests are refused before anything is measured."""
    session = cast("CanGenerate", subject.session)
    text = token_metrics.TOKENS in subject.feeds[0]
    return [
        _Run(
            extent=extent,
            decoding=session.decoding(token_metrics.build_prompt(subject.feeds, extent), extent.generated),
            interrupted=subject.interrupted,
        )
        for extent in token_metrics.generation_lengths(subject.observation, text=text)
    ]


def _measure_run(run: _Run, subject: ProbeContext, plan: Plan) -> Iterator[Measurement | Doubt]:
    what, extent = f"generation@{run.extent.scope}", run.extent
    paced = timing_loop.measure_timed_pass(subject, plan, run.draw, what)
    steps = run.complete_steps(len(paced.samples))
    if not len(steps):
        return  # no complete sequence but the first
    how = timing_loop.distribution(paced)
    how = replace(how, warmup_dropped=how.warmup_dropped + 1)  # the first one, see `measure`
    for measurement in token_metrics.token_measurements(steps, extent, subject.samples, how):
        yield measurement
        if isinstance(measurement.value, Distribution):
            yield from doubt.missing_percentile_doubts(
                measurement.metric, measurement.value, plan.percentiles
            )
    yield Measurement(metric="kv_cache_bytes", value=run.sizes[extent.generated], scope=extent.scope)
    yield from token_metrics.context_drift_doubts(steps, extent)
    yield from timing_loop.steady_state_doubts(what, paced, how, replace(plan, percentiles=()))
