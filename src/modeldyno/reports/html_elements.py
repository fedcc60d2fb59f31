"""Write blocks as HTML elements, without scripts."""

from __future__ import annotations

import html
import re
from itertools import groupby
from typing import TYPE_CHECKING

from modeldyno.base.report.blocks import Align, Block, Heading, Notice, Severity, Table
from modeldyno.base.report.charts import Bins, Plot
from modeldyno.base.stats.units import format_axis, join_units_unbroken
from modeldyno.base.views.chart_text import chart_numbers, describe_chart
from modeldyno.reports.interface import TableLinks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

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
        if around == _DOUBTS and len(group) > 1:
            yield f"{_doubts_summary(run_blocks)}<ul>\n{''.join(group)}</ul></details>\n"
            continue
        several = around != "div" or len(group) >= _SEVERAL
        opened, closed = _WRAPPERS[around] if several else ("", "")
        yield f"{opened}{''.join(group)}{closed}"


_SEVERAL = 3
_DOUBTS = "doubts"
_WRAPPERS = {
    _DOUBTS: ("<ul>\n", "</ul>\n"),
    "ul": ("<ul>\n", "</ul>\n"),
    "div": ('<div class="several">\n', "</div>\n"),
    "": ("", ""),
}
"""Markup around consecutive blocks of a kind."""


def _doubts_summary(doubts: Sequence[Block]) -> str:
    """Open a collapsible list of doubts whose summary names their codes."""
    codes = dict.fromkeys(doubt.code for doubt in doubts if isinstance(doubt, Notice) and doubt.code)
    named = html.escape(", ".join(codes))
    return f'<details class="doubts"><summary>{len(doubts)} doubts: {named}</summary>\n'


def _group_kind(block: Block) -> str:
    if isinstance(block, Notice) and block.severity is Severity.DOUBT:
        return _DOUBTS
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
        return f'<p class="verdict">{_verdict_html(block.text)}</p>\n'
    text = _text(block.text)
    sign = f'<span class="sign" role="img" aria-label="{block.severity}">{_SIGNS[block.severity]}</span>'
    code = f"<strong>{html.escape(block.code)}</strong>: " if block.code else ""
    tag = "code" if block.advises_command else "span"
    advice = f'<br><{tag} class="faint">{_options(_text(block.advice))}</{tag}>' if block.advice else ""
    log = f"<pre>{_options(html.escape(block.log))}</pre>" if block.log else ""
    return f'<li class="{block.severity}">{sign}{code}{text}{advice}{log}</li>\n'


def _verdict_html(text: str) -> str:
    """Write a verdict; of a long one, the first clause stands out as the answer."""
    if len(text) <= _LONG:
        return _text(text)
    first = re.search("[.] ", text[:_TOO_LONG]) or re.search("[;.] ", text)
    if first is None:
        return _text(text)
    clause = f"{text[: first.start()]}."  # the rest starts a paragraph of its own
    remark = text[first.end() :]
    remark = f"{remark[:1].upper()}{remark[1:]}" if first.group() == "; " else remark
    return f'{_text(clause)} <span class="more">{_text(remark)}</span>'


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
    """Write a table; wide tables scroll in place, and phones show rows as cards."""
    if block.tiles:
        return _tiles(block)
    named = any(column.title for column in block.columns)
    caption = f"<caption><span>{html.escape(block.title)}</span></caption>\n" if block.title else ""
    titles = "".join(
        f'<th scope="col" class="{column.align}">{html.escape(column.title)}</th>'
        if column.title
        else "<td></td>"
        for column in block.columns
    )
    head = f"<thead><tr>{titles}</tr></thead>\n" if named else ""
    cards = named and not _fits_a_phone(block) and len(block.rows) <= _CARDS
    rows = "".join(f"<tr>{''.join(_cells(block, row, cards, links))}</tr>\n" for row in block.rows)
    kind = "facts" if not named else "figures" if len(block.columns) <= _WIDE else "figures wide"
    kind += " cards" if cards else ""
    # Without a title, a reader tells it from others by what it lists.
    named_by = ", ".join(column.title for column in block.columns if column.title)
    label = html.escape(block.title or f"table of {named_by}".removesuffix(" of "))
    region = f' role="region" aria-label="{label}" tabindex="0"' if len(block.columns) > _NARROW else ""
    return (
        f'<div class="scroll"{region}><table class="{kind}">{caption}{head}<tbody>\n{rows}</tbody></table>'
        "</div>\n"
    )


def _fits_a_phone(block: Table) -> bool:
    """Whether a table has few columns, and no sentence in the third, which alone would scroll sideways."""
    count = len(block.columns)
    return count < _NARROW or (count == _NARROW and all(len(row[-1]) <= _PHRASE for row in block.rows))


_NARROW, _WIDE, _CARDS, _PHRASE = 3, 6, 80, 16
"""Most columns that fit any page, most columns at normal font size, most rows shown as cards, and most
characters in a third column on a phone."""


def _cells(block: Table, row: Sequence[str], cards: bool, links: TableLinks) -> Iterator[str]:
    for place, (text, column) in enumerate(zip(row, block.columns, strict=True)):
        tag, scope = ("td", "") if place else ("th", ' scope="row"')
        align = ' class="right"' if column.align is Align.RIGHT else ""
        title = html.escape(column.title)
        label = f' data-label="{title}"' if cards and place and text and title else ""
        written = _linked(column.title, text, _name(text) if scope else _text(text), links)
        box = _box(text, links) if scope else ""
        yield f"<{tag}{scope}{align}{label}>{box}{written}</{tag}>"


def _linked(title: str, text: str, written: str, links: TableLinks) -> str:
    """Write what a cell leads to around it, or its state as a chip."""
    address = links.links.get(title, {}).get(text)
    if address is not None:
        return f'<a href="{html.escape(address)}">{written}</a>'
    if text in links.chips:
        return f'<span class="chip {links.chips[text]}">{written}</span>'
    return written


def _box(text: str, links: TableLinks) -> str:
    if text not in links.boxes:
        return ""
    return (
        f'<input type="checkbox" form="{html.escape(links.form)}" name="{html.escape(links.box)}" '
        f'value="{html.escape(links.boxes[text])}" aria-label="{html.escape(text)}"> '
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
