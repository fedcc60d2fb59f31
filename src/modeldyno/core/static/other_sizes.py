"""A network at other sizes than those asked for first: by polynomials where they hold, else traced anew."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from math import prod
from typing import TYPE_CHECKING

from modeldyno.core.spec.input_spec import BATCH
from modeldyno.core.static.flops import Counted, count
from modeldyno.core.static.graph import Graph
from modeldyno.core.static.symbolic_costs import fit, sample
from modeldyno.core.static.totals import Totals, totals
from modeldyno.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from modeldyno.core.static.flops import Formula
    from modeldyno.core.static.symbolic_costs import Family

Trace = Callable[[Mapping[str, int]], Graph]
"""Sizes of the dimensions that vary, to the graph at them."""
Traced = tuple[Graph, tuple[Counted, ...]]
"""A graph, and what each of its operators costs."""
Summed = tuple[Totals, Mapping[Counted, int]]
"""What a graph adds up to, and what its operators cost and how many cost that."""

LARGEST = 1 << 20
"""The largest size that is sought."""


class Traces:
    """A network wherever it was traced, once for each set of sizes.

    Whole graphs are kept until `forget`, for polynomials are found in them; then only what they add up to.
    """

    def __init__(
        self, trace: Trace, formulas: Mapping[str, Formula], base: Mapping[str, int], *known: Traced
    ) -> None:
        """Begin with what is `known` already; dimensions without a size are as in `base`."""
        self.trace, self.formulas, self.base = trace, formulas, dict(base)
        self.graphs: dict[frozenset[tuple[str, int]], Traced] = {}
        self.sums: dict[frozenset[tuple[str, int]], Summed] = {}
        for graph, counts in known:
            self.graphs[self._key(graph.sizes)] = graph, counts

    def graph(self, sizes: Mapping[str, int]) -> Traced:
        """Give the graph at some sizes."""
        key = self._key(sizes)
        if key not in self.graphs:
            self.graphs[key] = self._look(sizes)
        return self.graphs[key]

    def at(self, sizes: Mapping[str, int]) -> Summed:
        """Give what the network adds up to at some sizes."""
        key = self._key(sizes)
        if key not in self.sums:
            self.sums[key] = _summed(self.graphs.get(key) or self._look(sizes))
        return self.sums[key]

    def forget(self) -> None:
        """Let go of the graphs."""
        self.sums.update((key, _summed(found)) for key, found in self.graphs.items() if key not in self.sums)
        self.graphs.clear()

    def _look(self, sizes: Mapping[str, int]) -> Traced:
        graph = self.trace(sizes)
        return graph, tuple(count(op, self.formulas) for op in graph.ops)

    def _key(self, sizes: Mapping[str, int]) -> frozenset[tuple[str, int]]:
        return frozenset({**self.base, **sizes}.items())


def _summed(found: Traced) -> Summed:
    return totals(*found), Counter(found[1])


class Elsewhere:
    """A network at sizes of some dimensions."""

    def __init__(self, traces: Traces, vary: Mapping[str, Sequence[int]]) -> None:
        """Find polynomials by tracing at a few of the sizes that `vary`.

        They need not hold for a size of 1: one sample alone often takes a course of its own.
        """
        self.traces = traces
        self.family = self._fitted(vary, 1)
        if self.family is None and any(1 in asked for asked in vary.values()):
            rest = {name: [size for size in asked if size > 1] for name, asked in vary.items()}
            self.family = self._fitted(rest, 2) if all(rest.values()) else None

    def _fitted(self, vary: Mapping[str, Sequence[int]], least: int) -> Family | None:
        points = sample(vary)
        try:
            known = [self.traces.graph(point) for point in points]
        except RequestError:  # There is a size, maybe none of those asked for, that the network cannot have.
            return None
        checks = len(points) - prod(2 if name == BATCH else 3 for name in vary)
        graphs, counts = zip(*known, strict=True)
        return fit(graphs, counts, verify=checks, least=least)

    def at(self, sizes: Mapping[str, int]) -> Summed:
        """Give what the network adds up to at some sizes."""
        whole = {**self.traces.base, **sizes}
        if self.family is not None and self.family.covers(whole):
            return self.family.at(whole), self.family.counts(whole)
        return self.traces.at(sizes)

    def largest(self, dimension: str, memory: int) -> tuple[int, str]:
        """Find the largest size of a dimension whose peak of memory fits; the others are as in the base.

        Polynomials only say where to begin, for they are found at small sizes: the network is traced at
        the answer, which fits, and at the next size, which does not.

        Returns:
            that size (see `largest`), and why the network cannot have the next; empty where it can.
        """
        refused: dict[int, str] = {}

        def traced(size: int) -> bool:
            try:
                return self.traces.at({dimension: size})[0].memory_peak <= memory
            except RequestError as error:
                refused[size] = str(error)
                return False

        def foreseen(size: int) -> bool:
            whole = {**self.traces.base, dimension: size}
            if self.family is None or not self.family.covers(whole):
                return traced(size)
            return self.family.at(whole).memory_peak <= memory

        answer = largest(traced, largest(foreseen))
        return answer, refused.get(answer + 1, "")


def largest(fits: Callable[[int], bool], guess: int = 1) -> int:
    """Find a size that fits while the next one does not, beginning at a guess.

    0 where not even 1 fits, LARGEST where that still does. A right guess takes 2 tries, a wrong one 41 at
    most. It is the largest that fits if memory does not fall where the size grows.
    """
    low, high = 0, LARGEST + 1
    size = begin = min(max(1, guess), LARGEST)
    while high - low > 1:
        if fits(size):
            low = size
        else:
            high = size
        further = begin + 1 if low == begin else min(2 * low, LARGEST)
        size = (low + high) // 2 if high <= LARGEST else further
    return low
