"""HTML: a fragment for notebooks that runs nothing, and a page that needs nothing but itself.

The fragment takes its ink from where it stands, light or dark, and has no script. The page is one file:
style, script and data stand in it, and its policy allows these by their digests and nothing else, no request
to anywhere among it. Without its script it still has every table, sentence and histogram. Both hold ASCII
only, so that they read the same wherever they are pasted or served.
"""

from __future__ import annotations

import base64
import hashlib
import html
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from modeldyno import plugins, views
from modeldyno.adapters.reporters import chart_json, html_elements
from modeldyno.core.report.blocks import Block, Heading

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from modeldyno.core.metrics.constraints import Judgement
    from modeldyno.core.report.blocks import Picture
    from modeldyno.core.result.result import Result

suffix = ".html"
_PARTS = Path(__file__).parent / "page"
_BUNDLE = "echarts.js"
_SCRIPTS = (_BUNDLE, "units.js", "axes.js", "charts.js", "draw.js", "tables.js")
"""What a page runs, in this order; tools/charts builds the first."""
_PROMISE = "This page is one file: it loads nothing and sends nothing."


def fragment(document: Result, *, judgements: Sequence[Judgement] = ()) -> str:
    """Write a fragment that stands on its own, as in a notebook."""
    return fragment_of(views.blocks(document, judgements))


def fragment_of(blocks: Iterable[Block]) -> str:
    """Write a fragment of any blocks."""
    body = "".join(html_elements.grouped(blocks, html_elements.still))
    return _ascii(f'<div class="modeldyno"><style>{_page_file("fragment.css")}</style>\n{body}</div>\n')


def render(document: Result, *, judgements: Sequence[Judgement] = ()) -> str:
    """Write the page of a Result."""
    blocks = views.page(document, judgements, plugins.knobs(document.job.backend))
    return lay_out(blocks, title=views.headline(document))


def lay_out(blocks: Iterable[Block], *, title: str) -> str:
    """Write a page of any blocks."""
    parts = list(_sections(blocks))
    drawn: list[Picture] = []
    body = "".join(_write_section(number, part, drawn) for number, part in enumerate(parts))
    scripts = [_page_file(name) for name in _SCRIPTS] if drawn else [_page_file("tables.js")]
    style = _page_file("fragment.css") + _page_file("page.css")
    allowed = " ".join(map(_digest, scripts))
    policy = (
        f"default-src 'none'; script-src {allowed}; style-src {_digest(style)}; "
        "base-uri 'none'; form-action 'none'"
    )
    data = (
        f'<script type="application/json" id="pictures">{chart_json.data(drawn)}</script>\n' if drawn else ""
    )
    script_elements = data + "".join(f"<script>{script}</script>\n" for script in scripts)
    return _ascii(
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{html.escape(title)}</title>\n<style>{style}</style>\n</head>\n<body>\n"
        f'{_write_contents(parts)}<main>\n<div class="modeldyno">\n{body}</div>\n</main>\n'
        f"<footer>Written by ModelDyno. {_PROMISE}</footer>\n{script_elements}</body>\n</html>\n"
    )


# --- sections ------------------------------------------------------------------------------------


def _sections(blocks: Iterable[Block]) -> Iterator[list[Block]]:
    """Part the blocks before each heading of the first level; the first part has none."""
    part: list[Block] = []
    for block in blocks:
        if isinstance(block, Heading) and block.level == 1:
            yield part
            part = []
        part.append(block)
    yield part


def _write_contents(parts: Sequence[Sequence[Block]]) -> str:
    """List the sections of a page that has several."""
    titles = [part[0].title for part in parts[1:] if isinstance(part[0], Heading)]
    if len(titles) < 2:  # noqa: PLR2004 - one section needs no list
        return ""
    links = "".join(
        f'<li><a href="#part-{number}">{html.escape(title)}</a></li>'
        for number, title in enumerate(titles, 1)
    )
    return f'<nav aria-label="Contents"><ul>{links}</ul></nav>\n'


def _write_section(number: int, part: Sequence[Block], drawn: list[Picture]) -> str:
    def place_picture(picture: Picture) -> str:
        drawn.append(picture)
        return html_elements.figure(picture, len(drawn) - 1)

    body = "".join(html_elements.grouped(part, place_picture))
    if not number:
        return body
    return f'<section id="part-{number}">\n{body}</section>\n'


# --- what a page is made of ----------------------------------------------------------------------


@cache
def _page_file(name: str) -> str:
    """Read a part of the page, with the line ends that a browser makes of any before it looks at digests."""
    return (_PARTS / name).read_text(encoding="utf-8").replace("\r\n", "\n")


@cache
def _digest(text: str) -> str:
    """Name text as a policy does."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


_ENTITY = re.compile(r"[^\x00-\x7f]")


def _ascii(text: str) -> str:
    return _ENTITY.sub(lambda match: f"&#{ord(match[0])};", text)
