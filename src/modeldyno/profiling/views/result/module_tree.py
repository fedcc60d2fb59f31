"""The modules of a network as a readable tree: equal modules merged, empty containers collapsed."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from modeldyno.base.report.blocks import clean
from modeldyno.base.views.text import number

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from modeldyno.base.result.result import Result

NUMBERS = ("macs", "elementwise", "flops", "parameters", "weight_bytes", "bytes_read", "bytes_written")
_INDEX = re.compile(r"(?<![^.])\d{1,9}(?:-\d{1,9})?(?![^.])")
"""A part of a path that is a number, or a range of them."""

_DEEPEST = 100
"""Most levels of the tree; deeper modules count as part of their parent."""

_NUMBER = re.compile(r"\d{1,9}")

Numbers = tuple[float, ...]
"""One value for each of NUMBERS."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleNode:
    """A module, or several equal ones."""

    path: str
    """Such as ``encoder.layer.0-11``."""
    label: str
    """Name relative to its parent."""
    kind: str
    count: int = 1
    """How many modules it stands for."""
    output: str = ""
    """Shape and dtype of the output of one call."""
    numbers: Numbers
    """Sums over all of them."""
    children: tuple[ModuleNode, ...] = ()
    likeness: str
    """Key that is equal for two modules of one class with equal numbers and children."""

    def of(self, metric: str) -> float:
        """Return one number; ``bytes`` are those read and written."""
        if metric == "bytes":
            return self.of("bytes_read") + self.of("bytes_written")
        return self.numbers[NUMBERS.index(metric)]


def build_module_tree(result: Result) -> ModuleNode | None:
    """Build the module tree; None if no modules were analysed."""
    outline = result.outline
    if outline is None or len(outline.modules) < 2 or outline.modules[0].path:
        return None
    values = {(m.metric, m.scope): number(m)[0] for m in result.measurements if m.metric in NUMBERS}
    paths = {module.path for module in outline.modules}
    alike: dict[object, str] = {}
    families: defaultdict[str | None, list[ModuleNode]] = defaultdict(list)
    for module in reversed(outline.modules):  # children before their parents
        numbers = tuple(float(values.get((metric, module.path), 0)) for metric in NUMBERS)
        children = tuple(map(_without_shell, _merge_alike(families.pop(module.path, [])[::-1])))
        if module.path and (module.path.count(".") > _DEEPEST or not (any(numbers) or children)):
            continue
        parent = parent_of(module.path, paths)
        kind = f"{module.kind} {module.kernel}".rstrip()
        key = (kind, module.output, numbers, tuple((child.label, child.likeness) for child in children))
        families[parent].append(
            ModuleNode(
                path=module.path,
                label=module.path[len(parent) + 1 :] if parent else module.path,
                kind=kind,
                output=module.output,
                numbers=numbers,
                children=children,
                likeness=alike.setdefault(key, str(len(alike))),
            )
        )
    return families[None][-1]


def parent_of(path: str, paths: set[str]) -> str | None:
    """Return the nearest enclosing module; None for the root."""
    if not path:
        return None
    while "." in path:
        path = path.rpartition(".")[0]
        if path in paths:
            return path
    return ""


def _merge_alike(nodes: Iterable[ModuleNode]) -> Iterator[ModuleNode]:
    """Merge equal numbered neighbours into one node."""
    run: list[ModuleNode] = []
    for node in nodes:
        if run and not follows(run[-1], node):
            yield _merged(run)
            run = []
        run.append(node)
    if run:
        yield _merged(run)


class Labelled(Protocol):
    """Tree node with a label that may equal its neighbour."""

    @property
    def label(self) -> str:
        """Name relative to its parent."""

    @property
    def likeness(self) -> str:
        """Key that is equal for equal nodes."""


def follows(before: Labelled, node: Labelled) -> bool:
    """Whether a node equals the one before it and has the next number."""
    (head, _, index), (next_head, _, next_index) = before.label.rpartition("."), node.label.rpartition(".")
    numbered = head == next_head and _NUMBER.fullmatch(index) and _NUMBER.fullmatch(next_index)
    return bool(numbered) and int(index) + 1 == int(next_index) and before.likeness == node.likeness


def _merged(run: Sequence[ModuleNode]) -> ModuleNode:
    first, last = run[0], run[-1]
    if first is last:
        return first
    label = f"{first.label}-{last.label.rpartition('.')[2]}"
    path = first.path.removesuffix(first.label) + label
    return _multiplied(first, len(run), first.path, path, label)


def _multiplied(node: ModuleNode, times: int, old: str, new: str, label: str = "") -> ModuleNode:
    """Multiply a node and its subtree to stand for several."""
    return replace(
        node,
        path=new + node.path[len(old) :],
        label=label or node.label,
        count=node.count * times,
        numbers=tuple(value * times for value in node.numbers),
        children=tuple(_multiplied(child, times, old, new) for child in node.children),
        likeness=f"{node.likeness}x{times}",
    )


def _without_shell(node: ModuleNode) -> ModuleNode:
    """Collapse a container into its only child if that does all of its work."""
    if len(node.children) != 1 or node.children[0].numbers != node.numbers:
        return node
    (child,) = node.children
    return replace(child, label=f"{node.label}.{child.label}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleRow:
    """A node with its level in the tree."""

    node: ModuleNode
    level: int


def walk(root: ModuleNode, sort: str = "order") -> list[ModuleRow]:
    """Return all nodes in pre-order, siblings sorted as requested."""
    rows: list[ModuleRow] = []
    stack = [ModuleRow(node=root, level=0)]
    while stack:
        row = stack.pop()
        rows.append(row)
        children = sort_nodes(row.node.children, sort)
        stack += [ModuleRow(node=child, level=row.level + 1) for child in reversed(children)]
    return rows


def readable_depth(levels: Sequence[int], most: int) -> int:
    """Return the depth at which a tree still fits a table of so many rows; at least one level is shown."""
    deepest = max(levels)
    return next(
        (d for d in range(deepest, 1, -1) if sum(level <= d for level in levels) <= most), min(1, deepest)
    )


def sort_nodes(nodes: Iterable[ModuleNode], sort: str) -> list[ModuleNode]:
    """Sort nodes by a number in descending order, or keep definition order."""
    return list(nodes) if sort == "order" else sorted(nodes, key=lambda node: -node.of(sort))


def leaves(root: ModuleNode) -> list[ModuleNode]:
    """Return the cost that no deeper module covers; layers that differ only by number are merged."""
    groups: defaultdict[tuple[str, str], list[tuple[ModuleNode, Numbers]]] = defaultdict(list)
    for row in walk(root):
        node = row.node
        below = [sum(column) for column in zip(*(child.numbers for child in node.children), strict=True)]
        if not below:
            groups[pattern(node.path), node.kind].append((node, node.numbers))
        elif any(own := tuple(max(0.0, n - part) for n, part in zip(node.numbers, below, strict=True))):
            groups[pattern(node.path), f"{node.kind} itself"].append((node, own))
    return [
        replace(
            group[0][0],
            path=_common_name([node.path for node, _ in group]),
            kind=kind,
            count=sum(node.count for node, _ in group),
            children=(),
            numbers=tuple(map(sum, zip(*(numbers for _, numbers in group), strict=True))),
        )
        for (_, kind), group in groups.items()
    ]


def _common_name(paths: Sequence[str]) -> str:
    """Return the common pattern of paths; if it is nothing but stars, the first paths."""
    if len(paths) == 1:
        return paths[0]
    common = pattern(paths[0])
    if common.strip("*."):
        return common
    return ", ".join(paths[:_FEW]) + (", …" if len(paths) > _FEW else "")


_FEW = 4
"""Most paths that are named individually."""


def pattern(path: str) -> str:
    """Replace each number in a path by a star."""
    return _INDEX.sub("*", path)


def name_range(paths: Sequence[str]) -> str:
    """Return one name for paths of one pattern: ``layer.0-11.mlp``, with a star if numbers have gaps."""
    common = _common_name(sorted(set(paths), key=_natural_order))
    if len(set(paths)) == 1:
        return paths[0]
    indices = {tuple(_INDEX.findall(path)) for path in paths}
    if "*" in paths[0] or not all(_NUMBER.fullmatch(index) for numbers in indices for index in numbers):
        return common
    rows = sorted(tuple(map(int, numbers)) for numbers in indices)
    varying = [place for place, column in enumerate(zip(*rows, strict=True)) if len(set(column)) > 1]
    if len(varying) != 1:
        return common
    column = [numbers[varying[0]] for numbers in rows]
    if column != list(range(column[0], column[-1] + 1)):
        return common
    parts = [str(n) for n in rows[0]]
    parts[varying[0]] = f"{column[0]}-{column[-1]}"
    return _INDEX.sub(lambda _match: parts.pop(0), pattern(paths[0]).replace("*", "0"))


def _natural_order(path: str) -> list[tuple[int, str]]:
    """Return a sort key by which 10 comes after 9."""
    return [(int(part) if _NUMBER.fullmatch(part) else -1, part) for part in path.split(".")]


def class_title(node: ModuleNode) -> str:
    """Return the class of a module, and how many it stands for."""
    kind = clean(node.kind)
    return f"{node.count} x {kind}" if kind and node.count > 1 else kind
