"""Terminal: text laid out to the width of the terminal, in colour if supported, in ASCII if needed.

Lines are spans of text with a role; only `print_blocks` imports rich, to colour them. Text is never read as
rich markup.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import replace
from math import isfinite
from typing import TYPE_CHECKING

from modeldyno.base.kinds import kind_of
from modeldyno.base.report.axes import axes_of
from modeldyno.base.report.blocks import Align, Block, Heading, Notice, Severity, Table
from modeldyno.base.report.charts import Bins, Plot, Waterfall
from modeldyno.base.stats.units import format_axis, join_units_unbroken
from modeldyno.base.views.chart_text import describe_chart, format_on_axis, step_texts
from modeldyno.base.views.view_options import ViewOptions

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from rich.console import Console

    from modeldyno.base.metrics.constraints import Judgement
    from modeldyno.base.report.axes import DrawnAxis
    from modeldyno.base.report.charts import Picture, Series
    from modeldyno.base.result.result import Result

suffix = ".txt"
WIDTH = 80
"""Width of text that goes to a file."""

Span = tuple[str, str]
"""Text and its role: a key of _STYLES, or nothing."""
Line = tuple[Span, ...]

_STYLES = {
    "verdict": "bold",
    "verdict-held": "bold green",
    "verdict-broken": "bold red",
    "verdict-undecided": "bold yellow",
    "held": "green",
    "broken": "bold red",
    "undecided": "yellow",
    "failure": "bold red",
    "doubt": "yellow",
    "note": "cyan",
    "title": "bold",
    "faint": "dim",
    "bar": "blue",
}
_SIGNS = {
    Severity.HELD: "✓",
    Severity.BROKEN: "✗",
    Severity.UNDECIDED: "?",
    Severity.FAILURE: "✗",
    Severity.DOUBT: "!",
    Severity.NOTE: "·",
}
_EIGHTHS = " ▏▎▍▌▋▊▉█"
_ASCII = str.maketrans({
    "≥": ">=", "✓": "+", "✗": "x", "·": "-", "—": "-", "–": "-", "…": "...", "µ": "u", "┊": "|", "→": "->",
    "±": "+/-", "─": "-", "←": "<-", "●": "o", "▲": "^", "■": "#", "◆": "*",
    "○": "O", "△": "A", "□": "H", "◇": "X",
    **dict.fromkeys("▏▎▍", "."), **dict.fromkeys("▐▌▋▊▉█", "#"),
})  # fmt: skip


def render(document: Result, *, judgements: Sequence[Judgement] = ()) -> str:
    """Write plain text of 80 columns."""
    return text(kind_of(document).blocks(document, ViewOptions(judgements=tuple(judgements))), width=WIDTH)


def print_blocks(blocks: Iterable[Block], *, console: Console) -> None:
    """Print blocks on a console, in its width, colours and character set."""
    from rich.text import Text  # slow to import

    plain = not console.encoding.lower().startswith("utf")
    for line in lines(blocks, width=console.width):
        spans = ((_ascii(text) if plain else text, _STYLES.get(role, "")) for text, role in line)
        console.print(Text.assemble(*spans), soft_wrap=True)


def text(blocks: Iterable[Block], *, width: int = WIDTH) -> str:
    """Lay out blocks as plain text."""
    rows = ("".join(text for text, _ in line) for line in lines(blocks, width=width))
    return "".join(f"{row}\n" for row in rows)


def lines(blocks: Iterable[Block], *, width: int) -> Iterator[Line]:
    """Lay out blocks, separated by empty lines, except between notices of one kind."""
    before: Block | None = None
    for block in blocks:
        if before is not None and not _same_group(before, block):
            yield ()
        yield from _lines(block, max(width, 20))
        before = block


def _same_group(one: Block, other: Block) -> bool:
    return isinstance(one, Notice) and isinstance(other, Notice) and _group_of(one) == _group_of(other)


def _group_of(notice: Notice) -> str:
    bounds = {Severity.HELD, Severity.BROKEN, Severity.UNDECIDED}
    return "bound" if notice.severity in bounds else notice.severity


def _lines(block: Block, width: int) -> Iterator[Line]:
    match block:
        case Notice():
            return _notice_lines(block, width)
        case Table():
            return _table_lines(block, width)
        case Heading():
            return (((line, "title"),) for line in wrap(block.title.upper(), width))
        case _:
            return _picture_lines(block, width)


# --- notices -----------------------------------------------------------------------------------


def _notice_lines(block: Notice, width: int) -> Iterator[Line]:
    role = str(block.severity)
    if block.severity is Severity.VERDICT:
        role = role if block.outcome is None else f"{role}-{block.outcome}"
        yield from (((line, role),) for line in wrap(block.text, width))
        return
    sign, code = _SIGNS[block.severity], f"{block.code}: " if block.code else ""
    body = wrap(code + block.text, width - 2)
    yield (f"{sign} ", role), *_split_code(body[0], len(code), role)
    yield from (((f"  {line}", ""),) for line in body[1:])
    advice = _advice_lines(block, width - 2) if block.advice else []
    yield from (((f"  {line}", "faint"),) for line in advice)
    for line in block.log.splitlines():
        yield from (((f"  ┊ {part}", "faint"),) for part in wrap(line, width - 4, keep=True))


def _advice_lines(block: Notice, width: int) -> list[str]:
    """Wrap the advice; a command can still be pasted: no word is cut, and a line that goes on says so."""
    if not block.advises_command:
        return wrap(f"→ {block.advice}", width)
    lines = ["→"]
    for word in _SHELL_WORD.findall(block.advice):
        if lines != ["→"] and display_width(f"{lines[-1]} {word} \\") > width:
            lines[-1] += " \\"
            lines.append(word)
        else:
            lines[-1] += f" {word}"
    return lines


_SHELL_WORD = re.compile(r"(?:'[^']*'|\S)+")


def _split_code(line: str, place: int, role: str) -> Line:
    return ((line[:place], role), (line[place:], "")) if place else ((line, ""),)


# --- tables ------------------------------------------------------------------------------------


_GAP, _FIRST, _MIDDLE, _LAST = 2, 16, 16, 20
"""Columns between two cells, and the least width of the first, a middle and the last cell of a row."""


def _table_lines(block: Table, width: int) -> Iterator[Line]:
    titles = tuple(column.title for column in block.columns)
    header = (titles,) if any(titles) else ()
    natural = [max(map(display_width, column)) for column in zip(*header, *block.rows, strict=True)]
    if block.spare and sum(natural) + _GAP * (len(natural) - 1) > width:
        yield from _table_lines(replace(block.without_column(block.spare[0]), spare=block.spare[1:]), width)
        return
    if block.title:
        yield from (((line, "title"),) for line in wrap(block.title, width))
    if widths := _fit_widths(block, natural, width):
        for index, row in enumerate((*header, *block.rows)):
            yield from _row(block, row, widths, "faint" if header and not index else "")
    elif (  # a remark goes below its row; a number there would have lost its title
        block.columns[-1].align is Align.LEFT and (widths := _fit_widths(block, [*natural[:-1], 0], width))
    ):
        for index, row in enumerate((*header, *block.rows)):
            yield from _row(block, (*row[:-1], ""), widths, "faint" if header and not index else "")
            if row[-1] and (index or not header):
                yield from (((f"  {line}", "faint"),) for line in wrap(row[-1], width - 2))
    elif lines := _turned(block, width):
        yield from lines
    else:
        yield from _stacked(titles, block.rows, width)


def _turned(block: Table, width: int) -> list[Line]:
    """Lay out a table too wide for its columns with a column for each row; empty if that is too wide, too."""
    title, *heads = (column.title for column in block.columns)
    if not 1 < len(block.rows) <= len(heads) or not title:
        return []
    cells = [[head, *(row[place] for row in block.rows)] for place, head in enumerate(heads, 1)]
    table = [[title, *(row[0] for row in block.rows)], *cells]
    widths = [max(map(display_width, column)) for column in zip(*table, strict=True)]
    if sum(widths) + _GAP * (len(widths) - 1) > width:
        return []
    aligns = (Align.LEFT, *(Align.RIGHT for _ in block.rows))
    lines: list[Line] = []
    for index, row in enumerate(table):
        role = "" if index else "faint"
        spans = [
            (_align(text, size, align), role if place else "faint")
            for place, (text, size, align) in enumerate(zip(row, widths, aligns, strict=True))
        ]
        spaced = [piece for span in spans for piece in (span, (" " * _GAP, ""))]
        lines.append(_strip_right(spaced))
    return lines


def _fit_widths(block: Table, natural: Sequence[int], width: int) -> list[int]:
    """Return column widths that fit; empty if impossible.

    The last column shrinks first, then the first. A short last column, such as a verdict, stays beside its
    row: before the first, the widest middle column of text shrinks.
    """
    widths = list(natural)
    shrinking = [(-1, _LAST), *_wide_middle(block, natural), (0, _FIRST)]
    for place, least in shrinking:
        excess = sum(widths) + _GAP * (len(widths) - 1) - width
        widths[place] = max(min(widths[place], least), widths[place] - max(0, excess))
    return widths if sum(widths) + _GAP * (len(widths) - 1) <= width else []


def _wide_middle(block: Table, natural: Sequence[int]) -> list[tuple[int, int]]:
    """Return the widest middle column of text and its least width, if the last column is short."""
    middle = [place for place in range(1, len(natural) - 1) if block.columns[place].align is Align.LEFT]
    if not middle or not 0 < natural[-1] <= _LAST:
        return []
    widest = max(middle, key=natural.__getitem__)
    return [(widest, _MIDDLE)] if natural[widest] > _LAST else []


def _row(block: Table, row: Sequence[str], widths: Sequence[int], role: str) -> Iterator[Line]:
    """Lay out a row; cells wrap and are aligned to the top."""
    wrapping = [*[_wrap_cell] * (len(row) - 1), wrap]
    columns = [
        wrapped(text, width) if width else [""]
        for wrapped, text, width in zip(wrapping, row, widths, strict=True)
    ]
    for index in range(max(map(len, columns))):
        spans: list[Span] = []
        for place, (column, width) in enumerate(zip(columns, widths, strict=True)):
            part = column[index] if index < len(column) else ""
            column_role = role or _VERDICTS.get(
                part if _is_verdict(block, place) else "", _role(block, place)
            )
            spans.append((_align(part, width, block.columns[place].align), column_role))
            spans.append((" " * _GAP, ""))
        yield _strip_right(spans)


def _wrap_cell(text: str, width: int) -> list[str]:
    """Wrap the text of a cell, if need be before a bracket at its end: an interval stays in one piece."""
    head, bracket, end = text.partition(" (")
    if bracket and text.endswith(")") and display_width(end) < width < display_width(text):
        return [*wrap(head, width), f"({end}"]
    return wrap(text, width)


def _strip_right(spans: list[Span]) -> Line:
    """Strip trailing blanks from a line."""
    while spans and not spans[-1][0].rstrip():
        spans.pop()
    return (*spans[:-1], (spans[-1][0].rstrip(), spans[-1][1])) if spans else ()


def _role(block: Table, place: int) -> str:
    if block.columns[place].align is Align.RIGHT:
        return ""
    named = any(column.title for column in block.columns)
    return "faint" if place == (len(block.columns) - 1 if named else 0) else ""


def _is_verdict(block: Table, place: int) -> bool:
    return block.columns[place].title == "verdict"


_VERDICTS = {"better": "held", "worse": "broken", "undecided": "undecided", "unlike": "broken"}
"""Verdict in a cell to its role."""


def _align(text: str, width: int, align: Align) -> str:
    padding = " " * (width - display_width(text))
    return padding + text if align is Align.RIGHT else text + padding


def _stacked(titles: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> Iterator[Line]:
    """Write each cell on its own line; for tables too wide for a row."""
    for row in rows:
        for place, (title, text) in enumerate(zip(titles, row, strict=True)):
            if text:
                head, indent = ("", 0) if not place else (f"{title}: " if title else "", 2)
                parts = wrap(head + text, width - indent)
                yield from (((" " * indent + part, "faint" if place else ""),) for part in parts)


# --- pictures ----------------------------------------------------------------------------------

_LONGEST_BAR = 40


def _picture_lines(block: Picture, width: int) -> Iterator[Line]:
    """Draw a histogram, a waterfall or a plot of few places; describe any other chart in words."""
    if isinstance(block, Bins):
        yield from _bins_lines(block, width)
        return
    if isinstance(block, Waterfall):
        yield from _waterfall_lines(block, width)
        return
    if isinstance(block, Plot) and (lines := _plot_lines(block, width)):
        yield from lines
        return
    yield from (((line, "title"),) for line in wrap(block.title, width))
    yield from (((line, ""),) for line in wrap(describe_chart(block), width))
    if block.note:
        yield from (((line, "faint"),) for line in wrap(block.note, width))


def _bins_lines(block: Bins, width: int) -> Iterator[Line]:
    yield ((f"{block.title} ", "title"), (f"({block.counted})", "faint"))
    edges = format_axis(block.edges, block.scale.unit)
    labels = [*edges[:-1], *([f">{edges[-1]}"] if block.beyond else [])]
    counts = [f"{count:,.0f}" for count in block.bars]
    named = [_marks(block, place) for place in range(len(counts))]
    left, middle = max(map(display_width, labels)), max(map(display_width, counts))
    room = width - left - middle - max(map(display_width, named)) - 4
    longest, most = min(max(room, 1), _LONGEST_BAR), max(block.bars)
    for place, (label, count, size, marks) in enumerate(zip(labels, counts, block.bars, named, strict=True)):
        bar = _bar(size / most * longest if most else 0.0)
        role = "bar" if place < len(block.counts) else "faint"
        spans = ((f"{label:>{left}} ", "faint"), (bar, role), (f" {count}", ""), (f"  {marks}", "note"))
        yield spans if marks else spans[:-1]
    if block.note:
        yield from (((part, "faint"),) for part in wrap(block.note, width))


def _waterfall_lines(block: Waterfall, width: int) -> Iterator[Line]:
    """Draw a waterfall: name, size, interval, and a bar where there is room for one."""
    yield ((block.title, "title"),)
    names = [step.name for step in block.steps]
    sizes, intervals = zip(*(step_texts(step, block.scale) for step in block.steps), strict=True)
    columns = [max(map(display_width, column)) for column in (names, sizes, intervals)]
    room = min(width - sum(columns) - 3 * _GAP, _LONGEST_BAR)
    ends = [end for span in block.spans for end in span]
    low, high = min(0.0, *ends), max(0.0, *ends)
    for step, (begin, end), size, interval in zip(block.steps, block.spans, sizes, intervals, strict=True):
        role = "value" if step.is_sum else "faint" if step.is_rest else ""
        bar = (
            _placed_bar((begin - low) / (high - low), (end - low) / (high - low), max(room, 0))
            if high > low
            else ""
        )
        spans = (
            (_align(step.name, columns[0], Align.LEFT), role), (" " * _GAP, ""),
            (_align(size, columns[1], Align.RIGHT), role), (" " * _GAP, ""),
            (_align(interval, columns[2], Align.LEFT), "faint"), (" " * _GAP, ""),
            (bar if step.size is not None else "", "faint" if step.is_rest else "bar"),
        )  # fmt: skip
        yield _strip_right(list(spans))
    if block.note:
        yield from (((part, "faint"),) for part in wrap(block.note, width))


_MARKS, _HOLLOW = "●▲■◆", "○△□◇"
_MOST_PLACES, _NARROWEST = 16, 24
"""Most rows of a plot, and fewest columns of its axis."""


def _plot_lines(block: Plot, width: int) -> list[Line]:
    """Draw a plot with a row for each place on its x axis; empty if it has too many, or no room."""
    _, y = axes_of(block)
    places = sorted({x for one in block.series for x in one.x})
    drawable = y is not None and not block.stacked and not any(rule.vertical for rule in block.rules)
    names = [format_on_axis(x, block.x) for x in places]
    left = max(map(display_width, [*names, block.x.label]))
    room = min(width - left - _GAP, _WIDEST)
    if y is None or not drawable or not 1 < len(places) <= _MOST_PLACES or len(block.series) > len(_MARKS):
        return []
    if room < _NARROWEST:
        return []
    beyond = {rule.name: y.beyond(rule.at) for rule in block.rules}
    named = [f"{mark} {one.name}" for mark, one in zip(_MARKS, block.series, strict=False)]
    named += [f"{_RULES[side]} {name}" for name, side in beyond.items()]
    lines: list[Line] = [((part, "title"),) for part in wrap(block.title, width)]
    lines += [((part, "faint"),) for part in wrap(f"{y.title}: {'  '.join(named)}", width)]
    columns = [_column(y, rule.at, room) for rule in block.rules if not beyond[rule.name]]
    for place, name in zip(places, names, strict=True):
        row = [" "] * room
        for column in columns:
            row[column] = "┊"
        for mark, hollow, one in zip(_MARKS, _HOLLOW, block.series, strict=False):
            for at in (at for at, x in enumerate(one.x) if x == place and isfinite(one.y[at])):
                _draw_interval(row, y, one, at)
                row[_column(y, one.y[at], room)] = hollow if at in one.hollow else mark
        lines.append(_strip_right([(f"{name:>{left}}  ", "faint"), ("".join(row), "bar")]))
    lines.append(((f"{block.x.label:>{left}}  {_tick_line(y, room)}", "faint"),))
    lines += [((part, "faint"),) for part in wrap(block.note, width)] if block.note else []
    return lines


_WIDEST = 64
_RULES = {0: "┊", 1: "→", -1: "←"}
"""Sign of a line that is on the axis, beyond its upper end, and beyond its lower one."""


def _column(axis: DrawnAxis, value: float, room: int) -> int:
    return min(room - 1, max(0, round(axis.share(value) * (room - 1))))


def _draw_interval(row: list[str], axis: DrawnAxis, one: Series, at: int) -> None:
    if one.low and isfinite(one.low[at]) and isfinite(one.high[at]):
        ends = (_column(axis, end, len(row)) for end in (one.low[at], one.high[at]))
        for column in range(next(ends), next(ends) + 1):
            row[column] = "─" if row[column] == " " else row[column]


def _tick_line(axis: DrawnAxis, room: int) -> str:
    """Write the ticks of an axis that have room."""
    text = ""
    for at, tick in axis.ticks:
        column = min(_column(axis, at * axis.size, room) - len(tick) // 2, room - len(tick))
        if column > len(text) or not text:
            text = f"{text:<{max(0, column)}}{tick}"
    return text


def _placed_bar(begin: float, end: float, width: int) -> str:
    """Draw a bar from one share of the width to another, either of which may be the left one."""
    left, right = sorted((round(begin * width * 2), round(end * width * 2)))
    right = min(max(right, left + 1), 2 * width)
    left = max(0, min(left, right - 1))
    full_blocks = right // 2 - (left + 1) // 2
    if full_blocks < 0:  # both within the left half of one character
        return " " * (left // 2) + "▌"
    return " " * (left // 2) + "▐" * (left % 2) + "█" * full_blocks + "▌" * (right % 2)


def _bar(size: float) -> str:
    """Draw a bar in eighths of a character; a size above zero has at least one eighth."""
    eighths = max(round(size * 8), 1 if size else 0)
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()


def _marks(block: Bins, place: int) -> str:
    """Return the names of the marks in a bin."""
    return ", ".join(mark.name for mark in block.marks if block.bin_of(mark.at) == place)


# --- text --------------------------------------------------------------------------------------


def wrap(text: str, width: int, *, keep: bool = False) -> list[str]:
    """Wrap text at spaces into lines of at most `width` columns, never inside a quantity.

    A word longer than a line is cut. With `keep`, spaces are preserved.
    """
    words = [text] if keep else [word for word in join_units_unbroken(text).split(" ") if word]
    parts: list[str] = []
    for word in words:
        if parts and display_width(parts[-1]) + 1 + display_width(word) <= width:
            parts[-1] += f" {word}"
        else:
            parts += _cut_word(word, width)
    return [part.replace("\N{NO-BREAK SPACE}", " ") for part in parts] or [""]


def _cut_word(word: str, width: int) -> list[str]:
    """Cut a word longer than a line, after a separator of a name if there is one."""
    pieces = [""]
    for character in word:
        if display_width(pieces[-1]) + display_width(character) > width:
            joint = max(map(pieces[-1].rfind, "._@/")) + 1
            fits = display_width(pieces[-1][joint:] + character) <= width
            cut = joint if fits and joint > width // 3 else len(pieces[-1])
            pieces[-1:] = [pieces[-1][:cut], pieces[-1][cut:]]
        pieces[-1] += character
    return pieces


def display_width(text: str) -> int:
    """Return the display width of text: two for a wide character, none for a combining one."""
    if text.isascii():
        return len(text)
    return sum(map(_cells, text))


def _cells(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _ascii(text: str) -> str:
    return text.translate(_ASCII).encode("ascii", "replace").decode("ascii")
