"""A Result as nested dictionaries: sections of named numbers.

Times are in milliseconds and memory in bytes; a missing number was not measured. The Result itself, in base
units and with its doubts, is `Figures.result`.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from modeldyno.base.errors import UncertifiedWarning
from modeldyno.base.metrics.measurement import Distribution, Measurement
from modeldyno.base.stats.statistics import unpack_samples

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from modeldyno.base.result.result import Result
    from modeldyno.base.result.trace_data import ExecutedOp

_MS = 1e3
_PERCENTILES = ("p50", "p90", "p95", "p99")
_TOKEN_DIMENSIONS = 2
"""Number of dimensions of a token input."""
_MISSING_DOUBTS = {
    "layers": "unseen-layers",
    "held": "process-memory-only",
    "timeline": "process-memory-only",
}
"""Section to the doubt that explains why it is missing."""
_IMAGE_DIMENSIONS = 4
_CHANNELS = frozenset({1, 3, 4})
"""Of grey, colour and transparent images."""
_TOKEN_INPUT = re.compile(r"(?:^|_)(?:ids|tokens?)$")
"""End of the name of an input whose second axis counts tokens."""


class NotMeasured(KeyError):
    """A number that was not measured; the message says why."""

    def __str__(self) -> str:
        return str(self.args[0])


class Section(dict[str, Any]):
    """Named numbers; reading a percentile with too few samples warns."""

    def __init__(
        self, numbers: Mapping[str, Any], missing: Mapping[str, int] | None = None, *, more: str = "num_runs"
    ) -> None:
        """Store the numbers, the effective samples that each percentile lacks, and the parameter for more."""
        super().__init__(numbers)
        self.missing = dict(missing or {})
        self._more = more

    def __getitem__(self, name: str) -> Any:
        if self.missing.get(name):
            warnings.warn(
                f"{name} needs {self.missing[name]:,} more effective samples to be certified; this is the "
                f"plain quantile of the measured calls. Measure more with {self._more}.",
                UncertifiedWarning,
                stacklevel=2,
            )
        return super().__getitem__(name)

    def __missing__(self, name: str) -> Any:
        raise NotMeasured(f"'{name}' was not measured; only {', '.join(self)} was.")


class Figures(Mapping[str, Any]):
    """Sections by name: ``figures["latency"]["mean"]`` is milliseconds.

    ``latency``
        mean, std, min, max, p50, p90, p95, p99 in ms; runs; warmup_runs, which were dropped.
    ``throughput``
        samples_per_second, batches_per_second, requests_per_second (a call is a request where there is no
        server); for inputs of images, images_per_second; for token inputs, tokens_per_second: input tokens,
        padding included.
    ``memory``
        Bytes. peak is the maximum held by the device's allocator, or on a CPU the growth of the process tree
        since before loading (for a live object, which was loaded before: the growth by the calls); peak_of
        names the metric. per_sample is the peak divided by the batch size. average is that of the process
        tree. weights, process_peak, allocator_reserved and allocated_peak are metrics of the same name.
        fragmentation is a fraction.
    ``compute``
        flops and macs of one call (a MAC is 2 FLOPs); coverage, the share of operators counted; parameters;
        model_size on disk and activation_bytes, predicted, in bytes.
    ``resources``
        cpu_utilization in cores; activity of devices, disks and network, in base units.
    ``layers``, ``operators``, ``timeline``, ``held``
        From the second pass, if requested.
    """

    def __init__(
        self,
        result: Result | None,
        *,
        failure: str | None = None,
        configuration: Mapping[str, Any] | None = None,
        measure_again: Callable[[int], Result | None] | None = None,
    ) -> None:
        """View a Result; without one, `failure` says why.

        `measure_again` measures the same in as many fresh processes as given, if that is possible.
        """
        self.result = result
        self.measure_again = measure_again
        self.failure = failure or (_describe_failure(result) if result is not None else None)
        """What went wrong, in a sentence, or None."""
        self.configuration = dict(configuration or {})
        """The configuration, in a benchmark."""
        self._sections = {} if result is None else sections(result)

    def with_sections(self, sections: Mapping[str, Any]) -> Figures:
        """Return a copy with other sections; empty ones are dropped."""
        copy = Figures(
            self.result,
            failure=self.failure,
            configuration=self.configuration,
            measure_again=self.measure_again,
        )
        copy._sections = {name: part for name, part in {**self._sections, **sections}.items() if part}
        return copy

    def __getitem__(self, name: str) -> Any:
        if name not in self._sections:
            doubts = () if self.result is None else self.result.doubts
            explanation = next(
                (doubt.seen for doubt in doubts if doubt.code == _MISSING_DOUBTS.get(name)), ""
            )
            measured = f"only {', '.join(self._sections)}" if self._sections else "nothing"
            why = self.failure or explanation or f"{measured} was measured"
            raise NotMeasured(f"'{name}' was not measured: {why.rstrip('.')}.")
        return self._sections[name]

    def __str__(self) -> str:
        """Return the report of the Result, as printing the Result does; without one, what went wrong."""
        return super().__str__() if self.result is None else str(self.result)

    def __iter__(self) -> Iterator[str]:
        return iter(self._sections)

    def __len__(self) -> int:
        return len(self._sections)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "measure_again": None}  # a copy for another process has no model

    def __repr__(self) -> str:
        failed = f", failed: {self.failure}" if self.failure else ""
        return f"<Figures: {', '.join(self._sections) or 'none'}{failed}>"

    def _repr_html_(self) -> str:
        return self.result._repr_html_() if self.result is not None else f"<p>{self.failure}</p>"


def _describe_failure(result: Result) -> str | None:
    failure = result.failure
    return None if failure is None else f"the run failed in {failure.where}: {failure.message}"


def sections(result: Result) -> dict[str, Any]:
    """Return the non-empty sections."""
    all_sections = {name: make(result) for name, make in _SECTIONS.items()}
    return {name: section for name, section in all_sections.items() if section}


# --- numbers ----------------------------------------------------------------------------------


def _drop_missing(numbers: Mapping[str, Any]) -> dict[str, Any]:
    return {name: number for name, number in numbers.items() if number is not None}


def _latency(result: Result) -> Section:
    measurement = result.find("latency")
    if measurement is None or not isinstance(measurement.value, Distribution):
        return Section({})
    latency = measurement.value
    return Section(
        {
            **_times(latency, ("mean", "std", "min", "max", *_PERCENTILES)),
            "runs": len(latency),
            "warmup_runs": latency.warmup_dropped,
        },
        {name: latency.missing(name) for name in _PERCENTILES},
    )


def _times(distribution: Distribution, statistics: Iterable[str]) -> dict[str, float]:
    return {name: _MS * distribution.statistic(name) for name in statistics}


def _throughput(result: Result) -> Section:
    samples = result.number("throughput")
    tokens = _tokens_per_sample(result)
    return Section(
        _drop_missing(
            {
                "samples_per_second": samples,
                "images_per_second": samples if _takes_images(result) else None,
                "batches_per_second": result.number("batch_rate"),
                "requests_per_second": _requests_per_second(result),
                "tokens_per_second": samples * tokens if samples is not None and tokens else None,
                "generated_tokens_per_second": result.number("token_rate"),
            }
        )
    )


def _takes_images(result: Result) -> bool:
    """Return whether one input alone has the shape of images: with 1, 3 or 4 channels, first or last."""
    shapes = [spec.shape for spec in result.inputs]
    if len(shapes) != 1 or shapes[0] is None or len(shapes[0]) != _IMAGE_DIMENSIONS:
        return False
    return not _CHANNELS.isdisjoint((shapes[0][1], shapes[0][-1]))


def _requests_per_second(result: Result) -> float | None:
    """Return the requests that were answered: a call is one where there is no server."""
    rate = result.number("request_rate")
    return result.number("batch_rate") if rate is None else rate


def _tokens_per_sample(result: Result) -> int | None:
    """Return the tokens per sample, if an integer input has a name for tokens."""
    for spec in result.inputs:
        length = spec.shape[-1] if spec.shape is not None and len(spec.shape) == _TOKEN_DIMENSIONS else None
        is_integer = (spec.dtype or "").startswith(("int", "uint"))
        if isinstance(length, int) and is_integer and _TOKEN_INPUT.search(spec.name):
            return length
    return None


def _memory(result: Result) -> Section:
    reserved, process = (
        result.number("allocator_reserved"),
        result.number("process_memory", statistic="max"),
    )
    peak = process if reserved is None else reserved
    samples = _samples_per_call(result)
    return Section(
        _drop_missing(
            {
                "peak": peak,
                "peak_of": None
                if peak is None
                else "process_memory"
                if reserved is None
                else "allocator_reserved",
                "per_sample": None if peak is None or not samples else peak / samples,
                "average": result.number("process_memory", statistic="mean"),
                "weights": result.number("weight_bytes"),
                "process_peak": process,
                "process_baseline": result.number("process_memory", scope="baseline"),
                "allocator_reserved": reserved,
                "allocated_peak": result.number("allocated_peak"),
                "growth_per_call": result.number("memory_growth"),
                "fragmentation": result.number("fragmentation"),
            }
        )
    )


def _samples_per_call(result: Result) -> int:
    """Return the samples in one call: samples per second divided by batches per second."""
    samples, batches = result.number("throughput"), result.number("batch_rate")
    if samples and batches:
        return round(samples / batches)
    return int(result.job.config.get("batch_size") or 0)


_COMPUTE = {
    "flops": "flops",
    "macs": "macs",
    "coverage": "coverage",
    "parameters": "parameters",
    "trainable_parameters": "trainable_parameters",
    "model_size": "file_bytes",
    "activation_bytes": "activation_peak",
}
_RESOURCES = (
    "cpu_utilization", "gpu_utilization", "device_memory", "power", "energy", "temperature", "clock",
    "disk_read", "disk_written", "network_received", "network_sent", "context_switches",
)  # fmt: skip


def _compute(result: Result) -> Section:
    return Section(_drop_missing({name: result.number(metric) for name, metric in _COMPUTE.items()}))


def _resources(result: Result) -> Section:
    """Return each resource metric as a number, or by device name."""
    resources: dict[str, Any] = {}
    for metric in _RESOURCES:
        of_metric = [m for m in result.measurements if m.metric == metric]
        if of_metric:
            numbers = {m.scope: _mean(m) for m in of_metric}
            resources[metric] = numbers.get("", numbers)
    return Section(resources)


def _mean(measurement: Measurement) -> float:
    return (
        measurement.value.statistic("mean")
        if isinstance(measurement.value, Distribution)
        else measurement.value
    )


# --- the second pass ----------------------------------------------------------------------------


def _layers(result: Result) -> dict[str, dict[str, Any]]:
    """Return each layer by its path: times in ms of all its calls in one call of the model.

    mean and share include child layers; self and self_share do not.
    """
    layers = result.activity.layers if result.activity is not None else ()
    self_times = {layer.path: result.number("self_time", scope=layer.path) or 0.0 for layer in layers}
    total = sum(self_times.values())
    return {
        layer.path: _drop_missing(
            {
                "kind": layer.kind,
                "calls": layer.calls,
                "output": layer.output or None,
                **_layer_times(result, layer.path),
                "self": _MS * self_times[layer.path],
                "share": _share(result.number("latency", scope=layer.path), total),
                "self_share": _share(self_times[layer.path], total),
                **{metric: result.number(metric, scope=layer.path) for metric in _OF_LAYER},
            }
        )
        for layer in layers
        if layer.path
    }


def _share(part: float | None, total: float) -> float | None:
    return part / total if part is not None and total else None


_OF_LAYER = ("output_bytes", "parameters", "macs", "flops", "achieved_flops")


def _layer_times(result: Result, path: str) -> dict[str, float]:
    measurement = result.find("latency", path)
    if measurement is None or not isinstance(measurement.value, Distribution):
        return {}
    return _times(measurement.value, ("mean", "p50", "p95"))


def _operators(result: Result) -> list[dict[str, Any]]:
    """Return the executed operators, the slowest first: times in ms."""
    executed = result.activity.executed if result.activity is not None else ()
    return [_executed(operator) for operator in executed]


def _executed(operator: ExecutedOp) -> dict[str, Any]:
    return {
        "name": operator.name,
        "kind": str(operator.kind),
        "layer": operator.scope,
        "shapes": operator.shapes,
        "calls": operator.calls,
        "self": _MS * operator.self_time,
        "total": _MS * operator.total_time,
        "device": _MS * operator.device_time,
        "allocated": operator.allocated,
    }


def _timeline(result: Result) -> dict[str, Any]:
    """Return the memory in use over time: milliseconds, and bytes by category."""
    course = result.activity.course if result.activity is not None else None
    if course is None:
        return {}
    return {
        "time": [_MS * float(moment) for moment in unpack_samples(course.times)],
        **{
            category: [float(level) for level in unpack_samples(levels)]
            for category, levels in course.levels.items()
        },
    }


def _held(result: Result) -> list[dict[str, Any]]:
    """Return what was in memory at the measured peak, the largest first: bytes."""
    held = result.activity.held if result.activity is not None else ()
    return [{"layer": item.scope, "role": item.role, "bytes": item.bytes} for item in held]


_SECTIONS: dict[str, Callable[[Result], Any]] = {
    "latency": _latency,
    "throughput": _throughput,
    "memory": _memory,
    "compute": _compute,
    "resources": _resources,
    "layers": _layers,
    "operators": _operators,
    "timeline": _timeline,
    "held": _held,
}
