"""The page of a network: its modules as boxes, what goes from which to which, and the same as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from modeldyno.base.errors import RequestError
from modeldyno.base.report.blocks import clean
from modeldyno.base.stats.units import COUNT, SECONDS, format_quantity
from modeldyno.dashboard.diagram import Arrow, Box, Diagram
from modeldyno.dashboard.page import DashboardPage, PageDiagram, PageLink, PageText, address
from modeldyno.profiling.views.result import network as network_view
from modeldyno.reports.interface import TableLinks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from modeldyno.base.result.result import Result
    from modeldyno.dashboard.page import PageRequest
    from modeldyno.profiling.views.result.network import Network, NetworkFrame, NetworkRow

_WIDTH = 380.0
"""Of the boxes of the outermost level."""
_INDENT, _GAP, _TALL, _LOW, _HEAD = 10.0, 18.0, 44.0, 24.0, 24.0
"""Of each frame; between rows; heights of a module, of a join or an end, and of a frame's name."""
_LANE = 11.0
"""Between two lines beside the boxes."""
_LANES = 8


def network(request: PageRequest) -> DashboardPage:
    """Draw the network that a result is of, or what is inside one of its modules."""
    result = request.store.get(request.path["id"])
    inside = request.text("in")
    drawn = network_view.build_network(result, inside)
    if drawn is None:
        raise RequestError(
            f"The modules of {result.id[:12]} were not analysed, or it has none; the probe static "
            "analyses them."
        )
    name = clean(result.name) or "a model"
    above = address("results", result.id)
    trail = [
        PageLink(text="Results", address="/results"),
        PageLink(text=result.id[:6], address=above),
    ]
    trail += [
        PageLink(text=part or "network", address=_place(result.id, part)) for part in _above(drawn, result)
    ]
    trail.append(PageLink(text=clean(inside) or "network", address=""))
    return DashboardPage(
        title=f"Inside {clean(inside)}" if inside else f"Network of {name}",
        room="/results",
        trail=tuple(trail),
        parts=(PageText(text=network_view.legend(drawn)), network_part(result.id, drawn)),
        data=drawn,
    )


def network_part(result: str, drawn: Network, title: str = "") -> PageDiagram:
    """Draw a network, and tell it as a table."""
    links = {cell: _place(result, path) for cell, path in network_view.labels_of(drawn.rows).items()}
    return PageDiagram(
        title=title,
        diagram=draw_network(drawn, lambda path: _place(result, path)),
        blocks=(network_view.network_table(drawn),),
        links=TableLinks(links={"module": links}),
    )


def network_link(result: Result) -> Iterator[PageLink]:
    """Yield the link to the network of a result, if its modules were analysed."""
    if result.outline is not None and len(result.outline.modules) > 1:
        yield PageLink(text="Network", address=_place(result.id, ""))


def _place(result: str, path: str) -> str:
    return address("results", result, "network", **{"in": path})


def _above(drawn: Network, result: Result) -> Iterator[str]:
    """Yield the paths of the modules around what is shown that are pages, the whole first."""
    if drawn.inside:
        yield ""
        parts = drawn.inside.split(".")
        holders = network_view.holders_of(result)
        yield from (path for at in range(1, len(parts)) if (path := ".".join(parts[:at])) in holders)


# --- the drawing ---------------------------------------------------------------------------------


def draw_network(drawn: Network, place: Callable[[str], str]) -> Diagram:
    """Draw a network from top to bottom; what skips a row goes along the side.

    Args:
        drawn: the network.
        place: path of a module to the address that opens it.
    """
    depth = max((row.level for row in drawn.rows), default=0)
    width = _WIDTH + 2 * _INDENT * depth
    spots, frames, height = _spots(drawn, width)
    outside = len(drawn.rows)
    boxes = [_frame_box(frame, spots_of, place) for frame, spots_of in frames]
    boxes += [_row_box(drawn, row, spots[at], place) for at, row in enumerate(drawn.rows)]
    ends = [(-1, "from outside" if drawn.inside else network_view.INPUT), (outside, network_view.OUTPUT)]
    boxes += [Box(*spots[at], title=label, style="round") for at, label in ends]
    lanes = _lanes([link for link in drawn.links if link[1] - link[0] > 1])
    arrows = [_arrow(link, spots, width, lanes) for link in drawn.links]
    used = len(set(lanes.values()))
    return Diagram(
        title=f"{drawn.inside or 'Network'}: {len(drawn.rows)} boxes; the table beside it has the same",
        width=width + (used + 1) * _LANE,
        height=height,
        boxes=tuple(boxes),
        arrows=tuple(arrows),
    )


_Spot: TypeAlias = "tuple[float, float, float, float]"
"""Left, top, width and height of a box."""


def _spots(drawn: Network, width: float) -> tuple[dict[int, _Spot], list[tuple[NetworkFrame, _Spot]], float]:
    """Return where each row is, the ends too, where each frame is, and how high all of it is."""
    y = 1.0
    spots = {-1: (width / 2 - 60, y, 120.0, _LOW)}
    y += _LOW + _GAP
    tops: dict[int, float] = {}
    frames: list[tuple[NetworkFrame, _Spot]] = []
    for at, row in enumerate(drawn.rows):
        for number, frame in enumerate(drawn.frames):
            if frame.first == at:
                tops[number] = y
                y += _HEAD
        x, wide = _INDENT * row.level, width - 2 * _INDENT * row.level
        if row.kind == network_view.JOIN:
            spots[at] = (width / 2 - 90, y, 180.0, _LOW)
            y += _LOW
        else:
            spots[at] = (x, y, wide, _TALL)
            y += _TALL
        for number in reversed(range(len(drawn.frames))):
            frame = drawn.frames[number]
            if frame.last == at:
                y += _INDENT
                left = _INDENT * frame.level
                frames.append((frame, (left, tops[number], width - 2 * left, y - tops[number])))
        y += _GAP
    spots[len(drawn.rows)] = (width / 2 - 60, y, 120.0, _LOW)
    frames.sort(key=lambda pair: pair[0].level)
    return spots, frames, y + _LOW + 1


def _frame_box(frame: NetworkFrame, spot: _Spot, place: Callable[[str], str]) -> Box:
    times = f"{frame.count} x " if frame.count > 1 else ""
    return Box(
        *spot,
        title=f"{times}{frame.label}",
        kind=frame.kind,
        address=place(frame.path),
        style="frame",
    )


def _row_box(drawn: Network, row: NetworkRow, spot: _Spot, place: Callable[[str], str]) -> Box:
    if row.kind == network_view.JOIN:
        return Box(*spot, title=row.label, style="round")
    times = f"{row.count} x " if row.count > 1 else ""
    notes = (
        row.output,
        f"{format_quantity(row.macs, COUNT, 3)} MACs" if row.macs else "",
        "" if row.seconds is None else format_quantity(row.seconds, SECONDS, 3),
        f"{row.inside} inside" if row.inside else "",
    )
    return Box(
        *spot,
        title=f"{times}{row.label}",
        kind=row.kind,
        notes=(" · ".join(note for note in notes if note),),
        address=place(row.path) if row.inside else "",
        part=network_view.weight(drawn, row),
    )


def _lanes(links: Sequence[tuple[int, int]]) -> dict[int, int]:
    """Return the lane of each row from which something skips others: lines of one row share a lane."""
    ends: dict[int, int] = {}
    for source, target in links:
        ends[source] = max(target, ends.get(source, target))
    lanes: dict[int, int] = {}
    taken: list[int] = []
    for source, end in sorted(ends.items()):
        lane = next((at for at, until in enumerate(taken) if until <= source), len(taken))
        lane = min(lane, _LANES - 1)
        if lane == len(taken):
            taken.append(end)
        else:
            taken[lane] = max(end, taken[lane])
        lanes[source] = lane
    return lanes


def _arrow(link: tuple[int, int], spots: dict[int, _Spot], width: float, lanes: dict[int, int]) -> Arrow:
    source, target = link
    (x, y, wide, high), (to_x, to_y, to_wide, to_high) = spots[source], spots[target]
    if target - source == 1:
        return Arrow(points=((width / 2, y + high), (width / 2, to_y)))
    lane = width + (lanes[source] + 0.7) * _LANE
    start, end = y + high * 0.7, to_y + to_high * 0.35
    return Arrow(points=((x + wide, start), (lane, start), (lane, end), (to_x + to_wide, end)), faint=True)
