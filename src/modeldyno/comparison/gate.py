"""The gate: judge a candidate against a baseline, from stored results or by measuring both in rounds."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

from modeldyno import plugins
from modeldyno.clock import monotonic
from modeldyno.comparison.history import scatter_of
from modeldyno.comparison.operands import rerun_job
from modeldyno.comparison.run import side_label, without_evaluation
from modeldyno.core.comparison.build import (
    CompareOptions,
    compare_results,
    other_shapes,
    selected_queries,
    with_second_pass,
)
from modeldyno.core.comparison.change_test import judge_changes
from modeldyno.core.comparison.default_metrics import headline_queries
from modeldyno.core.comparison.gate_report import GateReport
from modeldyno.core.comparison.gate_rule import (
    GateDecision,
    GateRule,
    check_directions,
    decide_gate,
    decide_gate_on_stored,
    is_evident,
)
from modeldyno.core.comparison.schedule import RoundSchedule
from modeldyno.core.metrics.constraints import Verdict
from modeldyno.core.metrics.metric import Query
from modeldyno.core.result.result import Result, merge
from modeldyno.core.spec.job import Job
from modeldyno.core.spec.model_ref import names_of_file
from modeldyno.documents.catalog import BRANCH
from modeldyno.documents.lookup import find
from modeldyno.errors import ModelDynoError, OutOfTime, RequestError
from modeldyno.profiling.resolve_model import refers_to_model
from modeldyno.profiling.run import judge_result
from modeldyno.runtime.events import INTERRUPTED
from modeldyno.runtime.session import RunSession
from modeldyno.views.text import count

if TYPE_CHECKING:
    from modeldyno.core.comparison.comparison import Change
    from modeldyno.core.metrics.constraints import Constraint

_SIDES = 2
_SEARCH_LIMIT, _LISTED_NAMES = 500, 6
"""Baselines of a branch that are searched, and names listed in an error."""


def find_baseline(word: str, *names: str) -> Result:
    """Find a baseline: a file, an id, a tag; after ``@`` the newest that was stored for a branch.

    Possible names of the model select among several models stored for a branch.

    Raises:
        RequestError: there is none, or it is ambiguous.
    """
    if not word.startswith(BRANCH):
        return find_result(word)
    with plugins.store() as store:
        entries = store.find(tag=word, limit=_SEARCH_LIMIT)
        names_stored = sorted({entry.name for entry in entries})
        matching = entries if len(names_stored) == 1 else [entry for entry in entries if entry.name in names]
        if matching:
            return store.get(matching[0].id)
    if names_stored:
        raise RequestError(
            f"{word} has baselines of {', '.join(names_stored[:_LISTED_NAMES])}, but none of "
            f"{' or '.join(names) or 'this model'}; give the model's --name."
        )
    raise RequestError(
        f"The store has no baseline {word}; save one with modeldyno profile MODEL --save-as-baseline "
        f"{word.removeprefix(BRANCH)}."
    )


def possible_names(job: Job) -> tuple[str, ...]:
    """List the names that an unnamed model may have, before it is loaded."""
    path, _, attribute = job.model.locator.rpartition(":")
    module = Path(path).stem if path.endswith(".py") else path.rpartition(".")[2]
    model_path = Path(job.model.locator)
    return (f"{module}.{attribute}", attribute, *names_of_file(job.model.locator), model_path.name)


def find_result(word: str) -> Result:
    """Find a Result by a file, an id or a tag.

    Raises:
        RequestError: there is none; if the word is a model, the message says how to measure it.
    """
    try:
        return find(word)
    except RequestError as error:
        if not refers_to_model(word):
            raise
        raise RequestError(
            f"'{word}' is a model, but a result is needed; measure it first, with modeldyno profile "
            f"{word} --json result.json, or compare two models with modeldyno compare."
        ) from error


# --- what was measured -------------------------------------------------------------------------------


def check_stored(baseline: Result, candidate: Result, question: CompareOptions) -> GateReport:
    """Judge a stored Result against another, without measuring.

    Raises:
        RequestError: the hardware differs, or a metric cannot be judged.
    """
    rule = GateRule()
    queries = _queries(baseline, candidate, question)
    compared = compare_results(baseline, candidate, question)  # refuses incomparable results
    _check_work(baseline, candidate, question)
    history = scatter_of(baseline, candidate, queries)
    alarm, passing = (
        judge_changes(
            baseline, candidate, smallest=question.smallest, queries=queries, level=level, history=history
        )
        for level in (rule.alarm, rule.passing)
    )
    ruling = decide_gate_on_stored(
        alarm, passing, {query for query, noise in history.items() if noise.covers}
    )
    note = f"against {_describe_result(baseline)}, measured at another time: nothing was measured again"
    return GateReport(
        result=candidate, baseline=baseline, ruling=ruling, notes=(note,), doubts=compared.doubts
    )


def check_result(
    candidate: Result,
    constraints: tuple[Constraint, ...],
    question: CompareOptions,
    baseline: Result | None = None,
) -> GateReport:
    """Judge a stored Result by bounds, and by a baseline if there is one, without measuring.

    Raises:
        RequestError: there is nothing to check, the hardware differs, or a metric cannot be judged.
    """
    if not constraints and baseline is None:
        raise RequestError("Nothing to check; give bounds with --require, or a result with --baseline.")
    outcome = judge_result(candidate, constraints)
    report = GateReport(result=outcome.result)
    if baseline is not None:
        report = replace(check_stored(baseline, candidate, question), result=outcome.result)
    return report.with_bounds(outcome.judgements)


def _queries(baseline: Result, candidate: Result, question: CompareOptions) -> tuple[Query, ...]:
    queries = selected_queries(question.metrics, baseline, candidate) or headline_queries(baseline, candidate)
    check_directions(queries)
    return queries


def _check_work(baseline: Result, candidate: Result, question: CompareOptions) -> None:
    """Refuse Results of different work, whose difference would come from the inputs.

    Raises:
        RequestError: their inputs differ in shape.
    """
    shapes = other_shapes(baseline, candidate)
    if shapes and not question.force:
        raise RequestError(
            f"The baseline {_describe_result(baseline)} and the candidate had different inputs ({shapes}); "
            "give both the same --input and batch_size, or add --force to judge them anyway."
        )


def _describe_result(result: Result) -> str:
    return f"{result.name} {result.id[:6]} of {result.created[:16].replace('T', ' ')}"


# --- what is measured for it -------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class _RoundRunner:
    """Runs rounds as they are needed: baseline and candidate in turns, or the candidate alone."""

    baseline: Result
    job: Job
    question: CompareOptions
    campaign: RunSession
    until: float
    """Monotonic time after which no further round starts."""
    rival: Job | None
    """The Job of the baseline, if it can be run again."""
    runs: tuple[list[Result], list[Result]] = field(default_factory=lambda: ([], []))
    why_alone: str = ""
    spent: float = 0.0

    def compare(self, begin: int, end: int, level: float) -> tuple[Change, ...] | None:
        """Compare the given rounds, running what is missing; None if that is impossible."""
        if not self.buy(end):
            return None
        return judge_changes(
            self.side(0, begin, end),
            self.side(1, begin, end),
            smallest=self.question.smallest,
            queries=self.queries(),
            level=level,
            paired=self.rival is not None,
        )

    @property
    def failed(self) -> bool:
        """Whether the candidate failed, in which case it is not run again."""
        return any(result.failures for result in self.runs[1])

    def queries(self) -> tuple[Query, ...]:
        """Return the metrics to judge, once both sides are known."""
        return _queries(self.side(0, 0, 1), self.runs[1][0], self.question)

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


def rerunnable_baseline(baseline: Result, job: Job) -> Job | None:
    """Return the Job of a baseline, if running it would not measure the candidate itself."""
    rival = rerun_job(baseline)
    same = replace(rival, plan=job.plan, name=job.name) == replace(job, name=job.name)
    return None if same else replace(rival, plan=replace(job.plan, processes=1))


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
    question: CompareOptions,
    rule: GateRule,
    campaign: RunSession,
    *,
    max_time: float = inf,
) -> GateReport:
    """Measure a candidate against a baseline until there is a verdict or time is up.

    The baseline's model is run in turns with it if it can be run here and is unchanged; otherwise the stored
    baseline is used. No further round starts after `max_time` seconds.

    Raises:
        RequestError: the hardware differs, or a metric cannot be judged.
        OutOfTime: not one round could be measured within the limit of the campaign.
    """
    check_directions(tuple(map(Query.parse, question.metrics)))
    runner = _RoundRunner(
        baseline=baseline,
        job=replace(job, plan=replace(job.plan, processes=1)),
        question=question,
        campaign=campaign,
        until=monotonic() + max_time if campaign.limit is None else campaign.limit.end,
        rival=rerunnable_baseline(baseline, job),
    )
    if runner.buy(1):
        pair = runner.side(0, 0, 1), runner.side(1, 0, 1)
        compare_results(*pair, question)  # refuses incomparable results
        _check_work(*pair, question)
    if runner.spent and max_time < inf:  # now that the cost of a round is known, limit their number
        affordable = int(max_time / runner.spent) * len(runner.runs[1])
        rule = replace(rule, most=max(rule.first, min(rule.most, affordable)))
    ruling = decide_gate(runner.compare, rule)
    rounds = len(runner.runs[1])
    if ruling.verdict is Verdict.UNDECIDED and rounds > ruling.rounds:  # time was up between two tests
        ruling = decide_gate(runner.compare, replace(rule, first=min(rule.first, rounds), most=rounds))
    if not rounds:
        raise RequestError("Nothing was measured before the interruption.")
    turns = runner.rival is not None
    baseline_side, candidate_side = runner.side(0, 0, rounds), runner.side(1, 0, rounds)
    compared = compare_results(baseline_side, candidate_side, question, in_turns=turns, paired=turns)
    if campaign.interrupted():
        candidate_side = replace(
            candidate_side, doubts=tuple(dict.fromkeys((*candidate_side.doubts, INTERRUPTED)))
        )
    if not turns and ruling.verdict is Verdict.BROKEN and not any(map(is_evident, ruling.worse)):
        ruling = replace(ruling, verdict=Verdict.UNDECIDED, why=_UNSURE_ALONE)
    return GateReport(
        result=candidate_side,
        baseline=baseline_side,
        ruling=ruling,
        notes=(_describe_method(runner, rounds, ruling),),
        doubts=compared.doubts,
    )


_UNSURE_ALONE = "something is worse, but the machine may have changed since the baseline was measured"


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
