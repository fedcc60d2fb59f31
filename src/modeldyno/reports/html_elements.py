"""Write blocks as HTML elements, without scripts."""

from __future__ import annotations

import html
import re
from itertools import groupby
from typing import TYPE_CHECKING

from modeldyno.base.metrics.doubt import seriousness
from modeldyno.base.report.blocks import Align, Block, Heading, Notice, Severity, Table
from modeldyno.base.report.charts import Bins, Plot
from modeldyno.base.stats.units import format_axis, join_units_unbroken
from modeldyno.base.views.chart_text import chart_numbers, describe_chart
from modeldyno.base.views.text import trust_name
from modeldyno.reports.interface import TableLinks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from modeldyno.base.report.charts import Picture

_SIGNS = {
    Severity.HELD: "✓",
    Severity.BROKEN: "✗",
    Severity.UNDECIDED: "?",
    Severity.FAILURE: "✗",
    Severity.DOUBT: "!",
    Severity.NOTE: "i",
}


_UNLINKED = TableLinks()


def write_elements(
    blocks: Iterable[Block], drawn: Callable[[Picture], str], links: TableLinks = _UNLINKED
) -> Iterator[str]:
    """Write blocks; `drawn` writes the charts.

    Consecutive notices form one list; three or more consecutive plots stand side by side.
    """
    for around, run in groupby(blocks, _group_kind):
        run_blocks = list(run)
        group = [_block(block, drawn, links) for block in run_blocks]
        if around == _TRIES:
            yield f'<ol class="tries">\n{"".join(group)}</ol>\n'
            continue
        if around == _DOUBTS and len(group) > 1:
            yield f"{_doubts_summary(run_blocks)}<ul>\n{''.join(group)}</ul></details>\n"
            continue
        several = around != "div" or len(group) >= _SEVERAL
        opened, closed = _WRAPPERS[around] if several else ("", "")
        yield f"{opened}{''.join(group)}{closed}"


_SEVERAL = 3
_DOUBTS, _TRIES = "doubts", "tries"
_WRAPPERS = {
    _DOUBTS: ("<ul>\n", "</ul>\n"),
    "ul": ("<ul>\n", "</ul>\n"),
    "div": ('<div class="several">\n', "</div>\n"),
    "": ("", ""),
}
"""Markup around consecutive blocks of a kind."""


def _doubts_summary(doubts: Sequence[Block]) -> str:
    """Open a collapsible list of doubts; its summary is the level of trust, the worst, and others' codes.

    A page may have those of several documents in a row, each in its order.
    """
    first, *others = sorted(
        (doubt for doubt in doubts if isinstance(doubt, Notice)), key=lambda doubt: seriousness(doubt.code)
    )
    codes = ", ".join(dict.fromkeys(doubt.code for doubt in others if doubt.code))
    name = html.escape(trust_name(doubt.code for doubt in (first, *others)))
    summary = _text(f"{first.text.rstrip('.')}; {len(others)} more: {codes}")
    return f'<details class="doubts"><summary><strong>{name}</strong>: {summary}</summary>\n'


def _group_kind(block: Block) -> str:
    if isinstance(block, Notice) and block.severity is Severity.DOUBT:
        return _DOUBTS
    if isinstance(block, Notice) and (block.gain or block.risk):
        return _TRIES
    if isinstance(block, Notice) and block.severity is not Severity.VERDICT:
        return "ul"
    return "div" if isinstance(block, Plot) else ""


def _block(block: Block, drawn: Callable[[Picture], str], links: TableLinks) -> str:
    match block:
        case Notice():
            return _notice(block)
        case Table():
            return table(block, links)
        case Heading():
            tag = f"h{min(block.level, _LOWEST) + 1}"
            return f"<{tag}>{_name(block.title)}</{tag}>\n"
        case _:
            return drawn(block)


_LOWEST = 3


def _notice(block: Notice) -> str:
    if block.severity is Severity.VERDICT:
        mark, kind = ("", "") if block.outcome is None else (_sign(block.outcome), f" {block.outcome}")
        return f'<p class="verdict{kind}">{mark}{_verdict_html(block.text)}</p>\n'
    if block.gain or block.risk:
        return _try(block)
    text = _text(block.text)
    sign = _sign(block.severity)
    code = f"<strong>{html.escape(block.code)}</strong>: " if block.code else ""
    tag = "code" if block.advises_command else "span"
    advice = f'<br><{tag} class="faint">{_options(_text(block.advice))}</{tag}>' if block.advice else ""
    log = f"<pre>{_options(html.escape(block.log))}</pre>" if block.log else ""
    return f'<li class="{block.severity}">{sign}{code}{text}{advice}{log}</li>\n'


def _sign(severity: Severity) -> str:
    return f'<span class="sign" role="img" aria-label="{severity}">{_SIGNS[severity]}</span>'


def _try(block: Notice) -> str:
    """Write something to try as a card: what it saves, how to try it, what it may cost, and why."""
    gain = f'<p class="gain">{_text(block.gain)}</p>\n' if block.gain else ""
    risk = f'<p class="risk">{_text(block.risk)}</p>\n' if block.risk else ""
    how = _options(_text(block.advice))
    how = (
        f'<pre class="command" tabindex="0"><code>{how}</code></pre>\n'
        if block.advises_command
        else f"<p>{how}</p>\n"
    )
    name = f'<p class="try"><strong>{html.escape(block.code)}</strong></p>\n'
    why = f'<p class="faint">{_text(block.text)}</p>'
    return f"<li>{gain}{name}{how if block.advice else ''}{risk}{why}</li>\n"


def split_verdict(text: str) -> tuple[str, str]:
    """Split a long verdict into its first clause, which is the answer, and the rest; a short one has none."""
    if len(text) <= _LONG:
        return text, ""
    first = re.search("[.] ", text[:_TOO_LONG]) or re.search("[;.] ", text)
    if first is None:
        return text, ""
    clause = f"{text[: first.start()]}."  # the rest starts a paragraph of its own
    remark = text[first.end() :]
    remark = f"{remark[:1].upper()}{remark[1:]}" if first.group() == "; " else remark
    return clause, remark


def _verdict_html(text: str) -> str:
    """Write a verdict; of a long one, the first clause stands out as the answer."""
    clause, remark = split_verdict(text)
    return f'{_text(clause)} <span class="more">{_text(remark)}</span>' if remark else _text(clause)


_LONG = 140
"""Longest verdict that is not split."""
_TOO_LONG = 200
"""A longer first sentence is split at its first semicolon."""


_OPTION = re.compile(r"(?<!\S)--?[a-z][\w-]*")


def _options(text: str) -> str:
    """Keep each option of a command on one line; browsers break lines after any hyphen."""
    return _OPTION.sub(r'<span class="option">\g<0></span>', text)


def _tiles(block: Table) -> str:
    """Write key figures as a list of name, value and note."""
    items = "".join(
        f"<div><dt>{html.escape(name)}</dt><dd>{_text(value)}</dd>"
        f'<dd class="faint">{_text(note)}</dd></div>\n'
        for name, value, note in block.rows
    )
    return f'<dl class="tiles">\n{items}</dl>\n'


def table(block: Table, links: TableLinks = _UNLINKED) -> str:
    """Write a table; a wide one scrolls in place, and a phone has three of its columns as columns."""
    if block.tiles:
        return _tiles(block)
    named = any(column.title for column in block.columns)
    title = html.escape(block.title)
    caption = f"<caption><span>{title}</span></caption>\n" if block.title and not block.folded else ""
    cards = named and not _fits_a_phone(block) and len(block.rows) <= _CARDS
    places = _phone_places(block) if cards else {}
    head = f"<thead>{_head_rows(block, places)}</thead>\n" if named else ""
    rows = "".join(f"<tr>{''.join(_cells(block, row, places, cards, links))}</tr>\n" for row in block.rows)
    kind = "facts" if not named else "figures" if len(block.columns) <= _WIDE else "figures wide"
    kind += " cards" if cards else ""
    # Without a title, a reader tells it from others by what it lists.
    named_by = ", ".join(column.title for column in block.columns if column.title)
    label = html.escape(block.title or f"table of {named_by}".removesuffix(" of "))
    region = f' role="region" aria-label="{label}" tabindex="0"' if len(block.columns) > _NARROW else ""
    written = (
        f'<div class="scroll"{region}><table class="{kind}">{caption}{head}<tbody>\n{rows}</tbody></table>'
        "</div>\n"
    )
    if not block.folded:
        return written
    summary = f"{title} <span>({len(block.rows):,})</span>"
    return f'<details class="folded"><summary>{summary}</summary>\n{written}</details>\n'


def _head_rows(block: Table, places: Mapping[int, str]) -> str:
    """Write the titles; those that begin alike, as ``here: p50`` and ``here: p99``, below a common one."""
    spans = [
        (name, len(list(run)))
        for name, run in groupby(column.title.rpartition(": ")[0] for column in block.columns)
    ]
    if not any(name and count > 1 for name, count in spans):
        return f"<tr>{''.join(_titles(block, places))}</tr>"
    above = "".join(
        f'<th scope="colgroup" colspan="{count}" class="group">{html.escape(name)}</th>'
        if name
        else f'<td colspan="{count}"></td>'
        for name, count in spans
    )
    return f'<tr class="groups">{above}</tr><tr>{"".join(_titles(block, places, grouped=True))}</tr>'


def _titles(block: Table, places: Mapping[int, str], *, grouped: bool = False) -> Iterator[str]:
    for at, column in enumerate(block.columns):
        place = f" {places[at]}" if at in places else ""
        group, colon, title = column.title.rpartition(": ") if grouped else ("", "", column.title)
        # A phone has no room for the common title above it.
        of = f'<span class="of">{html.escape(group)}: </span>' if colon else ""
        yield (
            f'<th scope="col" class="{column.align}{place}">{of}{html.escape(title)}</th>'
            if title
            else f'<td class="{place.strip()}"></td>'
            if place
            else "<td></td>"
        )


def _phone_places(block: Table) -> dict[int, str]:
    """Return the class of each column where a phone has room for three: two figures, else two short ones.

    The others stand below them in small type, each with its title.
    """
    others = range(1, len(block.columns))
    figures = [at for at in others if block.columns[at].align is Align.RIGHT]
    short = [at for at in others if all(len(row[at]) <= _TWO_LINES for row in block.rows)]
    chosen = sorted([*figures, *(at for at in short if at not in figures)][:2])
    return {at: f"place{chosen.index(at) + 2}" if at in chosen else "below" for at in others}


def _fits_a_phone(block: Table) -> bool:
    """Whether a table has few columns, and no sentence in the third, which alone would scroll sideways."""
    count = len(block.columns)
    return count < _NARROW or (count == _NARROW and all(len(row[-1]) <= _PHRASE for row in block.rows))


_NARROW, _WIDE, _CARDS, _PHRASE, _TWO_LINES = 3, 6, 80, 16, 20
"""Most columns that fit any page, most columns at normal font size, most rows that a phone arranges anew, and
most characters of a cell of a phone's third column, in one line and in two."""


_SENTENCE = 60
"""Longest cell that stays in one line where a table has room."""


def _cells(
    block: Table, row: Sequence[str], places: Mapping[int, str], cards: bool, links: TableLinks
) -> Iterator[str]:
    by_title = {column.title: text for text, column in zip(row, block.columns, strict=True)}
    for at, (text, column) in enumerate(zip(row, block.columns, strict=True)):
        tag, scope = ("td", "") if at else ("th", ' scope="row"')
        classes = (
            "right" if column.align is Align.RIGHT else "",
            places.get(at, ""),
            "words" if any(by_title) and at and column.align is Align.LEFT and len(text) > _SENTENCE else "",
            "faint" if column.title in links.faint else "",
        )
        written_class = f' class="{joined}"' if (joined := " ".join(filter(None, classes))) else ""
        title = html.escape(column.title)
        label = f' data-label="{title}"' if cards and at and text and title else ""
        finder = links.found_by.get(column.title)
        key = text if finder is None else by_title.get(finder, text)
        written = _linked(column.title, key, text, _name(text) if scope else _text(text), links)
        box = _box(key, text, links) if scope else ""
        yield f"<{tag}{scope}{written_class}{label}>{box}{written}</{tag}>"


def _linked(title: str, key: str, text: str, written: str, links: TableLinks) -> str:
    """Write what a cell leads to around it, or its state as a chip, or its time."""
    address = links.links.get(title, {}).get(key)
    if address is not None:
        name, dot, settings = written.partition(" · ")
        if dot and title in links.found_by:
            written = f'{name}<span class="settings"> · {settings}</span>'
        return f'<a href="{html.escape(address)}">{written}</a>'
    if text in links.chips:
        return f'<span class="chip {links.chips[text]}">{written}</span>'
    if title in links.times and text:
        return f'<time datetime="{html.escape(text.replace(" ", "T"))}Z">{written}</time>'
    return written


def _box(key: str, text: str, links: TableLinks) -> str:
    if key not in links.boxes:
        return ""
    label = text if key == text else f"{text}, {key}"
    return (
        f'<input type="checkbox" form="{html.escape(links.form)}" name="{html.escape(links.box)}" '
        f'value="{html.escape(links.boxes[key])}" aria-label="{html.escape(label)}"> '
    )


def _text(text: str) -> str:
    return html.escape(join_units_unbroken(text))


def _name(text: str) -> str:
    """Let a long name break after ``.``, ``_`` and ``@``, which no HTML escape contains."""
    return re.sub(r"([._@])", r"\1<wbr>", html.escape(text))


# --- charts ------------------------------------------------------------------------------------

_WIDTH, _HEIGHT, _TOP, _FOOT = 640, 150, 18, 18
"""Size of the drawing, and of its margins for the marks above and the axis below."""


def static_chart(picture: Picture) -> str:
    """Draw a histogram; describe any other chart in words."""
    note = f'<p class="faint">{_text(picture.note)}</p>' if picture.note else ""
    if isinstance(picture, Bins):
        counted = f' <span class="faint">({html.escape(picture.counted)})</span>'
        return _figure(picture.title + " ", counted, histogram_svg(picture), note)
    return _figure(picture.title, "", f'<p class="faint">{_text(describe_chart(picture))}</p>', note)


def figure(picture: Picture, number: int) -> str:
    """Write a figure for a script to draw, with its description, its numbers, and a histogram as SVG."""
    histogram = histogram_svg(picture) if isinstance(picture, Bins) else ""
    chart_table = chart_numbers(picture)
    details = f"<details><summary>The numbers</summary>{table(chart_table)}</details>" if chart_table else ""
    note = f'<p class="faint">{_text(picture.note)}</p>' if picture.note else ""
    return (
        f'<figure data-picture="{number}" aria-label="{html.escape(picture.title)}">'
        f"<figcaption>{html.escape(picture.title)}</figcaption>\n"
        f'<div class="chart">{histogram}</div>'
        f'<p class="description">{_text(describe_chart(picture))}</p>{note}{details}'
        "</figure>\n"
    )


def _figure(title: str, beside: str, *parts: str) -> str:
    caption = f"<figcaption>{html.escape(title)}{beside}</figcaption>"
    return f"<figure>{caption}\n{''.join(parts)}</figure>\n"


def histogram_svg(picture: Bins) -> str:
    """Draw a histogram as SVG, labelled with its description."""
    labels = format_axis(picture.edges, picture.scale.unit)
    drawn = "".join((*_bars(picture, labels), *_axis(picture, labels), *_marks(picture)))
    label = html.escape(describe_chart(picture))
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT + _TOP + _FOOT}" role="img" aria-label="{label}">{drawn}</svg>'
    )


def _bars(picture: Bins, labels: Sequence[str]) -> Iterator[str]:
    step, most = _step(picture), max(picture.bars) or 1.0
    for place, count in enumerate(picture.bars):
        beyond = place == len(picture.counts)
        height = max(_HEIGHT * count / most, 1.5 if count else 0.0)
        hint = f"{labels[place]} to {labels[place + 1]}" if not beyond else f"above {labels[-1]}"
        yield (
            f'<rect class="bar{" beyond" if beyond else ""}" x="{(place + _GAP * beyond) * step + 1:.1f}" '
            f'y="{_TOP + _HEIGHT - height:.1f}" width="{step - 2:.1f}" height="{height:.1f}">'
            f"<title>{html.escape(f'{hint}: {count:,.0f}')}</title></rect>"
        )


_GAP = 0.5
"""Bars between the last edge and the bar of what lies beyond it."""


def _step(picture: Bins) -> float:
    """Return the width of a bar."""
    return _WIDTH / (len(picture.bars) + (_GAP if picture.beyond else 0))


def _axis(picture: Bins, labels: Sequence[str]) -> Iterator[str]:
    bottom, step = _TOP + _HEIGHT, _step(picture)
    yield f'<line class="axis" x1="0" x2="{_WIDTH}" y1="{bottom}" y2="{bottom}"/>'
    every = -(-len(labels) // 8)
    texts = [(place * step, labels[place]) for place in range(0, len(labels), every)]
    if picture.beyond:
        texts = [text for text in texts if text[0] < _WIDTH - 2.5 * step]
        texts.append((_WIDTH, f"> {labels[-1]}"))
    for x, label in texts:
        anchor = "start" if not x else "end" if x > _WIDTH - 1 else "middle"
        text = html.escape(label)
        yield f'<text x="{x:.1f}" y="{bottom + 14}" text-anchor="{anchor}">{text}</text>'


def _marks(picture: Bins) -> Iterator[str]:
    step = _step(picture)
    for mark in picture.marks:
        place = picture.bin_of(mark.at)
        if place is None:
            continue
        inside = _GAP + 0.5
        if place < len(picture.counts):
            low, high = picture.edges[place : place + 2]
            inside = (mark.at - low) / (high - low)
        x = (place + inside) * step
        anchor = "end" if x > _WIDTH - 60 else "start"
        yield (
            f'<line class="mark" x1="{x:.1f}" x2="{x:.1f}" y1="4" y2="{_TOP + _HEIGHT}"/>'
            f'<text x="{x + (4 if anchor == "start" else -4):.1f}" y="12" text-anchor="{anchor}">'
            f"{html.escape(mark.name)}</text>"
        )
