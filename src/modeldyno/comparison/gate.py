"""The gate: a candidate held against a baseline, by what was measured, or by rounds bought for it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from math import inf
from typing import TYPE_CHECKING

from modeldyno import plugins
from modeldyno.comparison.history import scatter_of
from modeldyno.comparison.operands import again
from modeldyno.comparison.run import called
from modeldyno.core.comparison.build import Question, contrast, other_shapes, selected
from modeldyno.core.comparison.change_test import changes
from modeldyno.core.comparison.default_metrics import headlines
from modeldyno.core.comparison.gate_report import Checked
from modeldyno.core.comparison.gate_rule import (
    Rule,
    Ruling,
    check_directions,
    evident,
    rule_on,
    rule_on_stored,
)
from modeldyno.core.comparison.schedule import Turns
from modeldyno.core.metrics.constraints import Verdict
from modeldyno.core.metrics.metric import Query
from modeldyno.core.result.result import Result, merge
from modeldyno.core.spec.job import Job
from modeldyno.documents.lookup import find
from modeldyno.errors import ModelDynoError, RequestError
from modeldyno.profiling.resolve_model import refers_to_model
from modeldyno.runtime.engine import INTERRUPTED
from modeldyno.runtime.session import Campaign
from modeldyno.views.text import count

if TYPE_CHECKING:
    from modeldyno.core.comparison.comparison import Change

BRANCH = "@"
"""What the name of a baseline begins with that is kept by branch: a tag of the store."""
_PAIR = 2
_KEPT, _NAMED = 500, 6
"""Baselines of a branch that are looked at, and names that a mistake is answered with."""


def baseline_of(word: str, *names: str) -> Result:
    """Find a baseline: a file, an id, a tag; after ``@`` the newest that was kept for a branch.

    Args:
        word: what the user calls it.
        names: what the model may be called; of several models that were kept for a branch, that one is meant.

    Raises:
        RequestError: there is none, or it is not clear which.
    """
    if not word.startswith(BRANCH):
        return find_result(word)
    with plugins.store() as store:
        kept = store.find(tag=word, limit=_KEPT)
        known = sorted({entry.name for entry in kept})
        mine = kept if len(known) == 1 else [entry for entry in kept if entry.name in names]
        if mine:
            return store.get(mine[0].id)
    if known:
        raise RequestError(
            f"For {word} there are baselines of {', '.join(known[:_NAMED])}, and none of "
            f"{' or '.join(names) or 'this model'}; give the model's --name."
        )
    raise RequestError(
        f"The store has no baseline for {word}; keep one with modeldyno profile MODEL --save-as-baseline "
        f"{word.removeprefix(BRANCH)}."
    )


def find_result(word: str) -> Result:
    """Find a Result: a file, an id, a tag.

    Raises:
        RequestError: there is none; where the word is a model, it says what to do with one.
    """
    try:
        return find(word)
    except RequestError as error:
        if not refers_to_model(word):
            raise
        raise RequestError(
            f"'{word}' is a model, and a result is needed here; measure it first, with modeldyno profile "
            f"{word} --json result.json, or run two models in turns with modeldyno compare."
        ) from error


# --- what was measured -------------------------------------------------------------------------------


def checked(baseline: Result, candidate: Result, question: Question, rule: Rule | None = None) -> Checked:
    """Hold a Result against another, as far as what was measured goes.

    Raises:
        RequestError: the hardware is not the same, or something asked for cannot be judged.
    """
    rule = rule or Rule()
    queries = _queries(baseline, candidate, question)
    found = contrast(baseline, candidate, question)  # refuses what cannot be compared
    _check_work(baseline, candidate, question)
    history = scatter_of(baseline, candidate, queries)
    alarm, passing = (
        changes(
            baseline, candidate, smallest=question.smallest, queries=queries, level=level, history=history
        )
        for level in (rule.alarm, rule.passing)
    )
    ruling = rule_on_stored(alarm, passing, {query for query, found in history.items() if found.covers})
    note = f"against {_called(baseline)}, measured at another time: nothing was measured anew"
    return Checked(result=candidate, baseline=baseline, ruling=ruling, notes=(note,), doubts=found.doubts)


def _queries(baseline: Result, candidate: Result, question: Question) -> tuple[Query, ...]:
    queries = selected(question.metrics, baseline, candidate) or headlines(baseline, candidate)
    check_directions(queries)
    return queries


def _check_work(baseline: Result, candidate: Result, question: Question) -> None:
    """Refuse two that did not do the same work: what differs would be that of the inputs.

    Raises:
        RequestError: their inputs differ in shape.
    """
    fed = other_shapes(baseline, candidate)
    if fed and not question.force:
        raise RequestError(
            f"The baseline {_called(baseline)} and the candidate were not fed the same ({fed}); give both "
            "the same --input and batch_size, or add --force to judge it all the same."
        )


def _called(result: Result) -> str:
    return f"{result.name} {result.id[:6]} of {result.created[:16].replace('T', ' ')}"


# --- what is measured for it -------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class _Bench:
    """Buys rounds: runs baseline and candidate in turns, or the candidate alone."""

    baseline: Result
    job: Job
    question: Question
    campaign: Campaign
    until: float
    """Monotonic seconds after which no further round begins."""
    rival: Job | None
    """The job of the baseline, where it can be run again."""
    runs: tuple[list[Result], list[Result]] = field(default_factory=lambda: ([], []))
    why_alone: str = ""
    spent: float = 0.0

    def compare(self, begin: int, end: int, level: float) -> tuple[Change, ...] | None:
        """Judge rounds, and buy what is missing; None where they cannot be had."""
        if not self.buy(end):
            return None
        return changes(
            self.side(0, begin, end),
            self.side(1, begin, end),
            smallest=self.question.smallest,
            queries=self.queries(),
            level=level,
            paired=self.rival is not None,
        )

    @property
    def failed(self) -> bool:
        """Whether the candidate failed; what fails once would fail again."""
        return any(result.failures for result in self.runs[1])

    def queries(self) -> tuple[Query, ...]:
        """Give what is judged, now that both are known."""
        return _queries(self.side(0, 0, 1), self.runs[1][0], self.question)

    def side(self, place: int, begin: int, end: int) -> Result:
        """Give baseline (0) or candidate (1) of some rounds, pooled; a stored baseline is one whole."""
        if place == 0 and self.rival is None:
            return self.baseline
        pooled = merge(self.runs[place][begin:end])
        plan = replace(pooled.job.plan, processes=len(self.runs[place][begin:end]))
        return replace(pooled, job=replace(pooled.job, plan=plan))

    def buy(self, end: int) -> bool:
        """Run until there are so many rounds; say whether there are."""
        while len(self.runs[1]) < end:
            done = len(self.runs[1])
            now = time.monotonic()
            if self.failed or self.campaign.interrupted() or (done and now + self.spent / done > self.until):
                return False
            alone = self.rival is None
            self._round(done)
            self.spent += time.monotonic() - now
            if self.rival is None and not alone:
                continue  # the baseline is no more run again; the candidate may not have been run yet
            if len(self.runs[1]) == done:
                return False
            if not alone and len(self.runs[0]) == done:
                if self.campaign.interrupted():  # the candidate came first, and its baseline no more
                    self.runs[1].pop()
                    return False
                self._alone("its model could not be run again")
        return not self.failed

    def _round(self, number: int) -> None:
        """Run each side once, as far as it can be run."""
        jobs = {1: self.job} if self.rival is None else {0: self.rival, 1: self.job}
        ((_, order),) = Turns(sides=_PAIR).rounds(number, number + 1)
        places = [place for place in order if place in jobs]
        found = self.campaign.play(
            [(f"round {number + 1}, {called(place, _PAIR)}", jobs[place]) for place in places]
        )
        for place, result in zip(places, found, strict=False):
            self._take(place, result)

    def _take(self, place: int, result: Result | ModelDynoError) -> None:
        """Keep a run, unless it was interrupted, or is of a baseline that is not what it was."""
        if isinstance(result, ModelDynoError):
            if place:
                raise result
            self._alone(str(result))
        elif any(doubt.code == INTERRUPTED.code for doubt in result.doubts):
            pass
        elif not place and (why := _another(self.baseline, result)):
            self._alone(why)
        elif place or self.rival is not None:
            self.runs[place].append(result)

    def _alone(self, why: str) -> None:
        """Go on with the stored baseline."""
        self.rival, self.why_alone = None, why
        self.runs[0].clear()


def rival_of(baseline: Result, job: Job) -> Job | None:
    """Give the job of a baseline, if running it again would measure the baseline and not the candidate."""
    rival = again(baseline)
    same = replace(rival, plan=job.plan, name=job.name) == replace(job, name=job.name)
    return None if same else replace(rival, plan=replace(job.plan, processes=1))


def _another(baseline: Result, result: Result) -> str:
    """Say why what was run again is not the baseline; empty where it is."""
    if result.failures:
        return f"its model failed in {result.failures[0].where}"
    if baseline.model and result.model and baseline.model.digest != result.model.digest:
        return "its model is no longer what it was"
    if baseline.environment.software != result.environment.software:
        return "the software is no longer what it was"
    return ""


def gated(
    baseline: Result,
    job: Job,
    question: Question,
    rule: Rule,
    campaign: Campaign,
    *,
    max_time: float = inf,
) -> Checked:
    """Measure a candidate against a baseline until there is a verdict, or time is up.

    The baseline's model takes turns with it where that can be run here, and is what it was; else the stored
    baseline is taken as it is.

    Args:
        baseline: what is compared with.
        job: of the candidate.
        question: what to judge.
        rule: of the gate.
        campaign: what runs the rounds.
        max_time: seconds after which no further round begins.

    Raises:
        RequestError: the hardware is not the same, or something asked for cannot be judged.
    """
    check_directions(tuple(map(Query.parse, question.metrics)))
    bench = _Bench(
        baseline=baseline,
        job=replace(job, plan=replace(job.plan, processes=1)),
        question=question,
        campaign=campaign,
        until=time.monotonic() + max_time,
        rival=rival_of(baseline, job),
    )
    if bench.buy(1):
        sides = bench.side(0, 0, 1), bench.side(1, 0, 1)
        contrast(*sides, question)  # refuses what cannot be compared
        _check_work(*sides, question)
    if bench.spent and max_time < inf:  # what a round takes is known now, and so is how many can be had
        affordable = int(max_time / bench.spent) * len(bench.runs[1])
        rule = replace(rule, most=max(rule.first, min(rule.most, affordable)))
    ruling = rule_on(bench.compare, rule)
    rounds = len(bench.runs[1])
    if ruling.verdict is Verdict.UNDECIDED and rounds > ruling.rounds:  # time was up between two looks
        ruling = rule_on(bench.compare, replace(rule, first=min(rule.first, rounds), most=rounds))
    if not rounds:
        raise RequestError("Nothing was measured before the interruption.")
    turns = bench.rival is not None
    before, after = bench.side(0, 0, rounds), bench.side(1, 0, rounds)
    found = contrast(before, after, question, in_turns=turns, paired=turns)
    if campaign.interrupted():
        after = replace(after, doubts=tuple(dict.fromkeys((*after.doubts, INTERRUPTED))))
    if not turns and ruling.verdict is Verdict.BROKEN and not any(map(evident, ruling.worse)):
        ruling = replace(ruling, verdict=Verdict.UNDECIDED, why=_ALONE)
    return Checked(
        result=after,
        baseline=before,
        ruling=ruling,
        notes=(_how(bench, rounds, ruling),),
        doubts=found.doubts,
    )


_ALONE = "something is worse, and the machine may have changed since the baseline was measured"


def _how(bench: _Bench, rounds: int, ruling: Ruling) -> str:
    tail = f"; {ruling.why}" if ruling.why else ""
    if bench.rival is not None:
        return f"against {_called(bench.baseline)}, run again in turns: {count(rounds, 'round')}{tail}"
    why = bench.why_alone or "it was measured by the same command, which now runs the candidate"
    return (
        f"against {_called(bench.baseline)} as it was measured; it was not run again, as {why}: "
        f"{count(rounds, 'process', 'processes')} of the candidate{tail}"
    )
