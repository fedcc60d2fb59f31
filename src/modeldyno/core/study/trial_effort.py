"""How long a trial looks: shortly while it is searched, and to verify it as long as the decision needs.

A short look takes 0.6 to 1.2 s, and ends with as many samples as hint at the percentiles of the goal's
bounds, once their course is steady and their middle known to 15 %: trials differ by more from run to run.
One that verifies has the care that the verification asks for, at first a share of the Plan's time;
percentiles of bounds are measured until certified, as far as that goes. Those of objectives always are.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from modeldyno.core.load.capacity import careful
from modeldyno.core.metrics.metric import fraction_of
from modeldyno.core.study.study import Stage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from modeldyno.core.metrics.measurement_plan import Plan
    from modeldyno.core.metrics.metric import Query
    from modeldyno.core.spec.job import Job
    from modeldyno.core.spec.load_spec import Load
    from modeldyno.core.study.goal import Goal
    from modeldyno.core.study.study import Ask

LONGEST, SHORTEST, PRECISION = 1.2, 0.6, 0.15
"""Of a short look: seconds at most and at least, and the half-width of the interval at which it ends."""
_BEYOND = 3.0
"""Samples beyond a percentile that hint at it."""


def looking(job: Job, goal: Goal, ask: Ask) -> Job:
    """Give a Job as long a look as its stage and the care that is asked for say."""
    plan, load = job.plan, job.load
    aims = [name for o in goal.objectives if (name := _of_latency(o.query, o.percentile))]
    bounds = [name for c in goal.constraints if (name := _of_latency(c.query, c.percentile))]
    if ask.stage is Stage.VERIFY:
        asked: tuple[str, ...] = (*plan.percentiles, *aims, *bounds)
    else:
        asked = (*(name for name in plan.percentiles if name not in bounds), *aims)
        plan, load = _short(plan, bounds), _windowed(load)
    plan = careful(plan, ask.care) if ask.care >= 1 else _relaxed(plan, ask.care)
    plan = replace(plan, percentiles=tuple(dict.fromkeys(asked)))
    return replace(job, plan=plan, load=_longer(load, max(1.0, ask.care)))


def _of_latency(query: Query, percentile: str | None) -> str | None:
    """Give the percentile of a latency, which is what a look can be made longer for."""
    return percentile if query.metric == "latency" else None


def _relaxed(plan: Plan, care: float) -> Plan:
    """Give a part of the time, though no less than a short look, and what the user asked for at least."""
    return replace(
        plan,
        max_time=min(plan.max_time, max(care * plan.max_time, LONGEST, plan.min_time / _STEADY)),
        precision=min(plan.precision / math.sqrt(care), _COARSEST),
    )


_COARSEST = 0.5
_STEADY = 2 / 3
"""Share of a look that is left when the warm-up has taken all that it may."""


def _short(plan: Plan, hinted: Sequence[str]) -> Plan:
    tails = (min(p, 1 - p) for name in hinted if (p := fraction_of(name)))
    runs = max((round(_BEYOND / tail) for tail in tails), default=0)
    return replace(
        plan,
        min_runs=max(plan.min_runs, min(runs, plan.max_runs)),
        min_time=min(plan.min_time, SHORTEST),
        max_time=min(plan.max_time, LONGEST),
        precision=max(plan.precision, PRECISION),
    )


def _windowed(load: Load | None) -> Load | None:
    if load is None or load.duration is None:
        return load
    return replace(load, duration=min(load.duration, LONGEST))


def _longer(load: Load | None, care: float) -> Load | None:
    if load is None:
        return None
    return replace(
        load,
        duration=None if load.duration is None else load.duration * care,
        requests=None if load.requests is None else math.ceil(load.requests * care),
    )
