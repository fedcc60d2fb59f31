"""Lay out a comparison as a page: verdicts, every difference with its interval, both Results in detail."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING

from modeldyno.base.metrics.histogram import REACH
from modeldyno.base.report.axes import ORDERS
from modeldyno.base.report.blocks import Block, Heading, Notice, Severity, Table
from modeldyno.base.report.charts import AxisScale, Effect, Forest, Plot, Series
from modeldyno.base.stats.units import FARTHEST, FRACTION, SECONDS, format_quantity
from modeldyno.base.views.text import short_model_names
from modeldyno.base.views.view_options import PLAIN, ViewOptions
from modeldyno.comparison.change.comparison import ChangeVerdict
from modeldyno.comparison.views.blocks import blocks
from modeldyno.profiling.views.result import page as result_page

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from modeldyno.base.metrics.measurement import Distribution
    from modeldyno.base.result.result import Result
    from modeldyno.comparison.change.comparison import CandidateComparison, Change, Comparison

_STEPS, _FEWEST, _SIDES = 100, 20, 6
"""Points of a curve, fewest samples for a curve, and most candidates that have one."""


def page(comparison: Comparison, options: ViewOptions = PLAIN) -> Iterator[Block]:
    """Lay out a comparison as a page."""
    results = comparison.results
    names = short_model_names(results)
    groups = _groups(blocks(comparison, replace(options, verbose=True)))
    for group in groups[:1]:
        yield from (block for block in group if isinstance(block, Notice))
    several = len(comparison.contrasts) > 1
    if several:
        yield Heading(title="All candidates")
        yield from (block for block in groups[0] if not isinstance(block, Notice))
        yield from latency_cdf(results, names)
        groups = groups[1:]
    for contrast, name, group in zip(comparison.contrasts, names[1:], groups, strict=True):
        yield Heading(title=f"{name} against {names[0]}")
        if several:
            yield from (block for block in group if isinstance(block, Notice))
        yield from forest_plot(contrast)
        if not several:
            yield from latency_cdf(results, names)
        for block in group:
            if not isinstance(block, Notice):
                yield from fold_unchanged(block)
    for result, name in zip(results, names, strict=True):
        yield Heading(title=f"{name} in detail", folded=True)
        yield from result_page.parts(result, level=2)
        yield from result_page.measurement_section(result, level=2, knobs=options.knobs(result.job.backend))


def fold_unchanged(block: Block) -> Iterator[Block]:
    """Yield a table of changes, and its unchanged metrics as one of their own that is folded."""
    titles = [column.title for column in block.columns] if isinstance(block, Table) else []
    if not isinstance(block, Table) or _VERDICT not in titles:
        yield block
        return
    same = [row for row in block.rows if row[titles.index(_VERDICT)] == ChangeVerdict.SAME]
    other = [row for row in block.rows if row not in same]
    if not other or not same:
        yield block
        return
    yield replace(block, rows=tuple(other))
    yield replace(block, title="Unchanged", rows=tuple(same), folded=True)


_VERDICT = "verdict"


def _groups(laid: Sequence[Block]) -> list[list[Block]]:
    """Split the blocks before each verdict."""
    groups: list[list[Block]] = []
    for block in laid:
        if not groups or (isinstance(block, Notice) and block.severity is Severity.VERDICT):
            groups.append([])
        groups[-1].append(block)
    return groups


def forest_plot(contrast: CandidateComparison) -> Iterator[Forest]:
    """Draw a forest plot of the differences, with differences too small to matter shaded.

    Metrics that are equal are listed below it.
    """
    effects = tuple(
        Effect(
            name=str(change.query),
            value=change.difference,
            low=low,
            high=high,
            smallest=change.smallest,
            outcome=str(change.outcome),
        )
        for change in contrast.changes
        if change.difference is not None and not _is_equal(change)
        for low, high in [_ends(change)]
    )
    equal = [str(change.query) for change in contrast.changes if _is_equal(change)]
    if effects:
        yield Forest(
            title="Differences from the baseline, with their intervals",
            effects=effects,
            note="shaded: too small to matter; a difference is judged by its whole interval"
            + (f"; equal: {', '.join(equal)}" if equal else ""),
        )


def _is_equal(change: Change) -> bool:
    """Whether a metric is exactly the same on both sides."""
    span = change.interval
    return change.difference == 0.0 and (span is None or span.low == span.high)


def _ends(change: Change) -> tuple[float, float]:
    """Return the ends of the interval; an extreme one, which would squeeze the others, as open."""
    span = change.interval
    if span is None:
        return -inf, inf
    return -inf if 1 + span.low < 1 / FARTHEST else span.low, inf if 1 + span.high > FARTHEST else span.high


def latency_cdf(results: Sequence[Result], names: Sequence[str]) -> Iterator[Plot]:
    """Draw the cumulative latency distribution, a line for each Result."""
    distributions = [
        (name, times)
        for result, name in zip(results[:_SIDES], names, strict=False)
        if (times := result.distribution("latency")) is not None and len(times) >= _FEWEST
    ]
    if len(distributions) < 2:
        return
    shares = [step / _STEPS for step in range(1, _STEPS)]
    far = max(_far_end(value) for _, value in distributions)
    series = tuple(
        Series.through(
            name, ((time, share) for share in shares if (time := value.statistic(f"p{100 * share:g}")) <= far)
        )
        for name, value in distributions
    )
    most = max(value.statistic("p99") for _, value in distributions)
    tail = f"; the tail up to {format_quantity(most, SECONDS, 3)} is not drawn" if most > far else ""
    yield Plot(
        title="Cumulative latency distribution",
        x=AxisScale(label="latency", unit=SECONDS, logarithmic_from=ORDERS),
        y=AxisScale(label="share of the calls", unit=FRACTION),
        series=series,
        note=f"from the 1st to the 99th percentile{tail}",
    )


def _far_end(times: Distribution) -> float:
    """Return up to where a distribution is drawn: a few slow calls would compress all others."""
    low, middle, high, last = (times.statistic(name) for name in ("p5", "p50", "p95", "p99"))
    return min(last, middle + REACH * (high - low)) if high > low else last
