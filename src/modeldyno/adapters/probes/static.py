"""The probe ``static``: what a model weighs and costs, without running it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from modeldyno import data, plugins
from modeldyno.core.metrics.doubt import Doubt
from modeldyno.core.metrics.measurement import Measurement
from modeldyno.core.result.static_data import Outline
from modeldyno.core.spec.devices import device_named
from modeldyno.core.spec.input_spec import BATCH, concrete
from modeldyno.core.static.analysis import analyse
from modeldyno.core.static.flops.registry import formulas
from modeldyno.core.static.weights import by_module, tally
from modeldyno.environment import peaks
from modeldyno.interfaces import Pass, Tracing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from modeldyno.core.metrics.measurement_plan import Plan
    from modeldyno.core.spec.devices import Device
    from modeldyno.core.static.graph import Graph
    from modeldyno.interfaces import Subject

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
        yield from _analysed(subject, model.graph)


def _analysed(subject: Subject, graph: Callable[[Tracing], Graph]) -> Iterator[Measurement | Doubt | Outline]:
    inspection, trace = subject.inspection, tracer(subject, graph)
    places: list[Device] = []

    def devices(dtype: str) -> list[Device]:
        places.extend(map(partial(_device, dtype), inspection.devices))
        return places

    for found in analyse(trace, inspection, formulas(plugins.formulas()), devices):
        yield found
        if isinstance(found, Outline):
            yield from _beyond(found, subject.model.limits)
    yield from (_BUSY for place in places if place.busy)


def _device(dtype: str, name: str) -> Device:
    return peaks.here(dtype) if name == peaks.NAME else device_named(name)


def tracer(subject: Subject, graph: Callable[[Tracing], Graph]) -> Callable[[Mapping[str, int]], Graph]:
    """Give what makes the graph at sizes of some dimensions; the others are as the inputs have them.

    Raises:
        RequestError: the inputs cannot be what was asked for.
    """
    inspection = subject.inspection
    first = {name: sizes[0] for name, sizes in inspection.vary.items()}
    shaped = data.shapes(
        subject.model,
        subject.inputs,
        batch_size=first.get(BATCH, subject.batch_size),
        sizes={**subject.sizes, **first},
    )

    def trace(sizes: Mapping[str, int]) -> Graph:
        bound = {**shaped.bound, **sizes}
        inputs = tuple(replace(spec, shape=concrete(spec, bound)) for spec in shaped.inputs)
        return graph(
            Tracing(
                inputs=inputs,
                sizes=bound,
                mode=inspection.mode,
                optimizer=inspection.optimizer,
                values=shaped.values(inputs),
            )
        )

    return trace


_BUSY = Doubt(
    code="busy-peaks",
    seen="other work ran while the peaks of this machine were measured, so they may be too low, "
    "and the bounds that follow from them too high",
    advice="ask again on a quiet machine; they are measured anew until it is one",
)


def _beyond(outline: Outline, limits: Mapping[str, int]) -> Iterator[Doubt]:
    for name, most in limits.items():
        sizes = (outline.sizes, *(point.sizes for point in outline.points))
        if (largest := max(each.get(name, 0) for each in sizes)) > most:
            yield Doubt(
                code="beyond-limit",
                seen=f"{name} is up to {largest:,}, and the model says that it takes {most:,} at most",
                advice="read these numbers as those of a model that takes as many; this one may fail",
            )
