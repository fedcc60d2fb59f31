"""Metrics of token generation, such as time to first token, from the seconds of its steps.

The first step (prefill) reads the prompt and chooses the first token; each further step (decode) chooses one
token. `steps` is always an array of seconds with a row for each sequence and a column for each token; a token
here is one of each sample, as a batch is generated together.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from modeldyno.base.metrics.doubt import Doubt
from modeldyno.base.metrics.measurement import (
    Distribution,
    Interval,
    Measurement,
    observed_number,
    pack,
    ratio_number,
)
from modeldyno.base.stats import statistics
from modeldyno.base.stats.units import SECONDS, format_quantity

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy import ndarray

    from modeldyno.base.job.probe_options import ProbeOptions
    from modeldyno.base.metrics.measurement_plan import Plan
    from modeldyno.base.stats.statistics import Samples

TOKENS, MASK = "input_ids", "attention_mask"
PREFILL, DECODE = "prefill", "decode"
"""Stages: reading the prompt and choosing the first token; the tokens after it."""

_SCOPE = re.compile(r"(?:prompt=(\d{1,7}),)?generate=(\d{1,7})")
_FEWEST = 8
"""Least tokens, from the third on, for fitting a slope."""
_RELEVANT = 0.1
"""Relative change of the time per token from which the context length matters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationLength:
    """Tokens of each sample of a batch: prompt and generated."""

    prompt: int | None
    """Tokens of the prompt; None where the model reads something else, such as audio."""
    generated: int

    @property
    def scope(self) -> str:
        """The scope of its measurements: ``prompt=128,generate=32``."""
        prefix = "" if self.prompt is None else f"prompt={self.prompt},"
        return f"{prefix}generate={self.generated}"

    @classmethod
    def of(cls, scope: str) -> GenerationLength | None:
        """Parse a scope; None for one of something else."""
        match = _SCOPE.fullmatch(scope)
        return match and cls(prompt=None if match[1] is None else int(match[1]), generated=int(match[2]))

    def stage(self, name: str) -> str:
        """Return the scope of a stage."""
        return f"{self.scope},stage={name}"


def generation_lengths(observation: ProbeOptions, *, text: bool) -> tuple[GenerationLength, ...]:
    """Return all combinations of prompt and output lengths; without text, prompts do not vary."""
    prompts = observation.prompts if text else (None,)
    return tuple(
        GenerationLength(prompt=prompt, generated=generated)
        for prompt in prompts
        for generated in observation.generated
    )


def build_prompt(feeds: Sequence[Mapping[str, ndarray]], extent: GenerationLength) -> dict[str, ndarray]:
    """Build a prompt of the wanted length from the payloads: their tokens without padding.

    The tokens of a sample are concatenated over the payloads, and repeated where there are too few. Where
    there are no tokens, the first payload is used as it is.
    """
    np = statistics.load_numpy()
    if extent.prompt is None:
        return {name: array for name, array in feeds[0].items() if not name.startswith("decoder_")}
    ids = np.concatenate([feed[TOKENS] for feed in feeds], axis=1)
    masks = [feed.get(MASK, np.ones_like(feed[TOKENS])) for feed in feeds]
    real = np.concatenate(masks, axis=1).astype(bool)
    rows = [
        np.resize(row[mask] if mask.any() else row, extent.prompt)
        for row, mask in zip(ids, real, strict=True)
    ]
    return {TOKENS: np.stack(rows)}


def share_measurement_plan(plan: Plan, left: float, count: int) -> Plan:
    """Return the plan for one of `count` extents that share the seconds left."""
    time = max(left / count, _SHORTEST)
    return replace(plan, max_time=time, min_time=min(plan.min_time, time / 2))


_SHORTEST = 1e-3
"""Seconds; one sequence is always generated, however long it takes."""


def token_measurements(
    steps: Samples, extent: GenerationLength, batch: int, how: Distribution
) -> Iterator[Measurement]:
    """Yield the times and rates of one extent.

    Args:
        steps: of at least one sequence.
        extent: what was generated.
        batch: samples that were generated together.
        how: the Distribution fields (stop reason, clock) of one sample per sequence.
    """
    scope, first = extent.scope, steps[:, 0]
    yield _distribution("time_to_first_token", first, scope, how)
    if extent.prompt is not None:
        yield _rate(batch * extent.prompt, first, extent.stage(PREFILL))
    yield _rate(batch * extent.generated, steps.sum(axis=1), scope)
    further = steps[:, 1:]
    if not further.size:
        return
    yield _distribution("time_per_output_token", further.mean(axis=1), scope, how)
    per_token = replace(how, warmup_dropped=how.warmup_dropped * further.shape[1])
    yield _distribution("inter_token_latency", further.ravel(), scope, per_token)
    yield _rate(batch, further.mean(axis=1), extent.stage(DECODE))
    if (context_slope := fit_context_slope(steps)) is not None:
        value, interval = context_slope
        yield observed_number("time_per_context_token", value, scope=scope, interval=interval)


def _distribution(metric: str, samples: Samples, scope: str, how: Distribution) -> Measurement:
    return Measurement(metric=metric, value=replace(how, runs=(pack(samples),)), scope=scope)


def _rate(tokens: int, seconds: Samples, scope: str) -> Measurement:
    """Return tokens per second, given repeated times of `tokens` tokens."""
    return ratio_number("token_rate", (tokens,) * len(seconds), seconds, scope=scope)


def fit_context_slope(steps: Samples) -> tuple[float, Interval] | None:
    """Return the seconds that each token of context adds to the time per token; None for too few of either.

    The second token is left out, as it includes the switch from prefill to decode. A line is fitted to
    each sequence; the median of the slopes is robust against a disturbed sequence, and is returned only
    where there are enough sequences for an interval.
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


def context_drift_doubts(steps: Samples, extent: GenerationLength) -> Iterator[Doubt]:
    """Yield a doubt where the time per token depends on the context length."""
    context_slope = fit_context_slope(steps)
    if context_slope is None:
        return
    value, interval = context_slope
    np = statistics.load_numpy()
    change = value * (extent.generated - 2) / float(np.median(steps[:, 1:]))
    if abs(change) < _RELEVANT or interval.low <= 0 <= interval.high:
        return
    per_token = format_quantity(abs(value), SECONDS, 2)
    yield Doubt(
        code="context-drift",
        seen=f"generation@{extent.scope}: the time of a token changes by {change:+.0%} from the third to the "
        f"last, by {'' if value > 0 else '-'}{per_token} with each token of context",
        advice="read the time by position in the output, and generate as many tokens as in production",
    )


def merge_similar_doubts(doubts_found: Iterable[Doubt]) -> Iterator[Doubt]:
    """Merge doubts of one kind about several extents into one, with the number of the others."""
    groups: dict[tuple[str, str], list[Doubt]] = {}
    for doubt in doubts_found:
        what = doubt.seen.split()[0].partition("@")[0]
        groups.setdefault((doubt.code, what), []).append(doubt)
    for first, *others in groups.values():
        lengths = "another length" if len(others) == 1 else f"{len(others)} other lengths"
        yield replace(first, seen=f"{first.seen} (and at {lengths})") if others else first


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenBand:
    """Consecutive tokens, and the median of their times."""

    first: int
    last: int
    """Positions in the output, from 1; the first token is in no band, as its time is that of the prompt."""
    seconds: float


def split_into_bands(latencies: Distribution, extent: GenerationLength, count: int) -> tuple[TokenBand, ...]:
    """Split the inter-token latencies of an extent into `count` bands of about equal length."""
    np = statistics.load_numpy()
    steps = latencies.samples().reshape(-1, extent.generated - 1)
    places = np.array_split(np.arange(extent.generated - 1), min(count, extent.generated - 1))
    return tuple(
        TokenBand(first=int(part[0]) + 2, last=int(part[-1]) + 2, seconds=float(np.median(steps[:, part])))
        for part in places
    )


def cache_bytes_per_token(sizes: Mapping[int, int], batch: int) -> float | None:
    """Return the bytes that each further token of one sample adds to the cache; None for one token only.

    `sizes` are bytes by tokens generated so far. The first of several tokens is left out: temporary
    memory of the prompt may be held until the step after it.
    """
    if len(sizes) < 2:
        return None
    before, after = sorted(sizes)[-2:]
    return (sizes[after] - sizes[before]) / (after - before) / batch
