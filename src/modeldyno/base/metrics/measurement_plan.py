"""The measurement plan: limits, target precision and isolation."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from modeldyno.base.metrics.constraints import Constraint
from modeldyno.base.metrics.metric import fraction_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How long and how precisely to measure; in seconds, bytes, counts or fractions."""

    min_runs: int = 20
    """Fewest steady samples of each process before it may stop as converged."""
    min_time: float = 1.0
    """Shortest steady phase of each process, in seconds, before it may stop as converged."""
    max_time: float = 20.0
    """Longest measurement of each process, in seconds, warm-up included."""
    may_extend: bool = False
    """Whether a load whose answers are slow may exceed `max_time`, as it is a default and nobody's wish."""
    max_runs: int = 1_000_000
    """Most steady samples of each process."""
    min_warmup: int = 0
    """Fewest samples that each process excludes as warm-up, even if it settles earlier."""
    target: str = "p50"
    """Statistic whose 95 % interval must shrink: ``"mean"`` or a percentile such as ``"p50"``."""
    precision: float = 0.02
    """Half-width of the target's interval, as a fraction of its value, at which to stop."""
    percentiles: tuple[str, ...] = ()
    """Requested percentiles: measuring continues until each is certified."""
    bounds: tuple[Constraint, ...] = ()
    """Of a load: measuring continues while those on percentiles of its times are open."""
    processes: int = 1
    """Fresh processes to measure in: 1 for a first look, 5 or more for a claim."""
    seed: int = 0
    """Seed of everything random in a measurement: inputs, order, arrivals."""
    timeout: float | None = None
    """Longest life of a child process, in seconds, loading included; None: ten minutes plus the measuring
    time."""
    memory_limit: int | None = None
    """Most memory of a child process, in bytes; None: nine tenths of the machine's."""
    pin: tuple[int, ...] = ()
    """Processors that a child process is pinned to; empty: no pinning."""

    def as_long_as(self, other: Plan) -> Plan:
        """Return this plan with the lengths and the precision of another."""
        return replace(self, **{name: getattr(other, name) for name in LENGTHS})

    def within(self, seconds: float) -> Plan:
        """Return this plan with at most so many seconds of each probe in each process."""
        if seconds >= self.max_time:
            return self
        return replace(self, max_time=seconds, min_time=min(self.min_time, seconds / 2))

    def __post_init__(self) -> None:
        """Refuse an invalid plan with one sentence."""
        for name in (*_NUMBERS, *_LIMITS):
            if isinstance(getattr(self, name), str):
                msg = f"`{name}` is {getattr(self, name)!r}, but must be a number in base units"
                raise ValueError(msg)  # noqa: TRY004 - one kind of error for a plan that cannot be
        for broken, message in _contradictions(self):
            if broken:
                raise ValueError(message)
        for name in (*self.percentiles, *(() if self.target == "mean" else (self.target,))):
            if fraction_of(name) is None:
                msg = f"{name!r} is not a percentile between p0 and p100, such as p50 or p99.9"
                raise ValueError(msg)


LENGTHS = ("min_runs", "min_time", "max_time", "max_runs", "min_warmup", "target", "precision")
"""What says how long each process is measured."""
_NUMBERS = ("min_runs", "min_time", "max_time", "max_runs", "min_warmup", "precision", "processes", "seed")
_LIMITS = ("timeout", "memory_limit")


def _contradictions(plan: Plan) -> tuple[tuple[bool, str], ...]:
    """Return each condition that must not hold, with its message."""
    limits = (plan.timeout, plan.memory_limit)
    return (
        (plan.min_runs < 1, f"`min_runs` is {plan.min_runs}, but at least 1 sample is needed"),
        (plan.max_runs < 1, f"`max_runs` is {plan.max_runs}, but at least 1 sample is needed"),
        (plan.min_warmup < 0, f"`min_warmup` is {plan.min_warmup}, but must not be negative"),
        (
            not 0 <= plan.min_time < math.inf,
            f"`min_time` is {plan.min_time}, but must be finite and not negative",
        ),
        (
            not 0 < plan.max_time < math.inf,
            f"`max_time` is {plan.max_time}, but must be finite and positive",
        ),
        (
            not 0 < plan.precision < 1,
            f"`precision` is {plan.precision}, but must be a fraction between 0 and 1",
        ),
        (plan.processes < 1, f"`processes` is {plan.processes}, but at least 1 is needed"),
        (plan.seed < 0, f"`seed` is {plan.seed}, but must not be negative"),
        (
            any(limit is not None and not limit > 0 for limit in limits),
            "`timeout` and `memory_limit` must be positive, or None for no limit",
        ),
        (
            any(cpu < 0 for cpu in plan.pin) or len(set(plan.pin)) < len(plan.pin),
            f"`pin` is {plan.pin}, but must name distinct processors from 0 up",
        ),
    )
