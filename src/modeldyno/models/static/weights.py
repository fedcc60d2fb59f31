"""Weights of a model, independent of the framework, and the measurements of a list of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from modeldyno.base.metrics.measurement import Measurement

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
    """As stored, for example packed or quantised."""
    storage: str = ""
    """Tensors with the same non-empty storage share memory and count once."""
    parameter: bool = True
    """False for a buffer, such as a running mean."""
    trainable: bool = False
    scope: str | None = None
    """The module that it belongs to; None for its name without the last part."""


CONVERTED_DTYPES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
"""Precision to the dtype that weights and inputs are converted to."""
_BITS = {"float64": 64, "float32": 32, "bfloat16": 16, "float16": 16}


def convert_weights(weights: Iterable[Weight], dtype: str) -> Iterator[Weight]:
    """Yield the weights with those of floating point in another dtype."""
    for weight in weights:
        if weight.dtype in _BITS and weight.bytes * 8 == weight.size * _BITS[weight.dtype]:
            yield replace(weight, dtype=dtype, bytes=weight.size * _BITS[dtype] // 8)
        else:
            yield weight


def weight_measurements(weights: Iterable[Weight]) -> Iterator[Measurement]:
    """Yield counts of parameters, buffers and bytes (total, and by dtype as scope), shared storage once."""
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


def module_weight_measurements(weights: Iterable[Weight]) -> Iterator[Measurement]:
    """Yield parameters and bytes of each module with its children, the path as scope.

    A storage shared by several modules counts for the first of them, so that the parts add up.
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
    by_storage: dict[str, Weight] = {}
    for weight in weights:
        by_storage.setdefault(weight.storage or weight.name, weight)
    return list(by_storage.values())
