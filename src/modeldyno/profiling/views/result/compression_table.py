"""Summary table with the five usual rows of model-compression reports."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.base.report.blocks import Table, make_table
from modeldyno.base.stats.units import SECONDS, format_quantity
from modeldyno.base.views.text import amount, short_model_names

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from modeldyno.base.result.result import Result

_FEWER, _SMALLER, _FASTER = ("fewer", "more"), ("smaller", "larger"), ("faster", "slower")


def summary(results: Sequence[Result]) -> Table:
    """Tabulate size, MACs, parameters, memory and time; for two models, also the improvement of the second.

    Sizes are in decimal megabytes; multiply-accumulates are written as MACs.
    """
    rows = (
        ("Model size", "weight_bytes", _SMALLER),
        ("Computational complexity", "macs", _FEWER),
        ("Total parameters", "parameters", _FEWER),
        ("Memory footprint", "memory_peak", _SMALLER),
        ("Execution time", "latency", _FASTER),
    )
    two = len(results) == 2
    names = short_model_names(results)
    titles = (f"{name}>" for name in (*names, *(["Enhancement"] if two else [])))
    return make_table(
        "",
        ("Evaluation metric", *titles),
        ((title, *_row_cells(results, metric, adjectives)) for title, metric, adjectives in rows),
    )


def _row_cells(results: Sequence[Result], metric: str, adjectives: tuple[str, str]) -> Iterator[str]:
    statistic = "p50" if metric == "latency" else "mean"
    values = [result.number(metric, statistic=statistic) for result in results]
    nouns = {"macs": "MACs", "parameters": "", "latency": ""}
    for value in values:
        if value is None:
            yield "—"
        elif metric == "latency":
            yield format_quantity(value, SECONDS, 3)
        else:
            yield amount(value, nouns.get(metric, "B"))
    if len(values) == 2:
        one, other = values
        yield "—" if one is None or other is None else ratio(one, other, adjectives, 3)


def ratio(first: float, second: float, adjectives: tuple[str, str], digits: int = 2) -> str:
    """Describe how the second value compares with the first: ``4.2x fewer``, ``1.3x more``, ``equal``."""
    if first == second:
        return "equal"
    if not first or not second:
        return "none" if first else f"{adjectives[1]}, the first has none"
    large, small = max(first, second), min(first, second)
    times = large / small
    word = adjectives[0] if second < first else adjectives[1]
    if times < _NEAR:
        return f"{100 * (times - 1):.2g}% {word}"
    decimals = max(0, digits - len(f"{times:.0f}"))
    return f"{times:,.{decimals}f}x {word}"


_NEAR = 1.05
"""Ratios below this are written in percent."""
