"""A Result as the nested dictionaries that people are used to: sections of named numbers.

Times are milliseconds and memory is bytes, as each section says; a number that is not there was not
measured. The Result itself has everything, in base units and with its doubts: `Figures.result`.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from modeldyno.core.metrics.measurement import Distribution, Measurement
from modeldyno.core.stats.statistics import unpack
from modeldyno.errors import UncertifiedWarning

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from modeldyno.core.result.result import Result
    from modeldyno.core.result.trace_data import Executed

_MS = 1e3
_PERCENTILES = ("p50", "p90", "p95", "p99")
_BATCH_BY_TOKENS = 2
"""Dimensions of such an input."""
_UNSEEN = {"layers": "unseen-layers", "held": "process-memory-only", "timeline": "process-memory-only"}
"""Section to the doubt that says why it is missing."""
_TOKENS = re.compile(r"(?:^|_)(?:ids|tokens?)$")
"""Ends the name of an input whose second axis counts tokens."""


class Absent(KeyError):
    """A number that was not measured; its text says why."""

    def __str__(self) -> str:
        return str(self.args[0])


class Section(dict[str, Any]):
    """Named numbers; reading a percentile that is no claim yet warns."""

    def __init__(
        self, numbers: Mapping[str, Any], missing: Mapping[str, int] | None = None, *, more: str = "num_runs"
    ) -> None:
        """Take the numbers, how many effective samples each percentile lacks, and what asks for more."""
        super().__init__(numbers)
        self.missing = dict(missing or {})
        self._more = more

    def __getitem__(self, name: str) -> Any:
        if self.missing.get(name):
            warnings.warn(
                f"{name} lacks {self.missing[name]:,} effective samples to be a claim; this is the plain "
                f"quantile of the calls that were made. Ask for more with {self._more}.",
                UncertifiedWarning,
                stacklevel=2,
            )
        return super().__getitem__(name)

    def __missing__(self, name: str) -> Any:
        raise Absent(f"'{name}' was not measured; there is {', '.join(self)}.")


class Figures(Mapping[str, Any]):
    """Sections by name: ``figures["latency"]["mean"]`` is milliseconds.

    ``latency``
        mean, std, min, max, p50, p90, p95, p99 in ms; runs; warmup_runs, which were left out.
    ``throughput``
        samples_per_second, batches_per_second, and where the input is tokens, tokens_per_second: those of
        the input, padding included.
    ``memory``
        Bytes. peak is what the allocator of the device held at most, or on a CPU the process tree above
        what it was before loading (a live object was there before: what the calls added); peak_of names
        the metric. per_sample is the peak over the batch.
        average is that of the process tree. weights, process_peak, allocator_reserved and allocated_peak
        stand by themselves. fragmentation is a fraction.
    ``compute``
        flops and macs of one call (a MAC is 2 FLOPs); coverage, the share of operators counted; parameters;
        model_size on disk and activation_bytes, predicted, in bytes.
    ``resources``
        cpu_utilization in cores; what devices, disks and network did, in base units.
    ``layers``, ``operators``, ``timeline``, ``held``
        Of the second pass, where it was asked for.
    """

    def __init__(
        self,
        result: Result | None,
        *,
        failure: str | None = None,
        configuration: Mapping[str, Any] | None = None,
    ) -> None:
        """View a Result; where there is none, `failure` says why."""
        self.result = result
        self.failure = failure or (_failed(result) if result is not None else None)
        """What went wrong, in a sentence, or None."""
        self.configuration = dict(configuration or {})
        """What was asked for, in a benchmark."""
        self._sections = {} if result is None else sections(result)

    def having(self, sections: Mapping[str, Any]) -> Figures:
        """Give the same with other sections; an empty one is left out."""
        found = Figures(self.result, failure=self.failure, configuration=self.configuration)
        found._sections = {name: part for name, part in {**self._sections, **sections}.items() if part}
        return found

    def __getitem__(self, name: str) -> Any:
        if name not in self._sections:
            doubts = () if self.result is None else self.result.doubts
            unseen = next((found.seen for found in doubts if found.code == _UNSEEN.get(name)), "")
            why = self.failure or unseen or f"there is {', '.join(self._sections) or 'nothing'}"
            raise Absent(f"'{name}' was not measured: {why.rstrip('.')}.")
        return self._sections[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._sections)

    def __len__(self) -> int:
        return len(self._sections)

    def __repr__(self) -> str:
        failed = f", failed: {self.failure}" if self.failure else ""
        return f"<Figures: {', '.join(self._sections) or 'none'}{failed}>"

    def _repr_html_(self) -> str:
        return self.result._repr_html_() if self.result is not None else f"<p>{self.failure}</p>"


def _failed(result: Result) -> str | None:
    if not result.failures:
        return None
    first = result.failures[0]
    return f"the run failed in {first.where}: {first.message}"


def sections(result: Result) -> dict[str, Any]:
    """Give the sections that there is anything in."""
    found = {name: make(result) for name, make in _SECTIONS.items()}
    return {name: section for name, section in found.items() if section}


# --- numbers ----------------------------------------------------------------------------------


def value(result: Result, metric: str, statistic: str = "mean", scope: str = "") -> float | None:
    """Give a number in base units, uncertified; None where it was not measured."""
    found = result.find(metric, scope)
    if found is None:
        return None
    return found.value.statistic(statistic) if isinstance(found.value, Distribution) else found.value


def _known(numbers: Mapping[str, Any]) -> dict[str, Any]:
    return {name: number for name, number in numbers.items() if number is not None}


def _latency(result: Result) -> Section:
    found = result.find("latency")
    if found is None or not isinstance(found.value, Distribution):
        return Section({})
    times = found.value
    return Section(
        {
            **_times(times, ("mean", "std", "min", "max", *_PERCENTILES)),
            "runs": len(times),
            "warmup_runs": times.warmup_dropped,
        },
        {name: times.missing(name) for name in _PERCENTILES},
    )


def _times(found: Distribution, statistics: Iterable[str]) -> dict[str, float]:
    return {name: _MS * found.statistic(name) for name in statistics}


def _throughput(result: Result) -> Section:
    samples = value(result, "throughput")
    tokens = _tokens(result)
    return Section(
        _known(
            {
                "samples_per_second": samples,
                "batches_per_second": value(result, "batch_rate"),
                "tokens_per_second": samples * tokens if samples is not None and tokens else None,
                "generated_tokens_per_second": value(result, "token_rate"),
            }
        )
    )


def _tokens(result: Result) -> int | None:
    """Give the tokens of a sample, where an input of whole numbers is named for them."""
    for spec in result.inputs:
        length = spec.shape[-1] if spec.shape is not None and len(spec.shape) == _BATCH_BY_TOKENS else None
        whole = (spec.dtype or "").startswith(("int", "uint"))
        if isinstance(length, int) and whole and _TOKENS.search(spec.name):
            return length
    return None


def _memory(result: Result) -> Section:
    reserved, process = value(result, "allocator_reserved"), value(result, "process_memory", "max")
    peak = process if reserved is None else reserved
    samples = _samples(result)
    return Section(
        _known(
            {
                "peak": peak,
                "peak_of": None
                if peak is None
                else "process_memory"
                if reserved is None
                else "allocator_reserved",
                "per_sample": None if peak is None or not samples else peak / samples,
                "average": value(result, "process_memory", "mean"),
                "weights": value(result, "weight_bytes"),
                "process_peak": process,
                "process_baseline": value(result, "process_memory", scope="baseline"),
                "allocator_reserved": reserved,
                "allocated_peak": value(result, "allocated_peak"),
                "growth_per_call": value(result, "memory_growth"),
                "fragmentation": value(result, "fragmentation"),
            }
        )
    )


def _samples(result: Result) -> int:
    """Give the samples in one call: as many as samples per second go into batches per second."""
    samples, batches = value(result, "throughput"), value(result, "batch_rate")
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
    return Section(_known({name: value(result, metric) for name, metric in _COMPUTE.items()}))


def _resources(result: Result) -> Section:
    """Give the whole as a number, and devices by their names."""
    found: dict[str, Any] = {}
    for metric in _RESOURCES:
        of_metric = [m for m in result.measurements if m.metric == metric]
        if of_metric:
            numbers = {m.scope: _mean(m) for m in of_metric}
            found[metric] = numbers.get("", numbers)
    return Section(found)


def _mean(found: Measurement) -> float:
    return found.value.statistic("mean") if isinstance(found.value, Distribution) else found.value


# --- the second pass ----------------------------------------------------------------------------


def _layers(result: Result) -> dict[str, dict[str, Any]]:
    """Give each layer by its path: times in ms, of all its calls in one call of the model.

    mean and share have what lies within it in them, self and self_share have not.
    """
    layers = result.activity.layers if result.activity is not None else ()
    own = {layer.path: value(result, "self_time", scope=layer.path) or 0.0 for layer in layers}
    whole = sum(own.values())
    return {
        layer.path: _known(
            {
                "kind": layer.kind,
                "calls": layer.calls,
                "output": layer.output or None,
                **_layer_times(result, layer.path),
                "self": _MS * own[layer.path],
                "share": _of_whole(value(result, "latency", scope=layer.path), whole),
                "self_share": _of_whole(own[layer.path], whole),
                **{metric: value(result, metric, scope=layer.path) for metric in _OF_LAYER},
            }
        )
        for layer in layers
        if layer.path
    }


def _of_whole(part: float | None, whole: float) -> float | None:
    return part / whole if part is not None and whole else None


_OF_LAYER = ("output_bytes", "parameters", "macs", "flops", "achieved_flops")


def _layer_times(result: Result, path: str) -> dict[str, float]:
    found = result.find("latency", path)
    if found is None or not isinstance(found.value, Distribution):
        return {}
    return _times(found.value, ("mean", "p50", "p95"))


def _operators(result: Result) -> list[dict[str, Any]]:
    """Give what was executed, the costliest first: times in ms."""
    executed = result.activity.executed if result.activity is not None else ()
    return [_executed(found) for found in executed]


def _executed(found: Executed) -> dict[str, Any]:
    return {
        "name": found.name,
        "kind": str(found.kind),
        "layer": found.scope,
        "shapes": found.shapes,
        "calls": found.calls,
        "self": _MS * found.self_time,
        "total": _MS * found.total_time,
        "device": _MS * found.device_time,
        "allocated": found.allocated,
    }


def _timeline(result: Result) -> dict[str, Any]:
    """Give memory in use, moment by moment: milliseconds, and bytes by category."""
    course = result.activity.course if result.activity is not None else None
    if course is None:
        return {}
    return {
        "time": [_MS * float(moment) for moment in unpack(course.times)],
        **{
            category: [float(level) for level in unpack(levels)] for category, levels in course.levels.items()
        },
    }


def _held(result: Result) -> list[dict[str, Any]]:
    """Give what lay in memory at the measured peak, the largest first: bytes."""
    held = result.activity.held if result.activity is not None else ()
    return [{"layer": each.scope, "role": each.role, "bytes": each.bytes} for each in held]


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
