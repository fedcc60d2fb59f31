"""The lineage of a model's versions, drawn: each below its parent, with what was made of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.base.report.blocks import Severity
from modeldyno.base.views.text import count
from modeldyno.dashboard.diagram import Arrow, Box, Diagram
from modeldyno.dashboard.page import CHIPS, PageDiagram, address
from modeldyno.registry.views.lineage import build_lineage, lineage_table
from modeldyno.reports.interface import TableLinks

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from modeldyno.registry.interface import Registry
    from modeldyno.registry.records.records import Version
    from modeldyno.registry.views.lineage import LineageRow

_VERSIONS = 12
"""Newest versions that are drawn."""
_WIDTH, _TALL, _LOW, _GAP, _INDENT = 400.0, 40.0, 28.0, 12.0, 26.0
"""Of a version; heights of a version and of a variant; between rows; of what stands below something."""
_DEEPEST = 5


def find_lineage(
    registry: Registry, versions: Sequence[Version], aliases: dict[str, int]
) -> tuple[LineageRow, ...]:
    """Return where the newest versions of a model come from, and what was made of them."""
    listed = versions[:_VERSIONS]
    variants = {version.name: registry.variants(version) for version in listed}
    children = [
        child
        for version in listed
        for child in registry.find_versions(parent=version.name, limit=_VERSIONS)
        if child.model != version.model
    ]
    return build_lineage(listed, variants, children, aliases)


def lineage_part(rows: Sequence[LineageRow], versions: int) -> Iterator[PageDiagram]:
    """Draw a lineage; nothing for one version with no variant. `versions` is how many the model has."""
    if len(rows) > 1:
        older = versions - _VERSIONS
        more = f", without {count(older, 'older version')}" if older > 0 else ""
        links = {row.version: _address(row) for row in rows}
        yield PageDiagram(
            title=f"Where the versions come from{more}",
            diagram=draw_lineage(rows),
            blocks=(lineage_table(rows),),
            links=TableLinks(links={"version": links, "made from": links}, chips=CHIPS),
        )


def draw_lineage(rows: Sequence[LineageRow]) -> Diagram:
    """Draw a lineage from top to bottom."""
    boxes: list[Box] = []
    arrows: list[Arrow] = []
    y = 1.0
    for row in rows:
        x = _INDENT * (min(row.depth, _DEEPEST) + bool(row.recipe))
        high = _LOW if row.recipe else _TALL
        boxes.append(_box(row, x, y, high))
        if row.above is not None:
            parent = boxes[row.above]
            spine, foot = parent.x + _INDENT / 2, parent.y + parent.height
            turn = ((spine, y + high / 2), (x, y + high / 2)) if x > parent.x else ((spine, y),)
            arrows.append(Arrow(points=((spine, foot), *turn)))
        y += high + _GAP
    return Diagram(
        title="Where the versions come from; the table beside it has the same",
        width=_WIDTH + 2 + _INDENT * min(_DEEPEST, max(row.depth for row in rows)),
        height=y,
        boxes=tuple(boxes),
        arrows=tuple(arrows),
    )


def _box(row: LineageRow, x: float, y: float, high: float) -> Box:
    if row.recipe:
        state = row.why if row.why.startswith(row.state) else f"{row.state}: {row.why}".rstrip(": ")
        style = str(CHIPS.get(row.state, Severity.NOTE))
        return Box(x=x, y=y, width=_WIDTH - _INDENT, height=high, title=row.recipe, kind=state, style=style)
    kind = "elsewhere" if row.elsewhere else " ".join(row.aliases)
    return Box(x=x, y=y, width=_WIDTH, height=high, title=row.version, kind=kind, address=_address(row))


def _address(row: LineageRow) -> str:
    model, _, number = row.version.partition("/")
    return address("models", model, number)
