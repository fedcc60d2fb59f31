"""Lay out a Result as a page with headings and charts, as the HTML and PDF reports show it.

`profiling.views.result.blocks` is what a terminal shows of a Result. A page has the same content in
sections, plus charts: the verdict in one sentence and the key figures, then the bounds, then the doubts.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from modeldyno.base.metrics.metric import METRICS
from modeldyno.base.report.blocks import (
    Block,
    Heading,
    Notice,
    Severity,
    Table,
    make_columns,
    make_table,
)
from modeldyno.base.stats.units import BYTES, format_quantity
from modeldyno.base.views.text import about, amount, figure, format_statistic, unit_of_work
from modeldyno.base.views.view_options import PLAIN, ViewOptions
from modeldyno.profiling.findings.rules import findings
from modeldyno.profiling.views.findings import finding_cards
from modeldyno.profiling.views.rerun_command import rerun_command_line
from modeldyno.profiling.views.result import charts, memory
from modeldyno.profiling.views.result.blocks import doubts, failures, latencies, verdict_notice, verdicts
from modeldyno.profiling.views.result.call_stages import call_stage_table
from modeldyno.profiling.views.result.devices import devices
from modeldyno.profiling.views.result.layers import layers
from modeldyno.profiling.views.result.operators import operations
from modeldyno.profiling.views.result.provenance import footer
from modeldyno.profiling.views.result.regions import (
    is_region_profile,
    is_watched_block,
    memory_course,
    regions,
)
from modeldyno.profiling.views.result.served import breakdown, by_group, composing_models, is_streamed
from modeldyno.profiling.views.result.static import inspection, reservations
from modeldyno.profiling.views.result.table import MEASURED, memory_note, results
from modeldyno.profiling.views.result.tokens import generation
from modeldyno.profiling.views.result.totals import is_inspection
from modeldyno.profiling.views.result.waiting import waiting

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from modeldyno.base.job.knob import Knob
    from modeldyno.base.metrics.constraints import Judgement
    from modeldyno.base.result.result import Result
    from modeldyno.profiling.findings.finding import Finding

WHOLE = ViewOptions(depth=8)
"""A page shows the layer tree down to this depth."""


def page(result: Result, options: ViewOptions = PLAIN) -> Iterator[Block]:
    """Lay out a Result as a page; findings may propose to set the knobs of its backend."""
    knobs = options.knobs(result.job.backend)
    items = findings(result, knobs)
    yield from _opening_blocks(result, options.judgements, items)
    if items:
        yield from _section("What to try", finding_cards(result, items, knobs), 1)
    yield from parts(result, options.judgements)
    yield from measurement_section(result, options.judgements, knobs=knobs)


def summary(result: Result, judgements: Sequence[Judgement] = ()) -> Iterator[Block]:
    """Lay out the essentials of a Result: verdict, doubts, figures, and how it was measured."""
    yield from _opening_blocks(result, judgements)
    figures = inspection(result, WHOLE) if is_inspection(result) else results(result, judgements)
    yield from _section("Results", (*figures, *latencies(result)), 1)
    yield from measurement_section(result, judgements)


def _opening_blocks(
    result: Result,
    judgements: Sequence[Judgement],
    items: Sequence[Finding] = (),
) -> Iterator[Block]:
    """Yield the verdict, the mark and the key figures, bounds, failures and doubts."""
    yield verdict_notice(result, judgements)
    yield from tiles(result, _promising(items))
    yield from verdicts(judgements)
    yield from failures(result)
    yield from doubts(result)


def parts(result: Result, judgements: Sequence[Judgement] = (), *, level: int = 1) -> Iterator[Block]:
    """Lay out the figures of a Result under headings of a level; empty sections are left out."""
    if is_inspection(result):
        costs = (*charts.cost_charts(result), *inspection(result, WHOLE))
        yield from _section("What it costs", costs, level)
        return
    if is_region_profile(result):
        yield from _section("Where the time goes", (*regions(result), *operations(result)), level)
        return
    if is_watched_block(result):
        yield from _section("What it used", (*memory_course(result), *devices(result)), level)
        return
    unit = unit_of_work(result)
    yield from _section(
        "Results",
        (
            *latencies(result),
            *charts.load_by_second(result),
            *charts.slowest_answers(result),
            *charts.call_timeline(result),
            *_folded((*results(result, judgements), *definitions(result))),
        ),
        level,
    )
    yield from _section(
        f"Where the time of a {unit} goes",
        (
            *charts.request_stage_chart(result),
            *charts.call_stage_chart(result),
            *call_stage_table(result),
            *waiting(result),
            *by_group(result),
            *breakdown(result),
            *composing_models(result),
            *charts.layer_chart(result),
            *layers(result, WHOLE),
            *charts.roofline(result),
            *operations(result),
            *generation(result),
        ),
        level,
    )
    yield from _section(
        "Where the memory goes",
        (
            *charts.memory_chart(result),
            *memory.sizes(result),
            *memory.contents(result),
            *memory.allocations(result),
        ),
        level,
    )
    yield from _section(
        "Devices, and what was not counted", (*devices(result), *reservations(result, WHOLE)), level
    )


def measurement_section(
    result: Result, judgements: Sequence[Judgement] = (), *, level: int = 1, knobs: Sequence[Knob] = ()
) -> Iterator[Block]:
    """Lay out how a Result was measured and the command that repeats it, without knobs at their default."""
    yield Heading(title="How it was measured", level=level, folded=level == 1)
    yield replace(footer(result), title="")
    if result.job.model.live:  # a live object cannot be named in a command
        return
    defaults = {knob.name: (knob.default, knob.usual) for knob in knobs}
    config = {name: value for name, value in result.job.config.items() if value not in defaults.get(name, ())}
    shortened = replace(result, job=replace(result.job, config=config))
    yield repeat_notice(rerun_command_line(shortened, [judgement.constraint for judgement in judgements]))


def repeat_notice(line: str) -> Notice:
    """Show the command that repeats the measurement of a document."""
    return Notice(severity=Severity.NOTE, text="to repeat it, run", log=line)


def _section(title: str, blocks: Iterable[Block], level: int) -> Iterator[Block]:
    section = list(blocks)
    if section:
        yield Heading(title=title, level=level)
        yield from (_without_title(block) if block is section[0] else block for block in section)


def definitions(result: Result) -> Iterator[Block]:
    """Tabulate what each figure of a Result is."""
    names = dict.fromkeys(measurement.metric for measurement in result.measurements)
    rows = [(name, METRICS[name].sentence) for name in names]
    if rows:
        yield make_table("What each figure is", ("figure", "from what to what, or of what"), rows)


def _folded(blocks: Iterable[Block]) -> Iterator[Block]:
    """Fold tables whose main figures stand at the top of the page."""
    for block in blocks:
        yield replace(block, folded=True) if isinstance(block, Table) else block


def _without_title(block: Block) -> Block:
    """Drop a table title that only repeats the heading above it."""
    return replace(block, title="") if isinstance(block, Table) and block.title in _REPEATED_TITLES else block


_REPEATED_TITLES = {MEASURED}


# --- figures at a glance ----------------------------------------------------------------------------

Tile = tuple[str, str, str]
"""Name, figure and note."""


def tiles(result: Result, first: Finding | None = None) -> Iterator[Table]:
    """Yield the key figures, if there are at least two; with something to try, the mark before them."""
    rows = (*_mark(first), *_times(result), *_rates(result), *_memory(result), *_size(result))
    if len(rows) > 1:
        yield Table(title="", columns=make_columns("", "", ""), rows=rows, tiles=True)


def _promising(items: Sequence[Finding]) -> Finding | None:
    """Return the finding with the largest saving that a measurement bounds, or else the first one, if any."""
    return max(items, key=lambda item: item.saving.high if item.saving else 0.0, default=None)


def _mark(first: Finding | None) -> Iterator[Tile]:
    """Yield what would stay of the present cost if the most promising finding saved all that it may."""
    if first is not None and first.saving is not None:
        saving = first.saving
        note = f"up to {saving.high:.0%} of the {saving.of} may be saved: see what to try"
        yield "mark", f"{100 * (1 - saving.high):.0f} of 100", note


_TIMES = (("latency", "p50", "median latency"), ("latency", "p99", "p99 latency"))
_TIMES_OF_TOKENS = (
    ("time_to_first_token", "p50", "median first token"),
    ("time_to_first_token", "p99", "p99 first token"),
    ("time_per_output_token", "p50", "median time per token"),
)


def _times(result: Result) -> Iterator[Tile]:
    for metric, statistic, name in _TIMES_OF_TOKENS if is_streamed(result) else _TIMES:
        times = result.distribution(metric)
        if times is None:
            continue
        if times.void:
            yield name, "—", times.void
        elif times.missing(statistic):
            yield name, about(times, statistic), f"not certified, needs more {unit_of_work(result)}s"
        else:
            value, span = format_statistic(times, statistic)
            yield name, value, f"95 %: {span}" if span else ""


def _rates(result: Result) -> Iterator[Tile]:
    rates = (
        ("tokens", figure(result, "token_rate") if is_streamed(result) else "", "generated per second"),
        ("throughput", figure(result, "throughput"), "samples per second, on average"),
        ("requests", figure(result, "request_rate"), "answered per second"),
    )
    yield from [tile for tile in rates if tile[1]][:1]


def _memory(result: Result) -> Iterator[Tile]:
    used, computed = result.distribution("process_memory"), figure(result, "memory_peak")
    if used is not None:
        most = format_quantity(used.statistic("max"), BYTES, 3)
        beside = memory_note(result).removeprefix("peak").lstrip(", ")
        yield "peak memory", most, f"measured, {beside}" if beside else "measured"
    elif computed:
        yield "peak memory", computed, "computed, not measured"


def _size(result: Result) -> Iterator[Tile]:
    parameters, weights = figure(result, "parameters"), figure(result, "weight_bytes")
    macs, peak = result.number("macs"), result.number("peak_flops", result.peaks_scope)
    if parameters:
        yield "parameters", parameters, f"{weights} of weights" if weights else ""
    if macs is not None:
        note = "" if peak is None else f"peak here {format_quantity(peak, METRICS['peak_flops'].unit, 3)}"
        yield "operations per call", amount(macs, "MACs"), note
