"""Verification of a study: measure the best candidates and the default again, in turns, before ranking them.

The candidate with the best figure suffers from selection bias, and a machine changes during a search. So the
ranking rests on independent measurements: round after round, each of a few rivals is measured once in a fresh
process or on a freshly started server, in an order that rotates. Of a server up to two loads are measured one
after the other, if it is open which of them is better.

A verification trial takes a part of the Plan's time, because runs differ by more than a longer trial would
resolve. If a bound is undecided only for lack of samples, the candidate is measured longer from the second
round on: as long as the missing samples will take, judging by the trials before.

If single trials err by more than what matters, more rounds help little: then verification ends before it
takes longer than the search did, once something is known of the best.

After it, the best configurations may be measured at all loads, for their curves. A search spends its trials
on the loads that may be best, so that the curve of a good configuration may have two points. These trials are
for its picture and its tables: neither the search nor the ranking sees them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import islice, product
from typing import TYPE_CHECKING

from modeldyno.base.stats.statistics import NORMAL
from modeldyno.sweeps.study.pooled_estimate import median_trial_error, missing_samples
from modeldyno.sweeps.study.ranking import ALIKE, ranking
from modeldyno.sweeps.study.search_space import key
from modeldyno.sweeps.study.study import TrialPurpose, TrialRequest, TrialState

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from modeldyno.sweeps.study.ranking import RankedConfiguration, Ranking
    from modeldyno.sweeps.study.search_space import Key, Point
    from modeldyno.sweeps.study.study import Study, Trial


ROUNDS = 4
"""Rounds after which candidates that are still tied are reported as such."""
MORE_ROUNDS = 12
"""Rounds, those included, after which a bound that still lacks samples stays undecided."""
RIVALS = 3
"""Candidates per round, not counting the default."""
CHANCE = 0.02
"""Share of resamples below which a candidate is not measured again."""
LIKELY = 0.2
"""Share from which on it is measured for as long as its bounds lack samples."""
LONGER = 2.0
"""Largest growth of a trial beyond all before it."""
TWICE = 2
"""Measurements needed to see how much a candidate varies."""
POWER = 0.2
"""Predictive power below which more rounds are not worth their time."""
LOOK = 0.15
"""Smallest share of the Plan's time for a trial (see decision 0023); the largest is all of it."""
MORE = 1.5
"""Factor on the time for the missing samples, which earlier trials predict only roughly."""
_LEAST = 1e-6


def next_verification_trial(study: Study) -> TrialRequest | None:
    """Return the trial to verify next; None if the answer is as certain as it will get.

    It is a function of the log: each round is determined by what was known when it began.
    """
    budget = study.budget.max_trials
    if budget is not None and len(study.measured) >= budget:
        return None
    last = max(
        (place for place, trial in enumerate(study.trials, 1) if trial.stage is not TrialPurpose.VERIFY),
        default=0,
    )
    searched = [t for t in study.trials if t.stage is not TrialPurpose.VERIFY and t.state is TrialState.DONE]
    care = max((trial.care for trial in searched), default=1.0)
    for number in range(MORE_ROUNDS):
        known_study = replace(study, trials=study.trials[:last])
        rows = _round_rows(known_study) if number < ROUNDS else _rows_lacking_samples(known_study)
        pending = {key(point): (row, point) for row, point in _rotated(rows, number)}
        while pending and last < len(study.trials):
            pending.pop(key(study.trials[last].point), None)
            last += 1
        if pending:
            row, point = next(iter(pending.values()))
            return TrialRequest(
                point=point, stage=TrialPurpose.VERIFY, care=_trial_care(known_study, row, point, care)
            )
        if not rows:
            return None
    return None


def needs_fresh_process(study: Study, ask: TrialRequest) -> bool:
    """Return whether a trial needs a fresh process or server, as verification does.

    Another load of the configuration that was just verified is measured on the same server.
    """
    if ask.stage is not TrialPurpose.VERIFY:
        return False
    previous = study.trials[-1] if study.trials else None
    return (
        previous is None
        or (previous.stage, previous.state) != (TrialPurpose.VERIFY, TrialState.DONE)
        or key(previous.point) == key(ask.point)
        or key(study.configuration(previous.point)) != key(study.configuration(ask.point))
    )


def _rotated(team: Sequence[RankedConfiguration], number: int) -> Iterator[tuple[RankedConfiguration, Point]]:
    """Rotate the order from round to round, so that no candidate and no load is always first."""
    start = number % len(team) if team else 0
    for row in (*team[start:], *team[:start]):
        for point in row.promising[:: -1 if number % 2 else 1]:
            yield row, point


def _round_rows(study: Study) -> list[RankedConfiguration]:
    """Return the candidates of a round; empty if nothing is left to decide."""
    full_ranking = ranking(study)
    rows: dict[tuple[Key, ...], RankedConfiguration] = {}
    for group in full_ranking.each or (full_ranking,):
        rows |= {tuple(map(key, row.promising)): row for row in _decisive_rows(study, group)}
    return list(rows.values())


def _rows_lacking_samples(study: Study) -> list[RankedConfiguration]:
    """Return the candidates with loads that after all rounds are undecided only for lack of samples.

    They are measured further only if the budget has a time limit, which ends it.
    """
    if study.budget.max_time is None:
        return []
    full_ranking = ranking(study)
    return [
        row
        for group in full_ranking.each or (full_ranking,)
        for row in _lacking(study, [row for row in group.rows if row.share >= LIKELY])
    ]


def _lacking(study: Study, rows: Sequence[RankedConfiguration]) -> list[RankedConfiguration]:
    """Keep only the loads whose bounds lack samples, and the candidates that have such."""
    return [
        replace(row, promising=loads)
        for row in rows
        if (loads := tuple(point for point in row.promising if _missing_samples(study, point)))
    ]


def _decisive_rows(study: Study, part: Ranking) -> list[RankedConfiguration]:
    """Return the rows of a ranking whose measurement may decide it.

    If more rounds would hardly make the answer certain, or there is only one configuration, these are the
    ones that lack samples: what those will show is open.
    """
    rivals, certain = _rival_rows(part) or _only_configuration(study, part), study.budget.enough
    if not _is_verified(part):
        return rivals
    if _is_noise_limited(study):
        return []
    if part.near_best >= certain:
        return _lacking(study, _only_configuration(study, part))
    return _lacking(study, rivals) if _is_futile(part, certain) else rivals


def _trial_care(study: Study, row: RankedConfiguration, point: Point, most: float) -> float:
    """Return how long to measure: as long as the missing samples take, if the candidate is likely the best.

    Earlier trials predict the time only roughly, so a trial is at most twice as long as all before it: a
    broken bound shows sooner.
    """
    needed = min(MORE * _missing_samples(study, point), LONGER) if row.share >= LIKELY else 0.0
    previous = sum(trial.care for trial in _verifying_trials(study, point))
    return min(max(LOOK * most, needed * previous), most)


def _missing_samples(study: Study, point: Point) -> float:
    """Return the samples that undecided bounds lack, per sample of the verification."""
    trials = _verifying_trials(study, point)
    return max((missing_samples(trials, bound) for bound in study.goal.constraints), default=0.0)


def _verifying_trials(study: Study, point: Point) -> list[Trial]:
    """Return the trials that verified a point."""
    return [
        trial for trial in study.candidates[key(point)].quoted_trials if trial.stage is TrialPurpose.VERIFY
    ]


def _is_verified(result: Ranking) -> bool:
    """Return whether the best was verified against a verified default."""
    best, default = result.best, result.default
    compared = default is None or bool(default.failure) or default.verified >= TWICE
    return best is not None and best.verified >= TWICE and compared


def _is_noise_limited(study: Study) -> bool:
    """Return whether trials err by more than what matters, and a further round would outlast the search."""
    if median_trial_error(study, study.goal.objectives[0].query) <= ALIKE:
        return False
    again = [trial for trial in study.measured if trial.stage is TrialPurpose.VERIFY]
    taken = sum(trial.seconds for trial in again)
    rounds = max(Counter(key(trial.point) for trial in again).values())
    return taken * (rounds + 1) / rounds > sum(trial.seconds for trial in study.measured) - taken


def _is_futile(result: Ranking, certain: float) -> bool:
    """Return whether the remaining rounds would hardly make the answer certain.

    The score z of a comparison of n measurements, with n growing to N and a flat prior of the difference, is
    predicted to be normal with mean z sqrt(N / n) and variance N / n - 1 (predictive power; Spiegelhalter,
    Freedman and Blackburn 1986).
    """
    done = min(row.verified for row in result.rows if row.share >= CHANCE or row == result.best)
    if not TWICE <= done < ROUNDS:
        return False
    now, needed = (NORMAL.inv_cdf(min(max(p, _LEAST), 1 - _LEAST)) for p in (result.near_best, certain))
    growth = ROUNDS / done
    return NORMAL.cdf((now * growth**0.5 - needed) / (growth - 1) ** 0.5) < POWER


def _only_configuration(study: Study, result: Ranking) -> list[RankedConfiguration]:
    """Return the only configuration if it was measured at several loads: which of them hold is open."""
    working = [row for row in result.rows if not row.failure]
    return working if len(working) == 1 and len(study.candidates) > 1 else []


def _rival_rows(result: Ranking) -> list[RankedConfiguration]:
    """Return the candidates that may be best, and the default until it is verified."""
    likely = [row for row in result.rows if row.share >= CHANCE or row == result.best]
    likely.sort(key=lambda row: (-row.share, row != result.best))
    if not likely:
        return []
    if likely[0].default:  # one other, so that there is something to compare it with
        others = [row for row in result.rows[1:] if row.feasible]
        return likely[:2] if len(likely) > 1 else [likely[0], *others[:1]] if others else []
    default = result.default
    if default is not None and (default.failure or default.verified >= TWICE):
        default = None
    chosen = likely[:RIVALS]
    if default is not None and default not in chosen:
        chosen.append(default)
    return chosen if len(result.rows) > 1 else []


SEARCH_SHARE = 2 / 3
"""Share of a budget for the search; the rest is for verification."""
TIME_SHARE = 0.75
"""Share of a time limit that is left to the search and its verification, if curves are wanted."""


def next_curve_trial(study: Study) -> TrialRequest | None:
    """Return the next load of one of the best configurations that was not measured; None if there is none."""
    done = {key(trial.point) for trial in study.trials}
    for point in _points(study):
        if key(point) not in done:
            return TrialRequest(point=point, stage=TrialPurpose.CURVE)
    return None


def _points(study: Study) -> Iterator[Point]:
    """Yield the best configurations of the ranking, each at all loads."""
    loads = [axis for axis in study.space.axes if axis.name in study.loads and axis.where is None]
    if not (loads and study.budget.curves):
        return
    best: dict[Key, Point] = {}
    for row in ranking(study).rows:
        if not row.failure:
            best.setdefault(key(study.configuration(row.point)), row.point)
    for point in islice(best.values(), study.budget.curves):
        for values in product(*(axis.values for axis in loads)):
            yield {**point, **{axis.name: value for axis, value in zip(loads, values, strict=True)}}
