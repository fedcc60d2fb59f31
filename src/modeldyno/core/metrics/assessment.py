"""Assess the samples of a steady phase against the plan: what is known, and what is missing."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from modeldyno.core.metrics.metric import fraction_of
from modeldyno.core.stats import statistics
from modeldyno.core.stats.drift import Drift, find_drift
from modeldyno.core.stats.units import format_percent

if TYPE_CHECKING:
    from modeldyno.core.metrics.measurement_plan import Plan
    from modeldyno.core.stats.statistics import Samples

DEPENDENT_SIZE = 50
"""Effective samples of the target needed if they are estimated to be worth less than half."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assessment:
    """The result of a check of the steady samples."""

    count: int
    """Samples checked."""
    size: float
    """Their effective size for the target."""
    value: float
    """The target statistic, in seconds."""
    half_width: float
    """Half-width of its interval, as a fraction of the value."""
    growth: float
    """Factor by which the samples must grow, by the square-root law; 1 if there are enough."""
    drift: Drift | None
    unmet: tuple[str, ...]
    """The conditions that do not hold, a short phrase each."""
    only_wide: bool
    """Whether the width of the target's interval is the only unmet condition."""


def assess(samples: Samples, plan: Plan) -> Assessment:
    """Assess the steady samples against the plan, except for the time that they took."""
    names = (plan.target, *plan.percentiles)
    sizes = {name: statistics.effective_size(samples, fraction_of(name)) for name in names}
    lacking = {
        name: floor
        for name, floor in _required_sizes(plan, sizes, samples.size).items()
        if sizes[name] < floor
    }
    value, half_width = _target_interval(samples, plan.target, sizes[plan.target])
    drift = find_drift(samples)
    unmet = [f"a {drift.kind} of {drift.size:+.1%} is left"] if drift else []
    if samples.size < plan.min_runs:
        unmet.append(f"{samples.size} of at least {plan.min_runs} samples")
    for name, floor in lacking.items():
        unmet.append(f"{name} needs {floor} effective samples, has {int(sizes[name])}")
    wide = half_width > plan.precision
    only_wide = wide and not unmet
    if wide and plan.target not in lacking:
        width = f"is known to ±{format_percent(half_width)}" if half_width < math.inf else "is not bounded"
        unmet.append(f"{plan.target} {width}, the target is ±{format_percent(plan.precision)}")
    return Assessment(
        count=samples.size,
        size=sizes[plan.target],
        value=value,
        half_width=half_width,
        growth=max(1.0, (half_width / plan.precision) ** 2, *(lacking[n] / sizes[n] for n in lacking)),
        drift=drift,
        unmet=tuple(unmet),
        only_wide=only_wide,
    )


def _target_interval(samples: Samples, target: str, size: float) -> tuple[float, float]:
    """Return the target statistic and the relative half-width of its interval."""
    fraction = fraction_of(target)
    if fraction is None:
        value, (low, high) = float(samples.mean()), statistics.mean_interval(samples, size)
    else:
        value = statistics.quantile(samples, fraction)
        low, high = statistics.quantile_interval(samples, fraction, size)
    half = (high - low) / 2
    if not half:
        return value, 0.0
    return value, half / value if value else math.inf


def _required_sizes(plan: Plan, sizes: dict[str, float], n: int) -> dict[str, int]:
    """Return the effective samples that each statistic of the plan needs."""
    fractions = {name: fraction_of(name) for name in sizes}
    floors = {name: 2 if p is None else statistics.certified_floor(p) for name, p in fractions.items()}
    if sizes[plan.target] < n / 2:  # weaker correlation is as often as not a false alarm
        floors[plan.target] = max(floors[plan.target], DEPENDENT_SIZE)
    return floors
