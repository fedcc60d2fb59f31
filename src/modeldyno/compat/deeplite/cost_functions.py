"""Complexity and time of a model, from the static analysis and the measuring of ModelDyno."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from modeldyno.base.metrics.doubt import noteworthy_doubts
from modeldyno.base.views.python_wording import translate_doubts
from modeldyno.compat.deeplite.declared_costs import declared_costs, standing_in
from modeldyno.compat.deeplite.device_name import Device
from modeldyno.compat.deeplite.forward_pass import DataLoader, ForwardPass, leaves, map_leaves
from modeldyno.compat.deeplite.frameworks import FILE, TORCH, call_model, framework_of, load_file
from modeldyno.compat.deeplite.layer_table import LayerRow, LayerTable
from modeldyno.compat.deeplite.profiler_functions import ProfilerFunction
from modeldyno.compat.deeplite.status_metrics import (
    ExecutionTime,
    Flops,
    InvalidStatus,
    LayerwiseData,
    LayerwiseSummary,
    MemoryFootprint,
    ModelSize,
    NumberWithInterval,
    StatusKey,
    TotalParams,
)
from modeldyno.profiling.api.arrays import is_array
from modeldyno.profiling.api.profile import inspect, profile

if TYPE_CHECKING:
    from collections.abc import Callable

    from modeldyno.base.result.result import Result


class ComputeComplexity(ProfilerFunction):
    """Computes what a model costs, without running it: MACs, parameters, bytes, and the same by layer.

    The keys are `flops` (MACs of a sample), `total_params`, `model_size` and `memory_footprint` (bytes),
    `layerwise_summary` (text) and `layerwise_data` (a `LayerTable`). Modules of torch with a
    method ``compute_module_complexity(inputs, output)`` say themselves what they cost, see `declared_costs`;
    only for these is the model called once.

    Args:
        num_bytes: bytes of an element of the parameters; None counts each in its own data type.
        export: whether to write ``layerwise_data.csv`` and ``layerwise_data.svg``, the picture of the memory
            by layer, into the working directory.
    """

    def __init__(self, num_bytes: float | None = None, export: bool = False) -> None:
        self._num_bytes, self._export = num_bytes, export

    _keys: ClassVar[tuple[type[StatusKey], ...]] = (
        Flops,
        TotalParams,
        ModelSize,
        MemoryFootprint,
        LayerwiseSummary,
        LayerwiseData,
    )

    def get_bounded_status_keys(self) -> tuple[StatusKey, ...]:
        """Return the keys that it computes."""
        return tuple(key() for key in self._keys)

    def __call__(
        self,
        model: Any,
        data_splits: Any,
        split: str | None = None,
        batch_size: int = 1,
        device: Any = Device.CPU,
        include_weights: bool = True,
    ) -> dict[str, Any]:
        """Compute them; without `include_weights` the footprint leaves weights out.

        MACs are of one sample, as times are; the footprint is of one call of `batch_size` samples.

        Args:
            model: a ``torch.nn.Module``, a model of Keras, or the path of a file; it keeps its device and
                modes.
            data_splits: loaders by name; random inputs are like the first batch of `split`.
            split: by default the first one.
            batch_size: samples in a call.
            device: where the model is called for declared costs; counts do not depend on it.
            include_weights: whether the footprint holds the weights.
        """
        loader, inputs = _loader_and_inputs(data_splits, split, batch_size)
        table = _analyse(model, loader, inputs, device, self._num_bytes).of_each(batch_size)
        if self._export:
            Path("layerwise_data.csv").write_text(table.to_csv(), encoding="utf-8")
            Path("layerwise_data.svg").write_text(table.to_svg(), encoding="utf-8")
        totals = table[""]
        weights = totals.parameter_bytes + totals.buffer_bytes
        values = {
            "flops": totals.macs,
            "total_params": totals.parameters,
            "model_size": totals.parameter_bytes,
            "memory_footprint": totals.held_bytes + (weights if include_weights else 0),
            "layerwise_summary": str(table),
            "layerwise_data": table,
        }
        return {key.NAME: values[key.NAME] for key in self._keys}


class ComputeFlops(ComputeComplexity):
    """Computes only `flops`."""

    _keys = (Flops,)


class ComputeSize(ComputeComplexity):
    """Computes only `model_size` and `memory_footprint`."""

    _keys = (ModelSize, MemoryFootprint)


class ComputeParams(ComputeComplexity):
    """Computes only `total_params`."""

    _keys = (TotalParams,)


class ComputeLayerwiseSummary(ComputeComplexity):
    """Computes only `layerwise_summary` and `layerwise_data`."""

    _keys = (LayerwiseSummary, LayerwiseData)


class ComputeExecutionTime(ProfilerFunction):
    """Computes the median time of a sample in milliseconds, with its 95 % interval.

    Args:
        max_time: seconds to measure at most.
    """

    varies = True

    def __init__(self, max_time: float = 2.0) -> None:
        self._max_time = max_time

    def get_bounded_status_keys(self) -> StatusKey:
        """Return the key that it computes."""
        return ExecutionTime()

    def __call__(
        self,
        model: Any,
        data_splits: Any,
        split: str | None = None,
        batch_size: int = 1,
        device: Any = Device.CPU,
    ) -> NumberWithInterval:
        """Measure calls with random inputs like the first batch of `split`, by default the first one."""
        loader, inputs = _loader_and_inputs(data_splits, split, batch_size)
        called, arguments, _ = _subject(model, loader.forward_pass, inputs)
        result = profile(
            called,
            **arguments,
            probes="latency",
            max_time=self._max_time,
            store=False,
            progress=False,
            **framework_of(model).settings(Device(device)),
        )
        interval = result.ask("latency.p50").interval
        median = result["latency.p50.raw"] or 0.0
        ends = (max(0.0, interval.low), interval.high) if interval else (0.0, inf)
        disturbed = "; ".join(doubt.seen for doubt in noteworthy_doubts(result.doubts))
        middle, low, high = (seconds * 1000 / batch_size for seconds in (median, *ends))
        return NumberWithInterval(middle, low, high, disturbed)


def _loader_and_inputs(data_splits: Any, split: str | None, batch_size: int) -> tuple[DataLoader, Any]:
    """Return the loader of a split, by default the first one, and random inputs of so many samples."""
    if not data_splits or (split is not None and split not in data_splits):
        names = ", ".join(data_splits or ()) or "none"
        raise InvalidStatus(f"There is no split '{split or 'train'}'; known: {names}.")
    data = data_splits[split] if split else next(iter(data_splits.values()))
    loader = data if isinstance(data, DataLoader) else DataLoader(data)
    return loader, loader.random_inputs(batch_size)


def _analyse(model: Any, loader: DataLoader, inputs: Any, device: Any, num_bytes: float | None) -> LayerTable:
    """Return the costs of a model and its layers, without calling it unless modules declare theirs."""
    called, arguments, prefix = _subject(model, loader.forward_pass, inputs)
    torch_module = framework_of(model) is TORCH
    declared = declared_costs(model, loader.forward_pass, inputs, device, num_bytes) if torch_module else {}
    with standing_in(model, declared):
        result = inspect(called, **arguments, store=False, progress=False)
    for doubt in translate_doubts(noteworthy_doubts(result.doubts)):
        warnings.warn(f"Complexity: {doubt.seen}; {doubt.advice}.", stacklevel=3)
    buffer_bytes = framework_of(model).buffer_bytes(model, inputs)
    return _layer_table(result, prefix, buffer_bytes, num_bytes).with_declared(declared)


def _subject(model: Any, forward_pass: ForwardPass, inputs: Any) -> tuple[Any, dict[str, Any], str]:
    """Return what is analysed or timed, the arguments of `inspect` for its inputs, and the prefix of paths.

    Random numbers stand for the inputs of a file, in their number of samples.
    """
    if framework_of(model) is FILE:
        names = [spec.name for spec in load_file(model).inputs]
        shapes = ("x".join(map(str, leaf.shape)) for leaf in leaves(inputs))
        texts = [f"{name}={shape}" for name, shape in zip(names, shapes, strict=True)]
        return str(model), {"inputs": texts, "inline": True}, ""
    if framework_of(model) is not TORCH:
        return model, {"example": inputs}, ""
    called, example, prefix = _callable_of_tensors(model, forward_pass, inputs)
    return called, {"example": example}, prefix


def _callable_of_tensors(model: Any, forward_pass: ForwardPass, inputs: Any) -> tuple[Any, Any, str]:
    """Return a module that takes flat tensors, these tensors, and the prefix of the paths of the model in it.

    That is the model itself, unless its inputs are nested or its forward pass calls it in an own way.
    """
    own_call = type(forward_pass).model_call is not ForwardPass.model_call
    flat = inputs.values() if isinstance(inputs, Mapping) else inputs
    if not own_call and all(map(is_array, flat)):
        return model, inputs, ""
    import torch  # slow to import

    class NestedCall(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, *tensors: Any) -> Any:
            rest = iter(tensors)
            nested = map_leaves(lambda _: next(rest), inputs)
            if own_call:
                return forward_pass.model_call(self.model, nested, tensors[0].device)
            return call_model(self.model, nested)

    return NestedCall(), tuple(leaves(inputs)), "model"


def _layer_table(
    result: Result, prefix: str, buffer_bytes: Callable[[str], float], num_bytes: float | None
) -> LayerTable:
    """Return the rows of the static analysis by path in the model.

    Raises:
        RunFailed: the model could not be analysed.
    """
    held_weights = result["weight_bytes"] or 0
    peak = result["memory_peak"] or 0
    assert result.outline is not None
    rows = []
    for module in result.outline.modules:
        path = module.path if not prefix else module.path.removeprefix(prefix).removeprefix(".")
        if prefix and not module.path:
            continue
        scope = module.path if path else ""
        parameters, weights, macs, written, held = (
            result.number(name, scope) or 0
            for name in ("parameters", "weight_bytes", "macs", "bytes_written", "held_at_peak")
        )
        buffers = min(buffer_bytes(path), weights)
        rows.append(
            LayerRow(
                path=path,
                kind=module.kind,
                output=module.output,
                parameters=int(parameters),
                parameter_bytes=weights - buffers if num_bytes is None else parameters * num_bytes,
                buffer_bytes=buffers,
                macs=macs,
                written_bytes=written,
                held_bytes=held if path else peak - held_weights,
            )
        )
    return LayerTable(tuple(rows))
