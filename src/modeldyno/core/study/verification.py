"""What is measured again before a ranking is told: the best candidates and the default, in turns.

Whoever is chosen for the highest of many figures is chosen for luck as well, and a machine changes while
a search goes on. So the last word is had by measurements that were not chosen: round after round, each
of a few rivals once, on a fresh process or a freshly started server, the first of a round the last of
the next. Of a server it may be two loads, one after the other: which of them is better is open as well.

A look is a part of what the Plan allows, for runs differ by more than a longer one would tell. Where a bound
is undecided for want of samples these are what the decision needs: from the second round on, such a candidate
is looked at for as long as those that are missing will take, by what the looks before have given.

Where looks err by more than what matters, rounds more tell little: verifying ends before it takes longer than
the search did, once something is known of the best.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from modeldyno.core.metrics.constraints import Verdict
from modeldyno.core.stats.statistics import NORMAL
from modeldyno.core.study.pooled_estimate import blur, missing
from modeldyno.core.study.ranking import ALIKE, ranking
from modeldyno.core.study.search_space import key
from modeldyno.core.study.study import Ask, Stage, State

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from modeldyno.core.study.ranking import Ranking, Standing
    from modeldyno.core.study.search_space import Key, Point
    from modeldyno.core.study.study import Study, Trial

ROUNDS = 4
"""Rounds after which what cannot be told apart is said to be so."""
MORE_ROUNDS = 12
"""Rounds, those included, after which a bound is left open for which samples are still missing."""
RIVALS = 3
"""Candidates of a round, the default apart."""
CHANCE = 0.02
"""Share of resamples below which a candidate is not worth a measurement."""
LIKELY = 0.2
"""Share from which on it is looked at for as long as its bounds want for samples."""
LONGER = 2.0
"""Growth of a look beyond all that were before."""
TWICE = 2
"""Measurements that show how much a candidate differs from itself."""
POWER = 0.2
"""Chance of becoming certain below which rounds more are not worth their time."""
LOOK = 0.15
"""Of the Plan's time, what a look takes at least (why: decision 0023); at most it takes all of it."""
MORE = 1.5
"""Factor beyond the time that the missing samples would take: the looks before tell it roughly."""
_LEAST = 1e-6


def next_ask(study: Study) -> Ask | None:
    """Say what to measure again next; None where the answer is as certain as it will get.

    It is a function of the log: each round is settled by what was known when it began.
    """
    budget = study.budget.max_trials
    if budget is not None and len(study.measured) >= budget:
        return None
    last = max(
        (place for place, trial in enumerate(study.trials, 1) if trial.stage is not Stage.VERIFY), default=0
    )
    searched = [t for t in study.trials if t.stage is not Stage.VERIFY and t.state is State.DONE]
    care = max((trial.care for trial in searched), default=1.0)
    for number in range(MORE_ROUNDS):
        known = replace(study, trials=study.trials[:last])
        team = _team(known) if number < ROUNDS else _wanting(known)
        left = {key(point): (row, point) for row, point in _turned(team, number)}
        while left and last < len(study.trials):
            left.pop(key(study.trials[last].point), None)
            last += 1
        if left:
            row, point = next(iter(left.values()))
            return Ask(point=point, stage=Stage.VERIFY, care=_care(known, row, point, care))
        if not team:
            return None
    return None


def fresh(study: Study, ask: Ask) -> bool:
    """Say whether a trial wants a process or a server of its own: what verifies does.

    A load of the configuration that another load has just verified is measured on the server that it left.
    """
    if ask.stage is not Stage.VERIFY:
        return False
    last = study.trials[-1] if study.trials else None
    return (
        last is None
        or (last.stage, last.state) != (Stage.VERIFY, State.DONE)
        or key(last.point) == key(ask.point)
        or key(study.configuration(last.point)) != key(study.configuration(ask.point))
    )


def _turned(team: Sequence[Standing], number: int) -> Iterator[tuple[Standing, Point]]:
    """Begin each round with the next one, so that none is always measured first; nor is one of two loads."""
    place = number % len(team) if team else 0
    for row in (*team[place:], *team[:place]):
        for point in row.promising[:: -1 if number % 2 else 1]:
            yield row, point


def _team(study: Study) -> list[Standing]:
    """Choose who is measured in a round; empty where nothing is left to be settled."""
    found = ranking(study)
    teams: dict[tuple[Key, ...], Standing] = {}
    for part in found.each or (found,):
        teams |= {tuple(map(key, row.promising)): row for row in _needed(study, part)}
    return list(teams.values())


def _wanting(study: Study) -> list[Standing]:
    """Give those of which all rounds left it open whether they hold the bounds, for want of samples alone.

    They are measured on where a time was allowed for all, which ends it.
    """
    if study.budget.max_time is None:
        return []
    found = ranking(study)
    rows = [row for part in found.each or (found,) for row in part.rows if row.share >= LIKELY]
    short = (_lacking(study, row) for row in rows if row.verdict is Verdict.UNDECIDED)
    return [row for row in short if row.promising]


def _lacking(study: Study, row: Standing) -> Standing:
    """Leave those loads whose bounds want for samples."""
    return replace(row, promising=tuple(point for point in row.promising if _lack(study, point)))


def _needed(study: Study, part: Ranking) -> list[Standing]:
    """Give those of a ranking whose measuring may settle it.

    Where rounds more would hardly make the best certain they are those that want for samples: of what these
    will show nothing is known.
    """
    rivals, certain = _rivals(part) or _only(study, part), study.budget.certain
    if not _verified(part):
        return rivals
    if part.certainty >= certain or _blurred_for_long(study):
        return []
    if not _hopeless(part, certain):
        return rivals
    short = (_lacking(study, row) for row in rivals)
    return [row for row in short if row.promising]


def _care(study: Study, row: Standing, point: Point, most: float) -> float:
    """Say how long to look: as long as the samples take that one which is likely best lacks.

    What the looks before have given tells it, each by its own time, and only roughly: a look is at most twice
    as long as all of them, for a bound that is broken shows sooner.
    """
    wanted = min(MORE * _lack(study, point), LONGER) if row.share >= LIKELY else 0.0
    before = sum(trial.care for trial in _again(study, point))
    return min(max(LOOK * most, wanted * before), most)


def _lack(study: Study, point: Point) -> float:
    """Give the samples that bounds are undecided for want of, for each that was had in verifying it."""
    trials = _again(study, point)
    return max((missing(trials, bound) for bound in study.goal.constraints), default=0.0)


def _again(study: Study, point: Point) -> list[Trial]:
    """Give the trials that verified a candidate."""
    return [t for t in study.candidates[key(point)].telling if t.stage is Stage.VERIFY]


def _verified(found: Ranking) -> bool:
    """Say whether the best was verified, against a default that was."""
    best, default = found.best, found.default
    compared = default is None or bool(default.failure) or default.verified >= TWICE
    return best is not None and best.verified >= TWICE and compared


def _blurred_for_long(study: Study) -> bool:
    """Say whether looks err by more than what matters, and a round more would outlast the search."""
    if blur(study, study.goal.objectives[0].query) <= ALIKE:
        return False
    again = [trial for trial in study.measured if trial.stage is Stage.VERIFY]
    taken = sum(trial.seconds for trial in again)
    rounds = max(Counter(key(trial.point) for trial in again).values())
    return taken * (rounds + 1) / rounds > sum(trial.seconds for trial in study.measured) - taken


def _hopeless(found: Ranking, certain: float) -> bool:
    """Say whether the rounds that are left would hardly make the best certain.

    The score z of a comparison of n measurements, n growing to N, is expected to become normal, with
    mean z sqrt(N / n) and variance N / n - 1 (conditional power; Lan, Simon and Halperin 1982).
    """
    done = min(row.verified for row in found.rows if row.share >= CHANCE or row == found.best)
    if not TWICE <= done < ROUNDS:
        return False
    now, wanted = (NORMAL.inv_cdf(min(max(p, _LEAST), 1 - _LEAST)) for p in (found.certainty, certain))
    grown = ROUNDS / done
    return NORMAL.cdf((now * grown**0.5 - wanted) / (grown - 1) ** 0.5) < POWER


def _only(study: Study, found: Ranking) -> list[Standing]:
    """Give the only configuration where it was measured at several loads: which of them holds is open."""
    works = [row for row in found.rows if not row.failure]
    return works if len(works) == 1 and len(study.candidates) > 1 else []


def _rivals(found: Ranking) -> list[Standing]:
    """Give those that may be best, and the default until it was verified."""
    hopeful = [row for row in found.rows if row.share >= CHANCE or row == found.best]
    hopeful.sort(key=lambda row: (-row.share, row != found.best))
    if not hopeful:
        return []
    if hopeful[0].default:  # one other, so that there is something to compare it with
        others = [row for row in found.rows[1:] if row.feasible]
        return hopeful[:2] if len(hopeful) > 1 else [hopeful[0], *others[:1]] if others else []
    default = found.default
    if default is not None and (default.failure or default.verified >= TWICE):
        default = None
    chosen = hopeful[:RIVALS]
    if default is not None and default not in chosen:
        chosen.append(default)
    return chosen if len(found.rows) > 1 else []
