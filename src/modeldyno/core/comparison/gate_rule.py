"""The rule of a gate: when a candidate is let through, when it is stopped, and when more must be measured.

The gate looks after a few rounds, and then after more while it is undecided. At each look it asks whether
anything is worse, which takes a test and an effect that matters (see `difference`). It then takes a second
run of fresh rounds, as many as it has looked at or as are left, and never fewer than before the first look:
the gate fails when that shows an effect that matters by itself, too, and both runs together pass the test at
the stricter level. What made the first look wrong, such as a neighbour that came and went, does not come
twice at the same side. The gate holds when everything is shown to be not worse by what matters
(non-inferiority). What is neither stays undecided.

Ending at the first look that shows it to hold would let too much through: the error that is allowed is spent
over the looks, little at the early ones. After n of N rounds (n / N)^2 of it is spent (Kim and DeMets,
Biometrika 1987), and each look has what the time since the one before adds, so that all together stay within
it however the looks depend on each other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TypeAlias

from modeldyno.core.comparison.comparison import Change, Outcome
from modeldyno.core.metrics.constraints import Verdict
from modeldyno.core.metrics.metric import METRICS, Better, Query
from modeldyno.errors import RequestError

Compare: TypeAlias = Callable[[int, int, float], tuple[Change, ...] | None]
"""Judge the rounds from one up to another at a level of confidence; None where they cannot be had."""

MOMENTS = 0.08
"""What the same model on the same machine may differ by from one time to another, relative.

Hosted machines differ by much more; see the explanation of gates.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """How a gate looks, and how sure it wants to be."""

    first: int = 5
    """Rounds before the first look."""
    most: int = 40
    """Rounds that are bought at most before the last look, those of a confirmation not counted."""
    growth: float = 1.6
    """Of the rounds, from one look to the next."""
    alarm: float = 0.995
    """Confidence of the intervals by which something is worse in both runs together."""
    suspicion: float = 0.9
    """Confidence of the intervals by which something is suspected at a look (one-sided, 95 %)."""
    passing: float = 0.9
    """Confidence by which everything holds, of the intervals of all looks together (one-sided, 95 %)."""

    @property
    def looks(self) -> tuple[int, ...]:
        """After how many rounds it looks."""
        found = [self.first]
        while found[-1] < self.most:
            found.append(min(self.most, max(found[-1] + 1, round(self.growth * found[-1]))))
        return tuple(found)

    def level(self, look: int) -> float:
        """Give the confidence of the intervals by which everything holds at one of the looks."""
        before = max((each for each in self.looks if each < look), default=0)
        return 1 - (1 - self.passing) * (look**2 - before**2) / self.looks[-1] ** 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruling:
    """What a gate has decided, and on what."""

    verdict: Verdict
    changes: tuple[Change, ...]
    """All rounds together, as they were last looked at."""
    rounds: int
    """Rounds that were bought, those of confirmations included."""
    confirmation: tuple[Change, ...] = ()
    """What a second run said to what was worse, the last one if there were several."""
    why: str = ""

    @property
    def worse(self) -> tuple[Change, ...]:
        """What the gate fails for, as all rounds together show it."""
        confirmed = worse_in_both(self.changes, self.confirmation)
        return tuple(change for change in self.changes if change.query in confirmed)

    @property
    def open(self) -> tuple[Change, ...]:
        """What is not shown to hold."""
        return tuple(change for change in self.changes if not held(change))


def rule_on(compare: Compare, rule: Rule) -> Ruling:
    """Buy rounds until there is a verdict, or no more can be had."""
    seen: tuple[Change, ...] = ()
    again: tuple[Change, ...] = ()
    bought = 0
    for look in rule.looks:
        if look <= bought:
            continue
        found = compare(0, look, rule.suspicion)
        if found is None:
            break
        seen, bought = found, look
        suspects = {change.query for change in found if change.outcome is Outcome.WORSE}
        end = min(2 * look, max(rule.most, look + rule.first))
        if suspects:
            second, together = compare(look, end, rule.suspicion), compare(0, end, rule.alarm)
            if second is None or together is None:
                why = "something is worse, and no second run could confirm it"
                return Ruling(
                    verdict=Verdict.UNDECIDED, changes=seen, rounds=bought, confirmation=again, why=why
                )
            again, seen, bought = second, together, end
            if suspects.intersection(worse_in_both(together, second)):
                return Ruling(
                    verdict=Verdict.BROKEN,
                    changes=seen,
                    rounds=bought,
                    confirmation=again,
                    why="a second run confirms it",
                )
            continue
        seen = compare(0, look, rule.level(look)) or ()
        if passes(seen):
            return Ruling(verdict=Verdict.HELD, changes=seen, rounds=bought, confirmation=again)
    why = "more rounds are needed than could be had" if seen else "too few rounds could be had"
    return Ruling(verdict=Verdict.UNDECIDED, changes=seen, rounds=bought, confirmation=again, why=why)


def worse_in_both(together: tuple[Change, ...], second: tuple[Change, ...]) -> set[Query]:
    """Give what is worse by all rounds, and by more than matters in the second run by itself."""
    again = {change.query for change in second if change.outcome is Outcome.WORSE or _beyond(change)}
    return {change.query for change in together if change.outcome is Outcome.WORSE} & again


def _beyond(change: Change) -> bool:
    """Say whether the estimate alone is worse by more than matters."""
    if change.difference is None:
        return False
    slower = change.difference if METRICS[change.query.metric].better is Better.LOWER else _inverse(change)
    return slower > change.smallest


def _inverse(change: Change) -> float:
    assert change.difference is not None
    return 1 / (1 + change.difference) - 1


def rule_on_stored(
    alarm: tuple[Change, ...], passing: tuple[Change, ...], known: Collection[Query] = ()
) -> Ruling:
    """Judge what was measured at different times, when no more can be.

    Nothing can be confirmed, and the machine may have changed in between: what is worse must be so by more
    than that. What may be one or the other is undecided.

    Args:
        alarm: at the level of an alarm.
        passing: the same at the level by which a gate holds.
        known: queries whose intervals have in them what the machine does over such a time.
    """
    if any(evident(change, 0.0 if change.query in known else MOMENTS) for change in alarm):
        verdict, why = Verdict.BROKEN, ""
    elif any(change.outcome is Outcome.WORSE for change in alarm):
        verdict = Verdict.UNDECIDED
        why = "something is worse, and the machine may have changed in between; a second run must confirm it"
    elif passes(passing):
        verdict, why = Verdict.HELD, ""
    else:
        verdict, why = Verdict.UNDECIDED, "more processes are needed"
    return Ruling(verdict=verdict, changes=alarm, rounds=0, confirmation=alarm, why=why)


def evident(change: Change, moments: float = MOMENTS) -> bool:
    """Say whether it is worse by more than a machine differs from one time to another; a count always is."""
    if change.outcome is not Outcome.WORSE:
        return False
    if change.interval is None or change.interval.low == change.interval.high:
        return True
    nearest = min(abs(math.log1p(end)) for end in (change.interval.low, change.interval.high))
    return nearest > math.log1p(moments)


def passes(found: tuple[Change, ...] | None) -> bool:
    """Say whether everything is shown to hold; nothing at all shows nothing."""
    return bool(found) and all(map(held, found or ()))


def held(change: Change) -> bool:
    """Say whether a metric is shown to be not worse by what matters."""
    if change.outcome in {Outcome.SAME, Outcome.BETTER}:
        return True
    if change.interval is None or change.outcome is Outcome.WORSE:
        return False
    if METRICS[change.query.metric].better is Better.LOWER:
        return change.interval.high <= change.smallest
    return change.interval.low >= 1 / (1 + change.smallest) - 1


def check_directions(queries: tuple[Query, ...]) -> None:
    """Refuse to judge what is better neither way.

    Raises:
        RequestError: there is such a metric among them.
    """
    for query in queries:
        if METRICS[query.metric].better is Better.NEITHER:
            raise RequestError(
                f"{query.metric} is better neither way, so that it cannot get worse; bound it with --require."
            )
