"""HTML: a fragment for notebooks, and a page that needs nothing else and runs nothing.

The fragment takes its ink from where it stands, light or dark. It holds ASCII only, so that it reads
the same wherever it is pasted.
"""

from __future__ import annotations

import base64
import hashlib
import html
import re
from typing import TYPE_CHECKING

from modeldyno import views
from modeldyno.core.block import Align, Block, Chart, Notice, Severity, Table
from modeldyno.core.units import format_axis, unbroken

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from modeldyno.core.goal import Judgement
    from modeldyno.core.result import Result

suffix = ".html"
_SIGNS = {
    Severity.HELD: "✓",
    Severity.BROKEN: "✗",
    Severity.UNDECIDED: "?",
    Severity.FAILURE: "✗",
    Severity.DOUBT: "!",
    Severity.NOTE: "i",
}
_CSS = """
.modeldyno{--good:#1f883d;--bad:#d1242f;--doubt:#b7791f;--bar:#4f83cc;max-width:52rem;
line-height:1.5;font-family:system-ui,-apple-system,"Segoe UI",sans-serif;
font-size:.9375rem;font-variant-numeric:tabular-nums}
.modeldyno *{box-sizing:border-box}
.modeldyno p,.modeldyno ul,.modeldyno table,.modeldyno figure{margin:0 0 1.5rem;padding:0}
.modeldyno .verdict{font-size:1.25rem;line-height:1.4;font-weight:600;overflow-wrap:anywhere;text-wrap:pretty}
.modeldyno ul{list-style:none}
.modeldyno li{position:relative;padding-left:1.75rem;margin:0 0 .5rem;overflow-wrap:anywhere}
.modeldyno .sign{position:absolute;left:0;top:.1rem;width:1.25rem;height:1.25rem;line-height:1.25rem;
border-radius:50%;text-align:center;font-size:.8125rem;font-weight:700;color:#fff;background:var(--sign)}
.modeldyno .held{--sign:var(--good)}
.modeldyno .broken,.modeldyno .failure{--sign:var(--bad)}
.modeldyno .undecided,.modeldyno .doubt{--sign:var(--doubt)}
.modeldyno .note{--sign:var(--bar)}
.modeldyno .faint{opacity:.72}
.modeldyno pre{margin:.5rem 0 0;padding:.625rem .75rem;max-height:20rem;overflow:auto;font-size:.8125rem;
line-height:1.45;border-left:3px solid var(--sign);background:rgb(127 127 127/.12);white-space:pre-wrap}
.modeldyno .scroll{overflow-x:auto;margin:0 0 1.5rem}
.modeldyno table{width:100%;margin:0;border-collapse:collapse;background:none;font-size:inherit}
.modeldyno caption,.modeldyno figcaption{text-align:left;font-weight:600;margin:0 0 .375rem;padding:0;
color:inherit;caption-side:top}
.modeldyno th,.modeldyno td{padding:.3125rem 1rem .3125rem 0;text-align:left;vertical-align:top;border:0;
border-bottom:1px solid rgb(127 127 127/.28);background:none;color:inherit;white-space:normal}
.modeldyno thead th{font-weight:400;font-size:.8125rem;opacity:.72}
.modeldyno tbody th{font-weight:400}
.modeldyno .figures td{white-space:nowrap}
.modeldyno .figures td:last-child{white-space:normal;min-width:8rem}
.modeldyno th.right,.modeldyno td.right{text-align:right;padding-right:1.5rem}
.modeldyno td.right{font-weight:600}
.modeldyno .facts{font-size:.8125rem}
.modeldyno .facts th{width:6.5rem;opacity:.72;white-space:nowrap}
.modeldyno .facts td{overflow-wrap:anywhere}
.modeldyno tr:last-child>*{border-bottom:0}
.modeldyno svg{display:block;width:100%;height:auto;max-width:40rem;overflow:visible}
.modeldyno svg text{font-size:11px;fill:currentColor;font-family:inherit}
.modeldyno .bar{fill:var(--bar)}
.modeldyno .axis{stroke:currentColor;stroke-opacity:.45}
.modeldyno .mark{stroke:currentColor;stroke-dasharray:3 3}
@media (max-width:34rem){.modeldyno th,.modeldyno td{padding-right:.625rem}
.modeldyno .facts th,.modeldyno .facts td{display:block;width:auto;border:0;padding-bottom:0}}
"""
_PAGE = """
:root{color-scheme:light dark}
body{margin:0;padding:2.5rem 1.25rem;background:#fff;color:#1f2328}
main{max-width:52rem;margin:0 auto}
@media (prefers-color-scheme:dark){body{background:#0d1117;color:#e6edf3}
main .modeldyno{--good:#238636;--bad:#da3633;--doubt:#9e6a03;--bar:#6ea8fe}}
@media print{body{padding:0}}
"""


def fragment(document: Result, *, judgements: Sequence[Judgement] = ()) -> str:
    """Write a fragment that stands on its own, as in a notebook."""
    body = "".join(_grouped(views.blocks(document, judgements)))
    return _ascii(f'<div class="modeldyno"><style>{_CSS}</style>\n{body}</div>\n')


def render(document: Result, *, judgements: Sequence[Judgement] = ()) -> str:
    """Write a whole page; its policy allows its own style and nothing else."""
    return _page(views.blocks(document, judgements), views.headline(document))


def compare(first: Result, second: Result) -> str:
    """Write such a page of a comparison."""
    return _page(views.comparison(first, second), f"{second.name} against {first.name}")


def _page(blocks: Iterable[Block], title: str) -> str:
    style = _PAGE + _CSS
    policy = f"default-src 'none'; style-src 'sha256-{_hash(style)}'; base-uri 'none'; form-action 'none'"
    return _ascii(
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)}</title>\n<style>{style}</style>\n</head>\n<body>\n<main>\n"
        f'<div class="modeldyno">\n{"".join(_grouped(blocks))}</div>\n</main>\n</body>\n</html>\n'
    )


def _hash(style: str) -> str:
    return base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()


def _ascii(text: str) -> str:
    return text.encode("ascii", "xmlcharrefreplace").decode("ascii")


def _grouped(blocks: Iterable[Block]) -> Iterator[str]:
    """Write the blocks; notices that follow each other are one list."""
    listed = False
    for block in blocks:
        item = isinstance(block, Notice) and block.severity is not Severity.VERDICT
        if item != listed:
            yield "<ul>\n" if item else "</ul>\n"
        listed = item
        yield _block(block)
    if listed:
        yield "</ul>\n"


def _block(block: Block) -> str:
    match block:
        case Notice():
            return _notice(block)
        case Table():
            return _table(block)
        case Chart():
            return _chart(block)


def _notice(block: Notice) -> str:
    text = _text(block.text)
    if block.severity is Severity.VERDICT:
        return f'<p class="verdict">{text}</p>\n'
    sign = f'<span class="sign" role="img" aria-label="{block.severity}">{_SIGNS[block.severity]}</span>'
    code = f"<strong>{html.escape(block.code)}</strong>: " if block.code else ""
    advice = f'<br><span class="faint">{_text(block.advice)}</span>' if block.advice else ""
    log = f"<pre>{html.escape(block.log)}</pre>" if block.log else ""
    return f'<li class="{block.severity}">{sign}{code}{text}{advice}{log}</li>\n'


def _table(block: Table) -> str:
    named = any(column.title for column in block.columns)
    caption = f"<caption>{html.escape(block.title)}</caption>\n" if block.title else ""
    titles = "".join(
        f'<th scope="col" class="{column.align}">{html.escape(column.title)}</th>' for column in block.columns
    )
    head = f"<thead><tr>{titles}</tr></thead>\n" if named else ""
    rows = "".join(f"<tr>{''.join(_cells(block, row))}</tr>\n" for row in block.rows)
    kind = "figures" if named else "facts"
    return f'<div class="scroll"><table class="{kind}">{caption}{head}<tbody>\n{rows}</tbody></table></div>\n'


def _cells(block: Table, row: Sequence[str]) -> Iterator[str]:
    for place, (text, column) in enumerate(zip(row, block.columns, strict=True)):
        tag, scope = ("td", "") if place else ("th", ' scope="row"')
        align = ' class="right"' if column.align is Align.RIGHT else ""
        yield f"<{tag}{scope}{align}>{_name(text) if scope else _text(text)}</{tag}>"


def _text(text: str) -> str:
    return html.escape(unbroken(text))


def _name(text: str) -> str:
    """Let a long name break behind its joints, of which no escaped character has any."""
    return re.sub(r"([._@])", r"\1<wbr>", html.escape(text))


# --- charts ------------------------------------------------------------------------------------

_WIDTH, _HEIGHT, _TOP, _FOOT = 640, 150, 18, 18
"""Of the drawing, in its own units; above the bars stand the marks, below them the axis."""


def _chart(block: Chart) -> str:
    """Draw a histogram; who cannot see it is told where its weight lies."""
    labels = format_axis(block.x, block.x_unit)
    peak = max(range(len(block.y)), key=block.y.__getitem__)
    told = (
        f"Histogram of {block.x_label} from {labels[0]} to {labels[-1]}; most {block.y_label}, "
        f"{block.y[peak]:,.0f} of {sum(block.y):,.0f}, lie from {labels[peak]} to {labels[peak + 1]}."
    )
    drawing = "".join((*_bars(block, labels), *_axis(labels), *_marks(block)))
    note = f'<p class="faint">{html.escape(block.note)}</p>' if block.note else ""
    return (
        f"<figure><figcaption>{html.escape(block.title)} "
        f'<span class="faint">({html.escape(block.y_label)})</span></figcaption>\n'
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT + _TOP + _FOOT}" role="img" aria-label="{html.escape(told)}">'
        f"{drawing}</svg>{note}</figure>\n"
    )


def _bars(block: Chart, labels: Sequence[str]) -> Iterator[str]:
    step, most = _WIDTH / len(block.y), max(block.y) or 1.0
    for place, count in enumerate(block.y):
        height = max(_HEIGHT * count / most, 1.5 if count else 0.0)
        told = f"{labels[place]} to {labels[place + 1]}: {count:,.0f}"
        yield (
            f'<rect class="bar" x="{place * step + 1:.1f}" y="{_TOP + _HEIGHT - height:.1f}" '
            f'width="{step - 2:.1f}" height="{height:.1f}"><title>{html.escape(told)}</title></rect>'
        )


def _axis(labels: Sequence[str]) -> Iterator[str]:
    bottom = _TOP + _HEIGHT
    yield f'<line class="axis" x1="0" x2="{_WIDTH}" y1="{bottom}" y2="{bottom}"/>'
    every = -(-len(labels) // 8)
    for place in range(0, len(labels), every):
        x = _WIDTH * place / (len(labels) - 1)
        anchor = "start" if not place else "end" if place == len(labels) - 1 else "middle"
        text = html.escape(labels[place])
        yield f'<text x="{x:.1f}" y="{bottom + 14}" text-anchor="{anchor}">{text}</text>'


def _marks(block: Chart) -> Iterator[str]:
    for mark in block.marks:
        bins = (place for place in range(len(block.y)) if block.x[place] <= mark.x < block.x[place + 1])
        for place in bins:
            low, high = block.x[place : place + 2]
            x = _WIDTH * (place + (mark.x - low) / (high - low)) / len(block.y)
            anchor = "end" if x > _WIDTH - 60 else "start"
            yield (
                f'<line class="mark" x1="{x:.1f}" x2="{x:.1f}" y1="4" y2="{_TOP + _HEIGHT}"/>'
                f'<text x="{x + (4 if anchor == "start" else -4):.1f}" y="12" text-anchor="{anchor}">'
                f"{html.escape(mark.name)}</text>"
            )
