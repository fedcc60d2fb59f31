"""HTML: a script-free fragment for notebooks, and a self-contained page.

The fragment inherits the colours of its surroundings and has no script. The page is one file with its style,
scripts and data; its content security policy allows these by their hashes and no request at all. Without
scripts it still has every table, sentence and histogram. Both are pure ASCII, so that they survive any
encoding.
"""

from __future__ import annotations

import base64
import hashlib
import html
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from modeldyno.base import plugins
from modeldyno.base.kinds import kind_of
from modeldyno.base.report.blocks import Block, Heading
from modeldyno.base.views.text import document_foot
from modeldyno.base.views.view_options import ViewOptions
from modeldyno.reports import chart_json, html_elements
from modeldyno.reports.interface import HtmlBody, TableLinks

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from modeldyno.base.metrics.constraints import Judgement
    from modeldyno.base.report.charts import Picture
    from modeldyno.base.result.result import Result

suffix = ".html"
_PARTS = Path(__file__).parent / "page"
_LIBRARY = "echarts.js"
"""What draws; tools/charts builds it. Other scripts load it when the first chart comes into view."""
_SCRIPTS = ("units.js", "axes.js", "charts.js", "draw.js", "tables.js", "copy.js")
"""Scripts of a page with charts, in this order."""
_STYLE = "report.css"
_UNLINKED = TableLinks()
_PROMISE = "This page is one file: it loads nothing and sends nothing."


def fragment_of(blocks: Iterable[Block]) -> str:
    """Write blocks as a fragment."""
    body = "".join(html_elements.write_elements(blocks, html_elements.static_chart))
    return _ascii(f'<div class="modeldyno"><style>{_page_file("fragment.css")}</style>\n{body}</div>\n')


def render(document: Result, *, judgements: Sequence[Judgement] = ()) -> str:
    """Write a Result as a page."""
    kind = kind_of(document)
    options = ViewOptions(judgements=tuple(judgements), knobs=plugins.knobs)
    return lay_out(kind.page(document, options), title=kind.headline(document), foot=document_foot(document))


def write_body(blocks: Iterable[Block], links: TableLinks = _UNLINKED) -> HtmlBody:
    """Write blocks for a page of a site, whose files are those of `page_files`."""
    parts = list(_sections(blocks))
    drawn: list[Picture] = []
    body = "".join(_write_section(number, part, drawn, links) for number, part in enumerate(parts))
    return HtmlBody(
        elements=_ascii(f'<div class="modeldyno">\n{body}</div>\n'),
        contents=_ascii(_write_contents(parts)),
        charts=chart_json.charts_as_json(drawn) if drawn else "",
        scripts=_SCRIPTS if drawn else _SCRIPTS[-2:],
        library=_LIBRARY if drawn else "",
    )


def page_files() -> Mapping[str, str]:
    """Return the texts of the files that a page of a site needs: scripts, and ``report.css``."""
    return {_STYLE: _style(), **{name: _page_file(name) for name in (_LIBRARY, *_SCRIPTS)}}


def _style() -> str:
    return _page_file("fragment.css") + _page_file("page.css")


def lay_out(blocks: Iterable[Block], *, title: str, foot: str = "") -> str:
    """Write blocks as a page that begins with the foot; on paper, each sheet has it, too, and its number."""
    body = write_body(blocks)
    scripts = [_page_file(name) for name in body.scripts]
    library = _page_file(body.library) if body.library else ""
    style = _style() + _foot_style(foot)
    allowed = " ".join(map(_digest, (*filter(None, [library]), *scripts)))
    policy = (
        f"default-src 'none'; script-src {allowed}; style-src {_digest(style)}; "
        "base-uri 'none'; form-action 'none'"
    )
    subject = f'<p class="subject">{html.escape(foot)}</p>\n' if foot else ""
    data = f'<script type="application/json" id="pictures">{body.charts}</script>\n' if body.charts else ""
    if library:
        data += f'<script type="text/plain" id="library">{library}</script>\n'
    script_elements = data + "".join(f"<script>{script}</script>\n" for script in scripts)
    return _ascii(
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{html.escape(title)}</title>\n<style>{style}</style>\n</head>\n<body>\n"
        f"{body.contents}<main>\n{subject}{body.elements}</main>\n"
        f"<footer>Written by ModelDyno. {_PROMISE}</footer>\n{script_elements}</body>\n</html>\n"
    )


def _foot_style(foot: str) -> str:
    """Write what stands at the foot of each sheet of paper."""
    text = _UNSAFE_IN_CSS.sub(lambda match: f"\\{ord(match[0]):x} ", foot)
    box = "font:8pt system-ui,sans-serif;color:#59636e"
    return (
        f'@page{{@bottom-left{{content:"{text}";{box};white-space:nowrap}}'
        f'@bottom-right{{content:counter(page) " of " counter(pages);{box}}}}}\n'
    )


_UNSAFE_IN_CSS = re.compile(r"[^A-Za-z0-9 .,:_-]")
"""Characters that are escaped in a string of a style sheet."""


# --- sections ------------------------------------------------------------------------------------


def _sections(blocks: Iterable[Block]) -> Iterator[list[Block]]:
    """Split the blocks before each top-level heading; the first part has no heading."""
    part: list[Block] = []
    for block in blocks:
        if isinstance(block, Heading) and block.level == 1:
            yield part
            part = []
        part.append(block)
    yield part


def _write_contents(parts: Sequence[Sequence[Block]]) -> str:
    """Write the table of contents of a page with several sections."""
    titles = [part[0].title for part in parts[1:] if isinstance(part[0], Heading)]
    if len(titles) < 2:
        return ""
    links = "".join(
        f'<li><a href="#part-{number}">{html.escape(title)}</a></li>'
        for number, title in enumerate(titles, 1)
    )
    return f'<nav aria-label="Contents"><ul>{links}</ul></nav>\n'


def _write_section(number: int, part: Sequence[Block], drawn: list[Picture], links: TableLinks) -> str:
    def place_picture(picture: Picture) -> str:
        drawn.append(picture)
        return html_elements.figure(picture, len(drawn) - 1)

    heading = part[0] if part else None
    if isinstance(heading, Heading) and heading.folded:
        # The id is within, so that a link to it opens the part.
        title = "".join(html_elements.write_elements([heading], place_picture, links)).strip()
        body = "".join(html_elements.write_elements(part[1:], place_picture, links))
        return (
            f'<section><details class="folded part"><summary>{title}</summary>\n'
            f'<div id="part-{number}">\n{body}</div></details></section>\n'
        )
    body = "".join(html_elements.write_elements(part, place_picture, links))
    return f'<section id="part-{number}">\n{body}</section>\n' if number else body


# --- files of a page -----------------------------------------------------------------------------


@cache
def _page_file(name: str) -> str:
    """Read a file of the page, with LF line ends, as browsers normalize them before hashing."""
    return (_PARTS / name).read_text(encoding="utf-8").replace("\r\n", "\n")


@cache
def _digest(text: str) -> str:
    """Return the hash of text as a content security policy writes it."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


_ENTITY = re.compile(r"[^\x00-\x7f]")


def _ascii(text: str) -> str:
    return _ENTITY.sub(lambda match: f"&#{ord(match[0])};", text)
