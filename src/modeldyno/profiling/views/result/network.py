"""A network as rows in frames: modules and the joins between them, folded until it fits a screen."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from modeldyno.base.errors import UnknownName
from modeldyno.base.report.blocks import Table, clean, drop_empty_columns, make_table
from modeldyno.base.stats.units import COUNT, SECONDS, format_quantity
from modeldyno.base.views.text import share
from modeldyno.profiling.views.result.layer_tree import layer_seconds
from modeldyno.profiling.views.result.module_tree import ModuleNode, build_module_tree, walk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from modeldyno.base.result.result import Result

_ROWS = 20
"""Rows up to which modules are unfolded by themselves."""
_CHILDREN = 40
"""Modules of one frame that are shown."""
_JOINS = 4
"""Joins of one frame that are shown."""
_RANGE = re.compile(r"(\d{1,9})-(\d{1,9})")
INPUT, OUTPUT, JOIN = "input", "output", "join"


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkRow:
    """A box of the diagram: a module, several equal ones, or a join."""

    path: str
    """Of the module; empty for a join, and for what is left out."""
    label: str
    kind: str
    count: int = 1
    """Modules that it stands for."""
    inside: int = 0
    """Modules in it that are folded away."""
    output: str = ""
    """Shape and dtype."""
    macs: float = 0.0
    """Of all that it stands for."""
    seconds: float | None = None
    """Time in a call of the model; None if it was not measured."""
    level: int = 0
    """Frames around it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkFrame:
    """A frame around the rows of one module, or of several equal ones."""

    path: str
    label: str
    kind: str
    count: int
    level: int
    """Frames around it."""
    first: int
    """Place of its first row."""
    last: int
    """Place of its last row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """A network, or what is inside one of its modules."""

    inside: str
    """Path of the module that is shown; empty for the whole."""
    kind: str
    """Its class."""
    rows: tuple[NetworkRow, ...]
    frames: tuple[NetworkFrame, ...]
    """Outer ones first."""
    links: tuple[tuple[int, int], ...]
    """Places of the rows from which and to which something goes: -1 is what comes in, the number of rows what
    goes out."""
    macs: float
    seconds: float | None

    def sources(self, place: int) -> tuple[str, ...]:
        """Return what goes into a row, by name."""
        return tuple(self._name(source) for source, target in self.links if target == place)

    def _name(self, place: int) -> str:
        return INPUT if place < 0 else self.rows[place].label


@dataclass(slots=True, eq=False)
class _Frame:
    """A module that is unfolded, while its rows are gathered."""

    node: ModuleNode
    level: int
    items: list[_Frame | NetworkRow] = field(default_factory=list)


def build_network(result: Result, inside: str = "") -> Network | None:
    """Lay out a network, or one of its modules; None if its modules were not analysed.

    Raises:
        UnknownName: there is no such module, or nothing in it.
    """
    tree = build_module_tree(result)
    if tree is None or result.outline is None or not tree.children:
        return None
    holders = {row.node.path: row.node for row in walk(tree) if row.node.children}
    if inside not in holders:
        raise UnknownName.among("module with others in it", inside, [path for path in holders if path])
    focus = holders[inside]
    times = layer_seconds(result)
    unfolded = _unfolded(focus)
    top = _gather(focus, unfolded, times)
    join_rows = _place_joins(result, _frames(top))
    rows = list(_flat(top))
    places = {id(row): place for place, row in enumerate(rows)}
    find = _finder(
        top, places, {name: places[id(row)] for name, row in join_rows.items() if id(row) in places}
    )
    outside = len(rows)
    links = dict.fromkeys(
        (source, target)
        for link in result.outline.links
        for source in [-1 if not link.source else find(link.source, -1)]
        for target in [outside if not link.target else find(link.target, outside)]
        if source is not None and target is not None and source < target and target - source <= outside
    )
    links.update(dict.fromkeys(() if links else ((at - 1, at) for at in range(outside + 1))))
    return Network(
        inside=inside,
        kind=focus.kind,
        rows=tuple(rows),
        frames=tuple(_spans(top, places)),
        links=tuple(links),
        macs=focus.of("macs"),
        seconds=_time_of(focus, times),
    )


def holders_of(result: Result) -> frozenset[str]:
    """Return the paths that `build_network` can show the inside of."""
    tree = build_module_tree(result)
    return frozenset(row.node.path for row in walk(tree) if row.node.children) if tree else frozenset()


def _unfolded(focus: ModuleNode) -> set[str]:
    """Return the paths that are unfolded: the costliest first, as long as all fits."""
    unfolded, rows = {focus.path}, len(focus.children)
    waiting = [child for child in focus.children if child.children]
    while waiting:
        waiting.sort(key=lambda node: node.of("macs") / node.count)
        node = waiting.pop()
        if rows - 1 + len(node.children) <= _ROWS:
            unfolded.add(node.path)
            rows += len(node.children) - 1
            waiting += [child for child in node.children if child.children]
    return unfolded


def _gather(node: ModuleNode, unfolded: set[str], times: dict[str, float], level: int = 0) -> _Frame:
    frame = _Frame(node, level)
    for child in node.children[:_CHILDREN]:
        if child.path in unfolded:
            frame.items.append(_gather(child, unfolded, times, level + 1))
            continue
        frame.items.append(
            NetworkRow(
                path=child.path,
                label=clean(child.label),
                kind=clean(child.kind),
                count=child.count // node.count or 1,
                inside=len(walk(child)) - 1,
                output=child.output,
                macs=child.of("macs"),
                seconds=_time_of(child, times),
                level=level,
            )
        )
    if more := node.children[_CHILDREN:]:
        macs = sum(child.of("macs") for child in more)
        frame.items.append(NetworkRow(path="", label=f"{len(more)} more", kind="", macs=macs, level=level))
    return frame


def _time_of(node: ModuleNode, times: dict[str, float]) -> float | None:
    fits = _matcher(node.path)
    parts = [seconds for path, seconds in times.items() if (m := fits.match(path)) and not m["below"]]
    return sum(parts) if parts else None


def _matcher(path: str) -> re.Pattern[str]:
    """Return what matches the paths that a merged one stands for, and those below them."""
    parts = map(_part_pattern, path.split("."))
    return re.compile(r"\.".join(parts) + r"(?P<below>\..*)?\Z" if path else r"(?P<below>.+)?\Z")


def _part_pattern(part: str) -> str:
    """Return the pattern of a part of a path; ``4-6`` stands for 4, 5 and 6."""
    if match := _RANGE.fullmatch(part):
        numbers = range(int(match[1]), min(int(match[2]), int(match[1]) + _LONGEST) + 1)
        return f"(?:{'|'.join(map(str, numbers))}|{part})"
    return re.escape(part)


_LONGEST = 10_000
"""Modules of a range."""


def _frames(frame: _Frame) -> Iterator[_Frame]:
    yield frame
    for item in frame.items:
        if isinstance(item, _Frame):
            yield from _frames(item)


def _flat(frame: _Frame) -> Iterator[NetworkRow]:
    for item in frame.items:
        if isinstance(item, _Frame):
            yield from _flat(item)
        else:
            yield item


def _place_joins(result: Result, frames: Iterator[_Frame]) -> dict[str, NetworkRow]:
    """Put the joins into their frames, each behind the last thing that goes into it; return them by name.

    Equal modules share a frame, and the first join of each its row.
    """
    assert result.outline is not None
    matchers = [(frame, _matcher(frame.node.path)) for frame in frames]
    into: dict[str, list[str]] = {}
    for link in result.outline.links:
        into.setdefault(link.target, []).append(link.source)
    times: Counter[str] = Counter()
    made: dict[tuple[int, int], NetworkRow] = {}
    rows: dict[str, NetworkRow] = {}
    for join in result.outline.joins:
        frame = next(
            (f for f, fits in matchers if (m := fits.match(join.scope)) and not m["below"]), None
        )  # one of those that are unfolded
        times[join.scope] += 1
        if frame is None or times[join.scope] > _JOINS:
            continue
        key = id(frame), times[join.scope]
        if key not in made:
            made[key] = NetworkRow(path="", label=_operator(join.kind), kind=JOIN, level=frame.level)
            places = (_item_place(frame, rows, source) for source in into.get(join.name, ()))
            behind = max(places, default=-1)
            frame.items.insert(behind + 1 if behind >= 0 else len(frame.items), made[key])
        rows[join.name] = made[key]
    return rows


def _operator(kind: str) -> str:
    """Return the name of an operator without its dialect and the implementation that was chosen."""
    return re.sub(
        "_(flash|efficient|fused|cudnn|for_cpu)(?=_|$)", "", clean(kind.rpartition(".")[2].lstrip("_"))
    )


def _item_place(frame: _Frame, rows: dict[str, NetworkRow], name: str) -> int:
    """Return the place in a frame of what a name of a link stands for; -1 if it is elsewhere."""
    for place, item in enumerate(frame.items):
        if item is rows.get(name):
            return place
        path = item.node.path if isinstance(item, _Frame) else item.path
        if name not in rows and path and _matcher(path).match(name):
            return place
    return -1


def _finder(top: _Frame, places: dict[int, int], joins: dict[str, int]) -> Callable[[str, int], int | None]:
    """Return what gives the row of a name of a link: `outside` if it is not in the module, None if hidden."""
    top_matcher = _matcher(top.node.path)
    matchers = [(_matcher(row.path), places[id(row)]) for row in _flat(top) if row.path]
    places_by_name: dict[str, int | None] = {}

    def find(name: str, outside: int) -> int | None:
        if name in joins:
            return joins[name]
        if top.node.path and not top_matcher.match(name) and not name.startswith("join "):
            return outside
        if name not in places_by_name:
            places_by_name[name] = next((place for fits, place in matchers if fits.match(name)), None)
        return places_by_name[name]

    return find


def _spans(top: _Frame, places: dict[int, int]) -> Iterator[NetworkFrame]:
    for frame in _frames(top):
        if frame is not top:
            rows = [places[id(row)] for row in _flat(frame)]
            yield NetworkFrame(
                path=frame.node.path,
                label=clean(frame.node.label),
                kind=clean(frame.node.kind),
                count=frame.node.count,
                level=frame.level - 1,
                first=min(rows),
                last=max(rows),
            )


# --- as text -------------------------------------------------------------------------------------


def network_table(network: Network) -> Table:
    """Tell the diagram row by row."""
    rows: list[tuple[str, ...]] = []
    for place, row in enumerate(network.rows):
        frames = [f for f in network.frames if f.first == place]
        rows += [(f"{'· ' * f.level}{_times(f.count)}{f.label}", f.kind, "", "", "", "", "") for f in frames]
        rows.append(
            (
                f"{'· ' * row.level}{_times(row.count)}{row.label}",
                row.kind,
                ", ".join(network.sources(place)),
                row.output,
                format_quantity(row.macs, COUNT, 3) if row.macs else "",
                "" if row.seconds is None else format_quantity(row.seconds, SECONDS, 3),
                share_of(network, row),
            )
        )
    titles = ("module", "class", "gets", "output", "MACs>", "time>", "share>")
    return drop_empty_columns(make_table("Module by module", titles, rows))


def share_of(network: Network, row: NetworkRow) -> str:
    """Return a row's share of the time, or where that was not measured of the MACs."""
    part = weight(network, row)
    return share(part, 1.0) if part else ""


def weight(network: Network, row: NetworkRow) -> float:
    """Return a row's share of the time, or where that was not measured of the MACs, from 0 to 1."""
    if network.seconds:
        return min(1.0, (row.seconds or 0.0) / network.seconds)
    return row.macs / network.macs if network.macs else 0.0


def _times(count: int) -> str:
    return f"{count} x " if count > 1 else ""


def legend(network: Network) -> str:
    """Say in a sentence what the bars of the diagram are."""
    of = "time of a call" if network.seconds else "MACs"
    return f"A bar is the share of the {of}. Modules with others in them can be opened."


def labels_of(rows: Sequence[NetworkRow]) -> dict[str, str]:
    """Return the path of each row that can be opened, by its cell in the table."""
    return {f"{'· ' * row.level}{_times(row.count)}{row.label}": row.path for row in rows if row.inside}
