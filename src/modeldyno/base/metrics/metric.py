"""The table of metrics, which plugins and users extend, and the grammar of queries.

A query is ``metric[:statistic][.ci|.raw][@scope]``; the statistic may also follow a dot: ``latency.p99``,
``latency:p99.ci``, ``latency.p50@encoder.layer.3``. Metric names hold no dots, scopes may. The same grammar
serves ``show``, ``require`` and ``result[...]``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from modeldyno.base.errors import RequestError, UnknownName
from modeldyno.base.stats.units import (
    BYTES,
    CELSIUS,
    CORES,
    COUNT,
    FRACTION,
    GRAMS,
    HERTZ,
    JOULES,
    MONEY,
    RATE,
    SECONDS,
    UNITS,
    WATTS,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Mapping


class CallStage(StrEnum):
    """A stage of a call, in the order in which they follow each other."""

    PREPROCESS = "preprocess"
    """The user's function makes the inputs."""
    COPY = "copy"
    """The backend takes the inputs over, and copies them to the device."""
    COMPUTE = "compute"
    """The model's own call."""
    COPY_BACK = "copy_back"
    """The outputs become arrays on the host."""
    POSTPROCESS = "postprocess"
    """The user's function takes the outputs."""


END_TO_END = "end_to_end"
"""Scope of the sum of all stages."""
CALL_SCOPES = (*CallStage, END_TO_END)
"""Scopes of the latency that are no models, modules or regions of code."""


class Better(StrEnum):
    """The direction in which a metric improves."""

    LOWER = "lower"
    HIGHER = "higher"
    NEITHER = "neither"


class ReportSection(StrEnum):
    """The part of a report that shows a metric."""

    RESULTS = "results"
    """The table of results, in brief and in full."""
    DETAILS = "details"
    """The table of results, only in full."""
    GENERATION = "generation"
    """The part about generated tokens; under load, the table of results."""
    ANALYSIS = "analysis"
    LAYERS = "layers"
    MEMORY = "memory"
    SERVER = "server"
    DEVICES = "devices"
    NOISE = "noise"


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricRow:
    """A row of the table: a quantity that can be measured, and what becomes of it.

    Results list metrics in the order of the table. How the numbers of several processes are pooled follows
    from the measurement: samples are joined, numbers that vary are averaged, and counts must be equal.
    """

    name: str
    unit: str
    better: Better
    sentence: str
    spread: bool = False
    """Whether it is a distribution, so that a bound must name its statistic."""
    family: str = ""
    """Name that metrics share which move together: a comparison counts them as one; empty if it has none."""
    environmental: bool = False
    """Whether it is of the run or the machine, not of the model: compared only on request."""
    derived: bool = False
    """Whether it follows from others: a comparison names its change, without a row in the table."""
    computed: bool = False
    """Whether it is computed from the model, which need not run for it."""
    on_accelerator: bool = False
    """Whether only accelerators have it."""
    section: ReportSection = ReportSection.RESULTS
    label: str = ""
    """What it is called or means in the table of its section, in a few words."""
    shown: tuple[str, ...] = ("mean",)
    """Statistics that the table of results shows of a distribution."""
    sample: str = ""
    """What one sample is, if it is no call and no request."""
    summed: bool = False
    """Whether the table of results has its parts in the note of the sum."""
    under_load: tuple[str, ...] | None = None
    """Statistics that a point of a load curve keeps; empty for a number, None if it keeps none."""
    in_trial: tuple[str, ...] | None = None
    """Statistics that a trial of a study keeps, if not those of `under_load`."""
    main: int = 0
    """Place among the main figures of a Result, from 1; 0 if it is none."""
    gate_rank: int = 0
    """Place among the metrics that a gate judges by default, from 1; 0 if it is none."""
    smallest: float = 0.0
    """Smallest relative change that matters, if other than the usual one."""
    prior_spread: float = 0.0
    """Relative spread between starts of the process, assumed until enough are seen, if other than the usual
    one: what happens once a process depends on what the machine has in its caches."""
    resolution: float = 0.0
    """Difference in base units that counts as none: an allocator takes so much at once."""

    @property
    def trial(self) -> tuple[str, ...] | None:
        """Statistics that a trial of a study keeps; empty for a number, None if it keeps none."""
        return self.under_load if self.in_trial is None else self.in_trial

    @property
    def statistic(self) -> str | None:
        """The statistic that stands for a distribution: of memory the worst, otherwise the median."""
        if not self.spread or self.unit != BYTES:
            return "p50" if self.spread else None
        return "min" if self.better is Better.HIGHER else "max"


class MetricTable(dict[str, MetricRow]):
    """Metrics by name: the built-in ones, those of plugins, which are looked up once, and those of a user.

    A document may hold a metric that is not installed here. It is not in the table, so no request may name
    it; but ``table[name]`` gives the row that the document brought, or a bare one without a unit. There is
    a ``top_<k>`` for every k, of which `top_5` is listed.
    """

    def __init__(self, rows: Iterable[tuple[str, MetricRow]]) -> None:
        """Start with the built-in metrics."""
        super().__init__(rows)
        self._built_in = frozenset(self)
        self._find: Callable[[], Mapping[str, Any]] | None = None
        self._foreign: dict[str, MetricRow] = {}
        self.registered: tuple[MetricRow, ...] = ()
        """The metrics of a user, which a child process has to be told."""

    def complete_from(self, find: Callable[[], Mapping[str, Any]]) -> None:
        """Set the source of further rows; it is called when a name is first missing, because it is slow."""
        self._find = find

    def complete(self) -> None:
        """Add the further rows, if that was not done yet.

        Raises:
            RequestError: one of them is not a MetricRow, or its name is taken.
        """
        find, self._find = self._find, None
        for name, row in (find() if find else {}).items():
            self.check(name, row)
            self[name] = row

    def register(self, row: MetricRow) -> None:
        """Add a metric of a user; the same one again changes nothing.

        Raises:
            RequestError: its name is taken or has other characters than it may, or its unit is no base unit.
        """
        if self[row.name] != row:
            self.check(row.name, row)
            self[row.name] = row
            self.registered += (row,)

    def check(self, name: str, row: object) -> None:
        """Check that a row can be added under a name.

        Raises:
            RequestError: it is not a MetricRow, its name is another, taken or has other characters than it
                may, or its unit is no base unit.
        """
        if not isinstance(row, MetricRow) or row.name != name:
            raise RequestError(
                f"A plugin brings the metric '{name}' as {row!r}; write a MetricRow of that name."
            )
        if row.name in self or row.name in EVERYDAY:
            raise RequestError(f"The name of the metric '{row.name}' is taken; give it another one.")
        if not _NAME.fullmatch(row.name):
            raise RequestError(
                f"A metric cannot be named '{row.name}'; use a-z, 0-9 and _, beginning with a letter."
            )
        if row.unit not in UNITS:
            raise RequestError(
                f"The metric '{row.name}' is in '{row.unit}', which is no base unit; use one of "
                f"{', '.join(repr(unit) for unit in UNITS)}."
            )

    def describe(self, row: MetricRow) -> None:
        """Keep the row that a document brought for a metric that may not be installed here."""
        self._foreign[row.name] = row if row.unit in UNITS else replace(row, unit=COUNT)

    def further(self, names: Iterable[str]) -> tuple[MetricRow, ...]:
        """Return the rows of those names that are not built in, for a document that others may read."""
        return tuple(self[name] for name in sorted({*names} - self._built_in))

    def __missing__(self, name: str) -> MetricRow:
        """Return a metric of a plugin, or the row for one that is not installed here."""
        self.complete()
        if _TOP.fullmatch(name):
            k = name.removeprefix("top_")
            return replace(
                self["top_5"],
                name=name,
                sentence=f"Share of the labelled samples whose label is in the {k} largest outputs.",
            )
        bare = MetricRow(name=name, unit=COUNT, better=Better.NEITHER, sentence="Not installed here.")
        return self.get(name) or self._foreign.get(name, bare)

    def __contains__(self, name: object) -> bool:
        if not super().__contains__(name):
            self.complete()
        return super().__contains__(name) or (isinstance(name, str) and _TOP.fullmatch(name) is not None)


_NAME = re.compile(r"[a-z][a-z0-9_]*")
_TOP = re.compile(r"top_(?:[2-9]|[1-9]\d+)")
"""Shares of labels among the k largest outputs: a metric for every k, of which the table lists one."""


def _row(name: str, unit: str, better: Better, sentence: str, **more: Any) -> tuple[str, MetricRow]:
    return name, MetricRow(name=name, unit=unit, better=better, sentence=sentence, **more)


ANSWERS = "answers"
"""Kin of the metrics that are evaluated on labelled samples, those of plugins too."""
_LOW, _HIGH, _NEITHER = Better.LOWER, Better.HIGHER, Better.NEITHER

# fmt: off
METRICS = MetricTable((
    _row("time_to_first_token", SECONDS, _LOW,
         "From the prompt on the device to the first token of each sample; under load, from when the request"
         " was due to the first piece of its answer that bears a token.",
         spread=True, section=ReportSection.GENERATION, shown=("p50", "p90", "p99"),
         under_load=("p50", "p99"), main=3, gate_rank=3),
    _row("first_token_service_time", SECONDS, _LOW,
         "Under load, from when a request was sent to the first piece of its answer that bears a token; what"
         " most tools call the time to the first token.",
         spread=True, section=ReportSection.DETAILS, shown=("p50", "p99")),
    _row("time_to_first_output_token", SECONDS, _LOW,
         "Under load, where a model reasons before it answers, from when a request was due to the first piece"
         " of the answer itself.",
         spread=True, section=ReportSection.GENERATION, shown=("p50", "p99"), under_load=("p50", "p99")),
    _row("time_per_output_token", SECONDS, _LOW,
         "A token after the first one, of each sample: the mean of one generation; under load, the time from"
         " the first piece of an answer to the last one, over the tokens that the server counts less one.",
         spread=True, family="pace", section=ReportSection.GENERATION, shown=("p50", "p99"),
         under_load=("p50", "p99"), gate_rank=4),
    _row("inter_token_latency", SECONDS, _LOW,
         "Each gap between two tokens of one generation, by itself; under load, where every piece is one.",
         spread=True, family="pace", section=ReportSection.GENERATION, shown=("p50", "p99"),
         under_load=("p50", "p99"), sample="gap"),
    _row("inter_chunk_latency", SECONDS, _LOW,
         "Each gap between two pieces of an answer that bear tokens; a piece may hold several.",
         spread=True, family="pace", section=ReportSection.DETAILS, shown=("p50", "p99"),
         under_load=("p50", "p99"), in_trial=(), sample="gap"),
    _row("user_token_rate", RATE, _HIGH,
         "Tokens per second that a user sees: of each answer, those after the first over the time from its"
         " first piece to its last.",
         spread=True, derived=True, family="pace", section=ReportSection.DETAILS, shown=("p50", "p5"),
         under_load=("p50",)),
    _row("normalized_latency", SECONDS, _LOW,
         "Under load, the latency of a request over the tokens of its answer, which shares the queue and the"
         " prompt out among them.",
         spread=True, family="pace", section=ReportSection.DETAILS, shown=("mean", "p99")),
    _row("token_rate", RATE, _HIGH,
         "Tokens per second of all samples: generated ones, or those of the prompt in the stage prefill; "
         "under load, those of the answers that ended well, as the server counts them.",
         family="speed", section=ReportSection.GENERATION, under_load=(), main=4),
    _row("prompt_token_rate", RATE, _HIGH,
         "Tokens per second of the prompts of the requests that ended well, as the server counts them.",
         family="speed", section=ReportSection.DETAILS, under_load=()),
    _row("latency", SECONDS, _LOW,
         "One call of the whole batch, payload ready, device synchronised; under load, a request from the "
         "time that it was due to its last byte; of the scopes preprocess, copy, compute, copy_back "
         "and postprocess a stage of a call from raw data on, and of end_to_end all of them; of the scope "
         "turn=2 the second requests of sessions.",
         spread=True, family="speed", shown=("p50", "p90", "p95", "p99", "mean", "std", "min"),
         under_load=("mean", "p50", "p95", "p99"), in_trial=("mean", "p50", "p90", "p95", "p99"), main=1,
         gate_rank=1),
    _row("service_time", SECONDS, _LOW,
         "A request under load, from the time that it was sent to its last byte.",
         spread=True, family="speed", section=ReportSection.DETAILS, shown=("p50", "p99", "mean"),
         under_load=("mean", "p50")),
    _row("send_lag", SECONDS, _LOW, "From the time that a request was due to its sending.",
         spread=True, environmental=True, section=ReportSection.DETAILS, shown=("p50", "p99"),
         under_load=("p99",)),
    _row("throughput", RATE, _HIGH,
         "Samples per second, calls made back to back; under load, those that were answered well.",
         family="speed", under_load=(), main=5),
    _row("batch_rate", RATE, _HIGH, "Calls (batches) per second, made back to back.",
         derived=True, family="speed", section=ReportSection.DETAILS, in_trial=()),
    _row("request_rate", RATE, _HIGH, "Requests per second that were answered well.",
         family="speed", section=ReportSection.DETAILS, under_load=(), main=6),
    _row("offered_rate", RATE, _NEITHER, "Requests per second that were due, in an open loop.",
         section=ReportSection.DETAILS),
    _row("goodput", RATE, _HIGH,
         "Requests per second whose answer keeps, by itself, every bound on one of its times.",
         family="speed", section=ReportSection.DETAILS, under_load=()),
    _row("error_rate", FRACTION, _LOW, "Share of the requests that were not answered well.",
         section=ReportSection.DETAILS, under_load=(), main=7, gate_rank=7),
    _row("requests", COUNT, _NEITHER, "Requests that were due in the steady window, by how they ended.",
         section=ReportSection.DETAILS),
    _row("in_flight", COUNT, _NEITHER, "Requests in flight at once, on average.",
         section=ReportSection.SERVER),
    _row("client_cpu", CORES, _LOW, "Processor time of a driver process, in cores.",
         environmental=True, section=ReportSection.SERVER, under_load=()),
    _row("client_time", SECONDS, _LOW, "Processor time of the client per request.",
         environmental=True, section=ReportSection.SERVER),
    _row("client_first_token_error", SECONDS, _LOW,
         "What the client itself adds to the time to a first token: in a moment of the load that is played"
         " again, from the writing of the first piece of an answer to when the client noted it.",
         spread=True, environmental=True, section=ReportSection.DETAILS, shown=("p50", "p99", "mean"),
         sample="answer", under_load=("mean", "p99"), in_trial=()),
    _row("client_gap_error", SECONDS, _LOW,
         "By how much the client itself lengthens or shortens a gap between two pieces, in that moment.",
         spread=True, environmental=True, section=ReportSection.DETAILS, shown=("p50", "p99", "mean"),
         sample="gap", under_load=("mean", "p99"), in_trial=()),
    _row("calibration_lag", SECONDS, _LOW,
         "How late the server of that moment wrote a piece; no error has it, as they count from the writing.",
         spread=True, environmental=True, section=ReportSection.DETAILS, shown=("p50", "p99"),
         sample="write"),
    _row("accuracy", FRACTION, _HIGH, "Share of the labelled samples whose label has the largest output.",
         family=ANSWERS, in_trial=(), main=14, gate_rank=8, smallest=0.005),
    _row("top_5", FRACTION, _HIGH, "Share of the labelled samples whose label is in the 5 largest outputs.",
         family=ANSWERS, in_trial=(), gate_rank=9, smallest=0.005),
    _row("misclassification", FRACTION, _LOW, "Share of the labelled samples that are answered wrong.",
         family=ANSWERS, in_trial=(), gate_rank=10),
    _row("f1", FRACTION, _HIGH, "Mean of the F1 scores of all classes, on the labelled samples.",
         family=ANSWERS, in_trial=(), gate_rank=11, smallest=0.005),
    _row("evaluation_loss", COUNT, _LOW, "Mean cross entropy of the outputs, in nats a sample.",
         family=ANSWERS, in_trial=(), gate_rank=12),
    _row("mean_absolute_error", COUNT, _LOW, "Mean distance of the outputs from the targets, by sample.",
         family=ANSWERS, in_trial=(), gate_rank=13),
    _row("evaluated_samples", COUNT, _NEITHER, "Labelled samples that the model was evaluated on.",
         section=ReportSection.DETAILS),
    _row("load_time", SECONDS, _LOW, "Loading from start to ready: framework, model and session.",
         in_trial=(), smallest=0.25, prior_spread=0.5, summed=True),
    _row("first_call", SECONDS, _LOW,
         "The first call after loading, before any warm-up; of a region of code its first call.",
         in_trial=(), smallest=0.25, prior_spread=0.3),
    _row("process_memory", BYTES, _LOW,
         "Memory of the process tree above the baseline before loading: loading, the first call and timed "
         "calls, without what the profiler itself takes; of a server, of all its processes, from which "
         "nothing is subtracted: `process_memory@idle` is what it holds before the load.",
         spread=True, shown=("max",), in_trial=("max",), main=9, gate_rank=5, smallest=0.05,
         resolution=256 * 1024),
    _row("allocator_reserved", BYTES, _LOW, "Peak bytes that the framework's allocator held on a device.",
         family="device", section=ReportSection.DETAILS),
    _row("cpu_utilization", CORES, _NEITHER, "Processor time of the process tree, in cores.", in_trial=()),
    _row("parameters", COUNT, _LOW, "Parameters, shared storage counted once.",
         computed=True, section=ReportSection.DETAILS, main=11, gate_rank=1),
    _row("trainable_parameters", COUNT, _NEITHER, "Parameters that need a gradient.",
         computed=True, section=ReportSection.DETAILS),
    _row("buffers", COUNT, _NEITHER, "Elements of state that are not parameters.",
         computed=True, section=ReportSection.DETAILS),
    _row("weight_bytes", BYTES, _LOW, "Bytes of parameters and buffers, shared storage once.",
         computed=True, section=ReportSection.DETAILS, in_trial=(), gate_rank=2, summed=True),
    _row("file_bytes", BYTES, _LOW, "Bytes of the model's files on disk.",
         computed=True, section=ReportSection.DETAILS, label="of its files on disk"),
    _row("self_time", SECONDS, _LOW, "The latency of a module without the modules inside it.",
         spread=True, section=ReportSection.LAYERS),
    _row("prompt_tokens", COUNT, _NEITHER,
         "Tokens of the prompts of a request, the first one, as the server counts them; of a turn of chats "
         "their mean.",
         section=ReportSection.DETAILS),
    _row("template_tokens", COUNT, _NEITHER,
         "Tokens that the server adds to each prompt itself, as by its chat template; texts were made that "
         "much shorter, so that prompts have the tokens that were asked for.",
         section=ReportSection.DETAILS),
    _row("cached_prompt_share", FRACTION, _NEITHER,
         "Share of the prompts' tokens that the server had from earlier requests, as its answers say, or its"
         " metrics.",
         section=ReportSection.DETAILS),
    _row("time_per_context_token", SECONDS, _LOW, "Time that each token of context adds to a generated one.",
         section=ReportSection.GENERATION),
    _row("macs", COUNT, _LOW, "Multiply-accumulates of matrix products in one call; 1 MAC is 2 FLOPs.",
         derived=True, computed=True, section=ReportSection.DETAILS,
         label="multiply-accumulates; 1 MAC is 2 FLOPs", main=12, gate_rank=3),
    _row("causal_macs", COUNT, _LOW, "MACs if causal attention skips the masked part.",
         computed=True, section=ReportSection.ANALYSIS, label="if attention skips masked positions"),
    _row("dense_macs", COUNT, _LOW, "MACs if every expert takes every token.",
         computed=True, section=ReportSection.ANALYSIS, label="if every expert processed every token"),
    _row("elementwise", COUNT, _LOW, "Elementary operations outside of matrix products in one call.",
         derived=True, computed=True, section=ReportSection.ANALYSIS,
         label="elementwise operations, in addition"),
    _row("flops", COUNT, _LOW, "Operations in one call: 2 x macs + elementwise.",
         computed=True, section=ReportSection.DETAILS, label="2 x macs + elementwise"),
    _row("coverage", FRACTION, _HIGH, "Share of the operators called that have a formula.",
         environmental=True, computed=True, section=ReportSection.DETAILS,
         label="of the operators called have a formula"),
    _row("bytes_read", BYTES, _LOW, "Bytes that the operators of one call read, each on its own.",
         derived=True, computed=True, section=ReportSection.ANALYSIS,
         label="summed over operators, without fusion"),
    _row("bytes_written", BYTES, _LOW, "Bytes that the operators of one call write, each on its own.",
         derived=True, computed=True, section=ReportSection.ANALYSIS,
         label="summed over operators, without fusion"),
    _row("arithmetic_intensity", COUNT, _HIGH, "Operations for each byte that is read or written.",
         derived=True, computed=True, section=ReportSection.ANALYSIS, label="FLOPs per byte read or written"),
    _row("input_bytes", BYTES, _LOW, "Bytes of the inputs of one call.",
         computed=True, section=ReportSection.ANALYSIS, label="of the inputs of one call"),
    _row("output_bytes", BYTES, _LOW, "Bytes that one call returns.",
         computed=True, section=ReportSection.ANALYSIS, label="of the outputs of one call"),
    _row("kv_cache_per_token", BYTES, _LOW, "Bytes of keys and values that each token of one sample adds.",
         computed=True, section=ReportSection.ANALYSIS, label="added by each token of a sample"),
    _row("activation_peak", BYTES, _LOW, "Most bytes that one call holds beyond weights and inputs.",
         computed=True, section=ReportSection.DETAILS, label="at the peak, without weights and inputs"),
    _row("held_at_peak", BYTES, _LOW, "Bytes of a module's activations at the peak of the whole model.",
         computed=True, section=ReportSection.ANALYSIS),
    _row("gradient_bytes", BYTES, _LOW, "Bytes of the gradients of the trainable parameters.",
         computed=True, section=ReportSection.ANALYSIS, label="of the trainable parameters"),
    _row("optimizer_bytes", BYTES, _LOW, "Bytes of the optimiser's state.",
         computed=True, section=ReportSection.ANALYSIS),
    _row("memory_peak", BYTES, _LOW, "Predicted peak of weights, inputs, state and activations together.",
         computed=True, section=ReportSection.DETAILS, main=13, gate_rank=4),
    _row("kv_cache_bytes", BYTES, _LOW, "Bytes of the cache of a whole batch after its last token.",
         section=ReportSection.GENERATION),
    _row("largest_batch", COUNT, _HIGH, "Largest batch whose peak fits the given memory.",
         computed=True, section=ReportSection.ANALYSIS, main=8),
    _row("roofline_latency", SECONDS, _LOW, "Lower bound on one call on a device, by its published peaks.",
         computed=True, section=ReportSection.ANALYSIS),
    _row("eager_latency", SECONDS, _LOW,
         "Lower bound on one call on a device that runs one operator after the other.",
         computed=True, section=ReportSection.ANALYSIS),
    _row("decode_latency", SECONDS, _LOW, "Lower bound on one generated token: weights and cache read once.",
         computed=True, section=ReportSection.ANALYSIS),
    _row("achieved_flops", RATE, _HIGH, "Operations per second that a module reaches while it runs.",
         section=ReportSection.LAYERS),
    _row("pass_overhead", FRACTION, _LOW, "Median time of a traced call over that of a plain one.",
         environmental=True, section=ReportSection.LAYERS),
    _row("unattributed", FRACTION, _LOW, "Share of the time of a call that is spent in no module.",
         environmental=True, section=ReportSection.LAYERS),
    _row("operator_time", SECONDS, _LOW, "Time of a watched call in its operators, as the profiler sees it.",
         spread=True, environmental=True, section=ReportSection.LAYERS),
    _row("dispatch_time", SECONDS, _LOW, "Time of a watched call outside of its operators.",
         spread=True, environmental=True, section=ReportSection.LAYERS),
    _row("unwatched_time", SECONDS, _LOW, "A call without a profiler, before or after the watched ones.",
         spread=True, environmental=True, section=ReportSection.LAYERS),
    _row("peak_flops", RATE, _HIGH, "Most operations per second of a device.",
         environmental=True, computed=True, section=ReportSection.ANALYSIS),
    _row("peak_bandwidth", RATE, _HIGH, "Most bytes per second that a device moves.",
         environmental=True, computed=True, section=ReportSection.ANALYSIS),
    _row("allocated_peak", BYTES, _LOW,
         "Most bytes that the allocator gave out at once in one call, beyond weights and inputs.",
         family="device", section=ReportSection.MEMORY, gate_rank=6),
    _row("fragmentation", FRACTION, _LOW, "Share of the allocator's reserve that is idle at the peak.",
         environmental=True, section=ReportSection.MEMORY),
    _row("memory_growth", BYTES, _LOW, "Bytes that a call leaves behind in the allocator, on average.",
         environmental=True, section=ReportSection.MEMORY),
    _row("step_time", SECONDS, _LOW, "One training step: copy to the device, forward, backward, optimiser.",
         spread=True, section=ReportSection.MEMORY, main=2, gate_rank=2),
    _row("wait_time", SECONDS, _LOW,
         "Time of a call in a line of the user's code, if calls are mostly on no processor.",
         environmental=True, section=ReportSection.DETAILS),
    _row("calls", COUNT, _NEITHER, "Calls of a named region of code in a whole run.",
         section=ReportSection.DETAILS),
    _row("total_time", SECONDS, _LOW, "Time in all calls of a region, nested calls of it counted once.",
         section=ReportSection.DETAILS),
    _row("total_self_time", SECONDS, _LOW, "The total time without the named regions inside.",
         section=ReportSection.DETAILS),
    _row("allocated", BYTES, _LOW, "Bytes that one call of a region took from an allocator, on average.",
         section=ReportSection.DETAILS),
    _row("freed", BYTES, _NEITHER, "Bytes that one call of a region freed, on average.",
         section=ReportSection.DETAILS),
    _row("operator_calls", COUNT, _LOW, "Operators that ran in one call of a region, if they were recorded.",
         section=ReportSection.DETAILS),
    _row("foreign_cpu", CORES, _LOW, "Busy time of other processes on the allowed cores, in cores.",
         environmental=True, section=ReportSection.NOISE, label="others"),
    _row("steal", CORES, _LOW, "Time that the hypervisor took from this machine, in cores.",
         environmental=True, section=ReportSection.NOISE, label="stolen"),
    _row("checked_calls", COUNT, _NEITHER,
         "Calls whose outputs were checked, outside of the timed pass: an error in a share p of all calls "
         "goes unseen with probability (1 - p)^checked_calls.",
         section=ReportSection.DETAILS),
    _row("context_switches", COUNT, _LOW, "Voluntary switches of the process during the timed pass.",
         environmental=True, section=ReportSection.NOISE, label="context switches"),
    _row("preemptions", COUNT, _LOW, "Involuntary switches of the process during the timed pass.",
         environmental=True, section=ReportSection.NOISE, label="preemptions"),
    _row("major_faults", COUNT, _LOW, "Pages that the timed pass had to wait for from a disk.",
         environmental=True, section=ReportSection.DEVICES),
    _row("memory_available", BYTES, _HIGH,
         "Memory that this machine had left for other processes, from loading on.",
         spread=True, environmental=True, section=ReportSection.DEVICES, shown=("min",), in_trial=("min",)),
    _row("disk_read", BYTES, _LOW, "Bytes that the process tree read from disks in the timed pass.",
         environmental=True, section=ReportSection.DEVICES),
    _row("disk_written", BYTES, _LOW, "Bytes that the process tree wrote to disks in the timed pass.",
         environmental=True, section=ReportSection.DEVICES),
    _row("network_received", BYTES, _NEITHER,
         "Bytes received during the timed pass by all processes in the network namespace.",
         section=ReportSection.DEVICES),
    _row("network_sent", BYTES, _NEITHER, "Bytes sent by all processes in the network namespace.",
         section=ReportSection.DEVICES),
    _row("device_memory", BYTES, _LOW, "Memory that the process tree takes on a device.",
         spread=True, family="device", on_accelerator=True, section=ReportSection.DEVICES, in_trial=("max",),
         main=10),
    _row("device_used", BYTES, _NEITHER, "Memory in use on a device by all processes.",
         spread=True, on_accelerator=True, section=ReportSection.DEVICES),
    _row("device_free", BYTES, _HIGH, "Memory of a device that no process uses.",
         spread=True, environmental=True, on_accelerator=True, section=ReportSection.DEVICES, shown=("min",),
         in_trial=("min",)),
    _row("device_total", BYTES, _NEITHER, "Memory that a device has.",
         on_accelerator=True, section=ReportSection.DETAILS),
    _row("gpu_utilization", FRACTION, _NEITHER, "Share of the time in which any kernel ran on a device.",
         spread=True, on_accelerator=True, section=ReportSection.DEVICES, in_trial=("mean",)),
    _row("clock", HERTZ, _HIGH, "Clock of a device's processors in the timed pass.",
         spread=True, environmental=True, on_accelerator=True, section=ReportSection.DEVICES),
    _row("memory_clock", HERTZ, _HIGH, "Clock of a device's memory in the timed pass.",
         spread=True, environmental=True, on_accelerator=True, section=ReportSection.DEVICES),
    _row("temperature", CELSIUS, _LOW, "Temperature of a device in the timed pass.",
         spread=True, environmental=True, on_accelerator=True, section=ReportSection.DEVICES),
    _row("power", WATTS, _LOW, "Power of a device during the timed pass, its idle floor included.",
         family="power", section=ReportSection.DEVICES, in_trial=()),
    _row("idle_power", WATTS, _LOW, "Power of a device just before the model was loaded.",
         environmental=True, section=ReportSection.DEVICES),
    _row("energy", JOULES, _LOW, "Energy of one call: what the devices draw above their idle floor.",
         family="power", section=ReportSection.DEVICES, in_trial=()),
    _row("energy_per_token", JOULES, _LOW,
         "Energy above the idle floor for each token of the token rate, at the mean power of the pass.",
         family="power", section=ReportSection.DEVICES, in_trial=()),
    _row("energy_drawn", JOULES, _LOW,
         "Energy that a device draws during one call of a region of code, idle floor included, on average.",
         family="power", section=ReportSection.DETAILS),
    _row("carbon", GRAMS, _LOW,
         "CO2 equivalent of 1,000 inferences: power, the idle floor included, at the intensity of `carbon`.",
         family="power", in_trial=(), under_load=()),
    _row("cost", MONEY, _LOW,
         "Price of a million inferences on a machine that is always busy: its price over the throughput, in "
         "the currency of `price`.",
         family="speed", derived=True, section=ReportSection.DETAILS, in_trial=(), under_load=()),
    _row("token_cost", MONEY, _LOW,
         "Price of a million tokens of the token rate on a machine that is always busy, in the currency of"
         " `price`.",
         family="speed", derived=True, section=ReportSection.DETAILS, in_trial=(), under_load=()),
    _row("queue_time", SECONDS, _LOW, "Wait in the server's queue, by its own account.",
         section=ReportSection.SERVER, label="queue", under_load=("mean",)),
    _row("compute_input_time", SECONDS, _LOW, "Preparing inputs, by the server's own account.",
         section=ReportSection.SERVER, label="compute: input", in_trial=("mean",)),
    _row("compute_time", SECONDS, _LOW, "Running the model, by the server's own account.",
         family="speed", section=ReportSection.SERVER, label="compute: model", under_load=("mean",)),
    _row("prefill_time", SECONDS, _LOW,
         "The part of compute_time up to the first token of a request, by the server's own account.",
         section=ReportSection.SERVER, in_trial=("mean",)),
    _row("decode_time", SECONDS, _LOW,
         "The part of compute_time for the tokens after the first, by the server's own account.",
         section=ReportSection.SERVER, in_trial=("mean",)),
    _row("compute_output_time", SECONDS, _LOW, "Preparing outputs, by the server's own account.",
         section=ReportSection.SERVER, label="compute: output", in_trial=("mean",)),
    _row("network_time", SECONDS, _LOW,
         "What the server's account leaves of the mean service time: network, protocol and client.",
         section=ReportSection.SERVER, label="network, protocol and client", in_trial=("mean",)),
    _row("stage_time", SECONDS, _LOW,
         "Stage of a request on its way to the server and back, by the time stamps of a server that traces.",
         section=ReportSection.DETAILS),
    _row("kv_cache_usage", FRACTION, _NEITHER,
         "Share of the cache of keys and values that was in use, as the server says at each reading.",
         spread=True, section=ReportSection.SERVER, shown=("mean", "max"), sample="reading",
         in_trial=("max",)),
    _row("running_requests", COUNT, _NEITHER,
         "Requests that the server worked on at once, as it says at each reading.",
         spread=True, section=ReportSection.SERVER, shown=("mean", "max"), sample="reading",
         in_trial=("mean",)),
    _row("waiting_requests", COUNT, _LOW,
         "Requests that waited in the server, as it says at each reading.",
         spread=True, section=ReportSection.SERVER, shown=("mean", "max"), sample="reading",
         in_trial=("mean",)),
    _row("preempted_requests", COUNT, _LOW,
         "Requests that had to give up their part of the cache to others, as the server counts them.",
         section=ReportSection.SERVER, in_trial=()),
    _row("accepted_token_share", FRACTION, _HIGH,
         "Share of the speculated tokens that the model accepted, as the server counts them.",
         section=ReportSection.SERVER, in_trial=()),
    _row("formed_batch", COUNT, _NEITHER, "Samples in a call of the model, as the server formed it.",
         section=ReportSection.SERVER, in_trial=()),
    _row("instances", COUNT, _NEITHER,
         "Instances or workers that the server runs of the model; of an ensemble, those of all its models.",
         section=ReportSection.SERVER, in_trial=()),
    _row("executions", COUNT, _NEITHER, "Calls of the model that the server made, by size of batch.",
         section=ReportSection.SERVER),
))
# fmt: on

COSTS = {"cost": "throughput", "token_cost": "token_rate"}
"""Metrics that need the price of the machine, each with the rate that it is divided by."""

EVERYDAY = {
    "speed": "throughput", "fps": "throughput", "rps": "request_rate", "qps": "request_rate",
    "tps": "token_rate", "ttft": "time_to_first_token", "tpot": "time_per_output_token",
    "itl": "inter_token_latency", "time": "latency", "duration": "latency", "runtime": "latency",
    "memory": "process_memory", "ram": "process_memory", "rss": "process_memory",
    "peak_memory": "memory_peak", "gpu_memory": "device_memory", "vram": "device_memory",
    "cpu": "cpu_utilization", "gpu": "gpu_utilization", "params": "parameters", "size": "weight_bytes",
    "flop": "flops", "gflops": "flops", "mac": "macs", "errors": "error_rate",
    "p50": "latency.p50", "p90": "latency.p90", "p95": "latency.p95", "p99": "latency.p99",
    "samples_per_second": "throughput", "images_per_second": "throughput",
    "requests_per_second": "request_rate", "tokens_per_second": "token_rate",
    "perf_throughput": "throughput", "perf_latency": "latency", "perf_latency_avg": "latency.mean",
    "perf_latency_p90": "latency.p90", "perf_latency_p95": "latency.p95", "perf_latency_p99": "latency.p99",
    "gpu_used_memory": "device_memory", "cpu_used_ram": "process_memory", "gpu_power_usage": "power",
    "price": "cost", "cost_per_million": "cost", "cost_per_token": "token_cost",
    "gpu_free_memory": "device_free.min", "cpu_free_ram": "memory_available.min",
    "cpu_available_ram": "memory_available.min",
}  # fmt: skip
"""Common names of metrics to their names here."""
_LISTED = "modeldyno plugins metrics lists all of them, such as latency, throughput and process_memory."

STATISTICS = ("mean", "p50", "std", "min", "max", "cv", "n", "n_eff")
_PARTS = ("ci", "raw")
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

    def __post_init__(self) -> None:
        """Refuse a statistic or a part that does not exist, as a document that was changed may have.

        Raises:
            UnknownName: there is none of that name.
        """
        if self.statistic is not None:
            canonical_statistic(self.statistic)
        if self.part not in (None, *_PARTS):
            raise UnknownName.among("part of a statistic", str(self.part), _PARTS)

    @classmethod
    def parse(cls, text: str, also: Container[str] = ()) -> Query:
        """Read the grammar of this module; `also` are metrics of a document that may not be installed.

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
        name = match["metric"]
        if name not in METRICS and name not in also:
            meant = EVERYDAY.get(name) or _latency_statistic(name)
            raise UnknownName.among("metric", name, METRICS, meant=meant, listed=_LISTED)
        statistic = match["statistic"]
        if name == "latency" and statistic in CALL_SCOPES:
            raise UnknownName.among("statistic", str(statistic), STATISTICS, meant=f"latency.p50@{statistic}")
        return cls(
            metric=name,
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
    digits, point, decimals = text[1:].partition(".")
    return f"p{int(digits)}{point}{decimals}".rstrip("0").rstrip(".") if point else f"p{int(digits)}"


def fraction_of(statistic: str) -> float | None:
    """Return the fraction in (0, 1) of a percentile such as ``p99.9``; None for other statistics."""
    match = _PERCENTILE.fullmatch(statistic)
    if match is None:
        return None
    # Rounded: 99.9 / 100 is not the double nearest to 0.999, at which ranks are cut.
    fraction = round(float(match[1]) / 100, 12)
    return fraction if 0 < fraction < 1 else None
