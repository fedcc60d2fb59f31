"""Generating tokens: from the seconds of its steps to what is told of them.

The first step reads the prompt and chooses the first token; each further step chooses one token more.
`steps` is everywhere an array of seconds with a row for each sequence and a column for each token; what
is called a token here is one of each sample, as a batch is generated together.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from modeldyno.core.metrics.doubt import Doubt
from modeldyno.core.metrics.measurement import Distribution, Interval, Measurement, observed, pack
from modeldyno.core.stats import statistics
from modeldyno.core.stats.units import SECONDS, format_quantity

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy import ndarray

    from modeldyno.core.metrics.measurement_plan import Plan
    from modeldyno.core.spec.probe_options import Observation
    from modeldyno.core.stats.statistics import Samples

TOKENS, MASK = "input_ids", "attention_mask"
PREFILL, DECODE = "prefill", "decode"
"""Stages: reading the prompt with the choice of the first token, and the tokens after it."""

_SCOPE = re.compile(r"(?:prompt=(\d{1,7}),)?generate=(\d{1,7})")
_FEWEST = 8
"""Tokens from the third one on that a slope is fitted to at least."""
_RELEVANT = 0.1
"""Change of the time of a token, as a fraction, from which on its length matters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """How many tokens each sample of a batch has."""

    prompt: int | None
    """To begin with; None where the model reads something else, such as sound."""
    generated: int

    @property
    def scope(self) -> str:
        """The scope of its measurements: ``prompt=128,generate=32``."""
        read = "" if self.prompt is None else f"prompt={self.prompt},"
        return f"{read}generate={self.generated}"

    @classmethod
    def of(cls, scope: str) -> Extent | None:
        """Read a scope; None for one that is of something else."""
        match = _SCOPE.fullmatch(scope)
        return match and cls(prompt=None if match[1] is None else int(match[1]), generated=int(match[2]))

    def stage(self, name: str) -> str:
        """Give the scope of a stage."""
        return f"{self.scope},stage={name}"


def extents(observation: Observation, *, text: bool) -> tuple[Extent, ...]:
    """Give every length asked for with every other; without text to read, there are no prompts to vary."""
    prompts = observation.prompts if text else (None,)
    return tuple(
        Extent(prompt=prompt, generated=generated)
        for prompt in prompts
        for generated in observation.generated
    )


def prompt(feeds: Sequence[Mapping[str, ndarray]], extent: Extent) -> dict[str, ndarray]:
    """Make what to read of the payloads: their tokens without padding, as many as asked for.

    A sample's tokens in one payload follow on those in the payload before, and from the first again
    where there are too few. Where there are no tokens, the first payload is read as it is.
    """
    np = statistics.load_numpy()
    if extent.prompt is None:
        return {name: array for name, array in feeds[0].items() if not name.startswith("decoder_")}
    ids = np.concatenate([feed[TOKENS] for feed in feeds], axis=1)
    masks = [feed.get(MASK, np.ones_like(feed[TOKENS])) for feed in feeds]
    real = np.concatenate(masks, axis=1).astype(bool)
    rows = [
        np.resize(row[kept] if kept.any() else row, extent.prompt)
        for row, kept in zip(ids, real, strict=True)
    ]
    return {TOKENS: np.stack(rows)}


def share(plan: Plan, left: float, count: int) -> Plan:
    """Give the plan for one of so many extents that share the seconds that are left."""
    time = max(left / count, _SHORTEST)
    return replace(plan, max_time=time, min_time=min(plan.min_time, time / 2))


_SHORTEST = 1e-3
"""Seconds, in which one sequence is generated however long it takes."""


def measured(steps: Samples, extent: Extent, batch: int, how: Distribution) -> Iterator[Measurement]:
    """Give the times and rates of one extent.

    Args:
        steps: of at least one sequence.
        extent: what was generated.
        batch: samples that were generated together.
        how: the certificate of one sample a sequence.
    """
    scope, first = extent.scope, steps[:, 0]
    yield _spread("time_to_first_token", first, scope, how)
    if extent.prompt is not None:
        yield _rate(batch * extent.prompt, first, extent.stage(PREFILL))
    yield _rate(batch * extent.generated, steps.sum(axis=1), scope)
    further = steps[:, 1:]
    if not further.size:
        return
    yield _spread("time_per_output_token", further.mean(axis=1), scope, how)
    each = replace(how, warmup_dropped=how.warmup_dropped * further.shape[1])
    yield _spread("inter_token_latency", further.ravel(), scope, each)
    yield _rate(batch, further.mean(axis=1), extent.stage(DECODE))
    if (found := slope(steps)) is not None:
        value, interval = found
        yield observed("time_per_context_token", value, scope=scope, interval=interval)


def _spread(metric: str, samples: Samples, scope: str, how: Distribution) -> Measurement:
    return Measurement(metric=metric, value=replace(how, runs=(pack(samples),)), scope=scope)


def _rate(tokens: int, seconds: Samples, scope: str) -> Measurement:
    """Give tokens per second from the seconds that so many took, again and again."""
    low, high = statistics.mean_interval(seconds)
    interval = Interval(low=tokens / high, high=tokens / low if low > 0 else float("inf"))
    return observed("token_rate", tokens / float(seconds.mean()), scope=scope, interval=interval)


def slope(steps: Samples) -> tuple[float, Interval] | None:
    """Give the seconds that each token of context adds to the time of a token; None for few of either.

    The second token is left out, as it pays for the change from reading to generating. A line is
    fitted to each sequence; the median of their slopes forgives a disturbed one, and is only given
    where there are enough sequences to bound it.
    """
    later = steps[:, 2:]
    if later.shape[1] < _FEWEST:
        return None
    np = statistics.load_numpy()
    position = np.arange(later.shape[1]) - (later.shape[1] - 1) / 2
    slopes = later @ position / (position @ position)
    low, high = statistics.quantile_interval(slopes, 0.5)
    if not math.isfinite(high - low):
        return None
    return statistics.quantile(slopes, 0.5), Interval(low=low, high=high)


def doubts(steps: Samples, extent: Extent) -> Iterator[Doubt]:
    """A doubt where one time per token does not hold for all lengths."""
    found = slope(steps)
    if found is None:
        return
    value, interval = found
    np = statistics.load_numpy()
    change = value * (extent.generated - 2) / float(np.median(steps[:, 1:]))
    if abs(change) < _RELEVANT or interval.low <= 0 <= interval.high:
        return
    each = format_quantity(abs(value), SECONDS, 2)
    yield Doubt(
        code="context-drift",
        seen=f"generation@{extent.scope}: the time of a token changes by {change:+.0%} from the third to the "
        f"last, by {'' if value > 0 else '-'}{each} with each token of context",
        advice="read it by its place in the output, and generate as many tokens as will be in use",
    )


def told_once(found: Iterable[Doubt]) -> Iterator[Doubt]:
    """Tell doubts of one kind about several extents once, with how many others they hold for."""
    groups: dict[tuple[str, str], list[Doubt]] = {}
    for each in found:
        what = each.seen.split()[0].partition("@")[0]
        groups.setdefault((each.code, what), []).append(each)
    for first, *others in groups.values():
        lengths = "another length" if len(others) == 1 else f"{len(others)} other lengths"
        yield replace(first, seen=f"{first.seen} (and at {lengths})") if others else first


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """Tokens that follow each other, and the median of their times."""

    first: int
    last: int
    """Places in the output, from 1; the first token is in none, as its time is that of the prompt."""
    seconds: float


def bands(found: Distribution, extent: Extent, count: int) -> tuple[Band, ...]:
    """Cut the inter-token latencies of an extent into so many bands of about equal length."""
    np = statistics.load_numpy()
    steps = found.samples().reshape(-1, extent.generated - 1)
    places = np.array_split(np.arange(extent.generated - 1), min(count, extent.generated - 1))
    return tuple(
        Band(first=int(part[0]) + 2, last=int(part[-1]) + 2, seconds=float(np.median(steps[:, part])))
        for part in places
    )


def cache_growth(sizes: Mapping[int, int], batch: int) -> float | None:
    """Give the bytes that each further token of one sample adds to the cache; None of one token only.

    `sizes` are bytes by tokens generated so far. The first token of several is left out: what was
    kept of the prompt may be held until the step after it.
    """
    if len(sizes) < 2:  # noqa: PLR2004 - a difference has two ends
        return None
    before, after = sorted(sizes)[-2:]
    return (sizes[after] - sizes[before]) / (after - before) / batch
