"""Values inside a model: what each layer takes and returns, and where a converted graph has the same values.

A layer is a module of the source, named by its path. A graph knows of each of its steps to which modules it
belonged: what a module took enters its steps from outside, and what it returned leaves them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from math import prod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from numpy import ndarray

MOST_VALUES = 2**26
"""Numbers that are kept of all layers together; of more, each layer keeps evenly spaced ones."""
_LEAST_VALUES = 4096
"""Numbers that are kept of each layer, however many layers there are."""


class End(StrEnum):
    """Which end of a layer."""

    INPUT = "input"
    OUTPUT = "output"


@dataclass(frozen=True, slots=True, kw_only=True)
class InnerValue:
    """One array that a layer takes or returns."""

    shape: tuple[int, ...]
    values: ndarray
    """All its numbers as rows of samples, or evenly spaced ones of each row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """A layer is entered or left: moments in their order are the run of a model."""

    layer: str
    """Path of the module; empty for the model itself."""
    kind: str
    """Its class, such as ``Linear``."""
    end: End
    values: tuple[InnerValue, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphStep:
    """A node of a converted graph."""

    inputs: tuple[str, ...]
    """Names of values, without constants."""
    outputs: tuple[str, ...]
    scopes: tuple[str, ...]
    """Paths of the modules that it belonged to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopeEnds:
    """The values that enter and leave the steps of a module, in the order of the graph."""

    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()

    def at(self, end: End) -> tuple[str, ...]:
        """Return the values of one end."""
        return self.inputs if end is End.INPUT else self.outputs


def most_values(layers: int) -> int:
    """Return how many numbers each of so many layers keeps at each end."""
    return max(_LEAST_VALUES, MOST_VALUES // max(1, 2 * layers))


def keep_value(array: ndarray, batch: int | None, most: int) -> InnerValue:
    """Copy an array, thinned to about `most` numbers that are the same for each sample."""
    rows = batch if batch and array.shape[:1] == (batch,) else 1
    flat = array.reshape(rows, -1) if array.size else array.reshape(rows, 0)
    step = max(1, -(-flat.shape[1] * rows // max(1, most)))
    return InnerValue(shape=array.shape, values=flat[:, ::step].copy())


def ends_of_scopes(steps: Iterable[GraphStep], returned: Collection[str]) -> dict[str, ScopeEnds]:
    """Return what enters and leaves each module of a graph.

    A step of unknown modules may belong to any: the end of a module that touches one is left empty.

    Args:
        steps: the nodes in their order.
        returned: the values that the graph returns.
    """
    made: dict[str, tuple[str, ...]] = {}
    unknown: set[tuple[str, End]] = set()
    entering: dict[str, dict[str, None]] = {}
    leaving: dict[str, dict[str, None]] = {}
    for step in steps:
        for scope in step.scopes:
            entering.setdefault(scope, {})
            leaving.setdefault(scope, {})
        for value in step.inputs:
            homes = made.get(value, ())
            for scope in set(step.scopes).difference(homes):
                entering[scope][value] = None
                if value in made and not homes:
                    unknown.add((scope, End.INPUT))
            for scope in set(homes).difference(step.scopes):
                leaving[scope][value] = None
                if not step.scopes:
                    unknown.add((scope, End.OUTPUT))
        for value in step.outputs:
            made[value] = step.scopes
            for scope in step.scopes if value in returned else ():
                leaving[scope][value] = None
    return {
        scope: ScopeEnds(
            inputs=() if (scope, End.INPUT) in unknown else tuple(entering[scope]),
            outputs=() if (scope, End.OUTPUT) in unknown else tuple(leaving[scope]),
        )
        for scope in entering
    }


def match_layers(layers: Sequence[str], scopes: Collection[str]) -> dict[str, str]:
    """Match layers with modules of a graph by their paths; exporters put a prefix before all of them."""
    prefixes = Counter(
        scope.removesuffix(layer)
        for layer in layers
        for scope in scopes
        if layer and (scope == layer or scope.endswith(f".{layer}"))
    )
    if not prefixes:
        return {}
    prefix = min(prefixes, key=lambda one: (-prefixes[one], len(one)))
    return {layer: prefix + layer for layer in layers if layer and prefix + layer in scopes}


def pair_values(
    source: Sequence[InnerValue], converted: Sequence[InnerValue]
) -> Iterator[tuple[int, InnerValue, InnerValue]]:
    """Yield the values of one end that are certainly the same ones, with their position in the source.

    Values are known by their shape. An only one is known by its place, too: another size is then a
    difference, but the same numbers in another shape are only laid out otherwise.
    """
    if len(source) == len(converted) == 1:
        first, second = source[0], converted[0]
        alike = first.shape == second.shape or prod(first.shape) != prod(second.shape)
        if alike and _kind(first) == _kind(second):
            yield 0, first, second
        return
    shapes = Counter((value.shape, _kind(value)) for value in source)
    others = Counter((value.shape, _kind(value)) for value in converted)
    for position, value in enumerate(source):
        key = value.shape, _kind(value)
        if shapes[key] == others[key] == 1:
            yield position, value, next(other for other in converted if (other.shape, _kind(other)) == key)


def _kind(value: InnerValue) -> str:
    """Return what sort of numbers they are: integers of any width are of one."""
    kind = value.values.dtype.kind
    return "i" if kind in "iu" else kind
