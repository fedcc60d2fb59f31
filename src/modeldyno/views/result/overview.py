"""What a terminal shows of a profile by default: about thirty lines; `views.result.blocks` has everything."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.core.report.blocks import Block, Notice, Severity, Table, clean, note, shorten
from modeldyno.option_spelling import spell_for_command_line
from modeldyno.views.result.blocks import blocks, failures, verdicts
from modeldyno.views.result.call_stages import call_stage_table
from modeldyno.views.result.headline import verdict
from modeldyno.views.result.layers import layers
from modeldyno.views.result.memory import memory
from modeldyno.views.result.multi_model import cohosted_table, without_cohosted
from modeldyno.views.result.operators import redundant_ops_blocks
from modeldyno.views.result.provenance import footer
from modeldyno.views.result.regions import is_region_profile, is_watched_block
from modeldyno.views.result.table import brief_results, reached_flops
from modeldyno.views.result.tokens import generation
from modeldyno.views.result.totals import is_inspection
from modeldyno.views.text import NAME_LIMIT, amount, format_measurement, join_nonempty, number
from modeldyno.views.view_options import PLAIN, ViewOptions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modeldyno.core.result.result import Result

_FACTS = {"inputs", "backend", "measured"}
"""Facts of how it was measured that the overview keeps."""
_DOUBT = 150
"""Most characters of a doubt: two lines."""


def overview(result: Result, options: ViewOptions = PLAIN) -> Iterator[Block]:
    """Lay out a profile in brief.

    Inspections, loads and one's own code are shown in full.
    """
    if (
        is_inspection(result)
        or is_region_profile(result)
        or is_watched_block(result)
        or result.job.load is not None
    ):
        yield from blocks(result, options)
        return
    judgements, cohosted = options.judgements, tuple(cohosted_table(result))
    result = without_cohosted(result)
    yield Notice(severity=Severity.VERDICT, text=verdict(result, judgements, ""))
    yield from verdicts(judgements)
    yield from failures(result)
    yield from cohosted
    yield from brief_results(result, judgements)
    yield from call_stage_table(result)
    yield from tuple(layers(result, options))[1:]  # the headline has the first sentence of it
    yield from redundant_ops_blocks(result)
    yield from generation(result)
    yield from tuple(block for block in memory(result) if isinstance(block, Table))[:1]
    if text := _model_text(result):
        yield note(text, code="model")
    yield from _doubts(result)
    facts = footer(result)
    yield Table(title="", columns=facts.columns, rows=tuple(row for row in facts.rows if row[0] in _FACTS))


def _model_text(result: Result) -> str:
    """Describe the size of the model and the costs computed from it."""
    parameters, weights = result.find("parameters"), result.find("weight_bytes")
    macs, flops, peak = (result.find(metric) for metric in ("macs", "flops", "memory_peak"))
    size = f" ({format_measurement(weights)})" if weights else ""
    counted = join_nonempty(
        "" if parameters is None else f"{format_measurement(parameters)} parameters{size}",
        "" if macs is None else amount(number(macs)[0], "MACs"),
        "" if flops is None else amount(number(flops)[0], "FLOPs"),
    )
    computed = f"{format_measurement(peak)} at the peak, computed, not measured" if peak else ""
    return "; ".join(filter(None, (counted, reached_flops(result), computed)))


def _doubts(result: Result) -> Iterator[Notice]:
    """Yield the doubts in short; the advice is in the full report."""
    for place, doubt in enumerate(result.doubts):
        last = place == len(result.doubts) - 1
        yield Notice(
            severity=Severity.DOUBT,
            code=shorten(doubt.code, NAME_LIMIT),
            text=shorten(clean(spell_for_command_line(doubt.seen)), _DOUBT),
            advice="-v shows what to do about it, and all figures" if last else "",
        )
