"""A Result as named numbers and texts: the only input of all exporters.

A certified statistic has its plain name, ``latency.p99``; an uncertified one is only ``latency.p99.raw``, so
that no tool can take it for a claim. Numbers of single modules are left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING

from modeldyno.base.metrics.measurement import Distribution, Interval
from modeldyno.base.metrics.metric import METRICS, Query, fraction_of
from modeldyno.base.result.result import KINDS, scopes
from modeldyno.base.stats.units import COUNT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modeldyno.base.metrics.measurement import Measurement
    from modeldyno.base.result.result import Result

_STATISTICS = ("p50", "p90", "p95", "p99", "p99.9", "mean", "std", "min", "max", "n")


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A number of a Result, in base units."""

    query: Query
    """The query for it; its part is ``raw`` if it is not certified."""
    value: float
    interval: Interval | None = None
    """With finite ends; only of certified statistics."""

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
        """The share of samples below a percentile."""
        return fraction_of(self.query.statistic or "")

    @property
    def sentence(self) -> str:
        """Its meaning."""
        return METRICS[self.query.metric].sentence


def figures(result: Result) -> Iterator[Figure]:
    """Yield the numbers of the whole model; infinite or missing values are left out."""
    modules = scopes(result)
    for measurement in result.measurements:
        if measurement.scope not in modules or not measurement.scope:
            for query in _queries(measurement):
                yield from _figure(result, query)


def _queries(measurement: Measurement) -> Iterator[Query]:
    if isinstance(measurement.value, Distribution):
        for statistic in _STATISTICS:
            yield Query(metric=measurement.metric, statistic=statistic, scope=measurement.scope)
    elif measurement.reported_statistic:
        yield Query(metric=measurement.metric, statistic=measurement.reported_statistic)
    else:
        yield Query(metric=measurement.metric, scope=measurement.scope)


def _figure(result: Result, query: Query) -> Iterator[Figure]:
    answer = result.ask(query)
    if answer.value is not None:
        ends = answer.interval
        finite_interval = ends if ends is not None and isfinite(ends.low) and isfinite(ends.high) else None
        result_figure = Figure(query=query, value=answer.value, interval=finite_interval)
    else:
        raw = Query(metric=query.metric, statistic=query.statistic, part="raw", scope=query.scope)
        plain = result.ask(raw).value
        if plain is None:
            return
        result_figure = Figure(query=raw, value=plain)
    if isfinite(result_figure.value):
        yield result_figure


def settings(result: Result) -> dict[str, str]:
    """Return the request by short names: the model, the backend, every knob, the load, the inputs."""
    job = result.job
    return {
        "model": result.name,
        "backend": job.backend,
        **{f"config.{name}": str(value) for name, value in job.config.items()},
        **({"load": str(job.load)} if job.load else {}),
        **{f"input.{spec.name}": f"{spec.shape} {spec.dtype}" for spec in result.inputs},
    }


def circumstances(result: Result) -> dict[str, str]:
    """Return everything else by short names: identity, machine, versions, doubts, failures."""
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
    """Return the few labels that distinguish series of numbers."""
    precision = result.job.config.get("precision")
    base = {"model": result.name, "backend": result.job.backend}
    return base if precision is None else {**base, "precision": str(precision)}
