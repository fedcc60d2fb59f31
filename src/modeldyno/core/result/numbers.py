"""A Result as named numbers and words, for tools that keep such: every exporter reads these and nothing else.

What the samples certify has its own name, ``latency.p99``; what they do not is there as ``latency.p99.raw``
alone, so that no tool can take it for a claim. Numbers of single modules stay in the document.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING

from modeldyno.core.metrics.measurement import Distribution, Interval
from modeldyno.core.metrics.metric import METRICS, Query, fraction_of
from modeldyno.core.result.failure_kinds import KINDS
from modeldyno.core.result.scopes import scopes
from modeldyno.core.stats.units import COUNT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modeldyno.core.metrics.measurement import Measurement
    from modeldyno.core.result.result import Result

_STATISTICS = ("p50", "p90", "p95", "p99", "p99.9", "mean", "std", "min", "max", "n")


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One number of a Result, in base units."""

    query: Query
    """That gives it; its part is ``raw`` where it is no claim."""
    value: float
    interval: Interval | None = None
    """With finite ends; of a claim alone."""

    @property
    def unit(self) -> str:
        """Its base unit; empty for a count."""
        return self.query.unit if self.query.unit != COUNT else ""

    @property
    def claim(self) -> bool:
        """Whether the samples certify it."""
        return self.query.part is None

    @property
    def fraction(self) -> float | None:
        """Of a percentile, the share of samples below it."""
        return fraction_of(self.query.statistic or "")

    @property
    def sentence(self) -> str:
        """What it means."""
        return METRICS[self.query.metric].sentence


def figures(result: Result) -> Iterator[Figure]:
    """Give the numbers of the whole; those that are none, such as a value that never came, are left out."""
    modules = scopes(result)
    for found in result.measurements:
        if found.scope not in modules or not found.scope:
            for query in _queries(found):
                yield from _figure(result, query)


def _queries(found: Measurement) -> Iterator[Query]:
    if isinstance(found.value, Distribution):
        for statistic in _STATISTICS:
            yield Query(metric=found.metric, statistic=statistic, scope=found.scope)
    elif found.told:
        yield Query(metric=found.metric, statistic=found.told)
    else:
        yield Query(metric=found.metric, scope=found.scope)


def _figure(result: Result, query: Query) -> Iterator[Figure]:
    claimed = result.ask(query)
    if claimed.value is not None:
        ends = claimed.interval
        sound = ends if ends is not None and isfinite(ends.low) and isfinite(ends.high) else None
        found = Figure(query=query, value=claimed.value, interval=sound)
    else:
        raw = Query(metric=query.metric, statistic=query.statistic, part="raw", scope=query.scope)
        plain = result.ask(raw).value
        if plain is None:
            return
        found = Figure(query=raw, value=plain)
    if isfinite(found.value):
        yield found


def settings(result: Result) -> dict[str, str]:
    """Give what was asked for, by short names: the model, the backend, every knob, the load, the inputs."""
    job = result.job
    return {
        "model": result.name,
        "backend": job.backend,
        **{f"config.{name}": str(value) for name, value in job.config.items()},
        **({"load": str(job.load)} if job.load else {}),
        **{f"input.{each.name}": f"{each.shape} {each.dtype}" for each in result.inputs},
    }


def circumstances(result: Result) -> dict[str, str]:
    """Give what else is known, by short names: identity, machine, versions, doubts, failures."""
    environment = result.environment
    digest = {"digest": result.model.digest} if result.model else {}
    doubts: dict[str, str] = {}
    for each in result.doubts:
        name = f"doubt.{each.code}"
        doubts[name] = f"{doubts[name]}; {each.seen}" if name in doubts else each.seen
    return {
        "id": result.id,
        "created": result.created,
        **digest,
        **{f"hardware.{name}": str(value) for name, value in environment.hardware.items()},
        **{f"software.{name}": str(value) for name, value in environment.software.items()},
        **{f"condition.{name}": str(value) for name, value in environment.conditions.items()},
        **doubts,
        **{f"failure.{each.where}": f"{KINDS[each.kind]}: {each.message}" for each in result.failures},
    }


def labels(result: Result) -> dict[str, str]:
    """Give the few words that tell series of numbers apart."""
    precision = result.job.config.get("precision")
    named = {"model": result.name, "backend": result.job.backend}
    return named if precision is None else {**named, "precision": str(precision)}
