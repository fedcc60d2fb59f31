"""A metric over the history of a model: its levels, the steps between them, and what else changed there.

All on a logarithmic scale: a step is a ratio. A step that comes with another machine, or with other versions
of what runs the model, is told as one, and the model is not blamed for it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from math import exp, inf, log, pi, sqrt
from typing import TYPE_CHECKING, Self

from modeldyno.core.comparison.build import unlike
from modeldyno.core.comparison.comparison import SMALLEST_EFFECT, Difference, Outcome
from modeldyno.core.metrics.measurement import Interval
from modeldyno.core.metrics.metric import METRICS, Better, Query
from modeldyno.core.result.result import Fact
from modeldyno.core.stats import changepoints as levels
from modeldyno.core.stats.statistics import NORMAL, load_numpy
from modeldyno.errors import RequestError, RunFailed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from modeldyno.core.result.result import Result
    from modeldyno.core.stats.statistics import Samples

LONGEST = 1000
"""Results that are looked at, the newest ones."""
_FAR = 4.0
"""Standard deviations from its level from which on the newest result is named."""
_Z = NORMAL.inv_cdf(0.975)
_MEDIAN_COST = sqrt(pi / 2)
"""How much wider than that of a mean the error of a median is, of normal noise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One result of the history."""

    result: str
    """Its id."""
    created: str
    """Time of UTC, ISO 8601."""
    value: float
    """Base unit of the metric, greater than 0."""
    interval: Interval | None = None
    digest: str = ""
    """Of the model."""
    hardware: dict[str, Fact]
    software: dict[str, Fact]

    @classmethod
    def of(cls, result: Result, query: Query) -> Self | None:
        """Take one number from a Result; None where it failed, or has none that is a claim."""
        if result.failures:
            return None
        try:
            answer = result.ask(query)
        except (RunFailed, RequestError):
            return None
        if answer.value is None:
            return None
        return cls(
            result=result.id,
            created=result.created,
            value=answer.value,
            interval=answer.interval,
            digest=result.model.digest if result.model else "",
            hardware=result.environment.hardware,
            software=result.environment.software,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """What was not the same any more from one result on."""

    at: int
    """Place of that result."""
    model: bool = False
    """Whether it was another model."""
    hardware: tuple[Difference, ...] = ()
    software: tuple[Difference, ...] = ()

    @property
    def environment(self) -> bool:
        """Whether it was another environment."""
        return bool(self.hardware or self.software)


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """Consecutive results that differ by noise only."""

    first: int
    last: int
    value: float
    """Their median, weighted by how certain each is."""

    def __len__(self) -> int:
        return self.last - self.first + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """From one level to the next."""

    at: int
    """Place of the first result of the new level."""
    before: float
    after: float
    interval: Interval
    """Of the change, 95 %."""
    outcome: Outcome
    """Better, worse, or undecided where the metric has no better."""
    mark: Mark | None = None
    """What else changed there, by the closest of the results beside it."""
    standing: bool = True
    """Whether the last level still is as far off, in the same direction, as matters."""

    @property
    def change(self) -> float:
        """Relative, as the number moves."""
        return self.after / self.before - 1

    @property
    def blamed(self) -> bool:
        """Whether the model may be what changed: not where its environment did at the same time."""
        return self.mark is None or not self.mark.environment


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend:
    """A document: the history of a metric."""

    name: str
    """Of the model."""
    query: Query
    readings: tuple[Reading, ...]
    """The oldest first."""
    levels: tuple[Level, ...]
    steps: tuple[Step, ...]
    marks: tuple[Mark, ...]
    noise: float
    """Relative standard deviation of a result around its level."""
    astray: tuple[int, ...] = ()
    """Places of the newest results where they lie far from the last level, too few to be one."""
    smallest: float = SMALLEST_EFFECT
    setup: tuple[str, ...] = ()
    """What all of them were measured with."""
    left_out: int = 0
    """Stored results of the model that are not of it: of another setup, failed, or without this number."""

    @property
    def regressions(self) -> tuple[Step, ...]:
        """The steps to the worse that still stand, and that no change of the environment goes with."""
        return tuple(s for s in self.steps if s.outcome is Outcome.WORSE and s.standing and s.blamed)

    @property
    def detectable(self) -> float:
        """The smallest step that five results after it would show, in a history of ten before."""
        return max(self.smallest, exp(_DETECTABLE * self.noise) - 1)


_DETECTABLE = 4.0
"""Standard deviations of one result: of steps as large, after ten results and before five, 99 of 100
simulated ones are found; of three quarters of that, four in five."""


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
        name: of the model.
        query: what the numbers are.
        history: in any order; the newest `LONGEST` are looked at.
        smallest: relative change that matters.
        setup: what all of them were measured with.
        left_out: how many others there are.

    Raises:
        RequestError: there is nothing, or a number is not positive, so that it has no ratio to another.
    """
    readings = tuple(sorted(history, key=lambda reading: reading.created))[-LONGEST:]
    if not readings:
        raise RequestError(f"There is no history of {query}; measure it first.")
    if min(reading.value for reading in readings) <= 0:
        raise RequestError(
            f"{query} is 0 in some results, so that no ratio tells its trend; ask for another."
        )
    found, noise = _levels(readings, smallest)
    marks = tuple(_marks(readings))
    return Trend(
        name=name,
        query=query,
        readings=readings,
        levels=found,
        steps=tuple(_steps(query, found, marks, noise, smallest)),
        marks=marks,
        noise=noise,
        astray=_astray(readings, found[-1], smallest),
        smallest=smallest,
        setup=setup,
        left_out=left_out,
    )


def usual_query(result: Result) -> Query:
    """Choose what a history is of where nobody says: the typical time, of a call or of a training step."""
    known = (Query.parse(text) for text in ("latency.p50", "step_time.p50", "throughput"))
    return next(
        (query for query in known if result.find(query.metric) is not None), Query.parse("latency.p50")
    )


def setup(result: Result) -> tuple[str, ...]:
    """Say what two Results must share to stand in one history: all of the job but model and care."""
    job = result.job
    return (
        f"backend {job.backend}",
        *(f"{name}={value}" for name, value in sorted(job.config.items())),
        *(f"input {spec.name} {spec.shape} {spec.dtype}" for spec in result.inputs),
        *(() if job.load is None else (f"load {job.load}",)),
        f"mode {job.inspection.mode}",
    )


# --- levels ----------------------------------------------------------------------------------------


def _levels(readings: Sequence[Reading], smallest: float) -> tuple[tuple[Level, ...], float]:
    """Give the levels, and the standard deviation of the logarithms around them."""
    np = load_numpy()
    values: Samples = np.log([reading.value for reading in readings])
    weights = _weights(readings, values)
    ends = levels.ends(values, weights, log(1 + smallest))
    heights = levels.heights(values, weights, ends)
    parts = list(zip((0, *ends[:-1]), ends, heights, strict=True))
    residuals = np.concatenate([values[a:b] - height for a, b, height in parts])
    # The mean absolute deviation: of normal noise 0.798 of its standard deviation.
    noise = float(np.abs(residuals).mean()) / _ABSOLUTE
    return tuple(Level(first=a, last=b - 1, value=exp(height)) for a, b, height in parts), noise


_ABSOLUTE = 0.798


def _weights(readings: Sequence[Reading], values: Samples) -> Samples:
    """Give each result the inverse of its standard deviation: of its own interval, and from run to run.

    Weights of an L1 fit are inverse scales, those of least squares would be their squares. The interval
    of a run says nothing of what differs from run to run, which is taken from the differences of
    neighbours: a few steps among them do not touch its median.
    """
    np = load_numpy()
    own = np.array([_own(reading) for reading in readings])
    known = own[np.isfinite(own)]
    own = np.where(np.isfinite(own), own, float(np.median(known)) if known.size else 0.0)
    jumps = np.abs(np.diff(values))
    whole = 1.4826 * float(np.median(jumps)) / sqrt(2) if jumps.size else 0.0
    between = max(whole**2 - float(np.median(own**2)), levels.FLOOR**2)
    weights: Samples = 1 / np.sqrt(own**2 + between)
    weights /= weights.mean()
    return weights


def _own(reading: Reading) -> float:
    """Give the standard deviation that the interval of a result stands for, relative; infinite if open."""
    if reading.interval is None or not 0 < reading.interval.low <= reading.interval.high < inf:
        return inf
    return log(reading.interval.high / reading.interval.low) / (2 * _Z)


# --- steps and marks -------------------------------------------------------------------------------


def _marks(readings: Sequence[Reading]) -> Iterator[Mark]:
    for at, (before, after) in enumerate(pairwise(readings), start=1):
        mark = Mark(
            at=at,
            model=before.digest != after.digest,
            hardware=unlike(before.hardware, after.hardware),
            software=unlike(before.software, after.software),
        )
        if mark.model or mark.environment:
            yield mark


def _steps(
    query: Query, found: Sequence[Level], marks: Sequence[Mark], noise: float, smallest: float
) -> Iterator[Step]:
    better = METRICS[query.metric].better
    for before, after in pairwise(found):
        half = _Z * _MEDIAN_COST * noise * sqrt(1 / len(before) + 1 / len(after))
        change = log(after.value / before.value)
        total = log(found[-1].value / before.value)
        direction = 1 if change > 0 else -1
        yield Step(
            at=after.first,
            before=before.value,
            after=after.value,
            interval=Interval(low=exp(change - half) - 1, high=exp(change + half) - 1),
            outcome=_outcome(better, rose=change > 0),
            mark=_beside(marks, after.first),
            standing=direction * total >= log(1 + smallest),
        )


def _outcome(better: Better, *, rose: bool) -> Outcome:
    if better is Better.NEITHER:
        return Outcome.UNDECIDED
    return Outcome.BETTER if rose == (better is Better.HIGHER) else Outcome.WORSE


def _beside(marks: Sequence[Mark], at: int) -> Mark | None:
    """Give what changed at a step, or one result beside it: noise may move its place by one.

    Where the environment changed nearby, that is told, and the model is not blamed.
    """
    near = sorted((m for m in marks if abs(m.at - at) <= 1), key=lambda m: abs(m.at - at))
    if not near:
        return None
    first = next((mark for mark in near if mark.environment), near[0])
    return replace(first, model=any(mark.model for mark in near))


def _astray(readings: Sequence[Reading], level: Level, smallest: float) -> tuple[int, ...]:
    """Give the newest results that all lie far from the last level on one side, and are too few for one.

    Far is by what those before them scatter.
    """
    newest = max(level.first, len(readings) - levels.SHORTEST + 1)
    offs = {at: log(readings[at].value / level.value) for at in range(level.first, len(readings))}
    before = [abs(offs[at]) for at in range(level.first, newest)]
    scatter = sum(before) / len(before) / _ABSOLUTE if before else 0.0
    far = max(log(1 + smallest), _FAR * scatter)
    found: list[int] = []
    for at in range(len(readings) - 1, newest - 1, -1):
        if abs(offs[at]) < far or offs[at] * offs[len(readings) - 1] < 0:
            break
        found.append(at)
    return tuple(reversed(found))
