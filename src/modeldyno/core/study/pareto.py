"""The Pareto front of a study: the candidates that no other dominates."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.core.stats.statistics import load_numpy
from modeldyno.core.study.bootstrap import ScoredCandidate, draw_logarithms, scored_candidates
from modeldyno.core.study.pooled_estimate import Estimate, run_to_run_spread
from modeldyno.core.study.search_space import key

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from modeldyno.core.study.search_space import Key
    from modeldyno.core.study.study import Candidate, Study

RESAMPLES = 200


def pareto_front(study: Study) -> tuple[Candidate, ...]:
    """Return the front by the estimates, from the best in the first objective to the worst.

    It is computed among candidates that hold their bounds, or among all with values if none does. Every load
    of a configuration is a point of its own.
    """
    compared = _comparable(study)
    if not compared:
        return ()
    signs = [objective.sign for objective in study.goal.objectives]
    values = load_numpy().array(
        [[sign * e.value for sign, e in zip(signs, _estimates(c), strict=True)] for c in compared]
    )
    undominated = [index for index, free in enumerate(_undominated(values)) if free]
    return tuple(
        compared[index].candidate for index in sorted(undominated, key=lambda index: -values[index, 0])
    )


def front_membership(study: Study, resamples: int = RESAMPLES) -> Mapping[Key, float]:
    """Return the share of resamples in which a candidate is on the front, for those that ever are.

    A candidate on the front with a small share, or off it with a large one, is tied with its neighbours.
    """
    hopeful = _without_dominated(_comparable(study), study)
    if not hopeful:
        return {}
    np = load_numpy()
    source = np.random.default_rng(study.seed)
    columns = zip(*(_estimates(contender) for contender in hopeful), strict=True)
    logs = [
        objective.sign
        * draw_logarithms(column, objective, run_to_run_spread(study, objective.query), resamples, source)
        for objective, column in zip(study.goal.objectives, columns, strict=True)
    ]
    chances = np.array([contender.chance for contender in hopeful])
    counts = np.zeros(len(hopeful))
    for values in np.stack(logs, axis=-1):
        (held,) = np.nonzero(source.random(len(hopeful)) < chances)
        counts[held[_undominated(values[held])]] += 1
    shares = zip(hopeful, counts / resamples, strict=True)
    return {key(contender.candidate.point): float(share) for contender, share in shares if share}


def _comparable(study: Study) -> list[ScoredCandidate]:
    ranked = [contender for contender in scored_candidates(study) if contender.ranked]
    return [contender for contender in ranked if contender.feasible] or ranked


def _estimates(contender: ScoredCandidate) -> list[Estimate]:
    return [estimate for estimate in contender.objectives if estimate is not None]


def _without_dominated(compared: Sequence[ScoredCandidate], study: Study) -> list[ScoredCandidate]:
    """Drop contenders clearly dominated by a surely feasible one, to save time."""
    np = load_numpy()
    signs = [objective.sign for objective in study.goal.objectives]
    ends = np.array(
        [
            [sorted((s * e.low, s * e.high)) for s, e in zip(signs, _estimates(c), strict=True)]
            for c in compared
        ]
    ).reshape(len(compared), len(signs), 2)
    sure = ends[[contender.chance > _SURE for contender in compared], :, 0]
    return [c for c, own in zip(compared, ends[..., 1], strict=True) if not (sure > own).all(axis=1).any()]


_SURE = 0.99


def _undominated(values: Any) -> list[bool]:
    """Return for each row whether it is undominated: none is as good in all columns and better in one."""
    return [not ((values >= row).all(axis=1) & (values > row).any(axis=1)).any() for row in values]
