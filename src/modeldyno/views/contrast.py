"""A comparison: the verdict in a sentence, what has changed, what else differs, and where it comes from."""

from __future__ import annotations

from math import inf, isfinite
from typing import TYPE_CHECKING

from modeldyno.core.block import Align, Block, Column, Notice, Severity, Table, clean, shorten
from modeldyno.core.comparison import Outcome
from modeldyno.core.doubt import CODES
from modeldyno.core.metric import METRICS
from modeldyno.core.units import FRACTION, format_quantity
from modeldyno.views.compare import called
from modeldyno.views.words import NAME_LIMIT, TEXT_LIMIT, count, ending, moment, share

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from modeldyno.core.comparison import Agreement, Cause, Change, Comparison, Contrast, Difference, Part
    from modeldyno.core.result import Fact, Result

_PARTS, _VALUE, _WHERE, _DOUBTS, _SETTINGS = 6, 26, 34, 3, 14
"""Parts of a cause, characters of a value and of a place, doubts of a side, and settings that are shown."""
_SHOWN = {
    Outcome.BETTER: Severity.HELD,
    Outcome.WORSE: Severity.BROKEN,
    Outcome.UNDECIDED: Severity.UNDECIDED,
}


def contrasted(found: Comparison, *, everything: bool = False) -> tuple[Block, ...]:
    """Lay a comparison out; what is the same in both is only named, unless `everything` is asked for."""
    names = called((found.baseline, *(each.candidate for each in found.contrasts)))
    several = len(found.contrasts) > 1
    blocks: list[Block] = []
    if several:
        blocks += [_verdict(_overview(found, names)), _side_by_side(found, names)]
    for each, name in zip(found.contrasts, names[1:], strict=True):
        blocks += _contrast(found, each, (names[0], name), everything=everything, several=several)
    return (*blocks, _laid_out(found, names))


def _contrast(
    found: Comparison, each: Contrast, names: tuple[str, str], *, everything: bool, several: bool
) -> Iterator[Block]:
    """Lay out one candidate beside the baseline."""
    yield _verdict(sentence(each, names))
    yield from _failures((found.baseline, each.candidate), names)
    yield from _open(each)
    yield from _changes(each, names, everything=everything or several)
    yield from _unlike(each, names, everything=everything)
    yield from _agreements(each.outputs)
    for cause in each.causes:
        yield from _cause(cause, table=everything or cause.query.metric not in _COUNTED)
    yield from _doubts(found.baseline, each, names)


def _verdict(text: str) -> Notice:
    return Notice(severity=Severity.VERDICT, text=text)


# --- the sentence ------------------------------------------------------------------------------------


def sentence(each: Contrast, names: tuple[str, str]) -> str:
    """Say in one sentence how the candidate does beside the baseline, with figures."""
    before, now = names
    groups = {outcome: [c for c in each.verdicts if c.outcome is outcome] for outcome in Outcome}
    told = {outcome: _listed(map(_moved, changes)) for outcome, changes in groups.items()}
    same = _listed(str(change.query) for change in groups[Outcome.SAME])
    match each.outcome:
        case Outcome.WORSE:
            also = f", but better in one respect: {told[Outcome.BETTER]}" if groups[Outcome.BETTER] else ""
            return f"{now} is worse than {before}: {told[Outcome.WORSE]}{also}."
        case Outcome.BETTER:
            also = f"; the same in {same}" if same else ""
            return f"{now} is better than {before}: {told[Outcome.BETTER]}{also}."
        case Outcome.SAME:
            return f"{now} does the same as {before}: {_listed(map(_within, groups[Outcome.SAME]))}."
        case Outcome.UNDECIDED:
            if not each.verdicts:
                return f"{now} and {before} have nothing that could be compared."
            also = f"; better: {told[Outcome.BETTER]}" if groups[Outcome.BETTER] else ""
            open_ = _listed(map(_between, groups[Outcome.UNDECIDED]))
            return f"It is undecided how {now} does beside {before}: {open_}{also}."


def brief(found: Comparison) -> str:
    """Say it in a few words, for a title."""
    names = called((found.baseline, *(each.candidate for each in found.contrasts)))
    return f"{', '.join(names[1:])} against {names[0]}"


def _overview(found: Comparison, names: Sequence[str]) -> str:
    told = _listed(
        f"{name} is {_WORDS[each.outcome]}" for each, name in zip(found.contrasts, names[1:], strict=True)
    )
    return f"Beside {names[0]}, {told}."


_WORDS = {
    Outcome.BETTER: "better",
    Outcome.WORSE: "worse",
    Outcome.SAME: "the same",
    Outcome.UNDECIDED: "undecided",
}


def _listed(parts: Iterable[str]) -> str:
    """List with commas, and an ``and`` before the last."""
    *most, last = tuple(parts) or ("",)
    return f"{', '.join(most)} and {last}" if most else last


def _moved(change: Change) -> str:
    """Say how much a metric is higher or lower: ``latency.p50 12.3% higher (10.1% to 14.5%)``."""
    if change.difference is None:
        return (
            f"{change.query} {_value(change.candidate, change)} instead of {_value(change.baseline, change)}"
        )
    word = "higher" if change.difference > 0 else "lower"
    size, span = _percent(abs(change.difference)), change.interval
    if span is None or span.low == span.high:
        return f"{change.query} {size} {word}"
    ends = sorted((abs(span.low), abs(span.high)))
    return f"{change.query} {size} {word} ({_percent(ends[0])} to {_percent(ends[1])})"


def _within(change: Change) -> str:
    return (
        f"{change.query} within {_percent(change.smallest)}" if change.smallest else f"{change.query} exactly"
    )


def _between(change: Change) -> str:
    """Say from where to where the truth may lie."""
    if change.interval is None or change.interval.high > _OPEN:
        return f"{change.query} ({change.why or 'not known'})"
    return f"{change.query} may be {_end(change.interval.low)} to {_end(change.interval.high)}"


def _end(ratio: float) -> str:
    return f"{_percent(abs(ratio))} {'higher' if ratio > 0 else 'lower'}"


def _percent(ratio: float) -> str:
    """Show how much more or less to a tenth of a percent; what is very much, as a multiple."""
    if ratio >= _TIMES:
        return f"{1 + ratio:,.0f}x"
    return f"{100 * ratio:.1f}%" if ratio < 1 else f"{100 * ratio:,.0f}%"


_TIMES = 10
"""From here on a difference is told as a multiple."""
_OPEN = 10.0
"""An interval up to beyond this tells nothing of a change."""
_MINOR = {"macs", "elementwise", "bytes_read", "bytes_written", "arithmetic_intensity", "batch_rate"}
"""Metrics that move with others; that they do is said, and no row of a table."""


# --- what has changed --------------------------------------------------------------------------------


def _changes(each: Contrast, names: tuple[str, str], *, everything: bool) -> Iterator[Block]:
    """Give the table of what differs, and name the rest."""
    shown = [change for change in each.changes if everything or _tells(change, each)]
    if shown:
        titles = (("metric", Align.LEFT), *((n, Align.RIGHT) for n in names), ("change", Align.LEFT))
        columns = (*(Column(title=t, align=a) for t, a in titles), Column(title="verdict"))
        yield Table(title="What has changed", columns=columns, rows=tuple(_row(c, names) for c in shown))
    if rest := [change for change in each.changes if change not in shown]:
        same = [str(change.query) for change in rest if change.outcome is Outcome.SAME]
        also = [f"{change.query} {_change(change)}" for change in rest if _differs(change)]
        open_ = [str(c.query) for c in rest if c.outcome is not Outcome.SAME and not _differs(c)]
        told = (
            f"also changed: {', '.join(also)}" if also else "",
            f"the same: {', '.join(same)}" if same else "",
            f"not told apart: {', '.join(open_)}" if open_ else "",
        )
        yield Notice(severity=Severity.NOTE, text=shorten("; ".join(filter(None, told)), TEXT_LIMIT))


def _differs(change: Change) -> bool:
    """Whether it has surely changed."""
    if change.outcome in {Outcome.BETTER, Outcome.WORSE}:
        return True
    span = change.interval
    return change.outcome is Outcome.UNDECIDED and span is not None and (span.low > 0 or span.high < 0)


def _tells(change: Change, each: Contrast) -> bool:
    """Whether it has a row of its own where not everything is asked for."""
    if change in each.verdicts:
        return change.outcome is not Outcome.SAME
    return _differs(change) and change.query.metric not in _MINOR


def _row(change: Change, names: tuple[str, str]) -> tuple[str, ...]:
    del names
    return (
        shorten(clean(str(change.query)), NAME_LIMIT),
        _value(change.baseline, change),
        _value(change.candidate, change),
        _change(change),
        str(change.outcome),
    )


def _value(value: float | None, change: Change) -> str:
    return "—" if value is None else format_quantity(value, change.query.unit, 3)


def _change(change: Change) -> str:
    """Show a difference with its interval: ``+12.3% (+10.1 to +14.5)``."""
    if change.difference is None:
        return "new" if change.baseline == 0 else "—"
    span = change.interval
    size = _signed(change.difference)
    if span is None or span.low == span.high:
        return size
    if span.high > _OPEN:
        return f"{size} (hardly known)"
    ends = [_signed(end) for end in (span.low, span.high)]
    if all(end.endswith("%") for end in ends):
        ends = [end.removesuffix("%") for end in ends]
    return f"{size} ({ends[0]} to {ends[1]})"


def _signed(ratio: float) -> str:
    if not round(ratio, 4):
        return "0%"
    text = _percent(abs(ratio))
    return text if text.endswith("x") else f"{'+' if ratio > 0 else '-'}{text}"


def _side_by_side(found: Comparison, names: Sequence[str]) -> Table:
    """Show every metric that is judged, of all of them."""
    queries = dict.fromkeys(change.query for each in found.contrasts for change in each.verdicts)
    rows = []
    for query in queries:
        changes = [next((c for c in each.changes if c.query == query), None) for each in found.contrasts]
        known = next(c for c in changes if c is not None)
        cells = (
            "—"
            if c is None
            else f"{_value(c.candidate, c)} ({_signed(c.difference)} {_WORDS[c.outcome]})"
            if c.difference is not None
            else _value(c.candidate, c)
            for c in changes
        )
        rows.append((str(query), _value(known.baseline, known), *cells))
    titles = ("metric", f"{names[0]} (reference)", *names[1:])
    columns = tuple(
        Column(title=t, align=Align.RIGHT if place == 1 else Align.LEFT) for place, t in enumerate(titles)
    )
    return Table(title="Side by side", columns=columns, rows=tuple(rows))


def _open(each: Contrast) -> Iterator[Notice]:
    """Say what keeps a verdict open."""
    for change in each.verdicts:
        if change.outcome is Outcome.UNDECIDED and change.why:
            yield Notice(severity=Severity.UNDECIDED, code=str(change.query), text=change.why)


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
        yield Notice(
            severity=Severity.NOTE, text=f"{count(more, 'further setting')} differ; --all shows them"
        )


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


# --- causes ------------------------------------------------------------------------------------------


_COUNTED = {"flops", "weight_bytes", "activation_peak", "memory_peak", "load_time"}
"""Metrics of which one sentence tells where a change comes from."""


def _cause(cause: Cause, *, table: bool) -> Iterator[Block]:
    """Show the parts that contribute most, what the others make up, and the rest, which sum to the change."""
    yield Notice(severity=Severity.NOTE, text=_dearest(cause))
    if not table:
        return
    parts = _told(cause)
    others = [part for part in cause.parts if part not in parts]
    unit = cause.query.unit

    def row(name: str, before: float | None, now: float | None, size: float) -> tuple[str, ...]:
        sides = (
            "—" if each is None else format_quantity(each, unit, 3) if each else "—" for each in (before, now)
        )
        return name, *sides, _size(size, unit), _part_of(size, cause.total)

    rows = [row(_where(part), part.baseline, part.candidate, part.difference) for part in parts]
    if others:
        before, now = (sum(getattr(part, side) for part in others) for side in ("baseline", "candidate"))
        rows.append(row(f"{count(len(others), 'other')}", before, now, now - before))
    rows.append(row(f"in no {_SINGLE.get(cause.by, cause.by)} (rest)", None, None, cause.rest))
    titles = (cause.by, "baseline", "candidate", "difference", "of it")
    yield Table(
        title=f"Where the {_size(cause.total, unit)} of {cause.query} come from, by {cause.by}",
        columns=tuple(
            Column(title=t, align=Align.RIGHT if place else Align.LEFT) for place, t in enumerate(titles)
        ),
        rows=tuple(rows),
    )


_SINGLE = {
    "layers": "layer",
    "operators": "operator",
    "kernels": "kernel",
    "stages": "stage",
    "places": "place",
}


def _told(cause: Cause) -> tuple[Part, ...]:
    """Choose the parts to show: the largest, in the order of the cause."""
    largest = sorted(cause.parts, key=lambda part: -abs(part.difference))[:_PARTS]
    return tuple(part for part in cause.parts if part in largest)


def _dearest(cause: Cause) -> str:
    """Name the part that contributes most."""
    first = cause.parts[0]
    how = "" if first.baseline and first.candidate else " (new)" if first.candidate else " (gone)"
    unit = cause.query.unit
    return (
        f"most of the change of {cause.query} by {cause.by}: {_where(first)}{how}, "
        f"{_size(first.difference, unit)} of {_size(cause.total, unit)}"
    )


def _where(part: Part) -> str:
    place = ending(clean(part.scope), _WHERE) or "the model itself"
    kind = shorten(clean(part.kind), _VALUE)
    return f"{place} ({kind})" if kind and kind not in {"operator", "kernel", "stage"} else place


def _size(size: float, unit: str) -> str:
    sign = "+" if size > 0 else "-" if size < 0 else ""
    return f"{sign}{format_quantity(abs(size), unit, 3)}"


def _part_of(size: float, whole: float) -> str:
    if not whole:
        return "—"
    return f"{'-' if size * whole < 0 else ''}{share(abs(size), abs(whole))}"


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
