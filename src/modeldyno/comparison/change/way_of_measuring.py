"""How a Result was measured, as far as its figures depend on it.

Two figures of one model differ if they were measured differently: a rate by the load, the memory of a
process by what else was measured in it, an extreme by how long it was looked for. Memory that stays at what
loading and the first calls took does not depend on the length. Figures that differ so are not compared. The
settings of a model, its software and its inputs are no part of it: they are what a comparison is about.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Self

from modeldyno.base.metrics.doubt import Doubt
from modeldyno.base.metrics.measurement import Distribution
from modeldyno.base.metrics.metric import METRICS, Query
from modeldyno.base.stats.units import BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from modeldyno.base.result.result import Result

CODE = "measured-differently"
_EXTREMES = frozenset({"min", "max", "std", "cv"})
"""Statistics that depend on how many samples there are."""
_NO_CALLS = frozenset({"static", "outputs"})
"""Probes that leave no trace in the process: an analysis of a copy, and one call after all others."""
_NOT_ISOLATED = "not-isolated"
"""The doubt of a Result of the calling process."""
_CACHED = "cached-prompts"
"""That of a load whose prompts the server did not compute anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WayOfMeasuring:
    """What the figures of a Result depend on, beside the model and the machine; each part in words."""

    load: str
    """What the model was sent."""
    process: str
    """Whether a process of its own was measured, or that of the caller."""
    probes: str
    """What called the model in that process."""
    profiler: str
    """The version of ModelDyno; empty if it is not known."""
    length: str
    """How long each process was measured, at least and at most."""

    @classmethod
    def of(cls, result: Result) -> Self:
        """Return how a Result was measured."""
        plan, load = result.job.plan, result.job.load
        calling = any(doubt.code == _NOT_ISOLATED for doubt in result.doubts)
        cached = any(doubt.code == _CACHED for doubt in result.doubts)
        return cls(
            load="calls"
            if load is None
            else f"a load of {load}{', its prompts in a cache' if cached else ''}",
            process="the calling process" if calling else "a process of its own",
            probes=f"probes {','.join(sorted(set(result.job.probes) - _NO_CALLS))}",
            profiler=_version(result),
            length=f"{plan.min_time:g} to {plan.max_time:g} s, {plan.min_runs:,} to {plan.max_runs:,} calls"
            + (f", {plan.min_warmup:,} of warm-up" if plan.min_warmup else ""),
        )

    def parts(self, query: Query, *, grows: bool) -> tuple[str, ...]:
        """Return the parts that a figure depends on; its maximum on the length only if it grows."""
        row = METRICS[query.metric]
        if row.computed:
            return ()
        of_process = _is_memory(query)
        return (
            *((self.load,) if row.under_load is not None else ()),
            *((self.process, self.probes, self.profiler) if of_process else ()),
            *((self.length,) if query.statistic in _EXTREMES and grows else ()),
        )


def _is_memory(query: Query) -> bool:
    row = METRICS[query.metric]
    return row.spread and row.unit == BYTES


def _may_grow(query: Query, result: Result) -> bool:
    """Return whether a longer measurement might have found a larger maximum.

    Memory does not grow if the first half of its samples has the maximum, to an allocator's step.
    """
    measurement = result.find(query.metric, query.scope)
    if not _is_memory(query) or query.statistic != "max" or measurement is None:
        return True
    value = measurement.value
    return not isinstance(value, Distribution) or any(
        _grew(run.tolist(), measurement.row.resolution) for run in value.arrays()
    )


def _grew(samples: Sequence[float], step: float) -> bool:
    first, second = samples[: len(samples) // 2], samples[len(samples) // 2 :]
    return not first or max(second) > max(first) + step


def _version(result: Result) -> str:
    version = result.environment.software.get("modeldyno")
    return "" if version is None else f"ModelDyno {version}"


def measured_alike(
    queries: Iterable[Query], baseline: Result, candidate: Result
) -> tuple[tuple[Query, ...], tuple[Doubt, ...]]:
    """Return the queries whose figures were measured in the same way, and a doubt that names the others.

    What is not known of one side, as it is in an older document, is taken to be the same.
    """
    reasons = {query: ", ".join(_differences(query, baseline, candidate)) for query in queries}
    alike = tuple(query for query, reason in reasons.items() if not reason)
    return alike, tuple(_doubts(reasons))


def _differences(query: Query, baseline: Result, candidate: Result) -> Iterator[str]:
    results = baseline, candidate
    grows = any(_may_grow(query, result) for result in results)
    before, after = (WayOfMeasuring.of(result).parts(query, grows=grows) for result in results)
    for one, other in zip(before, after, strict=True):
        if one != other and one and other:
            yield f"{one} and {other}"


def _doubts(reasons: dict[Query, str]) -> Iterator[Doubt]:
    different = sorted((item for item in reasons.items() if item[1]), key=lambda item: item[1])
    for reason, items in groupby(different, key=lambda item: item[1]):
        names = " and ".join(str(query) for query, _ in items)
        yield Doubt(
            code=CODE,
            seen=f"not compared: {names}, measured differently: {reason}",
            advice="measure both in the same way, with the same command",
        )
