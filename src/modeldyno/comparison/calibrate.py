"""The doctor: what a gate can see on this machine, how often it would be wrong, and what to change.

A model is run against itself, in fresh processes, two by two as the sides of a gate's round, for as long as
a gate may take. On these runs the gate is rehearsed: every alarm that it raises is false.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from modeldyno.core.comparison.change_test import numbers
from modeldyno.core.comparison.default_metrics import SMALLEST, exact, headlines
from modeldyno.core.comparison.gate_calibration import POWER, Calibration, calibrate
from modeldyno.core.comparison.gate_rule import Rule
from modeldyno.core.metrics.doubt import Doubt
from modeldyno.core.metrics.measurement_plan import Plan
from modeldyno.core.result.result import Progressed, merge
from modeldyno.core.stats.statistics import share_interval
from modeldyno.errors import ModelDynoError, RequestError, RunFailed
from modeldyno.runtime.engine import INTERRUPTED
from modeldyno.runtime.session import silent

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from modeldyno.core.metrics.metric import Query
    from modeldyno.core.result.result import Result
    from modeldyno.core.spec.job import Job
    from modeldyno.interfaces import Store
    from modeldyno.runtime.session import Campaign

TAG = "doctor"
"""Of the runs of a model against itself by which a machine was judged."""
SPECIMEN = "call:modeldyno.testing.sample_network:network"
"""What a machine is judged by unless a model is given."""
PLAN = Plan(min_time=0.5, max_time=1.0)
FEWEST_PROCESSES, _MOST_PROCESSES = 12, 400
_REHEARSALS, _LOOKED_AT, _PAIR = 400, 20, 2
_LOADED = 0.5
"""Load average for each core from which on the machine is busy with something else."""


def against_itself(job: Job, campaign: Campaign, *, budget: float) -> Result:
    """Run a Job in fresh processes until the time is over; give them pooled, in the order in which they ran.

    Raises:
        RunFailed: it failed, or was interrupted before there were enough.
    """
    begun, found = time.monotonic(), []  # type: float, list[Result]
    job = replace(job, plan=replace(job.plan, processes=1))
    while len(found) < _MOST_PROCESSES and not campaign.interrupted():
        spent = time.monotonic() - begun
        if len(found) >= FEWEST_PROCESSES and spent + _PAIR * spent / len(found) > budget:
            break
        campaign.watch(Progressed(stage=f"process {len(found) + 1} and {len(found) + 2}"))
        pair = replace(campaign, watch=silent).play([("", job)] * _PAIR)
        whole = [result for result in map(_checked, pair) if result is not None]
        if len(whole) < _PAIR:
            break
        found += whole
    if len(found) < FEWEST_PROCESSES:
        raise RunFailed(
            f"It takes {FEWEST_PROCESSES} processes to judge a machine, and {len(found)} were run."
        )
    pooled = merge(found)
    plan = replace(pooled.job.plan, processes=len(found))
    return replace(pooled, job=replace(pooled.job, plan=plan))


def _checked(found: Result | ModelDynoError) -> Result | None:
    """Give what came of a run; None where it was interrupted.

    Raises:
        RunFailed: it failed.
    """
    if isinstance(found, ModelDynoError):
        raise found
    if found.failures:
        failure = found.failures[0]
        raise RunFailed(f"The model failed in {failure.where}: {failure.message}.")
    return None if any(doubt.code == INTERRUPTED.code for doubt in found.doubts) else found


def calibration(
    result: Result, rule: Rule, *, rounds: int, comparisons: int, smallest: Mapping[str, float] = SMALLEST
) -> Calibration:
    """Rehearse a gate on the processes of a Result, in the order in which they ran.

    Raises:
        RequestError: it has too few processes, or nothing that a gate could judge.
    """
    named = {query: found for query in headlines(result, result) if (found := _varying(result, query))}
    if not named or result.processes < FEWEST_PROCESSES:
        raise RequestError(
            f"{result.name} was measured in {result.processes} processes; to rehearse a gate on them takes "
            f"{FEWEST_PROCESSES}, and times."
        )
    return calibrate(named, rule, rounds=rounds, comparisons=comparisons, smallest=smallest)


def _varying(result: Result, query: Query) -> list[float]:
    """Give the numbers of the processes, where they vary and have a ratio."""
    found = result.find(query.metric, query.scope)
    assert found is not None
    values = [] if exact(found) else numbers(query, found)
    return values if values and min(values) > 0 else []


def kept_calibration(store: Store, result: Result) -> Result | None:
    """Give the newest runs of a model against itself on the hardware of a Result."""
    for entry in store.find(tag=TAG, limit=_LOOKED_AT):
        found = store.get(entry.id)
        if found.environment.hardware == result.environment.hardware:
            return found
    return None


def told_calibration(kept: Result) -> str:
    """Say what a gate does on the machine on which a model was run against itself."""
    rounds = max(1, kept.processes // _PAIR)
    found = calibration(kept, Rule(), rounds=rounds, comparisons=_REHEARSALS)
    return f"on this machine (doctor of {kept.created[:10]}, {kept.name}): {told(found, rounds)}"


def told(found: Calibration, rounds: int) -> str:
    """Say how often the gate is wrong, and what it sees."""
    most = share_interval(found.alarms, found.comparisons)[1]
    seen = "not even a doubling" if found.smallest is None else f"a slowdown of {100 * found.smallest:.1f}%"
    return (
        f"{found.alarms} false alarms in {found.comparisons:,} rehearsals (at most {most:.1%}), "
        f"and {seen} is found in {POWER:.0%} of the cases within {rounds} rounds"
    )


def advice(result: Result) -> Iterator[Doubt]:
    """Say what to change on the machine, or in how it is used, so that the gate sees more."""
    conditions, hardware = result.environment.conditions, result.environment.hardware
    governor = str(conditions.get("governor", "performance"))
    if governor != "performance":
        yield Doubt(
            code="governor",
            seen=f"the processor's frequency follows the governor {governor}",
            advice="choose the governor performance: cpupower frequency-set -g performance",
        )
    load, cores = conditions.get("load_average", 0.0), hardware.get("cores_allowed", 1)
    if isinstance(load, int | float) and isinstance(cores, int | float) and load > _LOADED * cores + 1:
        yield Doubt(
            code="busy-machine",
            seen=f"the load average was {load:.1f} on {cores:g} cores when it began",
            advice="stop what else runs here, or wait for it",
        )
    noise = {"interference", "steal", "oversubscribed", "drift", "unsettled", "noise-floor", "throttled"}
    yield from (doubt for doubt in result.doubts if doubt.code in noise)
