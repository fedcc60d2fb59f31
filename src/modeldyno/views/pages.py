"""Documents as whole pages: what a report has that is read at leisure, with its pictures and headings.

`views.blocks` is what a terminal shows of a Result. A page tells the same, in parts that can be found, and
draws what can be drawn: first the verdict in one sentence and the key figures, then the bounds, then the
doubts.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from modeldyno.core.advice.rules import findings
from modeldyno.core.report.blocks import Block, Heading, Notice, Severity, Table
from modeldyno.views.advice.findings import findings_of
from modeldyno.views.rerun_command import command
from modeldyno.views.result import charts as drawn
from modeldyno.views.result import memory
from modeldyno.views.result.blocks import doubts, failures, latencies, verdicts
from modeldyno.views.result.devices import devices
from modeldyno.views.result.headline import verdict
from modeldyno.views.result.layers import layers
from modeldyno.views.result.operators import operations
from modeldyno.views.result.provenance import footer
from modeldyno.views.result.regions import is_of_regions, regions
from modeldyno.views.result.served import breakdown
from modeldyno.views.result.static import inspection, reservations
from modeldyno.views.result.table import MEASURED, results
from modeldyno.views.result.tiles import tiles
from modeldyno.views.result.tokens import generation
from modeldyno.views.result.totals import looked_at
from modeldyno.views.text import unit_of_work
from modeldyno.views.view_options import Look

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from modeldyno.core.metrics.constraints import Judgement
    from modeldyno.core.result.result import Result
    from modeldyno.core.spec.knob import Knob

WHOLE = Look(depth=8)
"""A page shows the tree of layers as deep as anybody reads."""


def page(result: Result, judgements: Sequence[Judgement] = (), knobs: Sequence[Knob] = ()) -> Iterator[Block]:
    """Lay a Result out as a page; `knobs` are those of its backend, which findings may propose to set."""
    yield from _said(result, judgements)
    yield from parts(result, judgements)
    if findings(result, knobs):
        yield from _part("What may be done about it", findings_of(result, knobs), 1)
    yield from making(result, judgements, knobs=knobs)


def summary(result: Result, judgements: Sequence[Judgement] = ()) -> Iterator[Block]:
    """Lay out what must be known of a Result: the verdict, the doubts, the figures, and how it was made."""
    yield from _said(result, judgements)
    figures = inspection(result, WHOLE) if looked_at(result) else results(result, judgements)
    yield from _part("Results", (*figures, *latencies(result)), 1)
    yield from making(result, judgements)


def _said(result: Result, judgements: Sequence[Judgement]) -> Iterator[Block]:
    """Say first the verdict in one sentence, then how the bounds fared, then what is doubtful."""
    yield Notice(severity=Severity.VERDICT, text=verdict(result, judgements, ""))
    yield from tiles(result)
    yield from verdicts(judgements)
    yield from failures(result)
    yield from doubts(result)


def parts(result: Result, judgements: Sequence[Judgement] = (), *, level: int = 1) -> Iterator[Block]:
    """Lay out the figures of a Result under headings of a level; a part without anything has none."""
    if looked_at(result):
        yield from _part("What it costs", inspection(result, WHOLE), level)
        return
    if is_of_regions(result):
        yield from _part("Where the time goes", regions(result), level)
        return
    of = unit_of_work(result)
    yield from _part(
        "Results", (*results(result, judgements), *latencies(result), *drawn.course(result)), level
    )
    yield from _part(
        f"Where the time of a {of} goes",
        (
            *drawn.account([(of, result)]),
            *breakdown(result),
            *drawn.layers(result),
            *layers(result, WHOLE),
            *drawn.roofline(result),
            *operations(result),
            *generation(result),
        ),
        level,
    )
    yield from _part(
        "Where the memory goes",
        (*drawn.memory(result), *memory.sizes(result), *memory.contents(result)),
        level,
    )
    yield from _part(
        "Devices, and what was not counted", (*devices(result), *reservations(result, WHOLE)), level
    )


def making(
    result: Result, judgements: Sequence[Judgement] = (), *, level: int = 1, knobs: Sequence[Knob] = ()
) -> Iterator[Block]:
    """Say how a Result was made, and how to make it again, without the `knobs` that have their default."""
    yield Heading(title="How it was measured", level=level)
    made = footer(result)
    yield Table(title="", columns=made.columns, rows=made.rows)
    if result.job.model.scheme == "object":  # what lived in another process cannot be named
        return
    usual = {knob.name: (knob.default, knob.usual) for knob in knobs}
    config = {name: value for name, value in result.job.config.items() if value not in usual.get(name, ())}
    short = replace(result, job=replace(result.job, config=config))
    yield again(command(short, [judgement.constraint for judgement in judgements]))


def again(line: str) -> Notice:
    """Show the command line that makes a document again."""
    return Notice(severity=Severity.NOTE, text="to repeat it, run", log=line)


def _part(title: str, blocks: Iterable[Block], level: int) -> Iterator[Block]:
    found = list(blocks)
    if found:
        yield Heading(title=title, level=level)
        yield from (_untitled(block) if block is found[0] else block for block in found)


def _untitled(block: Block) -> Block:
    """Leave away the title of a table that says no more than the heading above it."""
    return replace(block, title="") if isinstance(block, Table) and block.title in _PLAIN else block


_PLAIN = {MEASURED}
