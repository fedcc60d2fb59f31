"""The doctor: what a gate can detect on this machine, how often it would be wrong, and what to improve.

A model is run against itself in fresh processes, in pairs like the rounds of a gate, for as long as
a gate may take. The gate is rehearsed on these runs: every alarm that it raises is false.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from modeldyno.base import plugins
from modeldyno.base.clock import monotonic
from modeldyno.base.document import Document
from modeldyno.base.errors import ModelDynoError, OutOfTime, RequestError, RunFailed
from modeldyno.base.metrics.doubt import Doubt
from modeldyno.base.metrics.measurement_plan import Plan
from modeldyno.base.option_spelling import spell_for_command_line
from modeldyno.base.report.blocks import Notice, Severity, note
from modeldyno.base.result.result import Progressed, Result, merge
from modeldyno.base.stats.statistics import share_interval
from modeldyno.base.views.text import count
from modeldyno.comparison.change.change_test import process_numbers
from modeldyno.comparison.change.default_metrics import SMALLEST, headline_queries, is_count
from modeldyno.comparison.change.gate_calibration import POWER, Calibration, calibrate
from modeldyno.comparison.change.gate_rule import GateRule
from modeldyno.engine.runtime.session import ignore_event

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from modeldyno.base.job.job import Job
    from modeldyno.base.metrics.metric import Query
    from modeldyno.base.report.blocks import Block
    from modeldyno.engine.runtime.session import RunSession
    from modeldyno.stores.interface import Store

TAG = "doctor"
"""Tag of the runs of a model against itself, from which a machine is judged."""
SPECIMEN = "call:modeldyno.testing.sample_network:network"
"""Model with which a machine is judged unless another is given."""
PLAN = Plan(min_time=0.5, max_time=1.0)
FEWEST_PROCESSES, _MOST_PROCESSES = 12, 400
_MEASURING, _SHORTEST = 0.5, 0.1
"""Share of the budget that the fewest processes measure, and seconds that each does at least."""
REHEARSALS = 1000
"""Number of gates that are rehearsed."""
BUDGET = 120.0
"""Seconds of a gate unless another budget is given."""
_REHEARSAL_COUNT, _STORED_LIMIT, _SIDES = 400, 20, 2
_BUSY_LOAD = 0.5
"""Load average per core above which the machine counts as busy with something else."""


def run_against_itself(job: Job, campaign: RunSession, *, budget: float) -> Result:
    """Run a Job in fresh processes until time is up; return them pooled, in the order in which they ran.

    Raises:
        RunFailed: a run failed, or there were too few runs before an interruption.
        OutOfTime: there were too few runs within the budget.
    """
    started, results = monotonic(), []  # type: float, list[Result]
    seconds = min(job.plan.max_time, max(_SHORTEST, _MEASURING * budget / FEWEST_PROCESSES))
    plan = replace(job.plan, processes=1, max_time=seconds, min_time=min(seconds / 2, job.plan.min_time))
    job = replace(job, plan=plan)
    while len(results) < _MOST_PROCESSES and not campaign.interrupted():
        spent = monotonic() - started
        if len(results) >= FEWEST_PROCESSES and spent + _SIDES * spent / len(results) > budget:
            break
        campaign.watch(Progressed(stage=f"process {len(results) + 1} and {len(results) + 2}"))
        try:
            pair = replace(campaign, watch=ignore_event).run_round([("", job)] * _SIDES)
        except OutOfTime:
            break
        completed = [result for result in map(_completed, pair) if result is not None]
        if len(completed) < _SIDES:
            break
        results += completed
    if len(results) < FEWEST_PROCESSES:
        shortage = f"Judging a machine takes {FEWEST_PROCESSES} processes, and only {len(results)} were run"
        if campaign.interrupted():
            raise RunFailed(f"{shortage}.")
        raise OutOfTime(f"{shortage}; give it more time with `budget`.")
    pooled = merge(results)
    plan = replace(pooled.job.plan, processes=len(results))
    return replace(pooled, job=replace(pooled.job, plan=plan))


def _completed(result: Result | ModelDynoError) -> Result | None:
    """Return the Result of a run; None if it was interrupted.

    Raises:
        RunFailed: it failed.
    """
    if isinstance(result, ModelDynoError):
        raise result
    if result.failure:
        raise RunFailed(f"The model failed in {result.failure.where}: {result.failure.message}.")
    return None if result.interrupted else result


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class MachineCheckup(Document):
    """How often a gate would be wrong on this machine, and what it detects."""

    KIND = "checkup"
    result: Result
    """The model run against itself; its processes in order, pooled."""
    rounds: int
    """Rounds of a gate within the budget."""
    calibration: Calibration
    """False alarms, undecided gates and the smallest detectable slowdown of the rehearsals."""

    @property
    def improvements(self) -> tuple[Doubt, ...]:
        """What to change on the machine, so that the gate detects smaller changes."""
        return tuple(suggest_improvements(self.result))

    @property
    def sentence(self) -> str:
        """The verdict in a sentence."""
        runs = count(self.result.processes, "process", "processes")
        return (
            f"{self.result.name} against itself, {runs}: "
            f"{describe_calibration(self.calibration, self.rounds)}."
        )

    def blocks(self) -> Iterator[Block]:
        """Yield the report blocks, the verdict first."""
        yield Notice(severity=Severity.VERDICT, text=self.sentence)
        calibrated = self.calibration
        passing = (
            "no candidate as good as its baseline passes within the budget"
            if calibrated.through is None
            else f"a candidate as good as its baseline passed after {calibrated.through:.0f} rounds (median)"
        )
        undecided = calibrated.undecided / calibrated.comparisons
        margin = calibrated.margin / calibrated.comparisons
        yield note(
            f"{passing}; {undecided:.1%} of such gates stay undecided; {margin:.1%} pass a slowdown as "
            "large as allowed"
        )
        changes = self.improvements
        for change in changes:
            text, advice = spell_for_command_line(change.seen), spell_for_command_line(change.advice)
            yield Notice(severity=Severity.DOUBT, code=change.code, text=text, advice=advice)
        if not changes:
            yield note("no change to this machine is advised")
        for problem in plugins.broken():
            yield Notice(severity=Severity.DOUBT, code="faulty-plugin", text=problem)


def check_machine(result: Result, *, smallest: Mapping[str, float] = SMALLEST) -> MachineCheckup:
    """Rehearse a gate on a model that was run against itself.

    Raises:
        RequestError: it has too few processes, or no metric that a gate could judge.
    """
    rounds = result.processes // _SIDES
    calibration = rehearse_gate(result, GateRule(), rounds=rounds, comparisons=REHEARSALS, smallest=smallest)
    return MachineCheckup(result=result, rounds=rounds, calibration=calibration)


def rehearse_gate(
    result: Result, rule: GateRule, *, rounds: int, comparisons: int, smallest: Mapping[str, float] = SMALLEST
) -> Calibration:
    """Rehearse a gate on the processes of a Result, in the order in which they ran.

    Raises:
        RequestError: it has too few processes, or no metric that a gate could judge.
    """
    values_by_query = {
        query: values
        for query in headline_queries(result, result)
        if (values := _varying_numbers(result, query))
    }
    if not values_by_query or result.processes < FEWEST_PROCESSES:
        raise RequestError(
            f"{result.name} was measured in {result.processes} processes; rehearsing a gate on them takes "
            f"{FEWEST_PROCESSES} processes, with timings."
        )
    return calibrate(values_by_query, rule, rounds=rounds, comparisons=comparisons, smallest=smallest)


def _varying_numbers(result: Result, query: Query) -> list[float]:
    """Return the values by process if they vary and are positive, otherwise none."""
    measurement = result.find(query.metric, query.scope)
    assert measurement is not None
    values = [] if is_count(measurement) else process_numbers(query, measurement)
    return values if values and min(values) > 0 else []


def find_calibration_run(store: Store, result: Result) -> Result | None:
    """Return the newest run of a model against itself on the hardware of a Result."""
    for entry in store.find(tag=TAG, limit=_STORED_LIMIT):
        stored = store.get(entry.id)
        if stored.environment.hardware == result.environment.hardware:
            return stored
    return None


def describe_stored_calibration(kept: Result) -> str:
    """Describe the gate's error rate on the machine from a stored run of a model against itself."""
    rounds = max(1, kept.processes // _SIDES)
    rehearsed = rehearse_gate(kept, GateRule(), rounds=rounds, comparisons=_REHEARSAL_COUNT)
    return (
        f"on this machine (doctor of {kept.created[:10]}, {kept.name}): "
        f"{describe_calibration(rehearsed, rounds)}"
    )


def describe_calibration(rehearsed: Calibration, rounds: int) -> str:
    """Describe how often the gate is wrong, and what it detects."""
    upper_bound = share_interval(rehearsed.alarms, rehearsed.comparisons)[1]
    detectable = (
        "not even a doubling"
        if rehearsed.smallest is None
        else f"a slowdown of {100 * rehearsed.smallest:.1f}%"
    )
    return (
        f"{rehearsed.alarms} false alarms in {rehearsed.comparisons:,} rehearsals "
        f"(at most {upper_bound:.1%}), and {detectable} is detected in {POWER:.0%} of the cases "
        f"within {rounds} rounds"
    )


def suggest_improvements(result: Result) -> Iterator[Doubt]:
    """Yield what to change on the machine, or in its use, so that the gate detects smaller changes."""
    conditions, hardware = result.environment.conditions, result.environment.hardware
    governor = str(conditions.get("governor", "performance"))
    if governor != "performance":
        yield Doubt(
            code="governor",
            seen=f"the processor's frequency follows the governor {governor}",
            advice="switch to the governor performance: cpupower frequency-set -g performance",
        )
    load, cores = conditions.get("load_average", 0.0), hardware.get("cores_allowed", 1)
    if isinstance(load, int | float) and isinstance(cores, int | float) and load > _BUSY_LOAD * cores + 1:
        yield Doubt(
            code="busy-machine",
            seen=f"the load average was {load:.1f} on {cores:g} cores at the start",
            advice="stop other programs on this machine, or wait for them to end",
        )
    noise = {"interference", "steal", "oversubscribed", "drift", "unsettled", "noise-floor", "throttled"}
    for doubt in result.doubts:
        if doubt.code in noise:
            yield replace(doubt, advice=doubt.advice.replace("`max_time`", "`budget`"))
