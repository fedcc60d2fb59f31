"""Static analysis of a model: totals, modules, peak memory, operators, and what was not counted."""

from __future__ import annotations

from collections import defaultdict
from math import inf
from typing import TYPE_CHECKING

from modeldyno.base.report.blocks import Block, Table, clean, make_table, note, shorten
from modeldyno.base.stats.units import BYTES, COUNT, format_quantity
from modeldyno.base.views.text import count, join_nonempty, keep_ending, share, shorten_text, span
from modeldyno.models.static.graph import Role
from modeldyno.profiling.views.result.module_tree import (
    ModuleNode,
    ModuleRow,
    build_module_tree,
    class_title,
    leaves,
    name_range,
    pattern,
    readable_depth,
    sort_nodes,
    walk,
)
from modeldyno.profiling.views.result.totals import device_bounds, grid, totals

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from modeldyno.base.result.result import Result
    from modeldyno.base.result.static_data import MemoryItem, Operator, StaticReport
    from modeldyno.base.views.view_options import ViewOptions

_COSTLIEST, _HELD, _UNCOUNTED = 5, 6, 12
_GLANCE, _BRIEF_GLANCE = 25, 14
"""Most rows of the module tree, in full and in brief."""
_NAME, _KIND, _LABEL, _OUTPUT = 38, 22, 36, 15
"""Most characters of a module's name, of its class, of both together, and of its output."""
_TITLES = {
    "macs": "MACs", "parameters": "parameters", "flops": "FLOPs", "weight_bytes": "weights",
    "bytes": "bytes moved",
}  # fmt: skip


def inspection(result: Result, options: ViewOptions, *, brief: bool = False) -> Iterator[Block]:
    """Lay out the static analysis; in brief without bytes moved, formulas and small modules."""
    root = build_module_tree(result)
    yield from totals(result, brief=brief)
    if root is not None:
        most = _BRIEF_GLANCE if brief else _GLANCE
        if not brief or len(walk(root)) > most:  # else the tree has them all at a glance
            yield from _costliest(root, options)
        yield from _matching(root, options) if options.filter else _tree(root, options, most)
    if result.outline is not None:
        yield from _peak(result.outline)
        if options.verbose or root is None:
            yield from _operators(result.outline)
    yield from reservations(result, options)
    yield from grid(result, brief=brief)
    yield from device_bounds(result)
    if brief:
        yield note("-v shows bytes moved, sizes of inputs and outputs, and formulas, too")


def reservations(result: Result, options: ViewOptions) -> Iterator[Block]:
    """Lay out what was not counted, and the assumptions."""
    if result.outline is not None:
        yield from _uncounted(result.outline, options)
        doubted = {doubt.seen for doubt in result.doubts}
        for text in (text for text in result.outline.assumptions if text not in doubted):
            yield note(shorten_text(text).rstrip("."), code="assumed")


# --- modules -----------------------------------------------------------------------------------


def _costliest(root: ModuleNode, options: ViewOptions) -> Iterator[Table]:
    metric = "macs" if options.sort == "order" else options.sort
    if metric == "macs" and not root.of("macs"):
        metric = "flops"
    rows = tuple(
        (
            keep_ending(clean(node.path), _NAME - 2) or "(the model itself)",
            shorten(class_title(node), _KIND),
            _format_metric(node, metric),
            share(node.of(metric), root.of(metric)),
        )
        for node in sort_nodes(leaves(root), metric)[:_COSTLIEST]
        if node.of(metric)
    )
    if rows:
        yield make_table(
            f"Most expensive, by {_TITLES[metric]}",
            ("module", "class", f"{_TITLES[metric]}>", "share>"),
            rows,
        )


def _format_metric(node: ModuleNode, metric: str) -> str:
    unit = BYTES if metric in {"weight_bytes", "bytes"} else COUNT
    return format_quantity(node.of(metric), unit, 3)


def _tree(root: ModuleNode, options: ViewOptions, most: int) -> Iterator[Block]:
    everything = walk(root, options.sort)
    rows = everything if options.depth is not None else [row for row in everything if _has_cost(row)]
    deepest = max(row.level for row in rows)
    depth = (
        readable_depth([row.level for row in rows], most)
        if options.depth is None
        else min(options.depth, deepest)
    )
    listed = [row for row in rows if row.level <= depth]
    cut = 0 if options.depth is not None else max(0, len(listed) - most)
    yield _module_table(
        root,
        listed[: len(listed) - cut],
        ("Modules" if depth >= deepest else f"Modules, to depth {depth}"),
        options.sort,
    )
    below = len(rows) - len(listed)
    if cut:
        yield note(f"{count(cut, 'more module')} at this depth; --depth {depth} shows all")
    elif below:
        yield note(f"{count(below, 'more module')} below these; --depth {depth + 1} goes deeper")
    if light := len(everything) - len(rows):
        yield note(f"{count(light, 'module')} with neither parameters nor MACs left out; --depth shows all")
    if any(row.node.count > 1 for row in listed):
        yield note("equal modules are merged into one row with their sum")


def _has_cost(row: ModuleRow) -> bool:
    return not row.level or any(row.node.of(metric) for metric in ("parameters", "macs", "weight_bytes"))


def _matching(root: ModuleNode, options: ViewOptions) -> Iterator[Block]:
    part = options.filter.lower()
    rows = [row for row in walk(root) if part in row.node.path.lower() or part in row.node.kind.lower()]
    nodes = sort_nodes(
        (row.node for row in rows if options.depth is None or row.level <= options.depth), options.sort
    )
    title = f"Modules with '{options.filter}' in their path or class"
    if not nodes:
        yield note(f"no module has '{options.filter}' in its path or class")
        return
    yield _module_table(
        root, [ModuleRow(node=node, level=0) for node in nodes], title, options.sort, full_path=True
    )


def _module_table(
    root: ModuleNode, rows: Sequence[ModuleRow], title: str, sort: str, *, full_path: bool = False
) -> Table:
    weighed = "weight_bytes" if sort == "weight_bytes" else "parameters"
    cells = (
        (
            _label(row, full_path=full_path),
            _output(row.node),
            _format_metric(row.node, weighed),
            _format_metric(row.node, "macs"),
            share(row.node.of("macs"), root.of("macs")),
        )
        for row in rows
    )
    return make_table(title, ("module", "output?", f"{_TITLES[weighed]}>", "MACs>", "share>"), cells)


def _output(node: ModuleNode) -> str:
    """Format the output shape of a module, with the dtype unless it is float32."""
    shape, _, more = clean(node.output).partition(" and ")
    text = shape.removesuffix(" float32") + (f" +{more.removesuffix(' more')}" if more else "")
    return shorten(text, _OUTPUT)


def _label(row: ModuleRow, *, full_path: bool) -> str:
    """Return the name and class of a module, indented by dots; the class is cut first if it does not fit."""
    node = row.node
    name = clean(node.path if full_path else node.label)
    dots = "· " * row.level
    room = _LABEL - len(dots)
    kind = class_title(node)
    if not name:
        return shorten(kind, room) or "(the model itself)"
    if not kind:
        return f"{dots}{keep_ending(name, room)}"
    if len(name) + len(kind) + 3 <= room:
        return f"{dots}{name} ({kind})"
    left = room - len(name) - 3
    return (
        f"{dots}{name} ({shorten(kind, left)})" if left >= _SHORTEST else f"{dots}{keep_ending(name, room)}"
    )


_SHORTEST = 6


# --- memory ------------------------------------------------------------------------------------


def _peak(outline: StaticReport) -> Iterator[Table]:
    """Tabulate the memory held at the peak: activations by module, the rest by role."""
    if not outline.peak:
        return
    total = sum(held.bytes for held in outline.peak)
    groups: defaultdict[tuple[str, str], list[MemoryItem]] = defaultdict(list)
    for held in outline.peak:
        place = pattern(held.scope) if held.role == Role.ACTIVATION else ""
        groups[place, held.role].append(held)
    ranked = sorted(groups.items(), key=lambda item: -_bytes(item[1]))
    rows = [(*_held_cells(role, group), share(_bytes(group), total)) for (_, role), group in ranked]
    listed, others = rows[:_HELD], [held for _, group in ranked[_HELD:] for held in group]
    if others:
        size = format_quantity(_bytes(others), BYTES, 3)
        listed.append((f"{len(ranked) - _HELD} more", size, share(_bytes(others), total)))
    place, operator = (clean(text) for text in (outline.peak_scope, outline.peak_operator))
    where = f", in {keep_ending(place, _NAME)}" if place else ""
    during = f" ({shorten(operator, _KIND)})" if operator else ""
    yield make_table(f"Memory at the peak{where}{during}", ("what", "bytes>", "share>"), listed)


ROLES: dict[str, str] = {
    Role.WEIGHT: "weights",
    Role.INPUT: "inputs",
    Role.GRADIENT: "gradients of parameters",
    Role.STATE: "optimiser state",
}


def _bytes(group: Sequence[MemoryItem]) -> int:
    return sum(held.bytes for held in group)


def _held_cells(role: str, group: Sequence[MemoryItem]) -> tuple[str, str]:
    what = ROLES.get(role, "")
    if role == Role.ACTIVATION:
        scope = clean(name_range([held.scope for held in group]))
        what = f"activations of {keep_ending(scope, _NAME)}" if scope else "activations"
    return what or shorten_text(role, _NAME), format_quantity(_bytes(group), BYTES, 3)


# --- operators ---------------------------------------------------------------------------------


def _operators(outline: StaticReport) -> Iterator[Table]:
    rows = tuple(
        (
            shorten_text(op.kind, _NAME),
            f"{op.calls:,}",
            format_quantity(op.macs, COUNT, 3) if op.counted else span(op.macs, _most([op])),
            format_quantity(op.elementwise, COUNT, 3) if op.counted else "—",
        )
        for op in outline.operators
    )
    if rows:
        yield make_table("Operators", ("operator", "calls>", "MACs>", "elementwise>"), rows)


def _uncounted(outline: StaticReport, options: ViewOptions) -> Iterator[Table]:
    """Tabulate the operators without a formula, with an upper bound of their cost."""
    uncounted = [op for op in outline.operators if not op.counted]
    listed = uncounted if options.verbose else uncounted[:_UNCOUNTED]
    rows = [
        (shorten_text(op.kind, _NAME), f"{op.calls:,}", span(0, _most([op])), _where(op)) for op in listed
    ]
    if others := uncounted[len(listed) :]:
        calls = sum(op.calls for op in others)
        rows.append((f"{len(others)} more", f"{calls:,}", span(0, _most(others)), "-v lists them"))
    if rows:
        yield make_table(
            f"Not counted: no formula{', or unknown shapes' if _most(uncounted) == inf else ''}",
            ("operator", "calls>", "MACs, between>", "shapes of one call"),
            rows,
        )


def _most(operators: Iterable[Operator]) -> float:
    return sum(inf if op.most is None else op.most for op in operators)


def _where(op: Operator) -> str:
    place = f"in {shorten_text(op.scope, _NAME)}" if op.scope else ""
    return join_nonempty(shorten_text(op.shapes, 120), place)
