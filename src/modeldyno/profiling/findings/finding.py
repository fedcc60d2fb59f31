"""A finding: an observation in a Result that suggests an improvement, and what to try."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from modeldyno.base.errors import RequestError
from modeldyno.base.job.input_spec import BATCH
from modeldyno.base.job.job import Job
from modeldyno.base.job.knob import BATCH_SIZE, Knob, KnobValue
from modeldyno.base.job.static_options import Mode
from modeldyno.base.result.result import Result
from modeldyno.base.stats.units import BYTES, SECONDS, format_quantity
from modeldyno.engine.trace.layer_times import RooflinePosition, locate_on_roofline


@dataclass(frozen=True, slots=True, kw_only=True)
class Saving:
    """A possible saving, as a share of the present amount."""

    of: str
    """In words: ``time of a call``, ``time of a sample``, ``latency``, ``memory of the device``."""
    low: float | None
    """Smallest saving; None if it may be a loss, which only a trial can show."""
    high: float
    """Largest saving."""
    basis: str
    """Source of the two ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something to try."""

    seen: str
    """With figures."""
    why: str
    """Why it costs, and what the remedy costs."""
    code: str = ""
    """Key of its rule in `profiling.findings.rules.RULES`."""
    saving: Saving | None = None
    """None if no measurement bounds it."""
    job: Job | None = None
    """The Job to run to see the effect; None if it is not a matter of settings."""
    do: str = ""
    """What to do or to type if there is no such Job."""
    changes_outputs: bool = False
    """Whether outputs of the model may change beyond rounding."""
    metric: str = "throughput"
    """The metric that a trial should improve."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """A Result with derived values, as the rules use it."""

    result: Result
    knobs: Mapping[str, Knob] = field(default_factory=dict)
    """Knobs of its backend by name; nothing else is proposed."""

    @cached_property
    def served(self) -> bool:
        """Whether a server was put under load."""
        return self.result.job.load is not None

    @cached_property
    def trained(self) -> bool:
        """Whether training steps were measured."""
        return self.result.job.inspection.mode is Mode.TRAIN

    @cached_property
    def latency(self) -> float | None:
        """Median seconds of a call."""
        return self.number("latency", statistic="p50")

    @cached_property
    def cores(self) -> int:
        """Cores that may be used; 0 if unknown."""
        facts = self.result.environment.hardware
        limits = [
            fact
            for name in ("cpu_quota", "cores_allowed")
            if isinstance(fact := facts.get(name), int | float)
        ]
        return int(min(limits, default=0))

    @cached_property
    def batch_size(self) -> int:
        """Samples per call."""
        setting = self.result.job.config.get(BATCH_SIZE.name)
        sizes = self.result.outline.sizes if self.result.outline else {}
        return int(setting) if setting is not None else sizes.get(BATCH, 1)

    @cached_property
    def compute_seconds(self) -> float:
        """Seconds for the products of a call at the peak of this machine; 0 if unknown."""
        peak, macs = self.peak("flops"), self.number("causal_macs") or self.number("macs")
        return 2 * macs / peak if peak and macs else 0.0

    @cached_property
    def bound_seconds(self) -> float:
        """The roofline bound of a call on this machine; 0 if unknown."""
        return self.number("roofline_latency", self.result.peaks_scope) or 0.0

    @cached_property
    def place(self) -> RooflinePosition | None:
        """The position of a call on the roofline of this machine."""
        bound, compute = self.bound_seconds, self.compute_seconds
        if self.latency is None or not bound:
            return None
        memory = bound if compute < _COMPUTE_BOUND * bound else 0.0
        return locate_on_roofline(self.latency, min(compute, bound), memory, max(1, self.operators))

    @cached_property
    def operators(self) -> int:
        """Operators that a call runs, according to the analysis."""
        return sum(op.calls for op in self.result.outline.operators) if self.result.outline else 0

    def peak(self, resource: str) -> float | None:
        """Return the peak of the device that it ran on: of ``flops`` or ``bandwidth`` per second."""
        return self.number(f"peak_{resource}", self.result.peaks_scope)

    def number(self, metric: str, scope: str = "", statistic: str = "mean") -> float | None:
        """Return a number, for a distribution a statistic; None if it was not measured."""
        return self.result.number(metric, scope, statistic)

    def doubted(self, code: str) -> str:
        """Return the observation of the doubt with a code; empty if there is none."""
        return next((doubt.seen for doubt in self.result.doubts if doubt.code == code), "")

    def product_share(self, *kinds: str) -> float:
        """Return the share of the products in operators whose kind contains one of these words."""
        operators = self.result.outline.operators if self.result.outline else ()
        total = sum(op.macs for op in operators)
        matching = sum(op.macs for op in operators if any(word in op.kind.lower() for word in kinds))
        return matching / total if total else 0.0

    def weight_share(self, dtype: str) -> float:
        """Return the share of the weights' bytes with a dtype."""
        total = self.number("weight_bytes") or 0.0
        return (self.number("weight_bytes", dtype) or 0.0) / total if total else 0.0

    def setting(self, name: str) -> KnobValue | None:
        """Return the value of a knob: as it was set, or the default."""
        config, knob = self.result.job.config, self.knobs.get(name)
        return config.get(name, knob.usual if knob is not None else None)

    def trial(self, **settings: KnobValue) -> Job | None:
        """Return the Job with other settings; None if the backend lacks a value or has it set."""
        for name, value in settings.items():
            knob = self.knobs.get(name)
            if knob is None or self.setting(name) == value:
                return None
            try:
                knob.parse(value)
            except RequestError:
                return None
        return self.result.job.at(settings)

    def has(self, *names: str) -> str:
        """Return the first of these knobs that the backend has; empty if it has none."""
        return next((name for name in names if name in self.knobs), "")


_COMPUTE_BOUND = 0.999

FindingRule = Callable[[Case], Iterator[Finding]]


def part_of(part: float | None, whole: float | None) -> float:
    """Return the share of a part in a whole; 0 if either is unknown."""
    return part / whole if part and whole else 0.0


def format_seconds(value: float | None) -> str:
    """Format a time."""
    return format_quantity(value or 0.0, SECONDS, 3)


def format_bytes(value: float | None) -> str:
    """Format bytes."""
    return format_quantity(value or 0.0, BYTES, 3)
