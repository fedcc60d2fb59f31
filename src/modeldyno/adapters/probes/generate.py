"""The probe ``generate``: times and rates of generated tokens, by the lengths of prompt and output."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field, replace
from time import perf_counter, perf_counter_ns
from typing import TYPE_CHECKING, cast

from modeldyno.adapters.probes import timing_loop
from modeldyno.core.metrics import doubt
from modeldyno.core.metrics.measurement import Distribution, Measurement
from modeldyno.core.stats import statistics
from modeldyno.core.stats.statistics import Samples
from modeldyno.core.trace import token_metrics
from modeldyno.core.trace.token_metrics import Extent
from modeldyno.interfaces import CanGenerate, Decoding, Pass

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modeldyno.core.metrics.doubt import Doubt
    from modeldyno.core.metrics.measurement_plan import Plan
    from modeldyno.interfaces import Subject

needs = CanGenerate
pass_ = Pass.TIMED


def measure(subject: Subject, plan: Plan) -> Iterator[Measurement | Doubt]:
    """Generate to each extent until the plan is met; all of them share its time.

    Raises:
        RequestError: the model cannot generate, or not to these lengths.
    """
    runs = _runs(subject)
    end = perf_counter() + plan.max_time
    doubts: list[Doubt] = []
    for place, run in enumerate(runs):
        if not subject.interrupted():
            run.draw(1)  # new lengths are paid for once: by compiling, by asking for memory
        if subject.interrupted():
            break
        part = token_metrics.share(plan, end - perf_counter(), len(runs) - place)
        for found in _measured(run, subject, part):
            if isinstance(found, Measurement):
                yield found
            else:
                doubts.append(found)
    whole = (run.sizes for run in runs if run.extent.generated in run.sizes)
    growths = (token_metrics.cache_growth(sizes, subject.samples) for sizes in whole)
    if added := [growth for growth in growths if growth is not None]:
        # The most: a window that is full, or a cache that was made in its full size, grows no more.
        yield Measurement(metric="kv_cache_per_token", value=max(added), scope="measured")
    yield from token_metrics.told_once(doubts)


@dataclass(slots=True, kw_only=True)
class _Run:
    """Generations to one extent, and what was seen of them."""

    extent: Extent
    decoding: Decoding
    interrupted: Callable[[], bool]
    steps: list[Samples] = field(default_factory=list)
    """Seconds of each token, sequence by sequence; only the last may be cut off by an interruption."""
    sizes: dict[int, int] = field(default_factory=dict)
    """Bytes of the cache by tokens generated so far, of the first sequence."""

    def draw(self, n: int) -> Samples:
        """Generate so many sequences, or fewer when interrupted; seconds of each."""
        np = statistics.load_numpy()
        before = len(self.steps)
        while len(self.steps) < before + n:
            self.steps.append(np.frombuffer(self._sequence(), dtype=np.int64) * 1e-9)
            if self.interrupted():
                break
        made: Samples = np.array([float(steps.sum()) for steps in self.steps[before:]])
        return made

    def _sequence(self) -> array[int]:
        """Generate one sequence; nanoseconds of each token."""
        times, clock, last = array("q"), perf_counter_ns, self.extent.generated
        with closing(self.decoding.tokens()) as tokens:
            for place in range(1, last + 1):
                begin = clock()
                next(tokens)
                times.append(clock() - begin)
                if place in {1, 2, last} and not self.steps:
                    self.sizes[place] = self.decoding.cache_bytes()
                if self.interrupted():
                    break
        return times

    def whole(self, last: int) -> Samples:
        """Give the steps of the last so many sequences, without one that was cut off.

        Where that is the only one, those of the warm-up must serve, except for the first.
        """
        np = statistics.load_numpy()
        length = self.extent.generated
        kept = [steps for steps in self.steps[-last:] if len(steps) == length]
        kept = kept or [steps for steps in self.steps[1:] if len(steps) == length]
        found: Samples = np.array(kept, dtype=np.float64).reshape(-1, length)
        return found


def _runs(subject: Subject) -> list[_Run]:
    """Make every prompt ready, so that what cannot be done is refused before anything is measured."""
    session = cast("CanGenerate", subject.session)
    text = token_metrics.TOKENS in subject.feeds[0]
    return [
        _Run(
            extent=extent,
            decoding=session.decoding(token_metrics.prompt(subject.feeds, extent), extent.generated),
            interrupted=subject.interrupted,
        )
        for extent in token_metrics.extents(subject.observation, text=text)
    ]


def _measured(run: _Run, subject: Subject, plan: Plan) -> Iterator[Measurement | Doubt]:
    what, extent = f"generation@{run.extent.scope}", run.extent
    paced = timing_loop.paced(subject, plan, run.draw, what)
    steps = run.whole(len(paced.samples))
    if not len(steps):
        return  # all but the first one was cut off
    how = timing_loop.distribution(paced)
    how = replace(how, warmup_dropped=how.warmup_dropped + 1)  # the first one, see `measure`
    for found in token_metrics.measured(steps, extent, subject.samples, how):
        yield found
        if isinstance(found.value, Distribution):
            yield from doubt.of_missing(found.metric, found.value, plan.percentiles)
    yield Measurement(metric="kv_cache_bytes", value=run.sizes[extent.generated], scope=extent.scope)
    yield from token_metrics.doubts(steps, extent)
    yield from timing_loop.doubts_of(what, paced, replace(plan, percentiles=()))
