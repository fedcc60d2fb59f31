"""The probe ``static``: what a model weighs and costs, without running it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from modeldyno.base import plugins
from modeldyno.base.job.devices import find_device, is_cpu
from modeldyno.base.job.input_spec import BATCH, concrete_shape
from modeldyno.base.metrics.doubt import Doubt
from modeldyno.base.metrics.measurement import Measurement
from modeldyno.base.result.static_data import StaticReport
from modeldyno.engine.data.batches import resolve_inputs
from modeldyno.engine.environment import peaks
from modeldyno.engine.interfaces.probe import Pass
from modeldyno.models.interface import Tracing
from modeldyno.models.static.weights import (
    CONVERTED_DTYPES,
    convert_weights,
    module_weight_measurements,
    weight_measurements,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from modeldyno.base.job.devices import DevicePeaks
    from modeldyno.base.metrics.measurement_plan import Plan
    from modeldyno.engine.interfaces.probe import ProbeContext
    from modeldyno.models.static.graph import Graph

needs = None
pass_ = Pass.SECOND


def measure(subject: ProbeContext, plan: Plan) -> Iterator[Measurement | Doubt | StaticReport]:
    """Yield parameters, bytes and sizes; if the loader knows the graph, also FLOPs and memory.

    Raises:
        RequestError: the model cannot be analysed at these sizes.
    """
    del plan
    model, inspection = subject.model, subject.inspection
    if model.weights is not None:
        weights = tuple(model.weights())
        if dtype := _converted_dtype(subject):
            weights = tuple(convert_weights(weights, dtype))
        yield from weight_measurements(weights)
        if inspection.modules:
            yield from module_weight_measurements(weights)
    if model.file_bytes is not None:
        yield Measurement(metric="file_bytes", value=model.file_bytes)
    if model.graph is not None:
        yield from _analyse_graph(subject, model.graph)


def _analyse_graph(
    subject: ProbeContext, graph: Callable[[Tracing], Graph]
) -> Iterator[Measurement | Doubt | StaticReport]:
    from modeldyno.models.flops.registry import formulas
    from modeldyno.models.static.analysis import analyse_model  # the parent only asks `needs`

    inspection, trace = subject.inspection, tracer(subject, graph)
    resolved: list[DevicePeaks] = []

    def devices(dtype: str) -> list[DevicePeaks]:
        named = (_resolve_device(subject, dtype, name) for name in inspection.devices)
        resolved.extend(peaks for peaks in named if peaks is not None)
        return resolved

    for entry in analyse_model(trace, inspection, formulas(plugins.formulas()), devices):
        yield entry
        if isinstance(entry, StaticReport):
            yield from _limit_doubts(entry, subject.model.limits)
    yield from (_BUSY for device in resolved if device.busy)
    if len(resolved) < len(inspection.devices):
        yield _UNMEASURED


def _resolve_device(subject: ProbeContext, dtype: str, name: str) -> DevicePeaks | None:
    """Return the peaks of a device of the table, or of the one here that the model runs on."""
    if name != peaks.NAME:
        return find_device(name)
    computed, device = CONVERTED_DTYPES.get(subject.precision, dtype), subject.device()
    if is_cpu(device):
        return peaks.local_device(computed)
    from modeldyno.engine.environment.accelerator_peaks import accelerator_peaks  # only where one is

    return accelerator_peaks(computed, device)


def _converted_dtype(subject: ProbeContext) -> str:
    """Return the dtype that the model that runs is converted to, if it can be analysed so."""
    return CONVERTED_DTYPES.get(subject.precision, "") if subject.model.converts else ""


def tracer(subject: ProbeContext, graph: Callable[[Tracing], Graph]) -> Callable[[Mapping[str, int]], Graph]:
    """Return a function that traces the graph at given sizes; other dimensions are as in the inputs.

    Raises:
        RequestError: the inputs cannot have the requested sizes.
    """
    inspection = subject.inspection
    first = {name: sizes[0] for name, sizes in inspection.vary.items()}
    shaped = resolve_inputs(
        subject.model,
        subject.inputs,
        batch_size=first.get(BATCH, subject.batch_size),
        sizes={**subject.sizes, **first},
    )

    def trace(sizes: Mapping[str, int]) -> Graph:
        bound = {**shaped.bound, **sizes}
        inputs = tuple(replace(spec, shape=concrete_shape(spec, bound)) for spec in shaped.inputs)
        return graph(
            Tracing(
                inputs=inputs,
                sizes=bound,
                mode=inspection.mode,
                optimizer=inspection.optimizer,
                values=shaped.values(inputs),
                dtype=_converted_dtype(subject),
            )
        )

    return trace


_BUSY = Doubt(
    code="busy-peaks",
    seen="other work ran while the peaks of this machine were measured, so they may be too low, "
    "and the bounds derived from them too high",
    advice="repeat it on an idle machine; the peaks are measured again until it is idle",
)


_UNMEASURED = Doubt(
    code="unmeasured-peaks",
    seen="the peaks of the device that the model runs on could not be measured",
    advice="install torch with support for it, or name it if its peaks are published: `devices=h100`",
)


def _limit_doubts(outline: StaticReport, limits: Mapping[str, int]) -> Iterator[Doubt]:
    for name, limit in limits.items():
        sizes = (outline.sizes, *(point.sizes for point in outline.points))
        if (largest := max(point_sizes.get(name, 0) for point_sizes in sizes)) > limit:
            yield Doubt(
                code="beyond-limit",
                seen=f"{name} is up to {largest:,}, but the model declares a maximum of {limit:,}",
                advice="read these numbers as those of a model with a higher limit; this one may fail",
            )
