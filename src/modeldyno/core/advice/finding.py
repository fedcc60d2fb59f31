"""A finding: what was seen in a Result that something may be done about, and what to try."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from modeldyno.core.metrics.measurement import Distribution
from modeldyno.core.result.result import Result
from modeldyno.core.spec.input_spec import BATCH
from modeldyno.core.spec.job import Job
from modeldyno.core.spec.knob import BATCH_SIZE, Knob, KnobValue
from modeldyno.core.spec.static_options import HERE, Mode
from modeldyno.core.stats.units import BYTES, SECONDS, format_quantity
from modeldyno.core.trace.layer_times import Placed, placed
from modeldyno.errors import RequestError


@dataclass(frozen=True, slots=True, kw_only=True)
class Saving:
    """What may be saved, as a part of what is spent now."""

    of: str
    """In words: ``time of a call``, ``time of a sample``, ``latency``, ``memory of the device``."""
    low: float | None
    """At least; None where it may be a loss, which only a trial tells."""
    high: float
    """At most."""
    basis: str
    """Where the two ends come from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something to try."""

    seen: str
    """With figures."""
    why: str
    """How it costs, and what trying it costs."""
    code: str = ""
    """A row of `core.advice.rules.RULES`, which gives it its code."""
    saving: Saving | None = None
    """None where nothing measured bounds it."""
    job: Job | None = None
    """What to run in order to see; None where it is no matter of settings."""
    do: str = ""
    """What to do, or to type, where there is no such job."""
    changes_outputs: bool = False
    """Whether the numbers that the model gives may become others, beyond rounding."""
    metric: str = "throughput"
    """What a trial should improve."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """A Result as rules look at it."""

    result: Result
    knobs: Mapping[str, Knob] = field(default_factory=dict)
    """Of its backend, by name; nothing is proposed that it does not have."""

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
        """Seconds of a typical call."""
        return self.number("latency", statistic="p50")

    @cached_property
    def cores(self) -> int:
        """Cores that may be used; 0 where nobody tells."""
        facts = self.result.environment.hardware
        told = [
            fact
            for name in ("cpu_quota", "cores_allowed")
            if isinstance(fact := facts.get(name), int | float)
        ]
        return int(min(told, default=0))

    @cached_property
    def on_cpu(self) -> bool:
        """Whether the processor ran it, whose peaks are those of `here`."""
        return str(self.result.environment.conditions.get("device", "cpu")).startswith("cpu")

    @cached_property
    def batch_size(self) -> int:
        """Samples in a call."""
        given = self.result.job.config.get(BATCH_SIZE.name)
        sizes = self.result.outline.sizes if self.result.outline else {}
        return int(given) if given is not None else sizes.get(BATCH, 1)

    @cached_property
    def compute_seconds(self) -> float:
        """For the products of a call at the peak of this machine; 0 where that is not known."""
        peak, macs = self.number("peak_flops", HERE), self.number("causal_macs") or self.number("macs")
        return 2 * macs / peak if peak and macs and self.on_cpu else 0.0

    @cached_property
    def bound_seconds(self) -> float:
        """The roofline of a call on this machine; 0 where it is not known."""
        return (self.number("roofline_latency", HERE) or 0.0) if self.on_cpu else 0.0

    @cached_property
    def place(self) -> Placed | None:
        """Where a call stands on the roofline of this machine."""
        bound, compute = self.bound_seconds, self.compute_seconds
        if self.latency is None or not bound:
            return None
        memory = bound if compute < _ALL * bound else 0.0
        return placed(self.latency, min(compute, bound), memory, max(1, self.operators))

    @cached_property
    def operators(self) -> int:
        """Operators that a call runs, as the analysis has it."""
        return sum(op.calls for op in self.result.outline.operators) if self.result.outline else 0

    def number(self, metric: str, scope: str = "", statistic: str = "mean") -> float | None:
        """Give a number; of a distribution a statistic. None where it was not measured."""
        found = self.result.find(metric, scope)
        if found is None:
            return None
        return found.value.statistic(statistic) if isinstance(found.value, Distribution) else found.value

    def doubted(self, code: str) -> str:
        """Give what was seen by the doubt of a code; empty where there is none."""
        return next((doubt.seen for doubt in self.result.doubts if doubt.code == code), "")

    def product_share(self, *kinds: str) -> float:
        """Give the part of the products that operators have whose kinds hold one of these words."""
        found = self.result.outline.operators if self.result.outline else ()
        whole = sum(op.macs for op in found)
        named = sum(op.macs for op in found if any(word in op.kind.lower() for word in kinds))
        return named / whole if whole else 0.0

    def weight_share(self, dtype: str) -> float:
        """Give the part of the weights' bytes that are of a dtype."""
        whole = self.number("weight_bytes") or 0.0
        return (self.number("weight_bytes", dtype) or 0.0) / whole if whole else 0.0

    def setting(self, name: str) -> KnobValue | None:
        """Give what a knob is at: as it was set, or as it usually is."""
        config, knob = self.result.job.config, self.knobs.get(name)
        return config.get(name, knob.usual if knob is not None else None)

    def trial(self, **settings: KnobValue) -> Job | None:
        """Give the Job with other settings; None where the backend has no such knob, value or need of it."""
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
        """Give the first of these knobs that the backend has; empty where it has none."""
        return next((name for name in names if name in self.knobs), "")


_ALL = 0.999

Rule = Callable[[Case], Iterator[Finding]]


def part_of(part: float | None, whole: float | None) -> float:
    """Give a part of a whole; 0 where either is not known."""
    return part / whole if part and whole else 0.0


def seconds(value: float | None) -> str:
    """Show a time."""
    return format_quantity(value or 0.0, SECONDS, 3)


def size(value: float | None) -> str:
    """Show bytes."""
    return format_quantity(value or 0.0, BYTES, 3)
