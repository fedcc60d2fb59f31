"""Metrics that a script brings."""

from __future__ import annotations

from modeldyno.base import plugins
from modeldyno.base.errors import UnknownName
from modeldyno.base.metrics.metric import Better, MetricRow
from modeldyno.base.stats.units import COUNT, FRACTION
from modeldyno.profiling.api.error_wording import reword_errors

_WORDS = {"count": COUNT, "fraction": FRACTION}


@reword_errors
def register_metric(
    name: str,
    unit: str,
    better: str,
    sentence: str,
    *,
    spread: bool = False,
    family: str = "",
    environmental: bool = False,
    shown: tuple[str, ...] = ("mean",),
    judged: int = 0,
    smallest: float = 0.0,
) -> MetricRow:
    """Add a metric to the table, as the entry points of ``modeldyno.metrics`` do.

    From then on it is a metric like any other, here and in the child processes that measure. A probe,
    a backend or a sampler of a plugin measures it. The same metric may be registered again.

    Args:
        name: letters, digits and underscores, not a name in the table.
        unit: the base unit of its numbers: ``"s"``, ``"B"``, ``"1/s"``, ``"cores"``, ``"J"``, ``"W"``,
            ``"Hz"``, ``"°C"``, ``"count"`` or ``"fraction"``.
        better: ``"lower"``, ``"higher"`` or ``"neither"``.
        sentence: what it is.
        spread: whether it is a distribution, so that a bound must name its statistic.
        family: a name that metrics share which move together, such as ``"speed"``; a comparison counts them
            as one.
        environmental: whether it is of the run or the machine, and compared only on request.
        shown: statistics of a distribution that the table of results shows.
        judged: place among the metrics that a gate judges by default, from 1; 0 leaves it out.
        smallest: smallest relative change that matters; 0 for the usual one.

    Returns:
        The row of the table.

    Raises:
        RequestError: the name is taken or invalid, or there is no such unit or direction.
    """
    if better not in set(Better):
        raise UnknownName.among("direction of a metric", better, Better)
    row = MetricRow(
        name=name,
        unit=_WORDS.get(unit, unit),
        better=Better(better),
        sentence=sentence,
        spread=spread,
        family=family,
        environmental=environmental,
        shown=shown,
        gate_rank=judged,
        smallest=smallest,
    )
    plugins.register_metric(row)
    return row
