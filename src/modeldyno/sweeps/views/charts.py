"""Charts of a study: throughput against latency, objective by knob, parallel coordinates, Pareto front."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from math import inf, isfinite
from typing import TYPE_CHECKING

from modeldyno.base.metrics.constraints import Verdict, worst_verdict
from modeldyno.base.metrics.metric import METRICS, Query
from modeldyno.base.report.axes import ORDERS
from modeldyno.base.report.charts import AxisScale, Parallel, Picture, Plot, ReferenceLine, Series
from modeldyno.base.stats.units import SECONDS
from modeldyno.base.views.text import count, format_knob_value
from modeldyno.sweeps.study.pooled_estimate import judge_candidate, shown_value
from modeldyno.sweeps.study.search_space import key
from modeldyno.sweeps.views.tables import format_point

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from modeldyno.base.job.knob import KnobValue
    from modeldyno.sweeps.study.goal import Objective
    from modeldyno.sweeps.study.ranking import RankedConfiguration, Ranking
    from modeldyno.sweeps.study.search_space import Axis
    from modeldyno.sweeps.study.study import Candidate, Study

CURVES = 3
"""Configurations that have their own curve, without the default."""
_THROUGHPUT, _USUAL = Query(metric="throughput"), Query(metric="latency", statistic="p99")
_MEMORY = (
    Query(metric="process_memory", statistic="max"),
    Query(metric="device_memory", statistic="max"),
)
_TITLES = {"throughput": "Throughput", "process_memory": "Process memory", "device_memory": "Device memory"}


def charts(study: Study, ranked: Ranking) -> Iterator[Picture]:
    """Draw the charts of a study; charts without data are left out."""
    drawn = (
        _curves(study, ranked, _THROUGHPUT),
        *(_curves(study, ranked, query) for query in _MEMORY),
        *(_front(study, pair) for pair in combinations(study.goal.objectives, 2)),
        *(_knob_plot(study, ranked, axis) for axis in study.space.axes),
        _parallel(study, ranked),
    )
    yield from (picture for picture in drawn if picture is not None)


# --- throughput and memory against latency -----------------------------------------------------------


def _curves(study: Study, ranked: Ranking, query: Query) -> Plot | None:
    """Draw a curve through the loads of the best configurations and the default, with the bounds.

    The other candidates are drawn as points.
    """
    rows = best_and_default(ranked)
    series = [drawn for row in rows if (drawn := _curve(study, ranked, row, query)).x]
    if not series:
        return None
    configurations = [study.configuration(row.point) for row in rows]
    remaining = [c for c in study.candidates.values() if study.configuration(c.point) not in configurations]
    others = _points(study, "others", remaining, query)
    loads = any(axis.name in study.loads for axis in study.space.axes)
    through = "; each line connects the loads of one" if loads else ""
    hollow = "; hollow: breaks a bound" if any(line.hollow for line in (*series, others)) else ""
    return Plot(
        title=f"{_TITLES[query.metric]} against latency",
        x=scale_of(latency_of(study)),
        y=scale_of(query),
        series=(*series, *((others,) if others.x else ())),
        rules=tuple(_rules(study, query)),
        note=f"{_curves_note(ranked, len(series))}{through}{hollow}",
    )


def _curves_note(ranked: Ranking, drawn: int) -> str:
    """Describe which configurations are drawn as lines."""
    best = drawn - any(row.default for row in best_and_default(ranked)[-1:])
    default = ", and the default" if best < drawn else ""
    return (
        f"the best {best} of {count(ranked.configurations, 'configuration')}{default}"
        if best
        else "the default"
    )


def best_and_default(ranked: Ranking) -> list[RankedConfiguration]:
    """Return the best configurations and the default, without failed ones."""
    rows = [row for row in ranked.rows if not row.failure][:CURVES]
    default = ranked.default
    return [
        *rows,
        *((default,) if default is not None and not default.failure and default not in rows else ()),
    ]


def latency_of(study: Study) -> Query:
    """Return the latency statistic of a study: the bounded one, or else p99."""
    bounded = (bound.query for bound in study.goal.constraints if bound.query.metric == "latency")
    return next(bounded, _USUAL)


def _points(study: Study, name: str, candidates: Sequence[Candidate], query: Query) -> Series:
    drawn = [
        (latency, value, candidate)
        for candidate in candidates
        if (latency := shown_value(study, candidate, latency_of(study))) is not None
        and (value := shown_value(study, candidate, query))
    ]
    points = ((x, y, format_point(study.resolved(candidate.point))) for x, y, candidate in drawn)
    broken = (
        at
        for at, (_, _, candidate) in enumerate(drawn)
        if worst_verdict(judge_candidate(study, candidate)) is Verdict.BROKEN
    )
    return Series.through(name, points, _LABELLED, joined=False, hollow=tuple(broken))


_LABELLED = ("x", "y", "labels")


def candidates_by_load(study: Study, row: RankedConfiguration) -> list[Candidate]:
    """Return the candidates of a row's configuration, in the order of their loads."""
    mine = [
        candidate
        for candidate in study.candidates.values()
        if study.configuration(candidate.point) == study.configuration(row.point)
    ]
    # By the loads themselves, not by the order of measurement.
    return sorted(mine, key=lambda candidate: [float(v) for v in _load(study, candidate.point)])


def configuration_name(study: Study, row: RankedConfiguration) -> str:
    """Return the name of a row's configuration, without its load."""
    return "the default" if row.default else format_point(study.configuration(row.point)) or "the model"


def _curve(study: Study, ranked: Ranking, row: RankedConfiguration, query: Query) -> Series:
    drawn = _points(study, configuration_name(study, row), candidates_by_load(study, row), query)
    return replace(drawn, joined=True, marked=row == ranked.best)


def _load(study: Study, at: Mapping[str, KnobValue]) -> Sequence[KnobValue]:
    configuration = study.configuration(at)
    return [value for name, value in study.resolved(at).items() if name not in configuration]


def _rules(study: Study, query: Query) -> Iterator[ReferenceLine]:
    for bound in study.goal.constraints:
        if bound.query in {latency_of(study), query}:
            yield ReferenceLine(name=str(bound), at=bound.bound, vertical=bound.query == latency_of(study))


# --- several objectives ----------------------------------------------------------------------------


def _front(study: Study, pair: tuple[Objective, Objective]) -> Plot | None:
    """Draw all candidates by two objectives, with their Pareto front."""
    places = {
        k: (x, y)
        for k, candidate in study.candidates.items()
        if (x := shown_value(study, candidate, pair[0].query)) is not None
        and (y := shown_value(study, candidate, pair[1].query)) is not None
    }
    if not places:
        return None
    best = {k for k in places if not any(_beats(places[o], places[k], pair) for o in places)}
    first = sorted(best, key=lambda k: places[k][0])
    others = [k for k in places if k not in best]
    groups = (("Pareto front", first, True), ("others", others, False))
    return Plot(
        title=f"{pair[0].query} against {pair[1].query}",
        x=scale_of(pair[0].query),
        y=scale_of(pair[1].query),
        series=tuple(
            Series.through(
                name,
                ((*places[k], format_point(study.resolved(study.candidates[k].point))) for k in keys),
                _LABELLED,
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


def _knob_plot(study: Study, ranked: Ranking, axis: Axis) -> Plot | None:
    """Draw the first objective by a knob: every candidate, and the best of each value."""
    query = study.goal.objectives[0].query
    scale = _knob_scale(study, axis)
    points = [
        (_place(scale, axis, candidate), value, format_point(study.resolved(candidate.point)))
        for candidate in study.candidates.values()
        if axis.name in candidate.point and (value := shown_value(study, candidate, query)) is not None
    ]
    if len({place for place, _, _ in points}) < 2:
        return None
    pick = max if study.goal.objectives[0].maximize else min
    tops = {place: pick(v for p, v, _ in points if p == place) for place in sorted({p for p, _, _ in points})}
    best = ranked.best
    every = Series.through("every candidate", points, _LABELLED, joined=False)
    top = Series.through("the best of each value", tops.items(), marked=best is not None)
    return Plot(title=f"{query} against {axis.name}", x=scale, y=scale_of(query), series=(every, top))


def _parallel(study: Study, ranked: Ranking) -> Parallel | None:
    """Draw parallel coordinates: each candidate as a line across knobs, objectives and bounded metrics."""
    axes = [axis for axis in study.space.axes if len(axis.values) > 1]
    knobs = [_knob_scale(study, axis) for axis in axes]
    lines = []
    for candidate in study.candidates.values():
        values = [
            *(
                _place(scale, axis, candidate) if axis.name in candidate.point else None
                for scale, axis in zip(knobs, axes, strict=True)
            ),
            *(shown_value(study, candidate, query) for query in study.goal.queries),
        ]
        there = [
            (float(place), value)
            for place, value in enumerate(values)
            if value is not None and isfinite(value)
        ]
        lines.append(
            Series.through(
                format_point(study.resolved(candidate.point)) or "the default",
                there,
                marked=ranked.best is not None and key(ranked.best.point) == key(candidate.point),
            )
        )
    if not lines or not axes:
        return None
    return Parallel(
        title="Every candidate, across its knobs",
        scales=(*knobs, *map(scale_of, study.goal.queries)),
        lines=tuple(line for line in lines if len(line.x) > 1),
    )


def _knob_scale(study: Study, axis: Axis) -> AxisScale:
    """Return the axis of a knob; categorical if it has few values."""
    tried = (c.point[axis.name] for c in study.candidates.values() if axis.name in c.point)
    values = tuple(dict.fromkeys((*axis.values, *tried)))
    if axis.ordered:
        values = tuple(sorted(values, key=float))
    if not axis.ordered or len(values) <= _FEW:
        return AxisScale(label=axis.name, categories=tuple(map(format_knob_value, values)))
    return AxisScale(label=axis.name, logarithmic_from=ORDERS)


_FEW = 12
"""Most values of a categorical axis."""


def _place(scale: AxisScale, axis: Axis, candidate: Candidate) -> float:
    value = candidate.point[axis.name]
    return float(scale.categories.index(format_knob_value(value))) if scale.categories else float(value)


def scale_of(query: Query) -> AxisScale:
    """Return the axis of a metric."""
    unit = METRICS[query.metric].unit
    return AxisScale(label=str(query), unit=unit, logarithmic_from=ORDERS if unit == SECONDS else inf)
