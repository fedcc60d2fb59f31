"""Trend of a metric over the history of a model: its levels, the steps between them, and what else changed.

Everything is on a logarithmic scale: a step is a ratio. A step that coincides with another machine, with
other versions of the software, or with other processes on its cores, is reported as such and not blamed on
the model.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise
from math import exp, inf, log, pi, sqrt
from typing import TYPE_CHECKING, Self

from modeldyno.base.document import Document
from modeldyno.base.errors import RequestError, RunFailed
from modeldyno.base.metrics.measurement import Interval
from modeldyno.base.metrics.metric import METRICS, Better, Query
from modeldyno.base.result.result import Fact
from modeldyno.base.result.slowdown import TAKEN
from modeldyno.base.stats import changepoints as levels
from modeldyno.base.stats.statistics import Z, load_numpy
from modeldyno.comparison.change.comparison import (
    SMALLEST_EFFECT,
    ChangeVerdict,
    SettingDiff,
    differing_facts,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from modeldyno.base.result.result import Result
    from modeldyno.base.result.where import KeptNumber
    from modeldyno.base.stats.statistics import Samples

LONGEST = 1000
"""Results that are analysed, the newest ones."""
FEWEST_FOR_A_STEP = 2 * levels.SHORTEST
"""Results that a step needs: a level before it and one after."""
_FAR_DEVIATIONS = 4.0
"""Standard deviations from its level from which on the newest result is reported."""
_MEDIAN_COST = sqrt(pi / 2)
"""Ratio of the standard error of a median to that of a mean, for normal noise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One result of the history."""

    result: str
    """Its id."""
    created: str
    """UTC time, ISO 8601."""
    value: float
    """Base unit of the metric, greater than 0."""
    interval: Interval | None = None
    digest: str = ""
    """Digest of the model."""
    hardware: dict[str, Fact]
    software: dict[str, Fact]
    disturbed: bool = False
    """Whether others took time of its cores, as a doubt says."""

    @classmethod
    def of(cls, result: Result, query: Query) -> Self | None:
        """Extract one number from a Result; None if it failed, or has no certified value."""
        if result.failures:
            return None
        try:
            answer = result.ask(query)
        except (RunFailed, RequestError):
            return None
        if answer.value is None:
            return None
        return cls._at(result, answer.value, answer.interval)

    @classmethod
    def of_number(cls, head: Result, number: KeptNumber) -> Self | None:
        """Take one number of a Result from where numbers are kept for lists; None if it is not certified.

        Args:
            head: the Result, which may be without its measurements.
            number: the number, whose ends are None where nothing bounds it.
        """
        if head.failures or number.value is None:
            return None
        low, high = number.low, number.high
        bounded = (low is not None or high is not None) and low != high
        interval = Interval(low=-inf if low is None else low, high=inf if high is None else high)
        return cls._at(head, number.value, interval if bounded else None)

    @classmethod
    def _at(cls, result: Result, value: float, interval: Interval | None) -> Self:
        return cls(
            result=result.id,
            created=result.created,
            value=value,
            interval=interval,
            digest=result.model.digest if result.model else "",
            hardware=result.environment.hardware,
            software=result.environment.software,
            disturbed=any(doubt.code in TAKEN for doubt in result.doubts),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryMark:
    """What changed from one result on, besides the metric."""

    at: int
    """Index of that result."""
    model: bool = False
    """Whether the model changed."""
    hardware: tuple[SettingDiff, ...] = ()
    software: tuple[SettingDiff, ...] = ()

    @property
    def environment(self) -> bool:
        """Whether the environment changed."""
        return bool(self.hardware or self.software)


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """Consecutive results that differ by noise only."""

    first: int
    last: int
    value: float
    """Their median, weighted by the certainty of each."""

    def __len__(self) -> int:
        return self.last - self.first + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelStep:
    """The step from one level to the next."""

    at: int
    """Index of the first result of the new level."""
    before: float
    after: float
    interval: Interval
    """Of the change, 95 %."""
    outcome: ChangeVerdict
    """Better, worse, or undecided if the metric has no better direction."""
    mark: HistoryMark | None = None
    """What else changed there, from the closest neighbouring result."""
    standing: bool = True
    """Whether the last level still differs by as much as matters in the same direction."""
    disturbed: bool = False
    """Whether others took time of the cores at the slower of the two levels, and not at the other one."""

    @property
    def change(self) -> float:
        """Relative change of the number."""
        return self.after / self.before - 1

    @property
    def blamed(self) -> bool:
        """Whether the model may be the cause: neither the environment nor others explain the step."""
        return not self.disturbed and (self.mark is None or not self.mark.environment)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Trend(Document):
    """The history of a metric, as a document."""

    KIND = "trend"
    name: str
    """Of the model."""
    query: Query
    readings: tuple[Reading, ...]
    """The oldest first."""
    levels: tuple[Level, ...]
    steps: tuple[LevelStep, ...]
    marks: tuple[HistoryMark, ...]
    noise: float
    """Relative standard deviation of a result around its level."""
    astray: tuple[int, ...] = ()
    """Indices of the newest results if they lie far from the last level, but are too few for a level."""
    smallest: float = SMALLEST_EFFECT
    setup: tuple[str, ...] = ()
    """The common setup of all of them."""
    left_out: int = 0
    """Stored results of the model that were left out: of another setup, failed, or without this metric."""

    @property
    def regressions(self) -> tuple[LevelStep, ...]:
        """The steps for the worse that still stand, and that nothing but the model explains."""
        return tuple(s for s in self.steps if s.outcome is ChangeVerdict.WORSE and s.standing and s.blamed)

    @property
    def detectable(self) -> float:
        """The smallest step that five results after it would reveal, after a history of ten."""
        return max(self.smallest, exp(_DETECTABLE * self.noise) - 1)

    @property
    def visible(self) -> float:
        """The smallest step in the middle of this history that would have been found; infinite for few.

        A step from n/2 results to as many has a standard error of the noise times sqrt(4/n). Of simulated
        steps of this size 70 of 100 are found in 6 results, 91 in 8, and at least 96 in 12 or more.
        """
        count = len(self.readings)
        if count < FEWEST_FOR_A_STEP:
            return inf
        return max(self.smallest, exp(_VISIBLE * self.noise * sqrt(4 / count)) - 1)


_DETECTABLE = 4.0
"""Standard deviations of one result: with ten results before and five after, 99 of 100 simulated steps of
this size are found, and four in five of three quarters of it."""
_VISIBLE = _DETECTABLE / sqrt(1 / 10 + 1 / 5)
"""The same in standard errors of the step, for any number of results on both sides."""


def trend(
    name: str,
    query: Query,
    history: Sequence[Reading],
    *,
    smallest: float = SMALLEST_EFFECT,
    setup: tuple[str, ...] = (),
    left_out: int = 0,
) -> Trend:
    """Find the levels of a history and the steps between them.

    Args:
        name: name of the model.
        query: the metric of the numbers.
        history: in any order; the newest `LONGEST` are analysed.
        smallest: smallest relative change that matters.
        setup: the common setup of all of them.
        left_out: number of results that were left out.

    Raises:
        RequestError: the history is empty, or a number is not positive, so that it has no ratio.
    """
    readings = tuple(sorted(history, key=lambda reading: reading.created))[-LONGEST:]
    if not readings:
        raise RequestError(f"There is no history of {query}; measure it first.")
    if min(reading.value for reading in readings) <= 0:
        raise RequestError(
            f"{query} is 0 in some results, so its trend has no ratios; ask for another metric."
        )
    level_list, noise = _find_levels(readings, smallest)
    marks = tuple(_find_marks(readings))
    return Trend(
        name=name,
        query=query,
        readings=readings,
        levels=level_list,
        steps=tuple(_find_steps(query, readings, level_list, marks, noise, smallest)),
        marks=marks,
        noise=noise,
        astray=_newest_outliers(readings, level_list[-1], smallest),
        smallest=smallest,
        setup=setup,
        left_out=left_out,
    )


def default_query(result: Result) -> Query:
    """Return the default query of a history: the median time of a call or of a training step."""
    candidates = (Query.parse(text) for text in ("latency.p50", "step_time.p50", "throughput"))
    return next(
        (query for query in candidates if result.find(query.metric) is not None), Query.parse("latency.p50")
    )


def history_setup(result: Result) -> tuple[str, ...]:
    """Describe what Results of one history must share: the job except for model and measuring time."""
    job = result.job
    return (
        f"backend {job.backend}",
        *(f"{name}={value}" for name, value in sorted(job.config.items())),
        *(f"input {spec.name} {spec.shape} {spec.dtype}" for spec in result.inputs),
        *(() if job.load is None else (f"load {job.load}",)),
        f"mode {job.inspection.mode}",
    )


# --- levels ----------------------------------------------------------------------------------------


def _find_levels(readings: Sequence[Reading], smallest: float) -> tuple[tuple[Level, ...], float]:
    """Return the levels, and the standard deviation of the logarithms around them."""
    np = load_numpy()
    values: Samples = np.log([reading.value for reading in readings])
    weights = _reading_weights(readings, values)
    ends = levels.find_level_ends(values, weights, log(1 + smallest))
    heights = levels.level_medians(values, weights, ends)
    parts = list(zip((0, *ends[:-1]), ends, heights, strict=True))
    residuals = np.concatenate([values[a:b] - height for a, b, height in parts])
    # The mean absolute deviation: of normal noise 0.798 of its standard deviation.
    noise = float(np.abs(residuals).mean()) / _ABSOLUTE
    return tuple(Level(first=a, last=b - 1, value=exp(height)) for a, b, height in parts), noise


_ABSOLUTE = 0.798


def _reading_weights(readings: Sequence[Reading], values: Samples) -> Samples:
    """Return the weight of each result: 1 / standard deviation, of its interval and from run to run.

    Weights of an L1 fit are inverse scales; those of least squares would be their squares. The interval of a
    run does not show run-to-run variation, which is estimated from the differences of neighbours: a few steps
    among them do not affect the median.
    """
    np = load_numpy()
    own_errors = np.array([_own_deviation(reading) for reading in readings])
    finite = own_errors[np.isfinite(own_errors)]
    own_errors = np.where(
        np.isfinite(own_errors), own_errors, float(np.median(finite)) if finite.size else 0.0
    )
    jumps = np.abs(np.diff(values))
    spread = 1.4826 * float(np.median(jumps)) / sqrt(2) if jumps.size else 0.0
    between = max(spread**2 - float(np.median(own_errors**2)), levels.FLOOR**2)
    weights: Samples = 1 / np.sqrt(own_errors**2 + between)
    weights /= weights.mean()
    return weights


def _own_deviation(reading: Reading) -> float:
    """Return the relative standard deviation behind the interval of a result; infinite if it is open."""
    if reading.interval is None or not 0 < reading.interval.low <= reading.interval.high < inf:
        return inf
    return log(reading.interval.high / reading.interval.low) / (2 * Z)


# --- steps and marks -------------------------------------------------------------------------------


def _find_marks(readings: Sequence[Reading]) -> Iterator[HistoryMark]:
    for at, (before, after) in enumerate(pairwise(readings), start=1):
        mark = HistoryMark(
            at=at,
            model=before.digest != after.digest,
            hardware=differing_facts(before.hardware, after.hardware),
            software=differing_facts(before.software, after.software),
        )
        if mark.model or mark.environment:
            yield mark


def _find_steps(
    query: Query,
    readings: Sequence[Reading],
    level_list: Sequence[Level],
    marks: Sequence[HistoryMark],
    noise: float,
    smallest: float,
) -> Iterator[LevelStep]:
    better = METRICS[query.metric].better
    for before, after in pairwise(level_list):
        half = Z * _MEDIAN_COST * noise * sqrt(1 / len(before) + 1 / len(after))
        change = log(after.value / before.value)
        total = log(level_list[-1].value / before.value)
        direction = 1 if change > 0 else -1
        outcome = _step_outcome(better, rose=change > 0)
        beside = _disturbed_share(readings, after) - _disturbed_share(readings, before)
        yield LevelStep(
            at=after.first,
            before=before.value,
            after=after.value,
            interval=Interval(low=exp(change - half) - 1, high=exp(change + half) - 1),
            outcome=outcome,
            mark=_mark_near(marks, after.first),
            standing=direction * total >= log(1 + smallest),
            disturbed=(beside if outcome is ChangeVerdict.WORSE else -beside) >= _MOSTLY,
        )


_MOSTLY = 0.5
"""Difference of the shares of disturbed results of two levels from which on others may explain the step."""


def _disturbed_share(readings: Sequence[Reading], level: Level) -> float:
    own = readings[level.first : level.last + 1]
    return sum(reading.disturbed for reading in own) / len(own)


def _step_outcome(better: Better, *, rose: bool) -> ChangeVerdict:
    if better is Better.NEITHER:
        return ChangeVerdict.UNDECIDED
    return ChangeVerdict.BETTER if rose == (better is Better.HIGHER) else ChangeVerdict.WORSE


def _mark_near(marks: Sequence[HistoryMark], at: int) -> HistoryMark | None:
    """Return what changed at a step or one result next to it, because noise may shift a step by one.

    If the environment changed nearby, that is returned, and the model is not blamed.
    """
    nearby = sorted((m for m in marks if abs(m.at - at) <= 1), key=lambda m: abs(m.at - at))
    if not nearby:
        return None
    first = next((mark for mark in nearby if mark.environment), nearby[0])
    return replace(first, model=any(mark.model for mark in nearby))


def _newest_outliers(readings: Sequence[Reading], level: Level, smallest: float) -> tuple[int, ...]:
    """Return the newest results if all lie far from the last level on one side, but are too few for a level.

    Far is measured by the scatter of the results before them.
    """
    newest = max(level.first, len(readings) - levels.SHORTEST + 1)
    offsets = {at: log(readings[at].value / level.value) for at in range(level.first, len(readings))}
    before = [abs(offsets[at]) for at in range(level.first, newest)]
    scatter = sum(before) / len(before) / _ABSOLUTE if before else 0.0
    threshold = max(log(1 + smallest), _FAR_DEVIATIONS * scatter)
    outliers: list[int] = []
    for at in range(len(readings) - 1, newest - 1, -1):
        if abs(offsets[at]) < threshold or offsets[at] * offsets[len(readings) - 1] < 0:
            break
        outliers.append(at)
    return tuple(reversed(outliers))


# --- scatter of a history ---------------------------------------------------------------------------

FEWEST = 4
"""Degrees of freedom needed to trust a history: those of five results on one level."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scatter:
    """How much results of one model on one machine vary in one metric."""

    relative: float
    """Standard deviation of the logarithm of a result around its level."""
    degrees: int
    """Its degrees of freedom: results less levels."""
    covers: bool
    """Whether the history spans at least the time between the two compared results, so that it includes what
    the machine does in such a time."""

    @property
    def of_a_difference(self) -> float:
        """Standard deviation of the logarithm of the ratio of two results."""
        return sqrt(2) * self.relative


def scatter(trends: Sequence[Trend], baseline: Result, candidate: Result) -> Scatter | None:
    """Pool the variation of histories; None if they are too short.

    Args:
        trends: one history for each version of the model, or one of all versions; steps are not noise.
        baseline: one of the compared results.
        candidate: the other one.
    """
    degrees = sum(len(trend.readings) - len(trend.levels) for trend in trends)
    if degrees < FEWEST:
        return None
    squares = sum(
        log(reading.value / level.value) ** 2
        for trend in trends
        for level in trend.levels
        for reading in trend.readings[level.first : level.last + 1]
    )
    created = [datetime.fromisoformat(reading.created) for trend in trends for reading in trend.readings]
    times = [datetime.fromisoformat(result.created) for result in (baseline, candidate)]
    return Scatter(
        relative=sqrt(squares / degrees),
        degrees=degrees,
        covers=max(created) - min(created) >= max(times) - min(times),
    )
