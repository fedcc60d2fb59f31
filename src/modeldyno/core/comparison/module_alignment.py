"""The modules of two models, matched: by path and class where these agree, by order where paths have shifted.

Trees are matched from the top: the children of two modules that match are aligned as two sequences, as
in Needleman and Wunsch (1970), with a score for what they have in common and none for a gap. What is
left of both, such as the parts of a module that was wrapped in another one, is aligned once more as
a whole, class by class. What has no partner then is told in as few lines as it has places (`folded`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby


@dataclass(frozen=True, slots=True)
class Node:
    """A module, or an operator of a network that has no modules. Positional, for there are many of them."""

    path: str
    """``""`` is the whole."""
    kind: str = ""
    """The name of its class."""
    output: str = ""
    """Shape and dtype of what it gives, where that is known."""
    calls: float = 1.0

    @property
    def label(self) -> str:
        """What it is called within the module around it."""
        return self.path.rpartition(".")[2]

    @property
    def numbered(self) -> bool:
        """Whether that only tells its place: ``3`` in a sequence, or ``MatMul_3``, the fourth of its kind."""
        operator = self.kind.rpartition(" ")[2]
        return self.label == operator or self.label.removeprefix(operator).lstrip("_").isdecimal()


Pair = tuple[Node | None, Node | None]
"""What was before, and what it has become; None where it is new, or gone."""
Match = tuple[Node, Node]
Tree = dict[str, list[Node]]
"""Path of a module to the modules right within it, in their order."""
_KIND, _NAME, _OUTPUT, _PLACE = 4.0, 2.0, 1.0, 0.5
"""What it counts that two are of one class, of one name, give the same, and are of one number."""
_MOST = 1_000_000
"""Pairs of modules that are weighed at most; beyond that, only those of one name are matched."""


def align(before: Sequence[Node], after: Sequence[Node]) -> tuple[Pair, ...]:
    """Match every module of one model with one of the other, or with None.

    Args:
        before: modules with distinct paths, in the order of their first calls; the whole may be among them.
        after: likewise.

    Returns:
        Every module of either, once; those of `after` in their order, what is gone behind what it followed.
    """
    old, new = _tree(before), _tree(after)
    matched: dict[str, Node] = {node.path: node for node in before if not node.path and _whole(after)}
    _descend("", "", old, new, matched)
    fresh = [node for node in after if node.path not in matched]
    for one, other in _aligned(_lost(before, matched), fresh, _likely):
        matched[other.path] = one
    gone = _gone(before, matched)
    pairs: list[Pair] = [*gone.get(None, ())]
    for node in after:
        pairs += ((matched.get(node.path), node), *gone.get(node.path, ()))
    return tuple(pairs)


def _gone(before: Sequence[Node], matched: dict[str, Node]) -> dict[str | None, list[Pair]]:
    """Give what has no partner any more, by the path of what it followed."""
    became = {one.path: path for path, one in matched.items()}
    found: defaultdict[str | None, list[Pair]] = defaultdict(list)
    last: str | None = None
    for node in before:
        if node.path in became:
            last = became[node.path]
        else:
            found[last].append((node, None))
    return found


def _whole(nodes: Sequence[Node]) -> bool:
    return any(not node.path for node in nodes)


def parent_of(path: str, known: set[str]) -> str:
    """Give the nearest module that holds this one; ``""`` is the whole."""
    while "." in path:
        path = path.rpartition(".")[0]
        if path in known:
            return path
    return ""


def _tree(nodes: Sequence[Node]) -> Tree:
    known = {node.path for node in nodes}
    found: defaultdict[str, list[Node]] = defaultdict(list)
    for node in nodes:
        if node.path:
            found[parent_of(node.path, known)].append(node)
    return found


def _descend(before: str, after: str, old: Tree, new: Tree, matched: dict[str, Node]) -> None:
    """Match the children of two modules, and theirs in turn."""
    for one, other in _aligned(old.get(before, ()), new.get(after, ()), _alike):
        matched[other.path] = one
        _descend(one.path, other.path, old, new, matched)


def _lost(before: Sequence[Node], matched: dict[str, Node]) -> list[Node]:
    kept = {node.path for node in matched.values()}
    return [node for node in before if node.path not in kept]


# --- what has no partner -----------------------------------------------------------------------------


def folded(pairs: Sequence[Pair]) -> tuple[tuple[Pair, ...], ...]:
    """Put together what is new or gone in one place, and give groups that are named by their first pair.

    What is new with all that is in it is one thing. So are several that are new or gone one after another:
    they are told by the only new one, as of operators that were fused, or else by the module that they stand
    in, as of an operator that was split into many; what stands right in the whole by the first new one.

    Args:
        pairs: as `align` gives them.
    """
    around = _around(pairs)
    teller = list(range(len(pairs)))
    children: defaultdict[int | None, list[int]] = defaultdict(list)
    for number, parent in enumerate(around):
        children[parent].append(number)
    for parent, siblings in children.items():
        for loose, run in groupby(siblings, key=lambda number: None in pairs[number]):
            if loose:
                _tell(list(run), parent, pairs, teller)

    def home(number: int) -> int:
        parent = around[number]
        within = None in pairs[number] and parent is not None and None in pairs[parent]
        return home(parent) if within and parent is not None else teller[number]

    groups: defaultdict[int, list[int]] = defaultdict(list)
    for number in range(len(pairs)):
        groups[home(number)].append(number)
    return tuple(
        tuple(pairs[number] for number in sorted(group, key=lambda number: (number != first, number)))
        for first, group in sorted(groups.items())
    )


def _around(pairs: Sequence[Pair]) -> list[int | None]:
    """Give the number of the pair that each stands in; None is the whole."""
    found: list[int | None] = [None] * len(pairs)
    for side in (0, 1):
        numbers = {node.path: number for number, pair in enumerate(pairs) if (node := pair[side])}
        known = set(numbers)
        for path, number in numbers.items():
            if parent := parent_of(path, known):
                found[number] = numbers[parent]
    return found


def _tell(run: Sequence[int], parent: int | None, pairs: Sequence[Pair], teller: list[int]) -> None:
    """Choose by which pair a run of siblings without partners is told."""
    new = [number for number in run if pairs[number][1]]
    alone = len(new) == 1 or len(run) == 1
    first = (new or run)[0]
    for number in run:
        teller[number] = first if alone or parent is None else parent


# --- two sequences ---------------------------------------------------------------------------------

Score = Callable[[Node, Node], float]


def _alike(one: Node, other: Node) -> float:
    """Say how much two have in common; 0 where they are not to be matched.

    A name is more than what it gives, and that more than a number, which only tells the place in a sequence:
    where a layer was put before others, these go on giving what they gave.
    """
    name = 0.0 if one.label != other.label else _PLACE if one.numbered else _NAME
    kind = _KIND if one.kind == other.kind else 0.0
    return name + kind + (_OUTPUT if kind and one.output == other.output else 0.0)


def _likely(one: Node, other: Node) -> float:
    """Likewise, of two that stand in different places: they must be of one class, and a named one."""
    return _alike(one, other) if one.kind == other.kind and one.kind else 0.0


def _aligned(before: Sequence[Node], after: Sequence[Node], score: Score) -> list[Match]:
    """Match two sequences in their order, so that what matches has most in common."""
    start = 0
    for one, other in zip(before, after, strict=False):
        if (one.label, one.kind, one.output) != (other.label, other.kind, other.output):
            break
        start += 1
    head: list[Match] = list(zip(before[:start], after[:start], strict=True))
    rest, others = before[start:], after[start:]
    if len(rest) * len(others) > _MOST:
        return head + _by_name(rest, others)
    return head + _best(rest, others, score)


def _by_name(before: Sequence[Node], after: Sequence[Node]) -> list[Match]:
    """Match those of one name, whatever their order."""
    named = {node.label: node for node in before}
    return [(named.pop(node.label), node) for node in after if node.label in named]


def _best(before: Sequence[Node], after: Sequence[Node], score: Score) -> list[Match]:
    """Find the best way by dynamic programming, from the ends back to the beginnings."""
    width = len(after) + 1
    best = [[0.0] * width for _ in range(len(before) + 1)]
    gains = [[score(one, other) for other in after] for one in before]
    for row in range(len(before) - 1, -1, -1):
        here, below, gain = best[row], best[row + 1], gains[row]
        for column in range(len(after) - 1, -1, -1):
            both = gain[column] + below[column + 1] if gain[column] else 0.0
            here[column] = max(both, below[column], here[column + 1])
    found: list[Match] = []
    row = column = 0
    while row < len(before) and column < len(after):
        both = gains[row][column]
        if both and best[row][column] == both + best[row + 1][column + 1]:
            found.append((before[row], after[column]))
            row, column = row + 1, column + 1
        elif best[row][column] == best[row + 1][column]:
            row += 1
        else:
            column += 1
    return found
