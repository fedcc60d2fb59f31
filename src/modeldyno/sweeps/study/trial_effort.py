"""Measurement budget of a trial: short during the search, longer during verification.

A search trial takes 0.6 to 1.2 s. It ends once it has enough samples to hint at the percentiles of the goal's
bounds, shows no drift and knows the median to 15 %: trials differ by more from run to run anyway. A
verification trial takes the care that the verification asks for, at first a share of the Plan's time; it
measures until the percentiles of bounds are certified, within that time. Percentiles of objectives are always
certified.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from modeldyno.base.metrics.metric import fraction_of
from modeldyno.serving.load.capacity import scaled_plan
from modeldyno.sweeps.study.study import TrialPurpose

if TYPE_CHECKING:
    from collections.abc import Sequence

    from modeldyno.base.job.job import Job
    from modeldyno.base.job.load_spec import Load
    from modeldyno.base.metrics.measurement_plan import Plan
    from modeldyno.base.metrics.metric import Query
    from modeldyno.sweeps.study.goal import Goal
    from modeldyno.sweeps.study.study import TrialRequest

LONGEST, SHORTEST, PRECISION = 1.2, 0.6, 0.15
"""Of a search trial: most and least seconds, and the half-width of the interval at which it stops."""
_BEYOND = 3.0
"""Samples beyond a percentile that are enough to hint at it."""


def trial_job(job: Job, goal: Goal, ask: TrialRequest) -> Job:
    """Return the Job of a trial, with the measuring time that its purpose and care ask for."""
    plan, load = job.plan, job.load
    objective_percentiles = [
        name for o in goal.objectives if (name := _latency_percentile(o.query, o.percentile))
    ]
    bound_percentiles = [
        name for c in goal.constraints if (name := _latency_percentile(c.query, c.percentile))
    ]
    if ask.stage is TrialPurpose.VERIFY:
        percentiles: tuple[str, ...] = (*plan.percentiles, *objective_percentiles, *bound_percentiles)
    else:
        percentiles = (
            *(name for name in plan.percentiles if name not in bound_percentiles),
            *objective_percentiles,
        )
        plan, load = _search_plan(plan, bound_percentiles), _search_load(load)
    plan = scaled_plan(plan, ask.care) if ask.care >= 1 else _shortened_plan(plan, ask.care)
    plan = replace(plan, percentiles=tuple(dict.fromkeys(percentiles)), bounds=())
    return replace(job, plan=plan, load=_scaled_load(load, max(1.0, ask.care)))


def _latency_percentile(query: Query, percentile: str | None) -> str | None:
    """Return the percentile of a latency, which is the only one that longer measuring can certify."""
    return percentile if query.metric == "latency" else None


def _shortened_plan(plan: Plan, care: float) -> Plan:
    """Return the Plan with a share of its time, but at least a search trial's and the user's minimum."""
    return replace(
        plan,
        max_time=min(plan.max_time, max(care * plan.max_time, LONGEST, plan.min_time / _AFTER_WARM_UP)),
        precision=min(plan.precision / math.sqrt(care), _COARSEST),
    )


_COARSEST = 0.5
_AFTER_WARM_UP = 2 / 3
"""Share of a trial that is left after the longest possible warm-up."""


def _search_plan(plan: Plan, hinted: Sequence[str]) -> Plan:
    tails = (min(p, 1 - p) for name in hinted if (p := fraction_of(name)))
    runs = max((round(_BEYOND / tail) for tail in tails), default=0)
    return replace(
        plan,
        min_runs=max(plan.min_runs, min(runs, plan.max_runs)),
        min_time=min(plan.min_time, SHORTEST),
        max_time=min(plan.max_time, LONGEST),
        may_extend=plan.may_extend or plan.max_time > LONGEST,  # the shorter one is nobody's wish
        precision=max(plan.precision, PRECISION),
    )


def _search_load(load: Load | None) -> Load | None:
    if load is None or load.duration is None:
        return load
    return replace(load, duration=min(load.duration, LONGEST))


def _scaled_load(load: Load | None, care: float) -> Load | None:
    if load is None:
        return None
    return replace(
        load,
        duration=None if load.duration is None else load.duration * care,
        requests=None if load.requests is None else math.ceil(load.requests * care),
    )
