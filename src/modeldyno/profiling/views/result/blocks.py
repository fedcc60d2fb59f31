"""Lay out a Result in full: verdict, failures, figures, doubts, and how it was measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.base.job.knob import BATCH_SIZE
from modeldyno.base.metrics.constraints import worst_verdict
from modeldyno.base.metrics.doubt import noteworthy_doubts, seriousness
from modeldyno.base.metrics.histogram import Histogram, histogram
from modeldyno.base.report.blocks import Block, Notice, Severity, Table, note, shorten
from modeldyno.base.report.charts import AxisScale, Bins, ReferenceLine
from modeldyno.base.result.result import KINDS, FailureKind
from modeldyno.base.stats.units import SECONDS, format_quantity
from modeldyno.base.views.text import (
    LOG_LINES,
    NAME_LIMIT,
    amount,
    count,
    doubts_in_a_line,
    figure,
    join_nonempty,
    shorten_message,
    shorten_text,
    unit_of_work,
)
from modeldyno.base.views.view_options import PLAIN, ViewOptions
from modeldyno.profiling.views.result.call_stages import call_stage_table
from modeldyno.profiling.views.result.devices import devices
from modeldyno.profiling.views.result.headline import verdict
from modeldyno.profiling.views.result.layers import layers
from modeldyno.profiling.views.result.memory import memory
from modeldyno.profiling.views.result.operators import operations, redundant_ops_blocks
from modeldyno.profiling.views.result.provenance import brief_facts, footer
from modeldyno.profiling.views.result.regions import (
    is_region_profile,
    is_watched_block,
    memory_course,
    regions,
)
from modeldyno.profiling.views.result.served import (
    breakdown,
    by_group,
    cohosted_table,
    composing_models,
    is_streamed,
    without_cohosted,
)
from modeldyno.profiling.views.result.static import inspection, reservations
from modeldyno.profiling.views.result.table import brief_results, reached_flops, results
from modeldyno.profiling.views.result.tokens import generation
from modeldyno.profiling.views.result.totals import is_inspection
from modeldyno.profiling.views.result.waiting import waiting

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from modeldyno.base.metrics.constraints import Judgement
    from modeldyno.base.metrics.measurement import Distribution
    from modeldyno.base.result.result import Result


def blocks(result: Result, options: ViewOptions = PLAIN) -> tuple[Block, ...]:
    """Lay out a Result: verdict, failures, figures, doubts, and how it was measured."""
    judgements, cohosted = options.judgements, tuple(cohosted_table(result))
    result = without_cohosted(result)
    figures = inspection(result, options) if is_inspection(result) else _measured(result, options)
    return (
        verdict_notice(result, judgements),
        *verdicts(judgements),
        *failures(result),
        *cohosted,
        *figures,
        *doubts(result),
        footer(result),
    )


def verdict_notice(result: Result, judgements: Sequence[Judgement]) -> Notice:
    """Return the verdict: good or bad as its bounds are, and bad if it failed."""
    outcome = Severity.BROKEN if result.failure else None
    if judgements and outcome is None:
        outcome = Severity(worst_verdict(judgements).value)
    return Notice(severity=Severity.VERDICT, text=verdict(result, judgements, ""), outcome=outcome)


def verdicts(judgements: Sequence[Judgement]) -> Iterator[Notice]:
    """Yield the verdict on each bound."""
    for judgement in judgements:
        yield Notice(severity=Severity(judgement.verdict.value), text=shorten_text(judgement.sentence()))


def failures(result: Result) -> Iterator[Notice]:
    """Yield the failures."""
    for failure in result.failures:
        memory = failure.kind is FailureKind.OOM and int(result.job.config.get(BATCH_SIZE.name, 1)) > 1
        yield Notice(
            severity=Severity.FAILURE,
            code=f"{shorten(failure.where, NAME_LIMIT)}: {KINDS[failure.kind]}",
            text=shorten_message(failure.message),
            advice=_FIND_A_BATCH if memory else "",
            log="\n".join(shorten(line, 400) for line in _relevant_lines(failure.log.splitlines())),
        )


_FIND_A_BATCH = "`modeldyno advise` with the same arguments halves the batch until one fits"


def doubts(result: Result) -> Iterator[Notice]:
    """Yield the doubts about the figures, with advice."""
    for doubt in sorted(noteworthy_doubts(result.doubts), key=lambda doubt: seriousness(doubt.code)):
        yield Notice(
            severity=Severity.DOUBT,
            code=shorten(doubt.code, NAME_LIMIT),
            text=shorten_message(doubt.seen),
            advice=shorten_message(doubt.advice),
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
    yield from waiting(result)
    yield from by_group(result)
    yield from breakdown(result)
    yield from composing_models(result)
    yield from latencies(result)
    yield from layers(result, options)
    yield from operations(result)
    yield from generation(result)
    yield from memory(result)
    yield from devices(result, options)
    yield from reservations(result, options)


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
    """Draw the latency histogram, if there are enough calls, and that of the gaps between tokens."""
    yield from _distribution_chart(result, "latency", "Latency", "latency", unit_of_work(result))
    if is_streamed(result):
        each = result.find("inter_token_latency") is not None
        metric, title = (
            ("inter_token_latency", "Gaps between tokens")
            if each
            else ("inter_chunk_latency", "Gaps between the pieces of an answer")
        )
        yield from _distribution_chart(result, metric, title, "gap", "gap")


def _distribution_chart(result: Result, metric: str, title: str, label: str, unit: str) -> Iterator[Bins]:
    value = result.distribution(metric)
    shape = None if value is None else histogram(value)
    if value is None or shape is None:
        return
    yield Bins(
        title=title,
        scale=AxisScale(label=label, unit=SECONDS),
        edges=shape.edges,
        counts=tuple(map(float, shape.counts)),
        beyond=float(shape.above),
        reach=value.statistic("max"),
        counted=f"{unit}s",
        marks=tuple(
            ReferenceLine(name=name, at=value.statistic(name), vertical=True)
            for name in ("p50", "p99")
            if value.certified(name) is not None
        ),
        note=_histogram_note(unit, value, shape),
    )


def _histogram_note(unit: str, value: Distribution, shape: Histogram) -> str:
    least, last, most = (
        format_quantity(time, SECONDS, 3)
        for time in (value.statistic("min"), shape.edges[-1], value.statistic("max"))
    )
    below = f"not drawn: {shape.below:,} below, down to {least}" if shape.below else ""
    above = f"above {last}: {count(shape.above, unit)}, up to {most}" if shape.above else ""
    growing = "" if shape.even else "logarithmic bins"
    return "; ".join(filter(None, (above, below, growing)))


# --- the overview ---------------------------------------------------------------------------------


_DOUBT = 210
"""Most characters of the doubts: three lines."""


def overview(result: Result, options: ViewOptions = PLAIN) -> Iterator[Block]:
    """Lay out a Result in brief; of one's own code all figures are shown."""
    if is_region_profile(result) or is_watched_block(result):
        yield from blocks(result, options)
        return
    if is_inspection(result):
        yield verdict_notice(result, options.judgements)
        yield from verdicts(options.judgements)
        yield from failures(result)
        yield from inspection(result, options, brief=True)
        yield from doubts(result)
        yield brief_facts(result)
        return
    judgements, cohosted = options.judgements, tuple(cohosted_table(result))
    result = without_cohosted(result)
    yield verdict_notice(result, judgements)
    yield from verdicts(judgements)
    yield from failures(result)
    yield from cohosted
    yield from brief_results(result, judgements)
    yield from call_stage_table(result)
    yield from waiting(result)
    yield from by_group(result)
    yield from breakdown(result)
    yield from composing_models(result)
    yield from tuple(layers(result, options))[1:]  # the headline has the first sentence of it
    yield from redundant_ops_blocks(result)
    yield from generation(result)
    yield from tuple(block for block in memory(result) if isinstance(block, Table))[:1]
    if text := _model_text(result):
        yield note(text, code="model")
    yield from _doubts(result)
    yield brief_facts(result, options.knobs(result.job.backend))


def _model_text(result: Result) -> str:
    """Describe the size of the model and the costs computed from it."""
    parameters, weights, peak = (
        figure(result, metric) for metric in ("parameters", "weight_bytes", "memory_peak")
    )
    size = f" ({weights})" if weights else ""
    costs = (("MACs", result.number("macs")), ("FLOPs", result.number("flops")))
    counted = join_nonempty(
        f"{parameters} parameters{size}" if parameters else "",
        *(amount(number, noun) for noun, number in costs if number is not None),
    )
    computed = f"{peak} at the peak, computed, not measured" if peak else ""
    return "; ".join(filter(None, (counted, reached_flops(result), computed)))


def _doubts(result: Result) -> Iterator[Notice]:
    """Yield the doubts in a line; what to do about each is shown by -v."""
    if result.doubts:
        yield doubts_in_a_line(result.doubts, "-v", more="and shows all figures", limit=_DOUBT)
