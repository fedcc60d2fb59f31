"""How long a trial looks: shortly while it is searched, as the Plan says where a winner is verified.

A short look takes 3 s at most, 0.5 s at least, and ends at a precision of 5 %, or with what the Plan says
where that is less; a steady window of a load is no longer either. All of it is multiplied by the care that
is asked for. Percentiles of the goal are measured until certified, as far as that time goes.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from modeldyno.core.capacity import careful
from modeldyno.core.study import Stage

if TYPE_CHECKING:
    from modeldyno.core.job import Job
    from modeldyno.core.load import Load
    from modeldyno.core.objective import Goal
    from modeldyno.core.plan import Plan
    from modeldyno.core.study import Ask

LONGEST, SHORTEST, PRECISION = 3.0, 0.5, 0.05
"""Of a short look: seconds at most and at least, and the half-width of the interval at which it ends."""


def looking(job: Job, goal: Goal, ask: Ask) -> Job:
    """Give a Job as long a look as its stage and the care that is asked for say."""
    plan, load = job.plan, job.load
    if ask.stage is not Stage.VERIFY:
        plan, load = _short(plan), _windowed(load)
    plan = careful(plan, ask.care)
    percentiles = dict.fromkeys((*plan.percentiles, *_certified(goal)))
    return replace(job, plan=replace(plan, percentiles=tuple(percentiles)), load=_longer(load, ask.care))


def _certified(goal: Goal) -> list[str]:
    """Name the percentiles of the latency that are objectives or bounds."""
    aims = [(o.query, o.percentile) for o in goal.objectives]
    bounds = [(c.query, c.percentile) for c in goal.constraints]
    return [name for query, name in (*aims, *bounds) if name is not None and query.metric == "latency"]


def _short(plan: Plan) -> Plan:
    return replace(
        plan,
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
