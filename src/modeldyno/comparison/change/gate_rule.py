"""Decide a gate: when a candidate passes, when it fails, and when more must be measured.

The gate judges after a few rounds, and again after more rounds while it is undecided. Each time it tests
whether anything is worse, which takes a significant test and an effect that matters (see `change_test`). If
so, it runs fresh rounds as a confirmation, as many as so far or as are left, and never fewer than before the
first look. It fails if the confirmation shows an effect that matters by itself and both runs together pass a
stricter test: a chance disturbance of the first look does not hit the same side twice. The gate passes when
everything is shown to be not worse by what matters (non-inferiority). Otherwise it stays undecided, and ends
at the first look at which something can never be known, such as a time that is not that of the work.

Stopping at the first look that passes would let too much through, so the allowed error is spent over the
looks, little at the early ones. After n of N rounds (n / N)^2 of it is spent (Kim and DeMets, Biometrika
1987), and each look gets the increment since the one before, so that the total error holds however the looks
depend on each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from modeldyno.base.errors import RequestError
from modeldyno.base.metrics.constraints import Verdict
from modeldyno.base.metrics.metric import METRICS, Better, Query
from modeldyno.base.result.slowdown import explain_slowdown
from modeldyno.comparison.change.change_test import FEWEST, stays_unknown
from modeldyno.comparison.change.comparison import Change, ChangeVerdict

if TYPE_CHECKING:
    from modeldyno.comparison.change.other_times import OtherTimes

Compare: TypeAlias = Callable[[int, int, float], tuple[Change, ...] | None]
"""Judge a range of rounds at a level of confidence; None if these rounds are not available."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateRule:
    """Parameters of a gate: when it judges, and at which confidence."""

    first: int = 5
    """Rounds before the first look."""
    most: int = 40
    """Most rounds before the last look, without those of a confirmation."""
    growth: float = 1.6
    """Factor of the rounds from one look to the next."""
    alarm: float = 0.995
    """Confidence of the intervals at which both runs together must be worse."""
    suspicion: float = 0.9
    """Confidence of the intervals at which a look suspects a regression (one-sided, 95 %)."""
    passing: float = 0.9
    """Joint confidence of the intervals of all looks at which everything holds (one-sided, 95 %)."""
    enough: int = 16
    """Rounds that a limited time should allow: they find a slowdown of 5 % of a function that is steady to
    0.5 % in nine of ten gates, even if others disturb every twentieth process."""
    kept: int = 0
    """Rounds that are kept for a confirmation, where their number is limited; without a suspicion they are
    for one more look, at which everything may hold."""

    def within(self, rounds: int) -> GateRule:
        """Return the rule for so many rounds in all, so that each look but one can be confirmed."""
        first = max(FEWEST, min(self.first, rounds // 2))
        most = max(first, min(self.most, rounds - first))
        return replace(self, first=first, most=most, kept=max(0, min(self.most, rounds) - most))

    @property
    def interim_rounds(self) -> tuple[int, ...]:
        """Number of rounds at each look."""
        counts = [self.first]
        while counts[-1] < self.most:
            counts.append(min(self.most, max(counts[-1] + 1, round(self.growth * counts[-1]))))
        return (*counts, counts[-1] + self.kept) if self.kept else tuple(counts)

    def level(self, rounds: int) -> float:
        """Return the confidence of the intervals for passing at one of the looks."""
        previous = max((n for n in self.interim_rounds if n < rounds), default=0)
        return 1 - (1 - self.passing) * (rounds**2 - previous**2) / self.interim_rounds[-1] ** 2


@dataclass(frozen=True, slots=True, kw_only=True)
class GateDecision:
    """The decision of a gate, and what it is based on."""

    verdict: Verdict
    changes: tuple[Change, ...]
    """All rounds together, at the last look."""
    rounds: int
    """Rounds that were run, those of confirmations included."""
    confirmation: tuple[Change, ...] = ()
    """What the confirmation showed; the last one if there were several."""
    why: str = ""

    @property
    def worse(self) -> tuple[Change, ...]:
        """The changes for which the gate fails, as all rounds together show them."""
        confirmed = worse_in_both(self.changes, self.confirmation)
        return tuple(change for change in self.changes if change.query in confirmed)

    @property
    def open(self) -> tuple[Change, ...]:
        """The changes that are not shown to hold."""
        return tuple(change for change in self.changes if not shown_to_hold(change))


NOTHING_COMPARED = GateDecision(
    verdict=Verdict.UNDECIDED, changes=(), rounds=0, why="nothing was measured in the same way on both sides"
)


def decide_gate(compare: Compare, rule: GateRule, passing: Compare | None = None) -> GateDecision:
    """Run rounds until there is a decision, or no more rounds are available.

    Args:
        compare: judges rounds.
        rule: when to judge, and how surely.
        passing: judges the rounds by which a candidate passes; by default as `compare`.
    """
    passing = passing or compare
    decision = GateDecision(verdict=Verdict.UNDECIDED, changes=(), rounds=0)
    for rounds in rule.interim_rounds:
        if rounds <= decision.rounds:
            continue
        changes = compare(0, rounds, rule.suspicion)
        if changes is None:
            break
        decision = replace(decision, changes=changes, rounds=rounds)
        suspects = {change.query for change in changes if change.outcome is ChangeVerdict.WORSE}
        end = min(2 * rounds, max(rule.interim_rounds[-1], rounds + rule.first))
        if suspects:
            repeat, combined = compare(rounds, end, rule.suspicion), compare(0, end, rule.alarm)
            if repeat is None or combined is None:
                return replace(decision, why="something is worse, and no second run could confirm it")
            decision = replace(decision, changes=combined, rounds=end, confirmation=repeat)
            if suspects.intersection(worse_in_both(combined, repeat)):
                return replace(decision, verdict=Verdict.BROKEN, why="a second run confirms it")
            continue
        decision = replace(decision, changes=passing(0, rounds, rule.level(rounds)) or ())
        if all_held(decision.changes):
            return replace(decision, verdict=Verdict.HELD)
        if any(map(stays_unknown, decision.changes)):
            return decision
    few = "too few rounds could be run"
    return replace(decision, why="more rounds are needed than could be run" if decision.changes else few)


def worse_in_both(together: tuple[Change, ...], second: tuple[Change, ...]) -> set[Query]:
    """Return the queries that are worse in all rounds, and by more than matters in the confirmation alone."""
    confirmed = {
        change.query
        for change in second
        if change.outcome is ChangeVerdict.WORSE or _exceeds_smallest(change)
    }
    return {change.query for change in together if change.outcome is ChangeVerdict.WORSE} & confirmed


def _exceeds_smallest(change: Change) -> bool:
    """Return whether the estimate alone is worse by more than matters."""
    if change.difference is None:
        return False
    slowdown = (
        change.difference if METRICS[change.query.metric].better is Better.LOWER else _inverse_change(change)
    )
    return slowdown > change.smallest


def _inverse_change(change: Change) -> float:
    assert change.difference is not None
    return 1 / (1 + change.difference) - 1


def decide_gate_on_stored(
    alarm: tuple[Change, ...],
    passing: tuple[Change, ...],
    apart: tuple[Change, ...],
    times: OtherTimes,
) -> GateDecision:
    """Decide on stored measurements from different times, without further runs.

    Without a confirmation, and because the machine may have changed in between, a regression must exceed that
    variation, and so must the room that is left to a change that matters. All else is undecided.

    Args:
        alarm: the changes at the confidence for failing.
        passing: the changes at the confidence for passing.
        apart: likewise, with intervals that include what the machine may do from one time to another.
        times: says what the machine, or others on it, may explain or hide.
    """
    if not alarm:
        return NOTHING_COMPARED
    worse = [change for change in alarm if change.outcome is ChangeVerdict.WORSE]
    if any(map(times.is_evident, worse)):
        verdict, why = Verdict.BROKEN, ""
    elif worse:
        verdict, why = Verdict.UNDECIDED, f"{_explain_unsure(worse, times)}; a second run must confirm it"
    elif all_held(apart):
        verdict, why = _held_between(alarm, times)
    elif all_held(passing):
        verdict = Verdict.UNDECIDED
        why = "nothing looks worse, but the machine may have changed in between; measure both in turns"
    else:
        # What is void, was not measured, or is withheld says so itself, and no process would help.
        open_for_good = any(stays_unknown(each) or (each.difference is None and each.why) for each in passing)
        verdict, why = Verdict.UNDECIDED, "" if open_for_good else "more processes are needed"
    return GateDecision(verdict=verdict, changes=alarm, rounds=0, confirmation=alarm, why=why)


def against_stored(decision: GateDecision, times: OtherTimes) -> GateDecision:
    """Return the decision of a candidate that was measured alone: undecided where the machine may explain it.

    Args:
        decision: by rounds of the candidate, against the baseline as stored.
        times: says what the machine, or others on it, may explain or hide.
    """
    if decision.verdict is Verdict.BROKEN and not any(map(times.is_evident, decision.worse)):
        return replace(decision, verdict=Verdict.UNDECIDED, why=_explain_unsure(decision.worse, times))
    if decision.verdict is Verdict.HELD:
        verdict, why = _held_between(decision.changes, times)
        return replace(decision, verdict=verdict, why=why)
    return decision


def _held_between(changes: Iterable[Change], times: OtherTimes) -> tuple[Verdict, str]:
    """Return whether what holds is shown to do so, although the two were measured at different times."""
    if any(map(times.may_hide, changes)):
        return (
            Verdict.UNDECIDED,
            "nothing looks worse, but other processes slowed the baseline down; measure it again",
        )
    return Verdict.HELD, ""


def _explain_unsure(worse: Iterable[Change], times: OtherTimes) -> str:
    slowed = max(map(times.slowdown, worse))
    why = (
        explain_slowdown(slowed, "the candidate")
        or "the machine may have changed since the baseline was measured"
    )
    return f"something is worse, but {why}"


def all_held(changes: tuple[Change, ...] | None) -> bool:
    """Return whether everything is shown to hold; no changes show nothing."""
    return bool(changes) and all(map(shown_to_hold, changes or ()))


def shown_to_hold(change: Change) -> bool:
    """Return whether a metric is shown to be not worse by what matters."""
    if change.outcome in {ChangeVerdict.SAME, ChangeVerdict.BETTER}:
        return True
    if change.interval is None or change.outcome is ChangeVerdict.WORSE:
        return False
    if METRICS[change.query.metric].better is Better.LOWER:
        return change.interval.high <= change.smallest
    return change.interval.low >= 1 / (1 + change.smallest) - 1


def check_directions(queries: tuple[Query, ...]) -> None:
    """Refuse metrics that have no better direction.

    Raises:
        RequestError: one of the metrics has no better direction.
    """
    for query in queries:
        if METRICS[query.metric].better is Better.NEITHER:
            raise RequestError(
                f"{query.metric} has no better direction, so a gate cannot fail on it; use `require`."
            )
