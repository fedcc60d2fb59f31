"""What a terminal shows of a profile by default: about thirty lines; `views.blocks` has everything."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.core.report.blocks import Block, Notice, Severity, Table, clean, shorten
from modeldyno.views.result.blocks import blocks, failures, verdicts
from modeldyno.views.result.headline import verdict
from modeldyno.views.result.layers import layers
from modeldyno.views.result.memory import memory
from modeldyno.views.result.multi_model import alone, neighbours
from modeldyno.views.result.operators import needless
from modeldyno.views.result.provenance import footer
from modeldyno.views.result.regions import is_of_regions
from modeldyno.views.result.table import measured_briefly, reached_flops
from modeldyno.views.result.tokens import generation
from modeldyno.views.result.totals import looked_at
from modeldyno.views.text import NAME_LIMIT, amount, joined, number, plain
from modeldyno.views.view_options import PLAIN, Look

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from modeldyno.core.metrics.constraints import Judgement
    from modeldyno.core.result.result import Result

_FACTS = {"inputs", "backend", "measured"}
"""Facts of how it was measured that the overview keeps."""
_DOUBT = 150
"""Most characters of a doubt: two lines."""


def overview(result: Result, judgements: Sequence[Judgement] = (), look: Look = PLAIN) -> Iterator[Block]:
    """Lay out a profile in brief.

    Inspections, loads and regions are shown in full.
    """
    if looked_at(result) or is_of_regions(result) or result.job.load is not None:
        yield from blocks(result, judgements, look)
        return
    cohosted = tuple(neighbours(result))
    result = alone(result)
    yield Notice(severity=Severity.VERDICT, text=verdict(result, judgements, ""))
    yield from verdicts(judgements)
    yield from failures(result)
    yield from cohosted
    yield from measured_briefly(result, judgements)
    yield from tuple(layers(result, look))[1:]  # the headline has the first sentence of it
    yield from needless(result)
    yield from generation(result)
    yield from tuple(block for block in memory(result) if isinstance(block, Table))[:1]
    if text := _model_text(result):
        yield Notice(severity=Severity.NOTE, code="model", text=text)
    yield from _doubts(result)
    facts = footer(result)
    yield Table(title="", columns=facts.columns, rows=tuple(row for row in facts.rows if row[0] in _FACTS))


def _model_text(result: Result) -> str:
    """Describe the size of the model and the costs computed from it."""
    parameters, weights = result.find("parameters"), result.find("weight_bytes")
    macs, flops, peak = (result.find(metric) for metric in ("macs", "flops", "memory_peak"))
    size = f" ({plain(weights)})" if weights else ""
    counted = joined(
        "" if parameters is None else f"{plain(parameters)} parameters{size}",
        "" if macs is None else amount(number(macs)[0], "MACs"),
        "" if flops is None else amount(number(flops)[0], "FLOPs"),
    )
    computed = f"{plain(peak)} at the peak, computed, not measured" if peak else ""
    return "; ".join(filter(None, (counted, reached_flops(result), computed)))


def _doubts(result: Result) -> Iterator[Notice]:
    """Yield the doubts in short; the advice is in the full report."""
    for place, doubt in enumerate(result.doubts):
        last = place == len(result.doubts) - 1
        yield Notice(
            severity=Severity.DOUBT,
            code=shorten(doubt.code, NAME_LIMIT),
            text=shorten(clean(doubt.seen), _DOUBT),
            advice="-v shows what to do about it, and all figures" if last else "",
        )
