"""The space of configurations: axes with their values, conditions between them, and the points.

A space is never enumerated: a point is computed from its number, so that a million points cost nothing.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from modeldyno.base.errors import RequestError
from modeldyno.base.job.knob import KnobValue
from modeldyno.base.job.number_range import parse_range

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

Point = dict[str, KnobValue]
"""Axis to value, in the order of the axes; an axis whose condition does not hold is left out."""
Key = tuple[tuple[str, KnobValue], ...]
"""Hashable form of a point."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """A parameter to vary, and its values."""

    name: str
    """A knob of the backend, ``concurrency`` or ``rate``, ``backend``, or a dimension of the inputs."""
    values: tuple[KnobValue, ...]
    """Distinct; numbers rise."""
    where: str | None = None
    """An earlier axis that decides whether this one matters; None: it always does."""
    equals: tuple[KnobValue, ...] = ()
    """The values of that axis for which this one matters."""

    @property
    def ordered(self) -> bool:
        """Whether its values are numbers."""
        return all(not isinstance(value, bool | str) for value in self.values)

    def __str__(self) -> str:
        """Write it as `parse_axis` reads it."""
        values = ",".join(map(_format_value, self.values))
        condition = f" if {self.where}={','.join(map(_format_value, self.equals))}" if self.where else ""
        return f"{self.name}={values}{condition}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """All combinations of the values of its axes."""

    axes: tuple[Axis, ...] = ()

    def __post_init__(self) -> None:
        """Refuse an invalid space with one sentence."""
        earlier: dict[str, Axis] = {}
        for axis in self.axes:
            if axis.name in earlier:
                raise RequestError(f"The space has the axis {axis.name} twice; give all its values at once.")
            if not axis.values:
                raise RequestError(f"The axis {axis.name} has no values.")
            if axis.where is not None and axis.where not in earlier:
                raise RequestError(
                    f"The axis {axis.name} depends on {axis.where}, which is no axis before it; put it first."
                )
            if axis.where is not None and (odd := set(axis.equals).difference(earlier[axis.where].values)):
                raise RequestError(
                    f"The axis {axis.name} depends on {axis.where}={_format_value(min(odd, key=str))}, "
                    f"which it never is; {axis.where} may be "
                    f"{', '.join(map(_format_value, earlier[axis.where].values))}."
                )
            earlier[axis.name] = axis

    @property
    def size(self) -> int:
        """Number of points."""
        return self._count_below(0, {})

    def _count_below(self, first_index: int, chosen: Mapping[str, KnobValue]) -> int:
        """Count the points that begin with the chosen values."""
        product = 1
        for index in range(first_index, len(self.axes)):
            axis = self.axes[index]
            if not any(later.where == axis.name for later in self.axes[index + 1 :]):
                product *= len(axis.values) if _matters(axis, chosen) else 1
                continue
            if not _matters(axis, chosen):
                continue
            return product * sum(self._count_below(index + 1, {**chosen, axis.name: v}) for v in axis.values)
        return product

    def points(self) -> Iterator[Point]:
        """Yield all points in the order of their numbers."""
        yield from self._points_from(0, {})

    def _points_from(self, place: int, chosen: Point) -> Iterator[Point]:
        if place == len(self.axes):
            yield dict(chosen)
            return
        axis = self.axes[place]
        if not _matters(axis, chosen):
            yield from self._points_from(place + 1, chosen)
            return
        for value in axis.values:
            yield from self._points_from(place + 1, {**chosen, axis.name: value})

    def holds(self, point: Mapping[str, KnobValue]) -> bool:
        """Return whether a point belongs to the space."""
        axes = [axis for axis in self.axes if _matters(axis, point)]
        return [a.name for a in axes] == list(self.named(point)) and all(
            point[axis.name] in axis.values for axis in axes
        )

    def named(self, point: Mapping[str, KnobValue]) -> Point:
        """Order the values of a point by the axes, without axes that do not matter there."""
        return {a.name: point[a.name] for a in self.axes if a.name in point and _matters(a, point)}

    def completed(self, point: Mapping[str, KnobValue]) -> Point:
        """Return the point with these values; axes that come to matter get their first value."""
        completed_point: Point = {}
        for axis in self.axes:
            if _matters(axis, completed_point):
                completed_point[axis.name] = point.get(axis.name, axis.values[0])
        return completed_point

    def neighbours(self, point: Mapping[str, KnobValue]) -> Iterator[Point]:
        """Yield the points that differ in one axis: by one step of a number, or by any other value."""
        for axis in self.axes:
            if axis.name not in point:
                continue
            index = axis.values.index(point[axis.name])
            indices = (index - 1, index + 1) if axis.ordered else range(len(axis.values))
            for other in indices:
                if other != index and 0 <= other < len(axis.values):
                    yield self.completed({**point, axis.name: axis.values[other]})


def key(point: Mapping[str, KnobValue]) -> Key:
    """Return a key that two points share if and only if they are equal."""
    return tuple(sorted(point.items()))


def product_of_knobs(text: KnobValue, values: Mapping[str, KnobValue]) -> int | str | None:
    """Return a product such as ``2*instances*max_batch`` as a number, by the values of its knobs.

    None if it is no product; the first factor that has no number, if there is one.
    """
    if not isinstance(text, str) or not _FACTORS.fullmatch(text.strip()):
        return None
    numbers: list[float] = []
    for factor in (part.strip() for part in text.split("*")):
        value = int(factor) if factor.isdecimal() else values.get(factor)
        if value is None or isinstance(value, str | bool):
            return factor
        numbers.append(float(value))
    return max(1, round(math.prod(numbers)))


_FACTORS = re.compile(r"[\w.]+(?:\s*\*\s*[\w.]+)+")
"""A product of numbers and knobs, such as ``2*instances*max_batch``."""


def _matters(axis: Axis, point: Mapping[str, KnobValue]) -> bool:
    """Return whether the condition of an axis holds at a point."""
    return axis.where is None or point.get(axis.where) in axis.equals


# --- words -----------------------------------------------------------------------------------------

_AXIS = re.compile(
    r"\s*(?P<name>[\w.\-]+)\s*=(?P<values>.*?)(?:\sif\s+(?P<where>[\w.\-]+)\s*=(?P<equals>.*))?"
)


def parse_axis(text: str) -> Axis:
    """Read ``batch_size=1,2,4``, ``threads=1..4``, ``1..9:2``, ``1..64*2``, or with ``if other=1,2``.

    Raises:
        RequestError: it is none of these.
    """
    match = _AXIS.fullmatch(text)
    if match is None:
        raise RequestError(
            f"'{text}' is not an axis; write knob=values, such as batch_size=1,2,4 or threads=1..4."
        )
    where = match["where"]
    return axis(
        match["name"],
        _split_values(match["values"]),
        where=where,
        equals=_split_values(match["equals"] or ""),
    )


def axis(
    name: str, values: Iterable[KnobValue], *, where: str | None = None, equals: Iterable[KnobValue] = ()
) -> Axis:
    """Make an axis from values or text: expand ranges, sort numbers.

    Raises:
        RequestError: a value is missing, repeated, or an invalid range.
    """
    expanded = [item for value in values for item in _expand(name, value)]
    if not expanded:
        raise RequestError(f"The axis {name} has no values; write {name}=1,2,4 or {name}=1..4.")
    if len(set(expanded)) < len(expanded):  # 1, 1.0 and true are the same key
        raise RequestError(f"The axis {name} has a value twice: {', '.join(map(_format_value, expanded))}.")
    numbers = all(not isinstance(value, bool | str) for value in expanded)
    ordered = sorted(expanded, key=float) if numbers else expanded
    allowed = tuple(item for value in equals for item in _expand(where or name, value))
    if where is not None and not allowed:
        raise RequestError(f"The axis {name} depends on {where}, but on none of its values.")
    return Axis(name=name, values=tuple(ordered), where=where, equals=allowed)


def _split_values(text: str) -> list[str]:
    """Split at commas outside brackets, which may hold others: ``[{"gpus": [0, 1]}],[]``."""
    parts, depth = [""], 0
    for sign in text:
        depth += (sign == "[") - (sign == "]")
        if sign == "," and depth <= 0:
            parts.append("")
        else:
            parts[-1] += sign
    return [part for item in parts if (part := item.strip())]


def _expand(name: str, value: KnobValue) -> Iterator[KnobValue]:
    """Yield the numbers of a range, or the one value of a word."""
    try:
        numbers = parse_range(value) if isinstance(value, str) else None
    except RequestError as error:
        raise RequestError(f"The axis {name}: {error}") from None
    yield from (_parse_value(value),) if numbers is None else numbers


def _parse_value(value: KnobValue) -> KnobValue:
    """Read text as the number or boolean that it looks like."""
    if not isinstance(value, str):
        return value
    text = value.strip()
    if text.lower() in {"true", "false"}:
        return text.lower() == "true"
    for kind in (int, float):
        try:
            number = kind(text)
        except ValueError:
            continue
        return number if math.isfinite(number) else text
    return text


def _format_value(value: KnobValue) -> str:
    """Write a value so that it is read back as one value."""
    if isinstance(value, bool):
        return str(value).lower()
    return f"[{value}]" if isinstance(value, str) and "," in value and value[:1] != "[" else str(value)
