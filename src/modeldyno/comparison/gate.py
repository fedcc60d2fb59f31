"""The gate: judge a candidate against a baseline, from stored results or by measuring both in rounds."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from typing import TYPE_CHECKING

from modeldyno.base.clock import monotonic
from modeldyno.base.errors import ModelDynoError, OutOfTime, RequestError
from modeldyno.base.job.job import Job
from modeldyno.base.metrics.constraints import Verdict
from modeldyno.base.metrics.measurement_plan import Plan
from modeldyno.base.metrics.metric import Query
from modeldyno.base.result.result import Result, merge
from modeldyno.base.stats.schedule import RoundSchedule
from modeldyno.base.views.text import count
from modeldyno.comparison.change.build import (
    CompareOptions,
    compare_results,
    other_shapes,
    selected_queries,
    with_second_pass,
)
from modeldyno.comparison.change.change_test import FEWEST, judge_changes
from modeldyno.comparison.change.default_metrics import headline_queries
from modeldyno.comparison.change.gate_report import GateReport
from modeldyno.comparison.change.gate_rule import (
    NOTHING_COMPARED,
    GateDecision,
    GateRule,
    against_stored,
    check_directions,
    decide_gate,
    decide_gate_on_stored,
)
from modeldyno.comparison.change.other_times import OtherTimes
from modeldyno.comparison.change.way_of_measuring import measured_alike
from modeldyno.comparison.history import scatter_of
from modeldyno.comparison.operands import rerun_job
from modeldyno.comparison.run import side_label, without_evaluation
from modeldyno.engine.runtime.events import INTERRUPTED
from modeldyno.engine.runtime.session import RunSession
from modeldyno.profiling.run import judge_result

if TYPE_CHECKING:
    from modeldyno.base.metrics.constraints import Constraint
    from modeldyno.base.metrics.doubt import Doubt
    from modeldyno.comparison.change.comparison import Change

_SIDES = 2
# --- what was measured -------------------------------------------------------------------------------


def check_stored(baseline: Result, candidate: Result, criteria: CompareOptions) -> GateReport:
    """Judge a stored Result against another, without measuring.

    Raises:
        RequestError: the hardware differs, or a metric cannot be judged.
    """
    rule = GateRule()
    queries, not_compared = _queries(baseline, candidate, criteria)
    compared = compare_results(baseline, candidate, criteria)  # refuses incomparable results
    _check_work(baseline, candidate, criteria)
    history = scatter_of(baseline, candidate, queries)
    judge = partial(
        judge_changes, baseline, candidate, smallest=criteria.smallest, queries=queries, history=history
    )
    ruling = decide_gate_on_stored(
        judge(level=rule.alarm),
        judge(level=rule.passing),
        judge(level=rule.passing, apart=True),
        OtherTimes(
            baseline=baseline,
            candidate=candidate,
            known={query for query, noise in history.items() if noise.covers},
        ),
    )
    note = f"against {_describe_result(baseline)}, measured at another time: nothing was measured again"
    return GateReport(
        result=candidate,
        baseline=baseline,
        ruling=ruling,
        notes=(note,),
        doubts=(*not_compared, *compared.doubts),
    )


def check_result(
    candidate: Result,
    constraints: tuple[Constraint, ...],
    criteria: CompareOptions,
    baseline: Result | None = None,
) -> GateReport:
    """Judge a stored Result by bounds, and by a baseline if there is one, without measuring.

    Raises:
        RequestError: there is nothing to check, the hardware differs, or a metric cannot be judged.
    """
    if not constraints and baseline is None:
        raise RequestError("Nothing to check; give bounds with `require`, or a result with `baseline`.")
    outcome = judge_result(candidate, constraints)
    report = GateReport(result=outcome.result)
    if baseline is not None:
        report = replace(check_stored(baseline, candidate, criteria), result=outcome.result)
    return report.with_bounds(outcome.judgements)


def _queries(
    baseline: Result, candidate: Result, criteria: CompareOptions
) -> tuple[tuple[Query, ...], tuple[Doubt, ...]]:
    """Return what is judged, and the doubts that name what cannot be, as it was measured differently."""
    queries = selected_queries(criteria.metrics, baseline, candidate) or headline_queries(baseline, candidate)
    check_directions(queries)
    return measured_alike(queries, baseline, candidate)


def _check_work(baseline: Result, candidate: Result, criteria: CompareOptions) -> None:
    """Refuse Results of different work, whose difference would come from the inputs.

    Raises:
        RequestError: their inputs differ in shape.
    """
    shapes = other_shapes(baseline, candidate)
    if shapes and not criteria.force:
        raise RequestError(
            f"The baseline {_describe_result(baseline)} and the candidate had different inputs ({shapes}); "
            "give both the same `inputs` and batch_size, or add `force` to judge them anyway."
        )


def _describe_result(result: Result) -> str:
    return f"{result.name} {result.id[:6]} of {result.created[:16].replace('T', ' ')}"


# --- what is measured for it -------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class _RoundRunner:
    """Runs rounds as they are needed: baseline and candidate in turns, or the candidate alone."""

    baseline: Result
    job: Job
    criteria: CompareOptions
    campaign: RunSession
    until: float
    """Monotonic time after which no further round starts."""
    rival: Job | None
    """The Job of the baseline, if it can be run again."""
    plan_alone: Plan
    """The plan of a candidate that is run alone."""
    runs: tuple[list[Result], list[Result]] = field(default_factory=lambda: ([], []))
    why_alone: str = ""
    spent: float = 0.0

    def compare(
        self, begin: int, end: int, level: float, *, apart: bool = False
    ) -> tuple[Change, ...] | None:
        """Compare the given rounds, running what is missing; None if that is impossible.

        With `apart`, the intervals include what the machine may do between two times, unless both take turns.
        """
        if not self.buy(end):
            return None
        return judge_changes(
            self.side(0, begin, end),
            self.side(1, begin, end),
            smallest=self.criteria.smallest,
            queries=self.queries()[0],
            level=level,
            paired=self.rival is not None,
            apart=apart and self.rival is None,
        )

    @property
    def failed(self) -> bool:
        """Whether the candidate failed, in which case it is not run again."""
        return any(result.failures for result in self.runs[1])

    def queries(self) -> tuple[tuple[Query, ...], tuple[Doubt, ...]]:
        """Return the metrics to judge, once both sides are known, and why others are not."""
        return _queries(self.side(0, 0, 1), self.runs[1][0], self.criteria)

    def side(self, place: int, begin: int, end: int) -> Result:
        """Return the pooled rounds of baseline (0) or candidate (1); a stored baseline is not divided."""
        if place == 0 and self.rival is None:
            return self.baseline
        pooled = with_second_pass(merge(self.runs[place][begin:end]), self.runs[place][0])
        plan = replace(pooled.job.plan, processes=len(self.runs[place][begin:end]))
        return replace(pooled, job=replace(pooled.job, plan=plan))

    def buy(self, end: int) -> bool:
        """Run rounds until there are `end`; return whether there are."""
        while len(self.runs[1]) < end:
            done = len(self.runs[1])
            now = monotonic()
            if self.failed or self.campaign.interrupted() or (done and now + self.spent / done > self.until):
                return False
            alone = self.rival is None
            try:
                self._run_round(done)
            except OutOfTime:
                if not done:
                    raise
                return False
            self.spent += monotonic() - now
            if self.rival is None and not alone:
                self._measure_as_stored()
                continue  # the baseline is not run any more; the candidate may not have been run yet
            if len(self.runs[1]) == done:
                return False
            if not alone and len(self.runs[0]) == done:
                if self.campaign.interrupted():  # the candidate came first, and its baseline did not follow
                    self.runs[1].pop()
                    return False
                self._use_stored_baseline("its model could not be run again")
        return not self.failed

    def _run_round(self, number: int) -> None:
        """Run each side once, as far as possible; only the first round evaluates."""
        jobs = {1: self.job} if self.rival is None else {0: self.rival, 1: self.job}
        if number:
            jobs = {place: without_evaluation(job) for place, job in jobs.items()}
        ((_, order),) = RoundSchedule(side_count=_SIDES).rounds(number, number + 1)
        places = [place for place in order if place in jobs]
        results = self.campaign.run_round(
            [(f"round {number + 1}, {side_label(place, _SIDES)}", jobs[place]) for place in places]
        )
        for place, result in zip(places, results, strict=False):
            self._keep_run(place, result)

    def _keep_run(self, place: int, result: Result | ModelDynoError) -> None:
        """Keep a run, unless it was interrupted or shows that the baseline has changed."""
        if isinstance(result, ModelDynoError):
            if place:
                raise result
            reason = str(result).rstrip(".")
            self._use_stored_baseline(re.sub("^The", "the", reason))
        elif result.interrupted:
            pass
        elif not place and (why := _explain_change(self.baseline, result)):
            self._use_stored_baseline(why)
        elif place or self.rival is not None:
            self.runs[place].append(result)

    def _use_stored_baseline(self, why: str) -> None:
        """Continue with the stored baseline."""
        self.rival, self.why_alone = None, why
        self.runs[0].clear()

    def _measure_as_stored(self) -> None:
        """Measure the candidate as the stored baseline was, from the beginning if it was not so far."""
        job = replace(self.job, plan=self.plan_alone)
        if job != self.job:
            self.job, self.spent = job, 0.0
            self.runs[1].clear()


def rerunnable_baseline(baseline: Result, job: Job) -> Job | None:
    """Return the Job of a baseline, measured as the candidate is, unless that runs the candidate itself."""
    probes = tuple(probe for probe in job.probes if probe != "outputs")
    rival = replace(rerun_job(baseline), plan=job.plan, load=job.load, probes=probes)
    alike = replace(rival, name=job.name, trust=job.trust, probes=job.probes, observation=job.observation)
    return None if alike == job else rival


def _explain_change(baseline: Result, result: Result) -> str:
    """Explain why a new run does not represent the baseline; empty if it does."""
    if result.failure:
        return f"its model failed in {result.failure.where}"
    if baseline.model and result.model and baseline.model.digest != result.model.digest:
        return "its model has changed"
    if baseline.environment.software != result.environment.software:
        return "the software has changed"
    return ""


def run_gate(
    baseline: Result,
    job: Job,
    criteria: CompareOptions,
    rule: GateRule,
    campaign: RunSession,
    *,
    max_time: float = inf,
    as_long: bool = True,
) -> GateReport:
    """Measure a candidate against a baseline until there is a verdict or time is up.

    The baseline's model is run in turns with it if it can be run here and is unchanged; otherwise the stored
    baseline is used. No further round starts after `max_time` seconds, of which a part is kept to confirm a
    regression.

    Args:
        baseline: the reference.
        job: the candidate.
        criteria: what is judged, and what matters.
        rule: when to judge, and how surely.
        campaign: runs the Jobs.
        max_time: seconds in which rounds may begin.
        as_long: whether a candidate that is run alone is measured as long as the stored baseline was.

    Raises:
        RequestError: the hardware differs, or a metric cannot be judged.
        OutOfTime: not one round could be measured within the limit of the campaign.
    """
    check_directions(tuple(map(Query.parse, criteria.metrics)))
    probes = len(job.probes)
    alone = job.plan.as_long_as(baseline.job.plan) if as_long else job.plan
    alone = replace(_affordable(alone, max_time, 2 * FEWEST * probes), processes=1)
    together = replace(_affordable(job.plan, max_time, _SIDES * rule.enough * probes), processes=1)
    rival = rerunnable_baseline(baseline, replace(job, plan=together))
    runner = _RoundRunner(
        baseline=baseline,
        job=replace(job, plan=alone if rival is None else together),
        criteria=criteria,
        campaign=campaign,
        until=monotonic() + max_time if campaign.limit is None else campaign.limit.end,
        rival=rival,
        plan_alone=alone,
    )
    ruling = _decide(runner, rule, max_time)
    rounds = len(runner.runs[1])
    if not rounds:
        raise RequestError("Nothing was measured before the interruption.")
    turns = runner.rival is not None
    baseline_side, candidate_side = runner.side(0, 0, rounds), runner.side(1, 0, rounds)
    compared = compare_results(baseline_side, candidate_side, criteria, in_turns=turns, paired=turns)
    if campaign.interrupted():
        candidate_side = replace(
            candidate_side, doubts=tuple(dict.fromkeys((*candidate_side.doubts, INTERRUPTED)))
        )
    if not turns:
        ruling = against_stored(ruling, OtherTimes(baseline=baseline_side, candidate=candidate_side))
    return GateReport(
        result=candidate_side,
        baseline=baseline_side,
        ruling=ruling,
        notes=(_describe_method(runner, rounds, ruling),),
        doubts=(*runner.queries()[1], *compared.doubts),
    )


def _decide(runner: _RoundRunner, rule: GateRule, max_time: float) -> GateDecision:
    """Run rounds until there is a decision, or time is up."""
    if runner.buy(1):
        pair = runner.side(0, 0, 1), runner.side(1, 0, 1)
        compare_results(*pair, runner.criteria)  # refuses incomparable results
        _check_work(*pair, runner.criteria)
        if not runner.queries()[0]:
            return NOTHING_COMPARED
    if runner.spent and max_time < inf:  # now that the cost of a round is known, limit their number
        rule = rule.within(int(max_time / runner.spent) * len(runner.runs[1]))
    ruling = decide_gate(runner.compare, rule, partial(runner.compare, apart=True))
    rounds = len(runner.runs[1])
    if ruling.verdict is Verdict.UNDECIDED and rounds > ruling.rounds:  # time was up between two tests
        rule = replace(rule, first=min(rule.first, rounds), most=rounds, kept=0)
        ruling = decide_gate(runner.compare, rule, partial(runner.compare, apart=True))
    return ruling


_MEASURING = 0.7
"""Share of a gate's time for measuring; the rest is for starting processes and loading models."""
_SHORTEST = 0.1
"""Seconds that a probe measures at least."""


def _affordable(plan: Plan, max_time: float, runs: int) -> Plan:
    """Shorten a plan so that so many runs of a probe fit into the time of a gate."""
    return plan.within(max(_SHORTEST, _MEASURING * max_time / runs))


def _describe_method(runner: _RoundRunner, rounds: int, ruling: GateDecision) -> str:
    suffix = f"; {ruling.why}" if ruling.why else ""
    against = f"against {_describe_result(runner.baseline)}"
    if runner.rival is not None:
        return f"{against}, run again in turns: {count(rounds, 'round')}{suffix}"
    why = runner.why_alone or "the same command now runs the candidate"
    return (
        f"{against} as stored; it was not run again, because {why}: "
        f"{count(rounds, 'process', 'processes')} of the candidate{suffix}"
    )
