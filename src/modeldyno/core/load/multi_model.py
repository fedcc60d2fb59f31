"""Several models on one server at the same time: whose a metric is, a knob, a load.

The model that a Job is of has its metrics as ever; one beside it has them under its name, which is their
scope: ``latency.p99@tagger``. Of knobs and loads it stands in front: ``tagger.instances``.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, cast

from modeldyno.core.metrics.doubt import Doubt
from modeldyno.core.metrics.measurement import Measurement
from modeldyno.core.result.result import Failure
from modeldyno.core.result.summary import UNDER_LOAD
from modeldyno.core.spec.load_spec import Arrivals, Load, parse_rate
from modeldyno.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from modeldyno.core.metrics.metric import Query
    from modeldyno.core.spec.knob import Knob, KnobValue

_Found = TypeVar("_Found")

PER_MODEL = UNDER_LOAD.keys() - {"client_cpu"}
"""Metrics that each model has; the others are of the server, of a process, or of the first model alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbour:
    """What was said of a model beside the first."""

    model: str
    name: str
    settings: Mapping[str, str] = field(default_factory=dict)
    inputs: tuple[str, ...] = ()
    concurrency: int | None = None
    rate: str | None = None

    @classmethod
    def parse(cls, text: str) -> Neighbour:
        """Read ``tagger.onnx name=tagger concurrency=4 instances=2``: the model, its load, its knobs.

        Raises:
            RequestError: there is no model, or a word after it is no ``name=value``.
        """
        try:
            model, *words = shlex.split(text)
        except ValueError:
            raise RequestError(
                f"--beside '{text}' names no model; write 'model.onnx concurrency=4'."
            ) from None
        told: dict[str, list[str]] = {}
        for word in words:
            name, separator, value = word.partition("=")
            if not (name and separator):
                raise RequestError(f"--beside '{text}': '{word}' is not name=value, such as concurrency=4.")
            told.setdefault(name, []).append(value)
        inputs = tuple(told.pop("input", ()))
        for name, values in told.items():
            if len(values) > 1:
                raise RequestError(f"--beside '{text}' gives {name} twice: {values[0]} and {values[1]}.")
        once = {name: values[0] for name, values in told.items()}
        named, slots = once.pop("name", None), once.pop("concurrency", None)
        if slots is not None and not slots.isdigit():
            raise RequestError(f"--beside '{text}': concurrency={slots} is no whole number.")
        return cls(
            model=model,
            name=_checked(named) if named is not None else called(model),
            inputs=inputs,
            concurrency=int(slots) if slots else None,
            rate=once.pop("rate", None),
            settings=once,
        )

    def load(self, first: Load) -> Load:
        """Give its load: its own arrivals, and for the rest what the first model is put under.

        Raises:
            RequestError: there is no such load.
        """
        if first.arrivals is Arrivals.TRACE:
            raise RequestError("A trace ends by itself, so it is for one model alone; leave --beside away.")
        usual = replace(first, requests=None, drivers=1)
        if self.rate is not None:
            rate, arrivals, burst = parse_rate(self.rate)
            return replace(usual, rate=rate, arrivals=arrivals, burst=burst, concurrency=self.concurrency)
        if self.concurrency is not None:
            closed = Arrivals.CLOSED
            return replace(usual, arrivals=closed, rate=None, burst=1, concurrency=self.concurrency)
        return usual


def called(locator: str) -> str:
    """Give a name by which knobs and metrics can be asked for, of a path or of a URL's model."""
    last = re.split(r"[/#:]", locator.rstrip("/"))[-1]
    return re.sub(r"[^\w-]+", "-", Path(last).stem or last).strip("-") or "model"


def _checked(name: str) -> str:
    if not re.fullmatch(r"[\w-]+", name) or name in _TAKEN:
        raise RequestError(
            f"A model beside another cannot be called '{name}'; write letters, digits, - and _."
        )
    return name


_TAKEN = {"config"}
"""Names that stand in front of a knob already."""


def check_names(own: str, others: Sequence[Neighbour]) -> None:
    """Refuse two models of one name.

    Raises:
        RequestError: there are two.
    """
    seen = {own}
    for other in others:
        if other.name in seen:
            raise RequestError(
                f"Two models are called '{other.name}'; give one another name: "
                f"--beside '{other.model} name=another'."
            )
        seen.add(other.name)


def at(name: str, found: _Found) -> _Found:
    """Tell what was found of a model beside the first as that model's; a file has a name of its own."""
    told: object = found
    if isinstance(found, Measurement):
        told = replace(found, scope=f"{name}/{found.scope}" if found.scope else name)
    elif isinstance(found, Doubt):
        told = replace(found, seen=f"{name}: {found.seen}")
    elif isinstance(found, Failure):
        told = replace(found, message=f"{name}: {found.message}")
    return cast("_Found", told)


def of(name: str, measurements: Iterable[Measurement]) -> Iterator[Measurement]:
    """Give what was measured of a model beside the first, as if it were the only one."""
    for found in measurements:
        if found.scope == name:
            yield replace(found, scope="")
        elif found.scope.startswith(f"{name}/"):
            yield replace(found, scope=found.scope.removeprefix(f"{name}/"))


def first(names: Sequence[str], measurements: Iterable[Measurement]) -> Iterator[Measurement]:
    """Give what was measured of the first model, and of the server."""
    for found in measurements:
        if found.scope.partition("/")[0] not in names:
            yield found


def each(query: Query, own: str, beside: Sequence[str]) -> tuple[Query, ...]:
    """Give the queries that one stands for: of every model, unless it names one.

    Args:
        query: as a user asks it.
        own: the name of the first model.
        beside: those of the others.
    """
    if query.scope == own:
        return (replace(query, scope=""),)
    if query.scope or query.metric not in PER_MODEL:
        return (query,)
    return (query, *(replace(query, scope=name) for name in beside))


def told(query: Query, own: str) -> Query:
    """Give a query such that it names its model: the first of several is called `own`; empty: it is alone."""
    return replace(query, scope=own) if own and not query.scope and query.metric in PER_MODEL else query


def knobs(own: Iterable[Knob], beside: Iterable[str]) -> tuple[Knob, ...]:
    """Give the knobs of all models on a server: those of the others with their names in front."""
    table = tuple(own)
    return (
        *table,
        *(
            replace(knob, name=f"{name}.{knob.name}", aliases=tuple(f"{name}.{a}" for a in knob.aliases))
            for name in beside
            for knob in table
        ),
    )


def parts(config: Mapping[str, KnobValue], beside: Sequence[str]) -> tuple[dict[str, KnobValue], ...]:
    """Divide what is set, by the model that it is for: the first, then each of the others."""
    return tuple(
        {
            name.removeprefix(f"{model}.") if model else name: value
            for name, value in config.items()
            if whose(name, beside) == model
        }
        for model in ("", *beside)
    )


def whose(name: str, beside: Iterable[str]) -> str:
    """Say which model beside the first a knob or a load is of; empty for the first."""
    return next((model for model in beside if name.startswith(f"{model}.")), "")
