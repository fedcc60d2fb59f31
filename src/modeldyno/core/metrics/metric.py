"""The table of metrics, which plugins extend, and the grammar of queries.

A query is ``metric[:statistic][.ci|.raw][@scope]``; the statistic may also follow a dot: ``latency.p99``,
``latency:p99.ci``, ``latency.p50@encoder.layer.3``. Metric names hold no dots, scopes may. The same grammar
serves ``show``, ``require`` and ``result[...]``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from modeldyno.core.stats.units import (
    BYTES,
    CELSIUS,
    CORES,
    COUNT,
    FRACTION,
    HERTZ,
    JOULES,
    RATE,
    SECONDS,
    UNITS,
    WATTS,
)
from modeldyno.errors import RequestError, UnknownName

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping


class Better(StrEnum):
    """The direction in which a metric improves."""

    LOWER = "lower"
    HIGHER = "higher"
    NEITHER = "neither"


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A row of the table: a quantity that can be measured."""

    name: str
    unit: str
    better: Better
    sentence: str
    spread: bool = False
    """Whether it is a distribution, so that a bound must name its statistic."""


class MetricTable(dict[str, Metric]):
    """Metrics by name; a missing name is looked up once among the metrics of plugins."""

    def __init__(self, rows: Iterable[tuple[str, Metric]]) -> None:
        """Start with the built-in metrics."""
        super().__init__(rows)
        self._find: Callable[[], Mapping[str, Any]] | None = None

    def complete_from(self, find: Callable[[], Mapping[str, Any]]) -> None:
        """Set the source of further rows; it is called when a name is first missing, because it is slow."""
        self._find = find

    def complete(self) -> None:
        """Add the further rows, if that was not done yet.

        Raises:
            RequestError: one of them is not a Metric, or its name is taken.
        """
        find, self._find = self._find, None
        for name, row in (find() if find else {}).items():
            _check_row(name, row, taken=super().__contains__(name))
            self[name] = row

    def __missing__(self, name: str) -> Metric:
        """Return a metric of a plugin."""
        self.complete()
        if not super().__contains__(name):
            raise KeyError(name)
        return super().__getitem__(name)

    def __contains__(self, name: object) -> bool:
        if not super().__contains__(name):
            self.complete()
        return super().__contains__(name)


def _check_row(name: str, row: Any, *, taken: bool) -> None:
    if not isinstance(row, Metric) or row.name != name:
        raise RequestError(f"A plugin brings the metric '{name}' as {row!r}; write a Metric of that name.")
    if taken or name in EVERYDAY or not _NAME.fullmatch(name):
        raise RequestError(
            f"A plugin brings a metric of the name '{name}', which is taken or has other characters than "
            "a-z, 0-9 and _."
        )
    if row.unit not in UNITS:
        raise RequestError(
            f"A plugin brings the metric '{name}' in '{row.unit}', which is no base unit; use one of "
            f"{', '.join(repr(unit) for unit in UNITS)}."
        )


_NAME = re.compile(r"[a-z][a-z0-9_]*")


def _row(name: str, unit: str, better: Better, sentence: str, *, spread: bool = False) -> tuple[str, Metric]:
    return name, Metric(name=name, unit=unit, better=better, sentence=sentence, spread=spread)


_LOW, _HIGH, _NEITHER = Better.LOWER, Better.HIGHER, Better.NEITHER

METRICS = MetricTable(
    (
        _row(
            "latency",
            SECONDS,
            _LOW,
            "One call of the whole batch, payload ready, device synchronised; under load, a request from the "
            "time that it was due to its last byte.",
            spread=True,
        ),
        _row(
            "self_time", SECONDS, _LOW, "The latency of a module without the modules inside it.", spread=True
        ),
        _row(
            "throughput",
            RATE,
            _HIGH,
            "Samples per second, calls made back to back; under load, those that were answered well.",
        ),
        _row("batch_rate", RATE, _HIGH, "Calls (batches) per second, made back to back."),
        _row(
            "time_to_first_token",
            SECONDS,
            _LOW,
            "From the prompt on the device to the first token of each sample; under load, from when "
            "the request was due to the first piece of its answer that bears a token.",
            spread=True,
        ),
        _row(
            "time_per_output_token",
            SECONDS,
            _LOW,
            "A token after the first one, of each sample: the mean of one generation; under load, the time "
            "from the first piece of an answer to the last one, over the tokens that the server counts "
            "less one.",
            spread=True,
        ),
        _row(
            "inter_token_latency",
            SECONDS,
            _LOW,
            "Each gap between two tokens of one generation, by itself; under load, where every piece is one.",
            spread=True,
        ),
        _row(
            "token_rate",
            RATE,
            _HIGH,
            "Tokens per second of all samples: generated ones, or those of the prompt in the stage prefill; "
            "under load, those of the answers that ended well, as the server counts them.",
        ),
        _row(
            "prompt_tokens",
            COUNT,
            _NEITHER,
            "Tokens of the prompts of a request, the first one, as the server counts them.",
        ),
        _row(
            "time_per_context_token",
            SECONDS,
            _LOW,
            "Time that each token of context adds to a generated one.",
        ),
        _row("load_time", SECONDS, _LOW, "Loading from start to ready: framework, model and session."),
        _row("first_call", SECONDS, _LOW, "The first call after loading, before any warm-up."),
        _row("parameters", COUNT, _LOW, "Parameters, shared storage counted once."),
        _row("trainable_parameters", COUNT, _NEITHER, "Parameters that need a gradient."),
        _row("buffers", COUNT, _LOW, "Elements of state that are not parameters."),
        _row("weight_bytes", BYTES, _LOW, "Bytes of parameters and buffers, shared storage once."),
        _row("macs", COUNT, _LOW, "Multiply-accumulates of matrix products in one call; 1 MAC is 2 FLOPs."),
        _row("causal_macs", COUNT, _LOW, "MACs if causal attention skips the masked part."),
        _row("dense_macs", COUNT, _LOW, "MACs if every expert takes every token."),
        _row("elementwise", COUNT, _LOW, "Elementary operations outside of matrix products in one call."),
        _row("flops", COUNT, _LOW, "Operations in one call: 2 x macs + elementwise."),
        _row("coverage", FRACTION, _HIGH, "Share of the operators called that have a formula."),
        _row("bytes_read", BYTES, _LOW, "Bytes that the operators of one call read, each on its own."),
        _row("bytes_written", BYTES, _LOW, "Bytes that the operators of one call write, each on its own."),
        _row("arithmetic_intensity", COUNT, _HIGH, "Operations for each byte that is read or written."),
        _row("input_bytes", BYTES, _LOW, "Bytes of the inputs of one call."),
        _row("output_bytes", BYTES, _LOW, "Bytes that one call returns."),
        _row("activation_peak", BYTES, _LOW, "Most bytes that one call holds beyond weights and inputs."),
        _row("held_at_peak", BYTES, _LOW, "Bytes of a module's activations at the peak of the whole model."),
        _row("gradient_bytes", BYTES, _LOW, "Bytes of the gradients of the trainable parameters."),
        _row("optimizer_bytes", BYTES, _LOW, "Bytes of the optimiser's state."),
        _row(
            "memory_peak",
            BYTES,
            _LOW,
            "Predicted peak of weights, inputs, state and activations together.",
        ),
        _row(
            "kv_cache_per_token", BYTES, _LOW, "Bytes of keys and values that each token of one sample adds."
        ),
        _row("kv_cache_bytes", BYTES, _LOW, "Bytes of the cache of a whole batch after its last token."),
        _row("largest_batch", COUNT, _HIGH, "Largest batch whose peak fits the given memory."),
        _row(
            "roofline_latency", SECONDS, _LOW, "Lower bound on one call on a device, by its published peaks."
        ),
        _row(
            "eager_latency",
            SECONDS,
            _LOW,
            "Lower bound on one call on a device that runs one operator after the other.",
        ),
        _row(
            "decode_latency",
            SECONDS,
            _LOW,
            "Lower bound on one generated token: weights and cache read once.",
        ),
        _row("achieved_flops", RATE, _HIGH, "Operations per second that a module reaches while it runs."),
        _row("pass_overhead", FRACTION, _LOW, "Median time of a traced call over that of a plain one."),
        _row("unattributed", FRACTION, _LOW, "Share of the time of a call that is spent in no module."),
        _row("peak_flops", RATE, _HIGH, "Most operations per second of a device."),
        _row("peak_bandwidth", RATE, _HIGH, "Most bytes per second that a device moves."),
        _row("file_bytes", BYTES, _LOW, "Bytes of the model's files on disk."),
        _row(
            "process_memory",
            BYTES,
            _LOW,
            "Memory of the process tree above the baseline before loading: loading, the first call and "
            "timed calls, without what the profiler itself takes; of a server, of all its processes, from "
            "which nothing is subtracted.",
            spread=True,
        ),
        _row(
            "allocator_reserved", BYTES, _LOW, "Peak bytes that the framework's allocator held on a device."
        ),
        _row(
            "allocated_peak",
            BYTES,
            _LOW,
            "Most bytes that the allocator gave out at once in one call, beyond weights and inputs.",
        ),
        _row("fragmentation", FRACTION, _LOW, "Share of the allocator's reserve that is idle at the peak."),
        _row("memory_growth", BYTES, _LOW, "Bytes that a call leaves behind in the allocator, on average."),
        _row(
            "step_time",
            SECONDS,
            _LOW,
            "One training step: copy to the device, forward, backward, optimiser.",
            spread=True,
        ),
        _row("calls", COUNT, _NEITHER, "Calls of a named region of code in a whole run."),
        _row("total_time", SECONDS, _LOW, "Time in all calls of a region, nested calls of it counted once."),
        _row("total_self_time", SECONDS, _LOW, "The total time without the named regions inside."),
        _row("allocated", BYTES, _LOW, "Bytes that one call of a region took from an allocator, on average."),
        _row("freed", BYTES, _NEITHER, "Bytes that one call of a region freed, on average."),
        _row("cpu_utilization", CORES, _NEITHER, "Processor time of the process tree, in cores."),
        _row("foreign_cpu", CORES, _LOW, "Busy time of other processes on the allowed cores, in cores."),
        _row("steal", CORES, _LOW, "Time that the hypervisor took from this machine, in cores."),
        _row(
            "checked_calls",
            COUNT,
            _NEITHER,
            "Calls whose outputs were checked, outside of the timed pass: an error in a share p of "
            "all calls goes unseen with probability (1 - p)^checked_calls.",
        ),
        _row("context_switches", COUNT, _LOW, "Voluntary switches of the process during the timed pass."),
        _row("preemptions", COUNT, _LOW, "Involuntary switches of the process during the timed pass."),
        _row("major_faults", COUNT, _LOW, "Pages that the timed pass had to wait for from a disk."),
        _row("disk_read", BYTES, _LOW, "Bytes that the process tree read from disks in the timed pass."),
        _row("disk_written", BYTES, _LOW, "Bytes that the process tree wrote to disks in the timed pass."),
        _row(
            "network_received",
            BYTES,
            _NEITHER,
            "Bytes received during the timed pass by all processes in the network namespace.",
        ),
        _row("network_sent", BYTES, _NEITHER, "Bytes sent by all processes in the network namespace."),
        _row("device_memory", BYTES, _LOW, "Memory that the process tree takes on a device.", spread=True),
        _row("device_used", BYTES, _NEITHER, "Memory in use on a device by all processes.", spread=True),
        _row(
            "gpu_utilization",
            FRACTION,
            _NEITHER,
            "Share of the time in which any kernel ran on a device.",
            spread=True,
        ),
        _row("clock", HERTZ, _HIGH, "Clock of a device's processors in the timed pass.", spread=True),
        _row("memory_clock", HERTZ, _HIGH, "Clock of a device's memory in the timed pass.", spread=True),
        _row("temperature", CELSIUS, _LOW, "Temperature of a device in the timed pass.", spread=True),
        _row("power", WATTS, _LOW, "Power of a device during the timed pass, its idle floor included."),
        _row("idle_power", WATTS, _LOW, "Power of a device just before the model was loaded."),
        _row("energy", JOULES, _LOW, "Energy of one call: what the devices draw above their idle floor."),
        _row(
            "service_time",
            SECONDS,
            _LOW,
            "A request under load, from the time that it was sent to its last byte.",
            spread=True,
        ),
        _row("send_lag", SECONDS, _LOW, "From the time that a request was due to its sending.", spread=True),
        _row("request_rate", RATE, _HIGH, "Requests per second that were answered well."),
        _row("offered_rate", RATE, _NEITHER, "Requests per second that were due, in an open loop."),
        _row("goodput", RATE, _HIGH, "Requests per second that were answered within their bound."),
        _row("error_rate", FRACTION, _LOW, "Share of the requests that were not answered well."),
        _row("requests", COUNT, _NEITHER, "Requests that were due in the steady window, by how they ended."),
        _row("in_flight", COUNT, _NEITHER, "Requests in flight at once, on average."),
        _row("client_cpu", CORES, _LOW, "Processor time of a driver process, in cores."),
        _row("client_time", SECONDS, _LOW, "Processor time of the client per request."),
        _row("queue_time", SECONDS, _LOW, "Wait in the server's queue, by its own account."),
        _row("compute_input_time", SECONDS, _LOW, "Preparing inputs, by the server's own account."),
        _row("compute_time", SECONDS, _LOW, "Running the model, by the server's own account."),
        _row("compute_output_time", SECONDS, _LOW, "Preparing outputs, by the server's own account."),
        _row(
            "network_time",
            SECONDS,
            _LOW,
            "What the server's account leaves of the mean service time: network, protocol and client.",
        ),
        _row("formed_batch", COUNT, _NEITHER, "Samples in a call of the model, as the server formed it."),
        _row("executions", COUNT, _NEITHER, "Calls of the model that the server made, by size of batch."),
        _row(
            "inter_chunk_latency",
            SECONDS,
            _LOW,
            "Each gap between two pieces of an answer that bear tokens; a piece may hold several.",
            spread=True,
        ),
    )
)

EVERYDAY = {
    "speed": "throughput", "fps": "throughput", "rps": "request_rate", "qps": "request_rate",
    "tps": "token_rate", "ttft": "time_to_first_token", "tpot": "time_per_output_token",
    "itl": "inter_token_latency", "time": "latency", "duration": "latency", "runtime": "latency",
    "memory": "process_memory", "ram": "process_memory", "rss": "process_memory",
    "peak_memory": "memory_peak", "gpu_memory": "device_memory", "vram": "device_memory",
    "cpu": "cpu_utilization", "gpu": "gpu_utilization", "params": "parameters", "size": "weight_bytes",
    "flop": "flops", "gflops": "flops", "mac": "macs", "errors": "error_rate",
    "p50": "latency.p50", "p90": "latency.p90", "p95": "latency.p95", "p99": "latency.p99",
    "perf_throughput": "throughput", "perf_latency": "latency", "perf_latency_avg": "latency.mean",
    "perf_latency_p90": "latency.p90", "perf_latency_p95": "latency.p95", "perf_latency_p99": "latency.p99",
    "gpu_used_memory": "device_memory", "cpu_used_ram": "process_memory", "gpu_power_usage": "power",
}  # fmt: skip
"""Common names of metrics to their names here."""
_LISTED = "modeldyno plugins metrics lists all of them, such as latency, throughput and process_memory."

STATISTICS = ("mean", "p50", "std", "min", "max", "cv", "n", "n_eff")
_OWN_UNITS = {"n": COUNT, "n_eff": COUNT, "cv": FRACTION}
_PERCENTILE = re.compile(r"p(\d{1,2}(?:\.\d+)?)")
_QUERY = re.compile(
    r"(?P<metric>[a-z][a-z0-9_]*)"
    r"(?:[.:](?!(?:ci|raw)\Z)(?P<statistic>[a-z][a-z0-9_]*(?:\.\d+)?))?"
    r"(?:\.(?P<part>ci|raw))?"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A query to a Result: a metric with optional statistic, part, and scope."""

    metric: str
    statistic: str | None = None
    part: str | None = None
    scope: str = ""

    @classmethod
    def parse(cls, text: str) -> Query:
        """Read the grammar of this module.

        Raises:
            UnknownName: the metric or the statistic does not exist.
            RequestError: the text does not follow the grammar.
        """
        head, _, scope = text.strip().partition("@")
        match = _QUERY.fullmatch(head)
        if match is None:
            raise RequestError(
                f"'{text}' is not a query; write metric[.statistic][.ci|.raw][@scope], "
                "such as latency.p99 or latency.p50.ci."
            )
        if match["metric"] not in METRICS:
            name = match["metric"]
            meant = EVERYDAY.get(name) or _latency_statistic(name)
            raise UnknownName.among("metric", name, METRICS, meant=meant, listed=_LISTED)
        statistic = match["statistic"]
        return cls(
            metric=match["metric"],
            statistic=None if statistic is None else canonical_statistic(statistic),
            part=match["part"],
            scope=scope,
        )

    @property
    def unit(self) -> str:
        """The base unit of the answer: a statistic such as `n` has its own."""
        return _OWN_UNITS.get(self.statistic or "", METRICS[self.metric].unit)

    def __str__(self) -> str:
        parts = (self.metric, self.statistic, self.part)
        return ".".join(p for p in parts if p) + (f"@{self.scope}" if self.scope else "")


def _latency_statistic(name: str) -> str | None:
    """Read a bare statistic as that of the latency: ``p99``, ``median``."""
    try:
        return f"latency.{canonical_statistic(name)}"
    except UnknownName:
        return None


def canonical_statistic(text: str) -> str:
    """Return the canonical spelling of a statistic: ``median`` is ``p50``, and ``p99.90`` is ``p99.9``.

    Raises:
        UnknownName: there is no such statistic.
    """
    if text == "median":
        return "p50"
    if text in STATISTICS:
        return text
    if fraction_of(text) is None:
        raise UnknownName.among("statistic", text, (*STATISTICS, "median", "p90", "p95", "p99", "p99.9"))
    whole, point, rest = text[1:].partition(".")
    return f"p{int(whole)}{point}{rest}".rstrip("0").rstrip(".") if point else f"p{int(whole)}"


def fraction_of(statistic: str) -> float | None:
    """Return the fraction in (0, 1) of a percentile such as ``p99.9``; None for other statistics."""
    match = _PERCENTILE.fullmatch(statistic)
    if match is None:
        return None
    # Rounded: 99.9 / 100 is not the double nearest to 0.999, at which ranks are cut.
    fraction = round(float(match[1]) / 100, 12)
    return fraction if 0 < fraction < 1 else None
