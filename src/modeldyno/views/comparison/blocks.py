"""A comparison: the verdict in a sentence, what has changed, what else differs, and where it comes from."""

from __future__ import annotations

from math import inf, isfinite
from typing import TYPE_CHECKING

from modeldyno.core.metrics.doubt import CODES
from modeldyno.core.metrics.metric import METRICS
from modeldyno.core.report.blocks import Align, Block, Column, Notice, Severity, Table, clean, shorten
from modeldyno.core.stats.units import FRACTION, format_quantity
from modeldyno.views.comparison.causes import explained
from modeldyno.views.comparison.changes import changed, cut_short, opened, overview, sentence, side_by_side
from modeldyno.views.text import NAME_LIMIT, TEXT_LIMIT, called, count, moment

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from modeldyno.core.comparison.comparison import Agreement, Comparison, Contrast, Difference
    from modeldyno.core.result.result import Fact, Result

_VALUE, _DOUBTS, _SETTINGS = 26, 3, 14
"""Characters of a value, doubts of a side, and settings that are shown."""


def contrasted(found: Comparison, *, everything: bool = False) -> tuple[Block, ...]:
    """Lay a comparison out; what is the same in both is only named, unless `everything` is asked for."""
    names = called((found.baseline, *(each.candidate for each in found.contrasts)))
    several = len(found.contrasts) > 1
    blocks: list[Block] = []
    if several:
        blocks += [_verdict(cut_short(found, overview(found, names))), side_by_side(found, names)]
    for each, name in zip(found.contrasts, names[1:], strict=True):
        blocks += _contrast(found, each, (names[0], name), everything=everything, several=several)
    return (*blocks, _laid_out(found, names))


def brief(found: Comparison) -> str:
    """Say it in a few words, for a title."""
    names = called((found.baseline, *(each.candidate for each in found.contrasts)))
    return f"{', '.join(names[1:])} against {names[0]}"


def headline(found: Comparison) -> str:
    """Say what came out, in a sentence."""
    names = called((found.baseline, *(each.candidate for each in found.contrasts)))
    if len(found.contrasts) > 1:
        return cut_short(found, overview(found, names))
    return cut_short(found, sentence(found.contrasts[0], (names[0], names[1])))


def _contrast(
    found: Comparison, each: Contrast, names: tuple[str, str], *, everything: bool, several: bool
) -> Iterator[Block]:
    """Lay out one candidate beside the baseline."""
    text = sentence(each, names)
    yield _verdict(text if several else cut_short(found, text))
    yield from _failures((found.baseline, each.candidate), names)
    yield from opened(each)
    yield from changed(each, names, everything=everything or several)
    yield from _unlike(each, names, everything=everything)
    yield from _agreements(each.outputs)
    for cause in each.causes:
        yield from explained(cause, everything=everything)
    yield from _doubts(found.baseline, each, names)


def _verdict(text: str) -> Notice:
    return Notice(severity=Severity.VERDICT, text=text)


# --- what differs beside it --------------------------------------------------------------------------


def _unlike(each: Contrast, names: tuple[str, str], *, everything: bool) -> Iterator[Block]:
    """Give the table of what is not the same in settings, software and hardware."""
    named = any(found.name == "model" for found in each.settings)
    settings = [
        found
        for found in each.settings
        if everything or (not (named and found.name == "content") and not found.name.startswith("plan."))
    ]
    rows = (
        *(("setting", found) for found in settings),
        *(("software", found) for found in each.software),
        *(("hardware", found) for found in each.hardware),
    )
    if not rows:
        return
    shown = rows if everything else rows[:_SETTINGS]
    yield Table(
        title="What else differs",
        columns=tuple(Column(title=title) for title in ("kind", "what", *names)),
        rows=tuple((kind, *_fact_row(found)) for kind, found in shown),
    )
    if more := len(rows) - len(shown):
        differ = "differs; --all shows it" if more == 1 else "differ; --all shows them"
        yield Notice(severity=Severity.NOTE, text=f"{count(more, 'further setting')} {differ}")


def _fact_row(found: Difference) -> tuple[str, str, str]:
    return shorten(clean(found.name), _VALUE), _fact(found.baseline), _fact(found.candidate)


def _fact(value: Fact | None) -> str:
    return "—" if value is None else shorten(clean(str(value)), _VALUE)


def _agreements(found: Sequence[Agreement]) -> Iterator[Notice]:
    for each in found:
        name = shorten(clean(each.output), NAME_LIMIT)
        if not each.largest:
            text = f"the output '{name}' is the same in both, to the last digit"
        else:
            largest = "infinite" if each.largest == inf else f"{each.largest:.2g}"
            relative = "" if each.relative == inf else f" ({each.relative:.2g} of the largest value)"
            text = f"the output '{name}' differs by at most {largest}{relative}, cosine {each.cosine:.6f}"
        yield Notice(severity=Severity.NOTE, text=text)


# --- doubts and how it was done ----------------------------------------------------------------------


def _failures(results: Sequence[Result], names: Sequence[str]) -> Iterator[Notice]:
    for result, name in zip(results, names, strict=True):
        for failure in result.failures[:1]:
            text = shorten(clean(failure.message), TEXT_LIMIT)
            code = f"{name}: {shorten(clean(failure.where), NAME_LIMIT)}"
            yield Notice(severity=Severity.FAILURE, code=code, text=text, log=failure.log)


def _doubts(baseline: Result, each: Contrast, names: tuple[str, str]) -> Iterator[Notice]:
    """Give the doubts about the comparison, and the codes of those about its two sides."""
    for doubt in each.doubts:
        yield Notice(severity=Severity.DOUBT, code=doubt.code, text=doubt.seen, advice=doubt.advice)
    for result, name in zip((baseline, each.candidate), names, strict=True):
        codes = list(dict.fromkeys(doubt.code for doubt in result.doubts))
        for code in codes[:_DOUBTS]:
            text = f"{name}: {CODES.get(code, 'see its result')}"
            yield Notice(severity=Severity.DOUBT, code=code, text=text)
        if more := codes[_DOUBTS:]:
            yield Notice(severity=Severity.DOUBT, text=f"{name}: also {', '.join(more)}")


_ORDERS = {
    "stored": "measured apart from each other",
    "alternating": "in turns",
    "interleaved": "side by side, in slices",
    "block": "block by block",
}


def _laid_out(found: Comparison, names: Sequence[str]) -> Table:
    """Say what was compared, and how it was run."""
    results = (found.baseline, *(each.candidate for each in found.contrasts))
    rows = [
        (
            "baseline" if not place else "candidate",
            ", ".join((f"{name}: {result.id}", _processes(result), moment(result.created))),
        )
        for place, (result, name) in enumerate(zip(results, names, strict=True))
    ]
    if not _varies(found):
        return Table(title="", columns=(Column(title=""), Column(title="")), rows=tuple(rows))
    letters = " ".join(_letter(side) for side in found.sequence)
    ran = _ORDERS.get(found.order, found.order) + (f": {letters}" if letters else "")
    level = format_quantity(found.level, FRACTION, 3)
    return Table(
        title="",
        columns=(Column(title=""), Column(title="")),
        rows=(
            *rows,
            ("runs", shorten(ran, TEXT_LIMIT)),
            ("intervals", f"{level}, all of a candidate together"),
        ),
    )


def _varies(found: Comparison) -> bool:
    """Whether it is of more than counts, for which neither runs nor intervals mean anything."""
    spans = (change.interval for each in found.contrasts for change in each.changes)
    return found.order != "stored" or any(span is not None and span.low < span.high for span in spans)


def _processes(result: Result) -> str:
    return count(result.processes, "process", "processes")


def _letter(side: int) -> str:
    return chr(ord("A") + side) if side < 26 else str(side)  # noqa: PLR2004 - letters


def numbers(found: Comparison) -> Table:
    """Give every change as a row of a table for other programs: base units, unrounded."""
    names = called((found.baseline, *(each.candidate for each in found.contrasts)))
    titles = ("candidate", "metric", "unit", "verdict", "why")
    figures = ("baseline", "value", "difference", "low", "high", "smallest")
    rows = tuple(
        (
            name, str(change.query), METRICS[change.query.metric].unit, str(change.outcome), change.why,
            *map(_plain, (
                change.baseline, change.candidate, change.difference,
                *((change.interval.low, change.interval.high) if change.interval else (None, None)),
                change.smallest,
            )),
        )
        for each, name in zip(found.contrasts, names[1:], strict=True)
        for change in each.changes
    )  # fmt: skip
    columns = (*(Column(title=t) for t in titles), *(Column(title=t, align=Align.RIGHT) for t in figures))
    return Table(title="", columns=columns, rows=rows)


def _plain(value: float | None) -> str:
    return "" if value is None or not isfinite(value) else f"{value:.12g}"
