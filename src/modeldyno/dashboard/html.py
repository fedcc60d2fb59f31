"""Pages of the dashboard as HTML, and the files that they load from this server."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from modeldyno.base import plugins
from modeldyno.dashboard.compression import compress
from modeldyno.dashboard.diagram import TimeChart, draw_curve, write_chart, write_svg
from modeldyno.dashboard.page import CHIPS, ROOMS, SETTINGS, PageBlocks, PageDiagram, PageForm, PageLink

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from modeldyno.dashboard.diagram import Diagram
    from modeldyno.dashboard.page import DashboardPage
    from modeldyno.reports.interface import HtmlBody

_FOLDER = Path(__file__).with_name("static")
_STYLE = "dashboard.css"
_OWN = (_STYLE, "dashboard.js")
_KINDS = {".js": "text/javascript", ".css": "text/css"}


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticFile:
    """A file that pages load."""

    content: bytes
    kind: str
    """Its media type."""
    digest: str
    """Part of its address, so that a browser keeps it until it changes."""


@cache
def static_files() -> Mapping[str, StaticFile]:
    """Return the files that pages load, by name: those of the report, and the dashboard's own."""
    texts = {**plugins.html().page_files(), **{n: (_FOLDER / n).read_text(encoding="utf-8") for n in _OWN}}
    # A page waits for its styles, so they are one file: a second one would need a connection of its own.
    texts[_STYLE] = texts.pop("report.css") + texts[_STYLE]
    return {
        name: StaticFile(
            content=text.encode(),
            kind=_KINDS[Path(name).suffix],
            digest=hashlib.sha256(text.encode()).hexdigest()[:12],
        )
        for name, text in texts.items()
    }


@cache
def compressed_file(name: str) -> bytes:
    """Return a file that pages load by gzip, as small as it gets: it is compressed once."""
    return compress(static_files()[name].content, 9)


def render_page(
    page: DashboardPage,
    *,
    path: str,
    query: str,
    token: str,
    mark: str = "",
    still: bool = False,
    role: str | None = None,
    writes: bool = True,
    as_csv: bool = False,
) -> str:
    """Write a page.

    Args:
        page: what it shows.
        path: its own.
        query: its own, for the link to its JSON twin.
        token: of its forms.
        mark: of the store, before it was read.
        still: whether it is a file that no server follows: without forms, and without its JSON twin.
        role: of the reader, if he has logged in.
        writes: whether forms that write are shown.
        as_csv: whether it is a list that can be had as CSV.
    """
    reporter = plugins.html()
    parts = [
        part
        for part in page.parts
        if not isinstance(part, PageForm) or (not still and (writes or not part.writes))
    ]
    forms = {part.id for part in parts if isinstance(part, PageForm)}
    # All blocks are written at once, so that the charts of a page are numbered through.
    groups = [part for part in parts if isinstance(part, PageBlocks | PageDiagram)]
    bodies = {
        id(part): reporter.write_body(
            part.blocks, part.links if part.links.form in forms else replace(part.links, boxes={})
        )
        for part in groups
    }
    charted = [body for body in bodies.values() if body.charts]
    assert len(charted) <= 1, "a page has charts in one of its parts"
    scripts = tuple(dict.fromkeys(chain.from_iterable(b.scripts for b in charted or bodies.values())))
    twin = "/api/v1" + ("/home" if path == "/" else path) + (f"?{query}" if query else "")
    written: str = _template().render(
        page=page,
        parts=[(type(part).__name__, part, bodies.get(id(part))) for part in parts],
        rooms=ROOMS,
        actions=[link for link in page.actions if link.address[:1] != "#" or link.address[1:] in forms],
        settings=SETTINGS,
        tabs=_tabs(page),
        charts=Markup(charted[0].charts) if charted else "",  # noqa: S704 - escaped by its writer
        library=_static(charted[0].library) if charted else "",
        contents=Markup(charted[0].contents) if charted else "",  # noqa: S704 - as above
        scripts=[
            _static(n)
            for n in (*(scripts or ("tables.js", "copy.js")), *(() if still else ("dashboard.js",)))
        ],
        style=_static(_STYLE),
        twin=twin,
        token=token,
        mark=mark,
        still=still,
        role=role,
        csv=f"{path}.csv" + (f"?{query}" if query else "") if as_csv else "",
        digest=_digest(page, [*bodies.values()]),
        version=version("modeldyno"),
        markup=Markup,
        draw=_draw,
        draw_curve=draw_curve,
        chips=CHIPS,
    )
    return written


def _digest(page: DashboardPage, bodies: Sequence[HtmlBody]) -> str:
    """Return the digest of what a page shows, so that its script sees whether it has changed."""
    others = [part for part in page.parts if not isinstance(part, PageBlocks)]
    written = [body.elements + body.charts for body in bodies]
    heading = page.title, page.lead, page.chips, page.actions, page.trail
    return hashlib.sha256(repr((heading, others, written)).encode()).hexdigest()[:16]


def _tabs(page: DashboardPage) -> tuple[PageLink, ...]:
    """Return the tabs of the room that a list is in; a page below it has a trail instead."""
    room = next((room for room in ROOMS if room.has(page.room)), None)
    return room.tabs if room is not None and len(room.tabs) > 1 and not page.trail else ()


def _draw(drawing: Diagram | TimeChart) -> str:
    return write_chart(drawing) if isinstance(drawing, TimeChart) else write_svg(drawing)


def _static(name: str) -> str:
    return f"/static/{name}?{static_files()[name].digest}"


@cache
def _template() -> Any:
    environment = Environment(
        loader=FileSystemLoader(_FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("page.html")
