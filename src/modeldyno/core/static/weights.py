"""One tensor of a model's state, neutral of any framework, and what a list of them adds up to."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from modeldyno.core.metrics.measurement import Measurement

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


@dataclass(frozen=True, slots=True, kw_only=True)
class Weight:
    """A parameter or a buffer."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    size: int
    """Elements."""
    bytes: int
    """As stored: a quantised or packed tensor takes what it takes."""
    storage: str = ""
    """Tensors of the same non-empty storage share their memory and count once."""
    parameter: bool = True
    """False for a buffer, such as a running mean."""
    trainable: bool = False
    scope: str | None = None
    """The module that it belongs to; None where that is its name without the last part."""


def tally(weights: Iterable[Weight]) -> Iterator[Measurement]:
    """Count parameters, buffers and bytes (in all, and by dtype in the scope), shared storage once."""
    distinct = _distinct(weights)
    by_dtype: Counter[str] = Counter()
    for weight in distinct:
        by_dtype[weight.dtype] += weight.bytes
    yield Measurement(metric="parameters", value=sum(w.size for w in distinct if w.parameter))
    yield Measurement(
        metric="trainable_parameters", value=sum(w.size for w in distinct if w.parameter and w.trainable)
    )
    yield Measurement(metric="buffers", value=sum(w.size for w in distinct if not w.parameter))
    yield Measurement(metric="weight_bytes", value=by_dtype.total())
    for dtype, size in sorted(by_dtype.items()):
        yield Measurement(metric="weight_bytes", scope=dtype, value=size)


def by_module(weights: Iterable[Weight]) -> Iterator[Measurement]:
    """Count parameters and bytes of each module with its children, by its path in the scope.

    A storage that several modules share counts for the first that has it, so that parts add up.
    """
    parameters: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    for weight in _distinct(weights):
        scope = weight.name.rpartition(".")[0] if weight.scope is None else weight.scope
        while scope:
            parameters[scope] += weight.size if weight.parameter else 0
            sizes[scope] += weight.bytes
            scope = scope.rpartition(".")[0]
    for scope, size in sizes.items():
        yield Measurement(metric="parameters", scope=scope, value=parameters[scope])
        yield Measurement(metric="weight_bytes", scope=scope, value=size)


def _distinct(weights: Iterable[Weight]) -> list[Weight]:
    found: dict[str, Weight] = {}
    for weight in weights:
        found.setdefault(weight.storage or weight.name, weight)
    return list(found.values())
