"""The probe ``static``: what a model weighs and costs, without running it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from modeldyno import feeds, peaks, plugins
from modeldyno.core import roofline
from modeldyno.core.analysis import Trace, analyse
from modeldyno.core.counts.table import formulas
from modeldyno.core.inputs import BATCH, concrete
from modeldyno.core.measurement import Measurement
from modeldyno.core.weight import by_module, tally
from modeldyno.ports import Pass, Tracing

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from modeldyno.core.doubt import Doubt
    from modeldyno.core.graph import Graph
    from modeldyno.core.outline import Outline
    from modeldyno.core.plan import Plan
    from modeldyno.core.roofline import Device
    from modeldyno.ports import Subject

needs = None
pass_ = Pass.SECOND


def measure(subject: Subject, plan: Plan) -> Iterator[Measurement | Doubt | Outline]:
    """Give parameters, bytes and sizes, and where the loader knows the graph, operations and memory.

    Raises:
        RequestError: the model cannot be analysed at these sizes.
    """
    del plan
    model, inspection = subject.model, subject.inspection
    if model.weights is not None:
        weights = tuple(model.weights())
        yield from tally(weights)
        if inspection.modules:
            yield from by_module(weights)
    if model.file_bytes is not None:
        yield Measurement(metric="file_bytes", value=model.file_bytes)
    if model.graph is not None:
        table = formulas(plugins.formulas())
        yield from analyse(_trace(subject), inspection, table, lambda dtype: _devices(subject, dtype))


def _trace(subject: Subject) -> Trace:
    inspection = subject.inspection
    first = {name: sizes[0] for name, sizes in inspection.vary.items()}
    inputs, bound = feeds.shapes(
        subject.model,
        subject.inputs,
        batch_size=first.get(BATCH, subject.batch_size),
        sizes=first,
    )

    def trace(sizes: Mapping[str, int]) -> Graph:
        assert subject.model.graph is not None
        found = {**bound, **sizes}
        return subject.model.graph(
            Tracing(
                inputs=tuple(replace(spec, shape=concrete(spec, found)) for spec in inputs),
                sizes=found,
                mode=inspection.mode,
                optimizer=inspection.optimizer,
            )
        )

    return trace


def _devices(subject: Subject, dtype: str) -> tuple[Device, ...]:
    names = subject.inspection.devices
    return tuple(peaks.here(dtype) if name == peaks.NAME else roofline.device_named(name) for name in names)
