"""Align the modules of two models: by path and class where these agree, by order where paths have shifted.

Trees are aligned from the top: the children of two matched modules are aligned as two sequences, as in
Needleman and Wunsch (1970), with a score for what they have in common and no gap penalty. What remains
unmatched on both sides, such as the parts of a module that was wrapped in another one, is aligned once more
as one sequence, class by class. Modules still without a partner are grouped by place (`group_unmatched`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby


@dataclass(frozen=True, slots=True)
class AlignedModule:
    """A module, or an operator of a model without modules. Positional, because there are many of them."""

    path: str
    """``""`` is the whole model."""
    kind: str = ""
    """The name of its class."""
    output: str = ""
    """Shape and dtype of its output, if known."""
    calls: float = 1.0

    @property
    def label(self) -> str:
        """Its name within the enclosing module."""
        return self.path.rpartition(".")[2]

    @property
    def numbered(self) -> bool:
        """Whether the name is only an index: ``3`` in a sequence, or ``MatMul_3``, the fourth of its kind."""
        operator = self.kind.rpartition(" ")[2]
        return self.label == operator or self.label.removeprefix(operator).lstrip("_").isdecimal()


Pair = tuple[AlignedModule | None, AlignedModule | None]
"""Module before and after; None if it is new or gone."""
Match = tuple[AlignedModule, AlignedModule]
Tree = dict[str, list[AlignedModule]]
"""Path of a module to the modules directly inside it, in their order."""
_KIND, _NAME, _OUTPUT, _PLACE = 4.0, 2.0, 1.0, 0.5
"""Scores for the same class, name, output, and index."""
_MOST_PAIRS = 1_000_000
"""Most pairs of modules to score; above that, only modules of the same name are matched."""


def align(before: Sequence[AlignedModule], after: Sequence[AlignedModule]) -> tuple[Pair, ...]:
    """Match every module of one model with one of the other, or with None.

    Args:
        before: modules with distinct paths, in the order of their first calls; may include the whole model.
        after: likewise.

    Returns:
        Every module of either, once; those of `after` in their order, gone ones after what they followed.
    """
    old, new = _children_by_path(before), _children_by_path(after)
    matched: dict[str, AlignedModule] = {
        node.path: node for node in before if not node.path and any(not node.path for node in after)
    }
    _match_children("", "", old, new, matched)
    unmatched = [node for node in after if node.path not in matched]
    for old_node, new_node in _align_sequences(_unmatched(before, matched), unmatched, _moved_similarity):
        matched[new_node.path] = old_node
    gone = _gone_by_predecessor(before, matched)
    pairs: list[Pair] = [*gone.get(None, ())]
    for node in after:
        pairs += ((matched.get(node.path), node), *gone.get(node.path, ()))
    return tuple(pairs)


def _gone_by_predecessor(
    before: Sequence[AlignedModule], matched: dict[str, AlignedModule]
) -> dict[str | None, list[Pair]]:
    """Return the modules without a partner, by the path of the module that they followed."""
    new_paths = {old_node.path: path for path, old_node in matched.items()}
    gone: defaultdict[str | None, list[Pair]] = defaultdict(list)
    last: str | None = None
    for node in before:
        if node.path in new_paths:
            last = new_paths[node.path]
        else:
            gone[last].append((node, None))
    return gone


def parent_of(path: str, paths: set[str]) -> str:
    """Return the nearest enclosing module; ``""`` is the whole model."""
    while "." in path:
        path = path.rpartition(".")[0]
        if path in paths:
            return path
    return ""


def _children_by_path(nodes: Sequence[AlignedModule]) -> Tree:
    paths = {node.path for node in nodes}
    tree: defaultdict[str, list[AlignedModule]] = defaultdict(list)
    for node in nodes:
        if node.path:
            tree[parent_of(node.path, paths)].append(node)
    return tree


def _match_children(before: str, after: str, old: Tree, new: Tree, matched: dict[str, AlignedModule]) -> None:
    """Match the children of two modules, recursively."""
    for one, other in _align_sequences(old.get(before, ()), new.get(after, ()), _similarity):
        matched[other.path] = one
        _match_children(one.path, other.path, old, new, matched)


def _unmatched(before: Sequence[AlignedModule], matched: dict[str, AlignedModule]) -> list[AlignedModule]:
    matched_paths = {node.path for node in matched.values()}
    return [node for node in before if node.path not in matched_paths]


# --- what has no partner -----------------------------------------------------------------------------


def group_unmatched(pairs: Sequence[Pair]) -> tuple[tuple[Pair, ...], ...]:
    """Group modules that are new or gone in one place; return the groups, named by their first pair.

    A module that is new with everything in it is one group. So are several consecutive ones that are new or
    gone: they are named after the only new one, as with fused operators, or else after the enclosing module,
    as with an operator that was split into many; directly in the whole model, after the first new one.

    Args:
        pairs: as returned by `align`.
    """
    enclosing = _enclosing_pairs(pairs)
    named_by = list(range(len(pairs)))
    children: defaultdict[int | None, list[int]] = defaultdict(list)
    for number, parent in enumerate(enclosing):
        children[parent].append(number)
    for parent, siblings in children.items():
        for loose, run in groupby(siblings, key=lambda number: None in pairs[number]):
            if loose:
                _name_group(list(run), parent, pairs, named_by)

    def home(number: int) -> int:
        parent = enclosing[number]
        within = None in pairs[number] and parent is not None and None in pairs[parent]
        return home(parent) if within and parent is not None else named_by[number]

    groups: defaultdict[int, list[int]] = defaultdict(list)
    for number in range(len(pairs)):
        groups[home(number)].append(number)
    return tuple(
        tuple(pairs[number] for number in sorted(group, key=lambda number: (number != first, number)))
        for first, group in sorted(groups.items())
    )


def _enclosing_pairs(pairs: Sequence[Pair]) -> list[int | None]:
    """Return the index of the pair that encloses each pair; None is the whole model."""
    enclosing: list[int | None] = [None] * len(pairs)
    for side in (0, 1):
        numbers = {node.path: number for number, pair in enumerate(pairs) if (node := pair[side])}
        paths = set(numbers)
        for path, number in numbers.items():
            if parent := parent_of(path, paths):
                enclosing[number] = numbers[parent]
    return enclosing


def _name_group(
    siblings: Sequence[int], parent: int | None, pairs: Sequence[Pair], named_by: list[int]
) -> None:
    """Choose by which pair a run of siblings without partners is told."""
    new = [number for number in siblings if pairs[number][1]]
    alone = len(new) == 1 or len(siblings) == 1
    first = (new or siblings)[0]
    for number in siblings:
        named_by[number] = first if alone or parent is None else parent


# --- two sequences ---------------------------------------------------------------------------------

Score = Callable[[AlignedModule, AlignedModule], float]


def _similarity(one: AlignedModule, other: AlignedModule) -> float:
    """Describe how much two have in common; 0 where they are not to be matched.

    A name is more than what it gives, and that more than a number, which only tells the place in a sequence:
    where a layer was put before others, these go on giving what they gave.
    """
    name = 0.0 if one.label != other.label else _PLACE if one.numbered else _NAME
    kind = _KIND if one.kind == other.kind else 0.0
    return name + kind + (_OUTPUT if kind and one.output == other.output else 0.0)


def _moved_similarity(one: AlignedModule, other: AlignedModule) -> float:
    """Likewise, of two that stand in different places: they must be of one class, and a named one."""
    return _similarity(one, other) if one.kind == other.kind and one.kind else 0.0


def _align_sequences(
    before: Sequence[AlignedModule], after: Sequence[AlignedModule], score: Score
) -> list[Match]:
    """Match two sequences in their order, so that what matches has most in common."""
    start = 0
    for one, other in zip(before, after, strict=False):
        if (one.label, one.kind, one.output) != (other.label, other.kind, other.output):
            break
        start += 1
    head: list[Match] = list(zip(before[:start], after[:start], strict=True))
    rest, others = before[start:], after[start:]
    if len(rest) * len(others) > _MOST_PAIRS:
        return head + _match_by_name(rest, others)
    return head + _best_alignment(rest, others, score)


def _match_by_name(before: Sequence[AlignedModule], after: Sequence[AlignedModule]) -> list[Match]:
    """Match those of one name, whatever their order."""
    named = {node.label: node for node in before}
    return [(named.pop(node.label), node) for node in after if node.label in named]


def _best_alignment(
    before: Sequence[AlignedModule], after: Sequence[AlignedModule], score: Score
) -> list[Match]:
    """Find the best way by dynamic programming, from the ends back to the beginnings."""
    width = len(after) + 1
    best = [[0.0] * width for _ in range(len(before) + 1)]
    gains = [[score(one, other) for other in after] for one in before]
    for row in range(len(before) - 1, -1, -1):
        here, below, gain = best[row], best[row + 1], gains[row]
        for column in range(len(after) - 1, -1, -1):
            both = gain[column] + below[column + 1] if gain[column] else 0.0
            here[column] = max(both, below[column], here[column + 1])
    matches: list[Match] = []
    row = column = 0
    while row < len(before) and column < len(after):
        both = gains[row][column]
        if both and best[row][column] == both + best[row + 1][column + 1]:
            matches.append((before[row], after[column]))
            row, column = row + 1, column + 1
        elif best[row][column] == best[row + 1][column]:
            row += 1
        else:
            column += 1
    return matches
