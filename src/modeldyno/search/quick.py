"""Few measurements, each where most is to be gained by what is known so far.

The default, a few points far apart, and then always the point whose expected improvement under the bounds
is greatest (Gardner et al. 2014), preferring those of the server that is open where it is as good.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from modeldyno.core.space import Point, key
from modeldyno.core.study import Ask, Stage
from modeldyno.search import grid
from modeldyno.search.history import LEAST, Closed, allowance, loads_of, open_points, spent

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from modeldyno.core.study import Study

requires: tuple[str, ...] = ()

DESIGN = 1
"""Points that are chosen to lie far from one another, the default included."""
WARM = 0.7
"""Share of the best expected gain for which a server is not started."""
ENOUGH = 0.01
"""Expected gain, as a share, below which nothing more is measured."""
FEWEST = 12
_ALL, _RANDOM, _NEAR = 1500, 400, 12


def propose(study: Study) -> Ask | None:
    """Say what to measure next."""
    if study.space.size <= LEAST:
        return grid.propose(study)
    if spent(study) >= allowance(study):
        return None
    from modeldyno.search.outlook import Outlook  # noqa: PLC0415 - numpy

    outlook = Outlook.of(study)
    closed = Closed.of(study)
    points = candidates(study, closed)
    if not points:
        return None
    if outlook is None and not study.candidates:
        first = study.space.completed(study.default)
        return Ask(point=first if first not in closed else points[0])
    if outlook is None or spent(study) < DESIGN:
        return Ask(point=_farthest(study, points))
    return _best(study, outlook, points)


def _best(study: Study, outlook: "Outlook", points: Sequence[Point]) -> Ask | None:
    import numpy as np

    seen = [c.point for c in study.candidates.values() if not c.failed]
    score, excess = outlook.draws(seen)
    holds = (excess <= 0).mean(axis=1) >= 0.5
    ahead, beyond = outlook.draws(points)
    if holds.any():
        best = score.mean(axis=1)[holds].max()
        gain = (np.clip(ahead - best, 0, None) * (beyond <= 0)).mean(axis=1)
    else:
        least = excess.mean(axis=1).min()
        gain = np.clip(least - beyond, 0, None).mean(axis=1) + 0.1 * (beyond <= 0).mean(axis=1)
    gain = gain * outlook.works(points)
    chosen = int(gain.argmax())
    if gain[chosen] < ENOUGH and spent(study) >= FEWEST:
        return None
    opened = _open(study, points)
    if opened:
        here = max(opened, key=lambda n: gain[n])
        if gain[here] >= WARM * gain[chosen]:
            chosen = here
    return Ask(point=points[chosen])


def _open(study: Study, points: Sequence[Point]) -> list[int]:
    if not study.measured or not loads_of(study.space):
        return []
    last = study.configuration(study.measured[-1].point)
    return [n for n, p in enumerate(points) if study.configuration(p) == last]


def _farthest(study: Study, points: Sequence[Point]) -> Point:
    from modeldyno.search.surrogate import Chart  # noqa: PLC0415 - numpy

    chart = Chart.of(study.space.axes)
    seen = [c.point for c in study.candidates.values()]
    if not seen:
        return points[0]
    gaps = chart.apart(chart.locate(points), chart.locate(seen)).sum(axis=0)
    return points[int(gaps.min(axis=1).argmax())]


def candidates(study: Study, closed: Closed) -> list[Point]:
    """Give the points to choose from: all of a small space; of a large one some, and what lies near the best."""
    if study.space.size <= _ALL:
        return list(open_points(study))
    source = random.Random(study.seed * 7919 + len(study.trials))
    found: dict[object, Point] = {}
    for point in _sampled(study, source):
        if point not in closed:
            found.setdefault(key(point), point)
    return list(found.values())


def _sampled(study: Study, source: random.Random) -> Iterator[Point]:
    for _ in range(_RANDOM):
        yield study.space.completed({axis.name: source.choice(axis.values) for axis in study.space.axes})
    done = [c for c in study.candidates.values() if not c.failed]
    for candidate in done[-_NEAR:]:
        yield from study.space.neighbours(candidate.point)
