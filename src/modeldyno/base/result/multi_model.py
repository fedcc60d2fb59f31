"""Several models on one server at the same time: which model a metric, a knob or a load belongs to.

The model of the Job keeps its metrics unchanged. The metrics of a co-hosted model have that model's name as
their scope: ``latency.p99@tagger``. In knobs and loads the name is a prefix: ``tagger.instances``.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, cast

from modeldyno.base.errors import RequestError
from modeldyno.base.job.load_spec import Arrivals, Load, parse_rate
from modeldyno.base.metrics.doubt import Doubt
from modeldyno.base.metrics.measurement import Measurement
from modeldyno.base.metrics.metric import METRICS
from modeldyno.base.result.result import Failure
from modeldyno.base.stats.units import CORES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from modeldyno.base.job.knob import Knob, KnobValue
    from modeldyno.base.metrics.constraints import Constraint
    from modeldyno.base.metrics.metric import Query

_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True, kw_only=True)
class CoHostedModelSpec:
    """A model co-hosted beside the first, as the user described it."""

    model: str
    name: str
    settings: Mapping[str, str] = field(default_factory=dict)
    inputs: tuple[str, ...] = ()
    concurrency: int | None = None
    rate: str | None = None

    @classmethod
    def parse(cls, text: str) -> CoHostedModelSpec:
        """Read ``tagger.onnx name=tagger concurrency=4 instances=2``: the model, its load, its knobs.

        Raises:
            RequestError: there is no model, or a word after it is not ``name=value``.
        """
        try:
            model, *assignments = shlex.split(text)
        except ValueError:
            raise RequestError(
                f"`beside` '{text}' names no model; write 'model.onnx concurrency=4'."
            ) from None
        values_by_name: dict[str, list[str]] = {}
        for word in assignments:
            name, separator, value = word.partition("=")
            if not (name and separator):
                raise RequestError(f"`beside` '{text}': '{word}' is not name=value, such as concurrency=4.")
            values_by_name.setdefault(name, []).append(value)
        inputs = tuple(values_by_name.pop("input", ()))
        for name, values in values_by_name.items():
            if len(values) > 1:
                raise RequestError(f"`beside` '{text}' gives {name} twice: {values[0]} and {values[1]}.")
        settings = {name: values[0] for name, values in values_by_name.items()}
        explicit_name, slots = settings.pop("name", None), settings.pop("concurrency", None)
        if slots is not None and not slots.isdigit():
            raise RequestError(f"`beside` '{text}': concurrency={slots} is not a whole number.")
        return cls(
            model=model,
            name=_validated_name(explicit_name) if explicit_name is not None else default_model_name(model),
            inputs=inputs,
            concurrency=int(slots) if slots else None,
            rate=settings.pop("rate", None),
            settings=settings,
        )

    def load(self, first: Load) -> Load:
        """Return its load: its own arrivals, everything else as for the first model.

        Raises:
            RequestError: a co-hosted model cannot have this load.
        """
        if first.arrivals is Arrivals.TRACE:
            raise RequestError("A trace is for one model alone, because it ends by itself; drop `beside`.")
        usual = replace(first, requests=None, drivers=1)
        if self.rate is not None:
            even = {"burst": 1, "burstiness": 1.0}
            return replace(usual, **even | parse_rate(self.rate), concurrency=self.concurrency)
        if self.concurrency is not None:
            closed = Arrivals.CLOSED
            return replace(usual, arrivals=closed, rate=None, burst=1, concurrency=self.concurrency)
        return usual


def default_model_name(locator: str) -> str:
    """Return the default name of a model, from a path or from the model in a URL."""
    last = re.split(r"[/#:]", locator.rstrip("/"))[-1]
    return re.sub(r"[^\w-]+", "-", Path(last).stem or last).strip("-") or "model"


def _validated_name(name: str) -> str:
    if not re.fullmatch(r"[\w-]+", name) or name in _RESERVED_NAMES:
        raise RequestError(
            f"A model beside another cannot be called '{name}'; write letters, digits, - and _."
        )
    return name


_RESERVED_NAMES = {"config"}
"""Prefixes of knobs that have another meaning."""


def check_names(own: str, others: Sequence[CoHostedModelSpec]) -> None:
    """Refuse two models with the same name.

    Raises:
        RequestError: two models have the same name.
    """
    names = {own}
    for model in others:
        if model.name in names:
            raise RequestError(
                f"Two models are called '{model.name}'; give one another name: "
                f"`beside={model.model} name=another`."
            )
        names.add(model.name)


def with_model_scope(name: str, value: _Value) -> _Value:
    """Mark a measurement, doubt or failure as that of a co-hosted model; return other values unchanged."""
    result: object = value
    if isinstance(value, Measurement):
        result = replace(value, scope=f"{name}/{value.scope}" if value.scope else name)
    elif isinstance(value, Doubt):
        result = replace(value, seen=f"{name}: {value.seen}")
    elif isinstance(value, Failure):
        result = replace(value, message=f"{name}: {value.message}")
    return cast("_Value", result)


def measurements_of_model(name: str, measurements: Iterable[Measurement]) -> Iterator[Measurement]:
    """Yield the measurements of a co-hosted model, without its name in their scopes."""
    for measurement in measurements:
        if measurement.scope == name:
            yield replace(measurement, scope="")
        elif measurement.scope.startswith(f"{name}/"):
            yield replace(measurement, scope=measurement.scope.removeprefix(f"{name}/"))


def measurements_of_first_model(
    names: Sequence[str], measurements: Iterable[Measurement]
) -> Iterator[Measurement]:
    """Yield the measurements of the first model and of the server."""
    for measurement in measurements:
        if measurement.scope.partition("/")[0] not in names:
            yield measurement


def expand_query(query: Query, own: str, beside: Sequence[str]) -> tuple[Query, ...]:
    """Return the queries that a query stands for: one for each model, unless it names one.

    Args:
        query: as the user wrote it.
        own: the name of the first model.
        beside: the names of the others.
    """
    if query.scope == own:
        return (replace(query, scope=""),)
    if query.scope or not _is_of_each_model(query):
        return (query,)
    return (query, *(replace(query, scope=name) for name in beside))


def bounds_of_each_model(
    bounds: Iterable[Constraint], own: str, beside: Sequence[str]
) -> tuple[Constraint, ...]:
    """Return the bounds that apply to each model, as `expand_query` reads them."""
    return tuple(replace(c, query=query) for c in bounds for query in expand_query(c.query, own, beside))


def with_model_named(query: Query, own: str) -> Query:
    """Return the query with its model named; `own` is the first model's name, empty if it is alone."""
    return replace(query, scope=own) if own and not query.scope and _is_of_each_model(query) else query


def _is_of_each_model(query: Query) -> bool:
    """Whether each model has the metric; others are of a process, of the server, or of the first model."""
    row = METRICS[query.metric]
    return row.under_load is not None and row.unit != CORES


def all_models_knobs(own: Iterable[Knob], beside: Iterable[str]) -> tuple[Knob, ...]:
    """Return the knobs of all models on a server; those of co-hosted models are prefixed with their names."""
    table = tuple(own)
    return (
        *table,
        *(
            replace(knob, name=f"{name}.{knob.name}", aliases=tuple(f"{name}.{a}" for a in knob.aliases))
            for name in beside
            for knob in table
        ),
    )


def split_config(config: Mapping[str, KnobValue], beside: Sequence[str]) -> tuple[dict[str, KnobValue], ...]:
    """Split a configuration by model: the first model, then each of the others."""
    return tuple(
        {
            name.removeprefix(f"{model}.") if model else name: value
            for name, value in config.items()
            if model_of_setting(name, beside) == model
        }
        for model in ("", *beside)
    )


def model_of_setting(name: str, beside: Iterable[str]) -> str:
    """Return the co-hosted model that a knob or a load belongs to; empty for the first."""
    return next((model for model in beside if name.startswith(f"{model}.")), "")
