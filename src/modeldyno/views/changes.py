"""What has changed, in a sentence and in tables: how much, how surely, and whether that is better."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.core.block import Align, Block, Column, Notice, Severity, Table, clean, shorten
from modeldyno.core.comparison import Outcome
from modeldyno.core.units import format_quantity
from modeldyno.views.words import NAME_LIMIT, TEXT_LIMIT, interrupted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from modeldyno.core.comparison import Change, Comparison, Contrast


def sentence(each: Contrast, names: tuple[str, str]) -> str:
    """Say in one sentence how the candidate does beside the baseline, with figures."""
    before, now = names
    groups = {outcome: [c for c in each.verdicts if c.outcome is outcome] for outcome in Outcome}
    told = {outcome: _listed(map(moved, changes)) for outcome, changes in groups.items()}
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


def cut_short(found: Comparison, text: str) -> str:
    """Say first of all whether the rounds were interrupted; what was stored was measured by others."""
    cut = "" if found.order == "stored" else interrupted(found.baseline, found.baseline.processes)
    return cut + (text[0].lower() + text[1:] if cut and text.startswith(("It is ", "Beside ")) else text)


def overview(found: Comparison, names: Sequence[str]) -> str:
    """Say in one sentence how each of several candidates does."""
    told = _listed(
        f"{name} is {VERDICTS[each.outcome]}" for each, name in zip(found.contrasts, names[1:], strict=True)
    )
    return f"Beside {names[0]}, {told}."


VERDICTS = {
    Outcome.BETTER: "better",
    Outcome.WORSE: "worse",
    Outcome.SAME: "the same",
    Outcome.UNDECIDED: "undecided",
}


def _listed(parts: Iterable[str]) -> str:
    """List with commas, and an ``and`` before the last."""
    *most, last = tuple(parts) or ("",)
    return f"{', '.join(most)} and {last}" if most else last


def moved(change: Change) -> str:
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


def changed(each: Contrast, names: tuple[str, str], *, everything: bool) -> Iterator[Block]:
    """Give the table of what differs, and name the rest."""
    shown = [change for change in each.changes if everything or _tells(change, each)]
    if shown:
        titles = (("metric", Align.LEFT), *((n, Align.RIGHT) for n in names), ("change", Align.LEFT))
        columns = (*(Column(title=t, align=a) for t, a in titles), Column(title="verdict"))
        yield Table(title="What has changed", columns=columns, rows=tuple(map(_row, shown)))
        if apart := [str(change.query) for change in shown if change.beside_figures]:
            yield Notice(severity=Severity.NOTE, text=f"{' and '.join(apart)}: {BESIDE_FIGURES}")
    if rest := [change for change in each.changes if change not in shown]:
        same = [str(change.query) for change in rest if change.outcome is Outcome.SAME]
        also = [f"{change.query} {relative(change)}" for change in rest if _differs(change)]
        open_ = [str(c.query) for c in rest if c.outcome is not Outcome.SAME and not _differs(c)]
        told = (
            f"also changed: {', '.join(also)}" if also else "",
            f"the same: {', '.join(same)}" if same else "",
            f"not told apart: {', '.join(open_)}" if open_ else "",
        )
        yield Notice(severity=Severity.NOTE, text=shorten("; ".join(filter(None, told)), TEXT_LIMIT))


BESIDE_FIGURES = (
    "the figures are of all runs of each side; the change compares them round by round, or by their quiet "
    "runs, and is the one to believe"
)
"""Why a change is not what the two figures differ by."""


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


def _row(change: Change) -> tuple[str, ...]:
    return (
        shorten(clean(str(change.query)), NAME_LIMIT),
        _value(change.baseline, change),
        _value(change.candidate, change),
        relative(change),
        str(change.outcome),
    )


def _value(value: float | None, change: Change) -> str:
    return "—" if value is None else format_quantity(value, change.query.unit, 3)


def relative(change: Change) -> str:
    """Show a difference with its interval: ``+12.3% (+10.1 to +14.5)``."""
    if change.difference is None:
        return "new" if change.baseline == 0 else "—"
    span = change.interval
    size = signed(change.difference)
    if span is None or span.low == span.high:
        return size
    if span.high > _OPEN:
        return f"{size} (hardly known)"
    ends = [signed(end) for end in (span.low, span.high)]
    if all(end.endswith("%") for end in ends):
        ends = [end.removesuffix("%") for end in ends]
    return f"{size} ({ends[0]} to {ends[1]})"


def signed(ratio: float) -> str:
    """Show how much more or less: ``+12.3%``, ``-4.0%``; what is very much, as a multiple."""
    if not round(ratio, 4):
        return "0%"
    text = _percent(abs(ratio))
    return text if text.endswith("x") else f"{'+' if ratio > 0 else '-'}{text}"


def side_by_side(found: Comparison, names: Sequence[str]) -> Table:
    """Show every metric that is judged, of all of them."""
    queries = dict.fromkeys(change.query for each in found.contrasts for change in each.verdicts)
    rows = []
    for query in queries:
        changes = [next((c for c in each.changes if c.query == query), None) for each in found.contrasts]
        known = next(c for c in changes if c is not None)
        cells = (
            "—"
            if c is None
            else f"{_value(c.candidate, c)} ({signed(c.difference)} {VERDICTS[c.outcome]})"
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


def opened(each: Contrast) -> Iterator[Notice]:
    """Say what keeps a verdict open."""
    for change in each.verdicts:
        if change.outcome is Outcome.UNDECIDED and change.why:
            yield Notice(severity=Severity.UNDECIDED, code=str(change.query), text=change.why)
