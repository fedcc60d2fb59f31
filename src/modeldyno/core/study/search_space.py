"""A space of configurations: axes with their values, conditions between them, and its points.

A space is never written out: a point is found by its number, so that a million of them cost nothing.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from modeldyno.core.spec.knob import KnobValue
from modeldyno.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

Point = dict[str, KnobValue]
"""Axis to value, in the order of the axes; an axis whose condition does not hold is left out."""
Key = tuple[tuple[str, KnobValue], ...]
"""A point that can be looked up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """Something that is varied, and the values that it may have."""

    name: str
    """A knob of the backend, ``concurrency`` or ``rate``, ``backend``, or a dimension of the inputs."""
    values: tuple[KnobValue, ...]
    """Distinct; numbers rise."""
    where: str | None = None
    """An axis before this one that decides whether this one matters; None: it always does."""
    equals: tuple[KnobValue, ...] = ()
    """The values of that axis for which it does."""

    @property
    def ordered(self) -> bool:
        """Whether its values are numbers, so that some lie between others."""
        return all(not isinstance(value, bool | str) for value in self.values)

    def __str__(self) -> str:
        """Write it as `parse_axis` reads it."""
        values = ",".join(map(_shown, self.values))
        condition = f" if {self.where}={','.join(map(_shown, self.equals))}" if self.where else ""
        return f"{self.name}={values}{condition}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """All combinations of the values of its axes."""

    axes: tuple[Axis, ...] = ()

    def __post_init__(self) -> None:
        """Refuse, in one sentence, a space that cannot be."""
        seen: dict[str, Axis] = {}
        for axis in self.axes:
            if axis.name in seen:
                raise RequestError(f"The space has the axis {axis.name} twice; give all its values at once.")
            if not axis.values:
                raise RequestError(f"The axis {axis.name} has no values.")
            if axis.where is not None and axis.where not in seen:
                raise RequestError(
                    f"The axis {axis.name} depends on {axis.where}, which is no axis before it; put it first."
                )
            if axis.where is not None and (odd := set(axis.equals).difference(seen[axis.where].values)):
                raise RequestError(
                    f"The axis {axis.name} depends on {axis.where}={_shown(min(odd, key=str))}, which it "
                    f"never is; {axis.where} may be {', '.join(map(_shown, seen[axis.where].values))}."
                )
            seen[axis.name] = axis

    @property
    def size(self) -> int:
        """Points in all."""
        return self._below(0, {})

    def _below(self, place: int, chosen: Mapping[str, KnobValue]) -> int:
        """Count the points that begin with what was chosen."""
        product = 1
        for index in range(place, len(self.axes)):
            axis = self.axes[index]
            if not any(later.where == axis.name for later in self.axes[index + 1 :]):
                product *= len(axis.values) if _matters(axis, chosen) else 1
                continue
            if not _matters(axis, chosen):
                continue
            return product * sum(self._below(index + 1, {**chosen, axis.name: v}) for v in axis.values)
        return product

    def at(self, number: int) -> Point:
        """Give a point by its number, from 0 to `size` - 1; the last axis changes fastest."""
        point: Point = {}
        for index, axis in enumerate(self.axes):
            if not _matters(axis, point):
                continue
            for value in axis.values:
                below = self._below(index + 1, {**point, axis.name: value})
                if number < below:
                    point[axis.name] = value
                    break
                number -= below
            else:
                raise IndexError(number)
        return point

    def points(self) -> Iterator[Point]:
        """Give all points in the order of their numbers."""
        yield from self._from(0, {})

    def _from(self, place: int, chosen: Point) -> Iterator[Point]:
        if place == len(self.axes):
            yield dict(chosen)
            return
        axis = self.axes[place]
        if not _matters(axis, chosen):
            yield from self._from(place + 1, chosen)
            return
        for value in axis.values:
            yield from self._from(place + 1, {**chosen, axis.name: value})

    def holds(self, point: Mapping[str, KnobValue]) -> bool:
        """Say whether a point is one of its own."""
        mine = [axis for axis in self.axes if _matters(axis, point)]
        return [a.name for a in mine] == list(self.named(point)) and all(
            point[axis.name] in axis.values for axis in mine
        )

    def named(self, point: Mapping[str, KnobValue]) -> Point:
        """Put the values of a point in the order of the axes, without those that do not matter there."""
        return {a.name: point[a.name] for a in self.axes if a.name in point and _matters(a, point)}

    def completed(self, point: Mapping[str, KnobValue]) -> Point:
        """Give a point of the space that has these values: axes that came to matter get their first value."""
        found: Point = {}
        for axis in self.axes:
            if _matters(axis, found):
                found[axis.name] = point.get(axis.name, axis.values[0])
        return found

    def neighbours(self, point: Mapping[str, KnobValue]) -> Iterator[Point]:
        """Give the points that differ in one axis: by one step of a number, by any other value else."""
        for axis in self.axes:
            if axis.name not in point:
                continue
            place = axis.values.index(point[axis.name])
            near = (place - 1, place + 1) if axis.ordered else range(len(axis.values))
            for other in near:
                if other != place and 0 <= other < len(axis.values):
                    yield self.completed({**point, axis.name: axis.values[other]})


def key(point: Mapping[str, KnobValue]) -> Key:
    """Give what two points have in common if and only if they are the same."""
    return tuple(sorted(point.items()))


def _matters(axis: Axis, point: Mapping[str, KnobValue]) -> bool:
    """Say whether the condition of an axis holds at a point."""
    return axis.where is None or point.get(axis.where) in axis.equals


# --- words -----------------------------------------------------------------------------------------

_AXIS = re.compile(
    r"\s*(?P<name>[\w.\-]+)\s*=(?P<values>.*?)(?:\sif\s+(?P<where>[\w.\-]+)\s*=(?P<equals>.*))?"
)
_RANGE = re.compile(
    r"(?P<low>-?\d+(?:\.\d+)?)\.\.(?P<high>-?\d+(?:\.\d+)?)(?:(?P<by>[:*])(?P<step>\d+(?:\.\d+)?))?"
)
_MOST = 10_000
"""Values of an axis."""


def parse_axis(text: str) -> Axis:
    """Read ``batch_size=1,2,4``, ``threads=1..4``, ``1..9:2``, ``1..64*2``, or with ``if other=1,2``.

    Raises:
        RequestError: it is none of these.
    """
    match = _AXIS.fullmatch(text)
    if match is None:
        raise RequestError(
            f"'{text}' is no axis of a space; write knob=values, such as batch_size=1,2,4 or threads=1..4."
        )
    where = match["where"]
    return axis(match["name"], _items(match["values"]), where=where, equals=_items(match["equals"] or ""))


def axis(
    name: str, values: Iterable[KnobValue], *, where: str | None = None, equals: Iterable[KnobValue] = ()
) -> Axis:
    """Make an axis of values that may be text: ranges are spread out, numbers are sorted.

    Raises:
        RequestError: there is no value, one stands twice, or a range is none.
    """
    spread = [found for value in values for found in _spread(name, value)]
    if not spread:
        raise RequestError(f"The axis {name} has no values; write {name}=1,2,4 or {name}=1..4.")
    if len(set(spread)) < len(spread):  # 1, 1.0 and true are the same to whoever looks a point up
        raise RequestError(f"The axis {name} has a value twice: {', '.join(map(_shown, spread))}.")
    numbers = all(not isinstance(value, bool | str) for value in spread)
    ordered = sorted(spread, key=float) if numbers else spread
    allowed = tuple(found for value in equals for found in _spread(where or name, value))
    if where is not None and not allowed:
        raise RequestError(f"The axis {name} depends on {where}, but on none of its values.")
    return Axis(name=name, values=tuple(ordered), where=where, equals=allowed)


def _items(text: str) -> list[str]:
    """Split at commas; what stands in brackets belongs together."""
    return [part for item in re.split(r",(?![^\[]*\])", text) if (part := item.strip())]


def _spread(name: str, value: KnobValue) -> Iterator[KnobValue]:
    """Give the numbers of a range, or the one value that a word stands for."""
    match = _RANGE.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        yield _valued(value)
        return
    low, high = _number(match["low"]), _number(match["high"])
    step = _number(match["step"] or "1")
    grows = step > 1 and low > 0 if match["by"] == "*" else step > 0
    if low > high or not grows:
        raise RequestError(f"The axis {name}: '{value}' is no rising range.")
    numbers = _doubled(low, high, step) if match["by"] == "*" else _stepped(low, high, step)
    found = list(islice(numbers, _MOST + 1))
    if len(found) > _MOST:
        raise RequestError(f"The axis {name} has more than {_MOST:,} values in '{value}'; take larger steps.")
    yield from found


def _stepped(low: float, high: float, step: float) -> Iterator[KnobValue]:
    count = math.floor((high - low) / step + 1e-9)
    return (round(low + place * step, _DIGITS) for place in range(count + 1))


def _doubled(low: float, high: float, factor: float) -> Iterator[KnobValue]:
    while low <= high:
        yield round(low, _DIGITS)
        low *= factor


_DIGITS = 12
"""Decimals of a value in a range: 0.1 + 2 x 0.1 is a little more than 0.3."""


def _number(text: str) -> int | float:
    return float(text) if "." in text else int(text)


def _valued(value: KnobValue) -> KnobValue:
    """Read a word as the number or truth that it looks like."""
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


def _shown(value: KnobValue) -> str:
    """Write a value so that it is read as one."""
    if isinstance(value, bool):
        return str(value).lower()
    return f"[{value}]" if isinstance(value, str) and "," in value and value[:1] != "[" else str(value)
