"""Draws boxes and arrows as SVG: without scripts, with links, in the colours of the page."""

from __future__ import annotations

import html
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """A box, its words, and what it leads to."""

    x: float
    y: float
    width: float
    height: float
    title: str
    kind: str = ""
    """Beside the title."""
    notes: tuple[str, ...] = ()
    """Lines below the title."""
    address: str = ""
    part: float = 0.0
    """Length of the bar at its foot, from 0 to 1."""
    style: str = "plain"
    """``plain``, ``frame`` for what others stand in, ``round`` for a join or an end, or a severity."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrow:
    """A line through points, with a head at its end."""

    points: tuple[tuple[float, float], ...]
    label: str = ""
    faint: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagram:
    """Boxes and arrows; the ones that come later lie above."""

    title: str
    width: float
    height: float
    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...] = ()


def write_svg(diagram: Diagram) -> str:
    """Write a diagram as an SVG element; its colours are those of the style sheet."""
    frames = [box for box in diagram.boxes if box.style == "frame"]
    others = [box for box in diagram.boxes if box.style != "frame"]
    drawn = [
        *(part for box in frames for part in _box(box)),
        *(part for arrow in diagram.arrows for part in _arrow(arrow)),
        *(part for box in others for part in _box(box)),
    ]
    size = f"{diagram.width:.0f} {diagram.height:.0f}"
    return (
        f'<svg class="diagram" viewBox="0 0 {size}" width="{diagram.width:.0f}" '
        f'height="{diagram.height:.0f}" role="group" aria-label="{html.escape(diagram.title)}">'
        f"{''.join(drawn)}</svg>"
    )


_CHARACTER, _SMALL = 6.7, 5.9
"""Widths of a character of a title and of a note, on average."""
_LINE = 15.0
_MARGIN = 10.0


def _box(box: Box) -> Iterator[str]:
    shape = (
        f'<rect class="box {html.escape(box.style)}" x="{box.x:.1f}" y="{box.y:.1f}" '
        f'width="{box.width:.1f}" height="{box.height:.1f}" '
        f'rx="{box.height / 2 if box.style == "round" else 6:.1f}"/>'
    )
    room = box.width - 2 * _MARGIN
    middle = box.style == "round"
    x = box.x + box.width / 2 if middle else box.x + _MARGIN
    anchor = ' text-anchor="middle"' if middle else ""
    title = _fit(box.title, room / _CHARACTER)
    kind = _fit(box.kind, max(0.0, room - len(title) * _CHARACTER) / _SMALL - 1) if box.kind else ""
    beside = f' <tspan class="small" dx="4">{html.escape(kind)}</tspan>' if kind else ""
    lines = [("title", html.escape(title) + beside)]
    lines += [("small", html.escape(_fit(note, room / _SMALL))) for note in box.notes if note]
    first = box.y + (16 if box.style == "frame" else (box.height - _LINE * (len(lines) - 1)) / 2 + 4)
    texts = " ".join(  # a link is named by its words
        f'<text class="{style}" x="{x:.1f}" y="{first + _LINE * place:.1f}"{anchor}>{text}</text>'
        for place, (style, text) in enumerate(lines)
    )
    bar = ""
    if box.part > 0:
        length = max(1.5, (box.width - 12) * min(1.0, box.part))
        foot = box.y + box.height - 4
        bar = f'<rect class="bar" x="{box.x + 6:.1f}" y="{foot:.1f}" width="{length:.1f}" height="4"/>'
    if box.address:
        yield f'<a href="{html.escape(box.address)}">{shape}{bar}{texts}</a>'
    else:
        hint = html.escape(", ".join(filter(None, (box.title, box.kind, *box.notes))))
        yield f"<g><title>{hint}</title>{shape}{bar}{texts}</g>"


def _fit(text: str, most: float) -> str:
    room = max(1, int(most))
    return text if len(text) <= room else f"{text[: room - 1]}…"


_HEAD = 4.0


def _arrow(arrow: Arrow) -> Iterator[str]:
    """Write a line with rounded corners, and its head in the direction in which it ends."""
    kind = "arrow faint" if arrow.faint else "arrow"
    (before_x, before_y), (x, y) = arrow.points[-2:]
    path = f"M{arrow.points[0][0]:.1f} {arrow.points[0][1]:.1f}" + "".join(
        f"L{at_x:.1f} {at_y:.1f}" for at_x, at_y in arrow.points[1:]
    )
    if abs(x - before_x) > abs(y - before_y):
        back = -_HEAD * 1.6 if x > before_x else _HEAD * 1.6
        head = f"{x:.1f},{y:.1f} {x + back:.1f},{y - _HEAD:.1f} {x + back:.1f},{y + _HEAD:.1f}"
    else:
        back = -_HEAD * 1.6 if y > before_y else _HEAD * 1.6
        head = f"{x:.1f},{y:.1f} {x - _HEAD:.1f},{y + back:.1f} {x + _HEAD:.1f},{y + back:.1f}"
    yield f'<path class="{kind}" d="{path}"/><polygon class="{kind} head" points="{head}"/>'
    if arrow.label:
        yield (
            f'<text class="small" x="{(before_x + x) / 2:.1f}" y="{(before_y + y) / 2 - 4:.1f}" '
            f'text-anchor="middle">{html.escape(arrow.label)}</text>'
        )
