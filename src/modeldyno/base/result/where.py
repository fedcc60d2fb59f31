"""Conditions on a Result, as a list is filtered by them, and whether they hold; `where_text` reads them.

Numbers and facts are what a store keeps of a Result beside its document, so that 10,000 Results are filtered
without opening one.
"""

from __future__ import annotations

import string
from dataclasses import dataclass, replace
from math import isfinite
from typing import TYPE_CHECKING

from modeldyno.base.metrics.constraints import Answer, Constraint
from modeldyno.base.metrics.measurement import Distribution, Measurement
from modeldyno.base.metrics.metric import Query
from modeldyno.base.metrics.queries import STATISTICS_SHOWN

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from modeldyno.base.job.knob import KnobValue
    from modeldyno.base.result.result import Result

CONFIG = "config."
"""What the names of settings begin with, so that none is taken for a fact such as the framework."""
_LOWER = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounded:
    """A number keeps a bound: ``latency.p99 < 20ms``."""

    constraint: Constraint
    surely: bool = False
    """Whether all of its 95 % interval must."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextCondition:
    """A text equals another, or contains it: the name, the backend, or one of the tags."""

    field: str
    text: str
    contained: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingCondition:
    """A setting or a fact compares with a value as text or as a number."""

    name: str
    """Such as ``config.batch_size`` or ``framework``."""
    sign: str
    """One of ``= ~ < <= > >=``."""
    text: str
    number: float | None = None
    """The text as a number, if it is one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatedSince:
    """It was created at this time or later: ISO 8601, UTC, to the second."""

    time: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HasFailed:
    """Its run failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Not:
    """The inner expression does not hold."""

    inner: Expression


@dataclass(frozen=True, slots=True, kw_only=True)
class AllOf:
    """Every part holds."""

    parts: tuple[Expression, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AnyOf:
    """At least one part holds."""

    parts: tuple[Expression, ...]


Condition = Bounded | TextCondition | SettingCondition | CreatedSince | HasFailed
Expression = Condition | Not | AllOf | AnyOf


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptNumber:
    """A number of a Result, in base units, as conditions see it; None for what is not known or not finite."""

    value: float | None
    """None if it is a percentile that is not certified."""
    raw: float | None
    """Certified or not."""
    low: float | None
    """Lower end of its 95 % interval; of a count, the count; None if it was seen once."""
    high: float | None


def kept_numbers(result: Result) -> dict[str, KeptNumber]:
    """Return the numbers of a Result that conditions can name, by query; those of single modules are not."""
    kept = [m for m in result.measurements if m.scope not in _module_scopes(result)]
    return {str(query): _kept_number(query, kept) for m in kept for query in _queries(m)}


def _module_scopes(result: Result) -> frozenset[str]:
    modules = (module.path for module in result.outline.modules) if result.outline else ()
    traced = (layer.path for layer in result.activity.layers) if result.activity else ()
    counted = (m.scope for m in result.measurements if m.metric == "parameters")
    return frozenset(filter(None, (*modules, *traced, *counted)))


def _queries(measurement: Measurement) -> Iterator[Query]:
    if isinstance(measurement.value, Distribution):
        for name in STATISTICS_SHOWN:
            yield Query(metric=measurement.metric, statistic=name, scope=measurement.scope)
    elif measurement.reported_statistic:
        yield Query(metric=measurement.metric, statistic=measurement.reported_statistic)
    else:
        yield Query(metric=measurement.metric, scope=measurement.scope)


def _kept_number(query: Query, measurements: Sequence[Measurement]) -> KeptNumber:
    answer = Answer.to(query, measurements)
    raw = Answer.to(replace(query, part="raw"), measurements).value
    ends = answer.bounds()
    low, high = (None, None) if answer.observed else (ends.low, ends.high)
    return KeptNumber(value=_finite(answer.value), raw=_finite(raw), low=_finite(low), high=_finite(high))


def _finite(number: float | None) -> float | None:
    return None if number is None or not isfinite(number) else number


def facts(result: Result) -> dict[str, KnobValue]:
    """Return the settings of a Result by ``config.NAME``, and its framework, processor and GPUs."""
    hardware = result.environment.hardware
    named = {
        "framework": result.model.framework if result.model else "",
        "processor": hardware.get("processor", ""),
        "gpu": hardware.get("devices", ""),
    }
    return {
        **{CONFIG + name: value for name, value in result.job.config.items()},
        **{name: value for name, value in named.items() if value},
    }


def as_text(value: KnobValue) -> str:
    """Write a fact as a condition names it: ``true``, ``8``, ``0.5``, ``fp16``."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def as_number(value: KnobValue) -> float | None:
    """Return a fact as a finite number, or None."""
    try:
        number = float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
    except OverflowError:
        return None
    return number if number is not None and isfinite(number) else None


def fold_case(text: str) -> str:
    """Make the letters A to Z small, as every database does; other letters stay."""
    return text.translate(_LOWER)


def conditions(expression: Expression) -> Iterator[Condition]:
    """Yield the conditions of an expression."""
    match expression:
        case AllOf(parts=parts) | AnyOf(parts=parts):
            for part in parts:
                yield from conditions(part)
        case Not(inner=inner):
            yield from conditions(inner)
        case _:
            yield expression


def bound_side(condition: Bounded) -> str:
    """Return which field of a `KeptNumber` must keep the bound."""
    if condition.surely:
        return "high" if condition.constraint.at_most else "low"
    return "raw" if condition.constraint.query.part == "raw" else "value"


def matches(expression: Expression, result: Result, tags: Collection[str] = ()) -> bool:
    """Return whether an expression holds for a Result with these tags.

    A condition on what a Result does not have does not hold; so its negation does.
    """
    match expression:
        case AllOf(parts=parts):
            return all(matches(part, result, tags) for part in parts)
        case AnyOf(parts=parts):
            return any(matches(part, result, tags) for part in parts)
        case Not(inner=inner):
            return not matches(inner, result, tags)
        case _:
            return _holds(expression, result, tags)


def _holds(condition: Condition, result: Result, tags: Collection[str]) -> bool:
    match condition:
        case Bounded(constraint=constraint):
            number = kept_numbers(result).get(str(kept_query(constraint)))
            value = None if number is None else getattr(number, bound_side(condition))
            return value is not None and _compares(value, sign_of(constraint), constraint.bound)
        case TextCondition(field=field, text=text, contained=contained):
            texts = tags if field == "tag" else (result.name if field == "name" else result.job.backend,)
            return any(_is_worded(word, text, contained=contained) for word in texts)
        case SettingCondition(name=name):
            fact = facts(result).get(name)
            return fact is not None and _is_set(fact, condition)
        case CreatedSince(time=time):
            return result.created >= time
        case _:  # HasFailed
            return bool(result.failures)


def kept_query(constraint: Constraint) -> Query:
    """Return the query under which the number of a bound is kept."""
    return replace(constraint.query, part=None)


def sign_of(constraint: Constraint) -> str:
    """Return ``<``, ``<=``, ``>`` or ``>=``."""
    return ("<" if constraint.at_most else ">") + ("" if constraint.strict else "=")


def _compares(value: float, sign: str, bound: float) -> bool:
    if sign.endswith("=") and value == bound:
        return True
    return value < bound if sign.startswith("<") else value > bound if sign.startswith(">") else False


def _is_worded(word: str, text: str, *, contained: bool) -> bool:
    return fold_case(text) in fold_case(word) if contained else word == text


def _is_set(fact: KnobValue, condition: SettingCondition) -> bool:
    if condition.sign == "~" or (condition.sign == "=" and as_text(fact) == condition.text):
        return _is_worded(as_text(fact), condition.text, contained=condition.sign == "~")
    number = as_number(fact)
    if number is None or condition.number is None:
        return False
    return _compares(number, condition.sign, condition.number)
