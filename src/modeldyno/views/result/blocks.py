"""Lay out a Result in full: verdict, failures, figures, doubts, and how it was measured."""

from __future__ import annotations

from math import inf, nextafter
from typing import TYPE_CHECKING

from modeldyno.core.metrics.doubt import noteworthy_doubts
from modeldyno.core.metrics.histogram import Histogram, histogram
from modeldyno.core.metrics.measurement import Distribution
from modeldyno.core.report.blocks import Block, Notice, Severity, clean, shorten
from modeldyno.core.report.charts import AxisScale, Bins, ReferenceLine
from modeldyno.core.result.result import KINDS, FailureKind
from modeldyno.core.spec.knob import BATCH_SIZE
from modeldyno.core.stats.units import format_quantity
from modeldyno.option_spelling import spell_for_command_line
from modeldyno.views.result.call_stages import call_stage_table
from modeldyno.views.result.devices import devices
from modeldyno.views.result.headline import verdict
from modeldyno.views.result.layers import layers
from modeldyno.views.result.memory import memory
from modeldyno.views.result.multi_model import cohosted_table, without_cohosted
from modeldyno.views.result.operators import operations
from modeldyno.views.result.provenance import footer
from modeldyno.views.result.regions import is_region_profile, is_watched_block, memory_course, regions
from modeldyno.views.result.served import breakdown, composing_models
from modeldyno.views.result.static import inspection, reservations
from modeldyno.views.result.table import results
from modeldyno.views.result.tokens import generation
from modeldyno.views.result.totals import is_inspection
from modeldyno.views.text import LOG_LINES, NAME_LIMIT, TEXT_LIMIT, unit_of_work
from modeldyno.views.view_options import PLAIN, ViewOptions

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from modeldyno.core.metrics.constraints import Judgement
    from modeldyno.core.result.result import Failure, Result


def blocks(result: Result, options: ViewOptions = PLAIN) -> tuple[Block, ...]:
    """Lay out a Result: verdict, failures, figures, doubts, and how it was measured."""
    judgements, cohosted = options.judgements, tuple(cohosted_table(result))
    result = without_cohosted(result)
    figures = inspection(result, options) if is_inspection(result) else _measured(result, options)
    return (
        Notice(severity=Severity.VERDICT, text=verdict(result, judgements, "")),
        *verdicts(judgements),
        *failures(result),
        *cohosted,
        *figures,
        *doubts(result),
        footer(result),
    )


def verdicts(judgements: Sequence[Judgement]) -> Iterator[Notice]:
    """Yield the verdict on each bound."""
    yield from map(_judgement, judgements)


def failures(result: Result) -> Iterator[Notice]:
    """Yield the failures."""
    for failure in result.failures:
        memory = failure.kind is FailureKind.OOM and int(result.job.config.get(BATCH_SIZE.name, 1)) > 1
        yield _failure(failure, _FIND_A_BATCH if memory else "")


_FIND_A_BATCH = "`modeldyno advise` with the same arguments halves the batch until one fits"


def doubts(result: Result) -> Iterator[Notice]:
    """Yield the doubts about the figures, with advice."""
    for doubt in noteworthy_doubts(result.doubts):
        yield Notice(
            severity=Severity.DOUBT,
            code=shorten(doubt.code, NAME_LIMIT),
            text=shorten(clean(spell_for_command_line(doubt.seen)), TEXT_LIMIT),
            advice=shorten(clean(spell_for_command_line(doubt.advice)), TEXT_LIMIT),
        )


def _measured(result: Result, options: ViewOptions) -> Iterator[Block]:
    if is_region_profile(result):
        yield from regions(result)
        yield from operations(result)
        return
    if is_watched_block(result):
        yield from memory_course(result)
        yield from devices(result, options)
        return
    yield from results(result, options.judgements)
    yield from call_stage_table(result)
    yield from breakdown(result)
    yield from composing_models(result)
    yield from latencies(result)
    yield from layers(result, options)
    yield from operations(result)
    yield from generation(result)
    yield from memory(result)
    yield from devices(result, options)
    yield from reservations(result, options)


def _judgement(judgement: Judgement) -> Notice:
    severity = Severity(judgement.verdict.value)
    return Notice(severity=severity, text=shorten(clean(judgement.sentence()), TEXT_LIMIT))


def _failure(failure: Failure, advice: str) -> Notice:
    log = "\n".join(shorten(line, 400) for line in _relevant_lines(failure.log.splitlines()))
    return Notice(
        severity=Severity.FAILURE,
        code=f"{shorten(failure.where, NAME_LIMIT)}: {KINDS[failure.kind]}",
        text=shorten(clean(spell_for_command_line(failure.message)), TEXT_LIMIT),
        advice=advice,
        log=log,
    )


def _relevant_lines(lines: Sequence[str]) -> Sequence[str]:
    """Return the end of a log; of a crash, the top of the stack with the most recent call."""
    start = next((place for place, line in enumerate(lines) if line.startswith(_STACK_START)), None)
    if start is None:
        return lines[-LOG_LINES:]
    stack = lines[start : start + LOG_LINES]
    return stack[: stack.index("")] if "" in stack else stack


_STACK_START = "Current thread "
"""First line of a stack written by Python's faulthandler."""


def latencies(result: Result) -> Iterator[Bins]:
    """Draw the latency histogram, if there are enough calls."""
    latency = result.find("latency")
    if latency is None or not isinstance(latency.value, Distribution):
        return
    value, shape = latency.value, histogram(latency.value)
    if shape is None:
        return
    edges, counts = _with_tail(value, shape)
    yield Bins(
        title="Latency",
        scale=AxisScale(label="latency", unit=latency.row.unit),
        edges=edges,
        counts=counts,
        counted=f"{unit_of_work(result)}s",
        marks=tuple(
            ReferenceLine(name=name, at=value.statistic(name), vertical=True)
            for name in ("p50", "p99")
            if value.certified(name) is not None
        ),
        note=_histogram_note(value, shape, latency.row.unit),
    )


def _with_tail(value: Distribution, shape: Histogram) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Add one bin for the slow calls above the last edge, so that the tail and its p99 are drawn."""
    counts = tuple(map(float, shape.counts))
    most = value.statistic("max")
    if not shape.above or most <= shape.edges[-1]:
        return shape.edges, counts
    return (*shape.edges, nextafter(most, inf)), (*counts, float(shape.above))


def _histogram_note(value: Distribution, shape: Histogram, unit: str) -> str:
    least, most = (format_quantity(value.statistic(end), unit, 3) for end in ("min", "max"))
    below = f"not drawn: {shape.below:,} below, down to {least}" if shape.below else ""
    slower = "1 slower one" if shape.above == 1 else f"all {shape.above:,} slower ones"
    above = f"the last bin holds {slower}, up to {most}" if shape.above else ""
    growing = "" if shape.even else "logarithmic bins"
    return "; ".join(filter(None, (above, below, growing)))
