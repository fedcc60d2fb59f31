"""The inputs that a source is measured with, for measuring what was made of it with the same ones.

A converted model declares less than its source: TorchScript no shapes, no form a vocabulary or an example.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from modeldyno import data
from modeldyno.core.spec.input_spec import BATCH, InputSpec
from modeldyno.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from modeldyno.interfaces.loader import Feed, Model

SAMPLES_FILE = "inputs.npz"
"""Real samples, beside the converted model and by its names."""


def measured_inputs(model: Model, requested: tuple[InputSpec, ...]) -> tuple[InputSpec, ...]:
    """Return the inputs that a model is measured with at any batch size, in its order.

    The batch stays free; other dimensions have the sizes that a measurement gives them. Real samples have
    the source `SAMPLES_FILE`: they are those of the model's example. Nothing is returned where a request
    names files, which must be named again, for inputs that are lists or dicts, and where a measurement would
    find no sizes either.
    """
    if any(spec.source for spec in requested) or any(spec.dtype == "object" for spec in model.inputs):
        return ()
    try:
        sized = data.assume_sizes(model, requested, batch_size=None, sizes={})
        resolved = data.resolve_inputs(sized, requested, batch_size=None, sizes={})
    except RequestError:
        return ()
    samples = example_samples(model, requested)
    return tuple(_measured(spec, resolved.bound, samples, resolved.real) for spec in resolved.inputs)


def example_samples(model: Model, requested: tuple[InputSpec, ...]) -> Feed:
    """Return the real samples that a model is measured with: its example's arrays that have a first axis."""
    if requested or model.example is None:
        return {}
    return {name: array for name, array in model.example.items() if array.ndim and array.dtype != object}


def _measured(spec: InputSpec, bound: Mapping[str, int], samples: Feed, real: Feed) -> InputSpec:
    if spec.name in samples:
        array = samples[spec.name]
        return InputSpec(name=spec.name, dtype=spec.dtype or str(array.dtype), source=SAMPLES_FILE)
    shape = spec.shape and tuple(d if d == BATCH else bound.get(str(d), d) for d in spec.shape)
    given = real.get(spec.name)
    if (
        given is not None and given.size == 1 and given.dtype.kind in "iuf"
    ):  # a rate, say: the same in each call
        return replace(spec, shape=shape, low=float(given.item()), high=float(given.item()))
    return replace(spec, shape=shape)


def with_names_of(specs: Sequence[InputSpec], declared: Sequence[InputSpec]) -> tuple[InputSpec, ...]:
    """Return the inputs by the names and dtypes of a converted model.

    It may leave out unused ones; if its names are others, their order is the same.
    """
    own = {spec.name: spec for spec in declared}
    names = own_names([spec.name for spec in specs], list(own))
    return tuple(
        replace(spec, name=names[spec.name], dtype=own[names[spec.name]].dtype or spec.dtype) if own else spec
        for spec in specs
        if spec.name in names
    )


def own_names(names: Sequence[str], declared: Sequence[str]) -> dict[str, str]:
    """Return the name that a converted model has for each input of its source, without unused ones."""
    if not declared:
        return {name: name for name in names}
    shared = {name: name for name in names if name in declared}
    if len(shared) == len(declared) or len(declared) != len(names):
        return shared
    return dict(zip(names, declared, strict=True))
