"""Pictures of a study: throughput against latency, the objective against each knob, all knobs, the front."""

from __future__ import annotations

from itertools import combinations
from math import isfinite
from typing import TYPE_CHECKING

from modeldyno.core.estimate import hint
from modeldyno.core.metric import METRICS, Query
from modeldyno.core.plot import Parallel, Picture, Plot, Rule, Scale, Series
from modeldyno.core.space import key
from modeldyno.views.study_rows import point, word

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from modeldyno.core.knob import KnobValue
    from modeldyno.core.objective import Objective
    from modeldyno.core.ranking import Ranking, Standing
    from modeldyno.core.space import Axis
    from modeldyno.core.study import Candidate, Study

CURVES = 3
"""Configurations that have a curve of their own, the default apart."""
_THROUGHPUT, _LATENCY = Query(metric="throughput"), Query(metric="latency", statistic="p99")


def charts(found: Study, ranked: Ranking) -> Iterator[Picture]:
    """Draw what a study tells; a picture for which nothing was measured is left out."""
    drawn = (
        _curves(found, ranked),
        *(_front(found, pair) for pair in combinations(found.goal.objectives, 2)),
        *(_against(found, ranked, axis) for axis in found.space.axes),
        _parallel(found, ranked),
    )
    yield from (picture for picture in drawn if picture is not None)


# --- throughput against latency --------------------------------------------------------------------


def _curves(found: Study, ranked: Ranking) -> Plot | None:
    """Draw a curve through the loads of the best configurations and the default, with the bounds."""
    rows = [row for row in ranked.rows if not row.failure][:CURVES]
    if ranked.default is not None and ranked.default not in rows:
        rows.append(ranked.default)
    series = [drawn for row in rows if (drawn := _curve(found, ranked, row)).x]
    if not series:
        return None
    return Plot(
        title="Throughput against latency",
        x=_scale(_LATENCY),
        y=_scale(_THROUGHPUT),
        series=tuple(series),
        rules=tuple(_rules(found)),
        note=f"The best {len(series)} of {ranked.configurations}; each line goes through the loads of one.",
    )


def _curve(found: Study, ranked: Ranking, row: Standing) -> Series:
    mine = [
        candidate
        for candidate in found.candidates.values()
        if found.configuration(candidate.point) == found.configuration(row.point)
    ]
    # The order of the loads is that of the points of the space, whenever they were measured.
    mine.sort(key=lambda candidate: [float(v) for v in _load(found, candidate.point)])
    known = [
        (latency, rate, candidate)
        for candidate in mine
        if (latency := hint(candidate, _LATENCY)) is not None and (rate := hint(candidate, _THROUGHPUT))
    ]
    return Series(
        name="the default" if row.default else point(found.configuration(row.point)) or "the model",
        x=tuple(latency for latency, _, _ in known),
        y=tuple(rate for _, rate, _ in known),
        labels=tuple(point(c.point) for _, _, c in known),
        marked=row == ranked.best,
    )


def _load(found: Study, at: Mapping[str, KnobValue]) -> Sequence[KnobValue]:
    configuration = found.configuration(at)
    return [value for name, value in at.items() if name not in configuration]


def _rules(found: Study) -> Iterator[Rule]:
    for bound in found.goal.constraints:
        if bound.query in {_LATENCY, _THROUGHPUT}:
            yield Rule(name=str(bound), at=bound.bound, vertical=bound.query == _LATENCY)


# --- several objectives ----------------------------------------------------------------------------


def _front(found: Study, pair: tuple[Objective, Objective]) -> Plot | None:
    """Draw all candidates by two objectives, and the front of those that nothing beats in both."""
    places = {
        k: (x, y)
        for k, candidate in found.candidates.items()
        if (x := hint(candidate, pair[0].query)) is not None
        and (y := hint(candidate, pair[1].query)) is not None
    }
    if not places:
        return None
    best = {k for k in places if not any(_beats(places[o], places[k], pair) for o in places)}
    first = sorted(best, key=lambda k: places[k][0])
    rest = [k for k in places if k not in best]
    groups = (("the front", first, True), ("others", rest, False))
    return Plot(
        title=f"{pair[0].query} against {pair[1].query}",
        x=_scale(pair[0].query),
        y=_scale(pair[1].query),
        series=tuple(
            Series(
                name=name,
                x=tuple(places[k][0] for k in keys),
                y=tuple(places[k][1] for k in keys),
                labels=tuple(point(found.candidates[k].point) for k in keys),
                joined=front,
                marked=front,
            )
            for name, keys, front in groups
            if keys
        ),
    )


def _beats(one: tuple[float, float], other: tuple[float, float], pair: tuple[Objective, Objective]) -> bool:
    gains = [o.gain(a, b) for o, a, b in zip(pair, one, other, strict=True)]
    return min(gains) >= 0 and max(gains) > 0


# --- knobs -----------------------------------------------------------------------------------------


def _against(found: Study, ranked: Ranking, axis: Axis) -> Plot | None:
    """Draw the first objective against a knob: every candidate, and the best of each value."""
    query = found.goal.objectives[0].query
    scale = _knob(axis)
    known = [
        (_place(scale, axis, candidate), value, candidate)
        for candidate in found.candidates.values()
        if axis.name in candidate.point and (value := hint(candidate, query)) is not None
    ]
    if len({place for place, _, _ in known}) < 2:  # noqa: PLR2004 - one value shows nothing
        return None
    pick = max if found.goal.objectives[0].maximize else min
    tops = {place: pick(v for p, v, _ in known if p == place) for place in sorted({p for p, _, _ in known})}
    best = ranked.best
    every = Series(
        name="every candidate",
        x=tuple(place for place, _, _ in known),
        y=tuple(value for _, value, _ in known),
        labels=tuple(point(candidate.point) for _, _, candidate in known),
        joined=False,
    )
    top = Series(
        name="the best of each value", x=tuple(tops), y=tuple(tops.values()), marked=best is not None
    )
    return Plot(title=f"{query} against {axis.name}", x=scale, y=_scale(query), series=(every, top))


def _parallel(found: Study, ranked: Ranking) -> Parallel | None:
    """Draw each candidate as a line across its knobs, its objectives and its bounded metrics."""
    axes = [axis for axis in found.space.axes if len(axis.values) > 1]
    knobs = [_knob(axis) for axis in axes]
    lines = []
    for candidate in found.candidates.values():
        values = [
            *(
                _place(scale, axis, candidate) if axis.name in candidate.point else None
                for scale, axis in zip(knobs, axes, strict=True)
            ),
            *(hint(candidate, query) for query in found.goal.queries),
        ]
        there = [
            (place, value) for place, value in enumerate(values) if value is not None and isfinite(value)
        ]
        lines.append(
            Series(
                name=point(candidate.point) or "the default",
                x=tuple(float(place) for place, _ in there),
                y=tuple(value for _, value in there),
                marked=ranked.best is not None and key(ranked.best.point) == key(candidate.point),
            )
        )
    if not lines or not axes:
        return None
    return Parallel(
        title="Every candidate, across its knobs",
        scales=(*knobs, *map(_scale, found.goal.queries)),
        lines=tuple(line for line in lines if len(line.x) > 1),
    )


def _knob(axis: Axis) -> Scale:
    if not axis.ordered:
        return Scale(label=axis.name, categories=tuple(map(word, axis.values)))
    numbers = [float(value) for value in axis.values]
    return Scale(label=axis.name, logarithmic=numbers[0] > 0 and numbers[-1] >= _WIDE * numbers[0])


_WIDE = 10.0
"""Ratio of the ends of an axis from which on its logarithm is laid off."""


def _place(scale: Scale, axis: Axis, candidate: Candidate) -> float:
    value = candidate.point[axis.name]
    if not scale.categories:
        return float(value)
    return float(axis.values.index(value)) if value in axis.values else float(len(axis.values))


def _scale(query: Query) -> Scale:
    return Scale(label=str(query), unit=METRICS[query.metric].unit)
