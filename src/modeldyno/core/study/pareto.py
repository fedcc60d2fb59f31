"""The Pareto front of a study: candidates that no other is better than in every objective."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.core.stats.statistics import load_numpy
from modeldyno.core.study.bootstrap import Contender, contenders, drawn
from modeldyno.core.study.pooled_estimate import Estimate, learnt
from modeldyno.core.study.search_space import key

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from modeldyno.core.study.search_space import Key
    from modeldyno.core.study.study import Candidate, Study

RESAMPLES = 200


def front(study: Study) -> tuple[Candidate, ...]:
    """Give the front by the estimates, from the best in the first objective to the worst.

    Of those that hold their bounds; of all that have values, where none does. Every load of a
    configuration is a point of its own.
    """
    found = _compared(study)
    if not found:
        return ()
    signs = [objective.sign for objective in study.goal.objectives]
    values = load_numpy().array(
        [[sign * e.value for sign, e in zip(signs, _estimates(c), strict=True)] for c in found]
    )
    on = [place for place, free in enumerate(_undominated(values)) if free]
    return tuple(found[place].candidate for place in sorted(on, key=lambda place: -values[place, 0]))


def membership(study: Study, resamples: int = RESAMPLES) -> Mapping[Key, float]:
    """Give the share of resamples in which a candidate is on the front, for those that ever are.

    One on the front with a small share, or off it with a large one, cannot be told from its neighbours.
    """
    found = _hopeful(_compared(study), study)
    if not found:
        return {}
    np = load_numpy()
    source = np.random.default_rng(study.seed)
    columns = zip(*(_estimates(contender) for contender in found), strict=True)
    logs = [
        objective.sign * drawn(column, objective, learnt(study, objective.query), resamples, source)
        for objective, column in zip(study.goal.objectives, columns, strict=True)
    ]
    chances = np.array([contender.chance for contender in found])
    counts = np.zeros(len(found))
    for values in np.stack(logs, axis=-1):
        (held,) = np.nonzero(source.random(len(found)) < chances)
        counts[held[_undominated(values[held])]] += 1
    shares = zip(found, counts / resamples, strict=True)
    return {key(contender.candidate.point): float(share) for contender, share in shares if share}


def _compared(study: Study) -> list[Contender]:
    able = [contender for contender in contenders(study) if contender.ranked]
    return [contender for contender in able if contender.feasible] or able


def _estimates(contender: Contender) -> list[Estimate]:
    return [found for found in contender.objectives if found is not None]


def _hopeful(found: Sequence[Contender], study: Study) -> list[Contender]:
    """Leave out what is below another, surely feasible one by more than the intervals: it would cost time."""
    np = load_numpy()
    signs = [objective.sign for objective in study.goal.objectives]
    ends = np.array(
        [[sorted((s * e.low, s * e.high)) for s, e in zip(signs, _estimates(c), strict=True)] for c in found]
    ).reshape(len(found), len(signs), 2)
    sure = ends[[contender.chance > _SURE for contender in found], :, 0]
    return [c for c, own in zip(found, ends[..., 1], strict=True) if not (sure > own).all(axis=1).any()]


_SURE = 0.99


def _undominated(values: Any) -> list[bool]:
    """Say of each row whether no other is at least as good in all columns and better in one."""
    return [not ((values >= row).all(axis=1) & (values > row).any(axis=1)).any() for row in values]
