"""Costs of a model at other input sizes: exact polynomials where they hold, otherwise retraced."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from math import prod
from typing import TYPE_CHECKING

from modeldyno.base.errors import RequestError
from modeldyno.base.job.input_spec import BATCH
from modeldyno.models.flops import CountedOp
from modeldyno.models.static.graph import Graph
from modeldyno.models.static.symbolic_costs import fit_totals, sizes_to_trace
from modeldyno.models.static.totals import AnalysedGraph, Totals

if TYPE_CHECKING:
    from collections.abc import Sequence

    from modeldyno.models.flops import Formula
    from modeldyno.models.static.symbolic_costs import SymbolicTotals

Trace = Callable[[Mapping[str, int]], Graph]
"""Sizes of the varying dimensions to the graph at them."""
SummedCosts = tuple[Totals, Mapping[CountedOp, int]]
"""The totals of a graph, and the costs of its operators with their multiplicity."""

LARGEST = 1 << 20
"""The largest size that is tried."""


class TraceCache:
    """The traces of a model, one for each set of sizes.

    Whole graphs are kept until `forget`, as polynomials are fitted to them; afterwards only their totals.
    """

    def __init__(
        self, trace: Trace, formulas: Mapping[str, Formula], base: Mapping[str, int], *traced: AnalysedGraph
    ) -> None:
        """Start with the `traced` graphs; dimensions without a size are as in `base`."""
        self.trace, self.formulas, self.base = trace, formulas, dict(base)
        self.graphs: dict[frozenset[tuple[str, int]], AnalysedGraph] = {}
        self.sums: dict[frozenset[tuple[str, int]], SummedCosts] = {}
        for analysed in traced:
            self.graphs[self._key(analysed.graph.sizes)] = analysed

    def graph(self, sizes: Mapping[str, int]) -> AnalysedGraph:
        """Return the graph at some sizes."""
        key = self._key(sizes)
        if key not in self.graphs:
            self.graphs[key] = self._trace_and_count(sizes)
        return self.graphs[key]

    def at(self, sizes: Mapping[str, int]) -> SummedCosts:
        """Return the totals and costs at some sizes."""
        key = self._key(sizes)
        if key not in self.sums:
            self.sums[key] = _sum_up(self.graphs.get(key) or self._trace_and_count(sizes))
        return self.sums[key]

    def forget(self) -> None:
        """Drop the graphs and keep their totals."""
        self.sums.update(
            (key, _sum_up(traced)) for key, traced in self.graphs.items() if key not in self.sums
        )
        self.graphs.clear()

    def _trace_and_count(self, sizes: Mapping[str, int]) -> AnalysedGraph:
        return AnalysedGraph.of(self.trace(sizes), self.formulas)

    def _key(self, sizes: Mapping[str, int]) -> frozenset[tuple[str, int]]:
        return frozenset({**self.base, **sizes}.items())


def _sum_up(traced: AnalysedGraph) -> SummedCosts:
    return traced.totals(), Counter(traced.counts)


class SizeExtrapolator:
    """The costs of a model at any sizes of some dimensions."""

    def __init__(self, traces: TraceCache, vary: Mapping[str, Sequence[int]]) -> None:
        """Fit polynomials to traces at a few of the sizes in `vary`.

        They need not hold for a size of 1, for which models often take a different path.
        """
        self.traces = traces
        self.family = self._fit(vary, 1)
        if self.family is None and any(1 in sizes for sizes in vary.values()):
            larger = {name: [size for size in sizes if size > 1] for name, sizes in vary.items()}
            self.family = self._fit(larger, 2) if all(larger.values()) else None

    def _fit(self, vary: Mapping[str, Sequence[int]], least: int) -> SymbolicTotals | None:
        points = sizes_to_trace(vary)
        try:
            traced = [self.traces.graph(point) for point in points]
        except RequestError:  # the model does not accept one of the sizes, which may not even be requested
            return None
        checks = len(points) - prod(2 if name == BATCH else 3 for name in vary)
        graphs, counts = [each.graph for each in traced], [each.counts for each in traced]
        return fit_totals(graphs, counts, verify=checks, least=least)

    def at(self, sizes: Mapping[str, int]) -> SummedCosts:
        """Return the totals and costs at some sizes."""
        all_sizes = {**self.traces.base, **sizes}
        if self.family is not None and self.family.covers(all_sizes):
            return self.family.at(all_sizes), self.family.counts(all_sizes)
        return self.traces.at(sizes)

    def largest(self, dimension: str, memory: int) -> tuple[int, str]:
        """Find the largest size of a dimension whose memory peak fits; the others are as in the base.

        Polynomials only give the start of the search, as they are fitted at small sizes: the model is traced
        at the answer, which fits, and at the next size, which does not.

        Returns:
            that size (see `largest_fitting`), and why the model does not accept the next; empty if it does.
        """
        refused: dict[int, str] = {}

        def fits_traced(size: int) -> bool:
            try:
                return self.traces.at({dimension: size})[0].memory_peak <= memory
            except RequestError as error:
                refused[size] = str(error)
                return False

        def fits_predicted(size: int) -> bool:
            all_sizes = {**self.traces.base, dimension: size}
            if self.family is None or not self.family.covers(all_sizes):
                return fits_traced(size)
            return self.family.at(all_sizes).memory_peak <= memory

        answer = largest_fitting(fits_traced, largest_fitting(fits_predicted))
        return answer, refused.get(answer + 1, "")


def largest_fitting(fits: Callable[[int], bool], guess: int = 1) -> int:
    """Find a size that fits while the next one does not, starting from a guess.

    0 where not even 1 fits, LARGEST where that still fits. A right guess takes 2 tries, a wrong one 41 at
    most. It is the largest that fits if memory never falls as the size grows.
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
