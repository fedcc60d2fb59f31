"""Symbolic costs: the totals of a few traces as exact polynomials of the input sizes, verified on others.

Costs of operators and sizes of storages are polynomials of the dimensions wherever shapes are: of degree 1 in
the batch and at most 2 in another, as in attention. `sizes_to_trace` chooses the sizes, `fit_totals` fits the
polynomials, or finds that there are none.

The interpolant through a full grid of points is unique in the span of the products of powers below the
number of points of each axis; its coefficients are sums of products of those of Lagrange's polynomials
(de Boor, A Practical Guide to Splines, 1978, chapters 1 and 17). Everything is a ratio of ints.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain, count, islice, product
from math import gcd, lcm, prod
from operator import mul
from typing import TYPE_CHECKING

from modeldyno.base.errors import RequestError
from modeldyno.base.job.input_spec import BATCH
from modeldyno.models.flops import CountedOp
from modeldyno.models.static.totals import (
    WORKING,
    ReadPart,
    Totals,
    least_read_bytes,
    reads_by_storage,
    sum_live_spans,
    sum_totals,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from modeldyno.models.static.graph import Graph, Role


@dataclass(frozen=True, slots=True)
class Basis:
    """The monomials of a polynomial: products of powers of dimensions."""

    names: tuple[str, ...]
    exponents: tuple[tuple[int, ...], ...]

    def at(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """Evaluate every monomial."""
        values = [sizes[name] for name in self.names]
        return tuple(prod(map(pow, values, powers)) for powers in self.exponents)


@dataclass(frozen=True, slots=True)
class Polynomial:
    """Coefficients: numerators over one denominator, in the order of the monomials of a Basis."""

    numerators: tuple[int, ...]
    denominator: int

    def at(self, products: tuple[int, ...]) -> int:
        """Return its value, rounded down, given the monomials evaluated by `Basis.at`."""
        total: int = sum(map(mul, self.numerators, products))
        return total // self.denominator

    def text(self, basis: Basis) -> str:
        """Format it, the highest degree first: ``36,864*batch*seq^2 + 512*batch*seq``."""
        terms = sorted(
            (sum(powers), powers, Fraction(number, self.denominator))
            for number, powers in zip(self.numerators, basis.exponents, strict=True)
            if number
        )
        text = "".join(
            f" {'-' if ratio < 0 else '+'} {_format_term(abs(ratio), basis.names, powers)}"
            for _, powers, ratio in reversed(terms)
        )
        return ("-" if text[:2] == " -" else "") + text[3:] or "0"


@dataclass(frozen=True, slots=True)
class Grid:
    """A full grid of points, and the matrix from values at them to coefficients."""

    basis: Basis
    rows: tuple[tuple[int, ...], ...]
    """For each monomial of the basis, the weight of the value at each point, over `denominator`."""
    denominator: int

    @classmethod
    def over(cls, points: Sequence[Mapping[str, int]]) -> Grid | None:
        """Return the grid of those points; None unless they are all points of a grid, each once."""
        names = tuple(points[0]) if points else ()
        if not points or any(set(point) != set(names) for point in points):
            return None
        axes = [sorted({point[name] for point in points}) for name in names]
        positions = [
            tuple(axis.index(point[name]) for axis, name in zip(axes, names, strict=True)) for point in points
        ]
        if sorted(positions) != list(product(*(range(len(axis)) for axis in axes))):
            return None
        exponents = tuple(product(*(range(len(axis)) for axis in axes)))
        lagrange = [_lagrange_coefficients(axis) for axis in axes]
        weights = [[_weight(lagrange, position, powers) for position in positions] for powers in exponents]
        denominator = lcm(*(ratio.denominator for row in weights for ratio in row))
        rows_of_ints = tuple(tuple(int(ratio * denominator) for ratio in row) for row in weights)
        return cls(Basis(names, exponents), rows_of_ints, denominator)

    def through(self, values: Sequence[int]) -> Polynomial:
        """Return the polynomial that has those values at the points, in their order."""
        return Polynomial(tuple(sum(map(mul, row, values)) for row in self.rows), self.denominator)


def _lagrange_coefficients(axis: Sequence[int]) -> list[list[Fraction]]:
    """Return for each point the coefficients of the polynomial that is 1 there and 0 at the others."""
    polynomials = []
    for here in axis:
        coefficients = [Fraction(1)]
        for other in axis:
            if other != here:
                scale = Fraction(1, here - other)
                shifted = [Fraction(0), *coefficients]
                lowered = [*coefficients, Fraction(0)]
                coefficients = [scale * (a - other * b) for a, b in zip(shifted, lowered, strict=True)]
        polynomials.append(coefficients)
    return polynomials


def _weight(
    lagrange: Sequence[Sequence[Sequence[Fraction]]], position: tuple[int, ...], powers: tuple[int, ...]
) -> Fraction:
    factors = (axis[at][power] for axis, at, power in zip(lagrange, position, powers, strict=True))
    return prod(factors, start=Fraction(1))


def _format_term(ratio: Fraction, names: Sequence[str], powers: tuple[int, ...]) -> str:
    factors = [
        name if power == 1 else f"{name}^{power}" for name, power in zip(names, powers, strict=True) if power
    ]
    if ratio == 1 and factors:
        return "*".join(factors)
    number = f"{ratio.numerator:,}" + (f"/{ratio.denominator:,}" if ratio.denominator > 1 else "")
    return "*".join([number, *factors])


_DEGREE = 2
_CHECKS = 2
_ADDITIVE = (
    "macs", "elementwise", "skippable", "bytes_read", "bytes_written", "input_bytes", "output_bytes",
    "gradient_bytes", "optimizer_bytes",
)  # fmt: skip
_SHOWN_METRICS = ("macs", "flops", "bytes_read", "bytes_written", "input_bytes", "output_bytes")


def sizes_to_trace(dimensions: Mapping[str, Sequence[int]]) -> tuple[dict[str, int], ...]:
    """Choose the sizes to trace for the requested ones: a full grid, then two or more for verification.

    The grid has 2 sizes of the batch and 3 of every other dimension. They are requested sizes where there
    are enough, otherwise others between or below them with the same alignment; never 1, for which operators
    may take a different path, nor the largest, which the first verification uses. The second verification
    uses the smallest, if the grid does not. Without dimensions there is one point, and no verification.
    """
    axes = {name: _choose_sizes(sorted(set(sizes)), _degree(name)) for name, sizes in dimensions.items()}
    grid = list(product(*(axis.taken for axis in axes.values())))
    corners = (
        tuple(axis.last for axis in axes.values()),
        tuple(axis.first for axis in axes.values()),
        tuple(axis.spare for axis in axes.values()),
    )
    count = _CHECKS + any(axis.needs_spare for axis in axes.values())
    checks = [corner for corner in dict.fromkeys(corners) if corner not in grid][:count]
    return tuple(dict(zip(axes, point, strict=True)) for point in (*grid, *checks))


@dataclass(frozen=True, slots=True)
class _AxisSizes:
    taken: tuple[int, ...]
    first: int
    last: int
    spare: int
    needs_spare: bool = False
    """Whether only `spare` is as badly aligned as the requested sizes."""


def _degree(name: str) -> int:
    return 1 if name == BATCH else _DEGREE


def _choose_sizes(requested: Sequence[int], degree: int) -> _AxisSizes:
    needed = degree + 2
    attempts = (list(islice(_candidates(requested, step), needed)) for step in _aligned_steps(requested))
    chosen = next(sizes for sizes in attempts if len(sizes) == needed)
    first, last = requested[0], requested[-1]
    *taken, spare = chosen
    aligned = gcd(*(size - last for size in (*taken, first)))
    worst = min(requested, key=lambda size: gcd(aligned, size - last))
    needs_spare = gcd(aligned, worst - last) < aligned
    return _AxisSizes(tuple(sorted(taken)), first, last, worst if needs_spare else spare, needs_spare)


def _aligned_steps(requested: Sequence[int]) -> list[int]:
    """Return step sizes that preserve the alignment of the requested sizes, less and less strictly."""
    spacing = gcd(*(requested[-1] - size for size in requested[:-1]))
    common = gcd(*requested)
    power = common & -common
    return [step for step in (spacing, common, *(power >> by for by in range(power.bit_length()))) if step]


def _candidates(requested: Sequence[int], step: int) -> Iterator[int]:
    first, last = requested[0], requested[-1]
    between = (size for size in range(first + (last - first) % step, last, step) if size not in requested)
    below = range(first - step, 1, -step) if (last - first) % step == 0 else ()
    above = count(last + 1) if step == 1 else ()
    return (size for size in chain(requested[:-1], between, below, above) if size > 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeAxis:
    """The sizes of one dimension for which polynomials hold: from `least` on, in steps of `step`.

    The remainder that a stride cuts off makes costs polynomial only among sizes of the same remainder. The
    batch has no strides: its step is 1, if more than one size was traced.
    """

    least: int
    step: int
    """0 where all traces had one size."""
    most: int
    """The largest that was traced."""

    @classmethod
    def of(cls, name: str, traced: Sequence[int], least: int) -> SizeAxis:
        """Find the common step of the traced sizes, and the first such size from `least` on."""
        step = gcd(*(size - traced[0] for size in traced))
        step = min(step, 1) if name == BATCH else step
        first = least + (traced[0] - least) % step if step else traced[0]
        return cls(least=first, step=step, most=max(traced))

    def holds(self, size: int) -> bool:
        """Check whether a size is one of them."""
        return size >= self.least and not (size - self.least) % self.step if self.step else size == self.least

    def text(self, name: str) -> str:
        """Format it: ``batch >= 2 (traced to 64)``, ``seq = 16, 32, ... (traced to 512)``, ``seq = 32``."""
        if not self.step:
            return f"{name} = {self.least}"
        each = f"{name} = {self.least}, {self.least + self.step}, ..."
        held = f"{name} >= {self.least}" if self.step == 1 else each
        return f"{held} (traced to {self.most:,})"


@dataclass(frozen=True, slots=True, kw_only=True)
class SymbolicTotals:
    """The totals of a model as polynomials of its dimensions."""

    basis: Basis
    axes: dict[str, SizeAxis]
    """Dimension to the sizes for which the polynomials hold."""
    ops: int
    counted: int
    """Operators that have a formula."""
    sums: dict[str, Polynomial]
    """Of the additive fields of Totals, by name, and of `flops`."""
    costs: tuple[tuple[tuple[Polynomial, ...], bool, int], ...]
    """Of the operators, each distinct cost once: its polynomials in the order of Counted, whether it has a
    formula, and how many operators have it."""
    sizes: tuple[Polynomial, ...]
    """Of the storages, each once."""
    working: tuple[tuple[int, int | None, int], ...]
    """Of activations and gradients: born, died, and index into `sizes`."""
    given: tuple[tuple[int, int | None, int], ...]
    """The same of everything else."""
    moved: tuple[tuple[Polynomial, tuple[tuple[Polynomial, Polynomial], ...] | None, int], ...]
    """Of storages that move: their size, what operators read of them (None where they are returned, and
    therefore move whole), and how many there are; see `least_moved_bytes`."""

    def covers(self, sizes: Mapping[str, int]) -> bool:
        """Check whether the polynomials hold at these sizes."""
        return all(axis.holds(sizes[name]) for name, axis in self.axes.items())

    def at(self, sizes: Mapping[str, int]) -> Totals:
        """Return the totals at other sizes: exact if the model takes the same path as in the traces.

        Between traced sizes it usually does; beyond them it is an extrapolation.

        Raises:
            RequestError: the sizes are not covered.
        """
        products = self._monomials(sizes)
        held = [size.at(products) for size in self.sizes]
        length = max(self.ops, 1)
        working = sum_live_spans(((born, died, held[i]) for born, died, i in self.working), length)
        given_bytes = sum_live_spans(((born, died, held[i]) for born, died, i in self.given), length)
        return Totals(
            calls=self.ops,
            counted_calls=self.counted,
            moved=sum(_bytes_moved(size, parts, products) * times for size, parts, times in self.moved),
            activation_peak=max(working),
            memory_peak=max(map(int.__add__, working, given_bytes)),
            **{name: self.sums[name].at(products) for name in _ADDITIVE},
        )

    def counts(self, sizes: Mapping[str, int]) -> Counter[CountedOp]:
        """Count the costs of the operators at other sizes; those without a formula are unbounded.

        Raises:
            RequestError: the sizes are not covered.
        """
        products = self._monomials(sizes)
        counts_by_cost: Counter[CountedOp] = Counter()
        for work, is_counted, times in self.costs:
            macs, elementwise, skippable, read, written = (polynomial.at(products) for polynomial in work)
            counts_by_cost[
                CountedOp(macs, elementwise, skippable, read, written, is_counted, 0 if is_counted else None)
            ] += times
        return counts_by_cost

    def text(self) -> dict[str, str]:
        """Format the polynomials of the totals, by metric."""
        return {name: self.sums[name].text(self.basis) for name in _SHOWN_METRICS}

    def domain(self) -> str:
        """Format the sizes for which they hold: ``batch >= 2 (traced to 64), seq = 16, 32, ...``."""
        return ", ".join(axis.text(name) for name, axis in self.axes.items())

    def _monomials(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        if self.covers(sizes):
            return self.basis.at(sizes)
        requested = ", ".join(f"{name} = {sizes[name]}" for name in self.basis.names)
        raise RequestError(
            f"The formulas hold for {self.domain()}, not for {requested}; trace the model at those sizes."
        )


def _bytes_moved(
    size: Polynomial, parts: Sequence[tuple[Polynomial, Polynomial]] | None, products: tuple[int, ...]
) -> int:
    total = size.at(products)
    if parts is None:
        return total
    return least_read_bytes(total, ((held.at(products), read.at(products)) for held, read in parts))


def fit_totals(
    graphs: Sequence[Graph], counts: Sequence[Sequence[CountedOp]], *, verify: int, least: int = 1
) -> SymbolicTotals | None:
    """Fit polynomials to all graphs but the last `verify`, and verify them on those.

    None where operators or storages differ between the graphs in more than their sizes, where the sizes
    are no full grid, or where the verification fails.

    Args:
        graphs: traces at the sizes of `sizes_to_trace`, in its order.
        counts: the costs of the operators of each of them.
        verify: how many of the last ones to use for verification.
        least: the least size of every dimension for which they are to hold.
    """
    fitted = len(graphs) - verify
    grid = Grid.over([graph.sizes for graph in graphs[:fitted]])
    rows = None if grid is None or not _same_structure(graphs, counts) else _AlignedGraphs.of(graphs, counts)
    if grid is None or rows is None:
        return None
    polynomials = {vector: grid.through(vector[:fitted]) for vector in rows.vectors()}
    checks = [grid.basis.at(graph.sizes) for graph in graphs[fitted:]]
    if any(_evaluate(polynomial, checks) != vector[fitted:] for vector, polynomial in polynomials.items()):
        return None
    totals_by_graph = [sum_totals(graph, counted) for graph, counted in zip(graphs, counts, strict=True)]
    symbolic = _symbolic_totals(graphs, grid, totals_by_graph[:fitted], rows, polynomials, least)
    agrees = all(
        symbolic.at(graph.sizes) == expected for graph, expected in zip(graphs, totals_by_graph, strict=True)
    )
    return symbolic if agrees else None


_Vector = tuple[int, ...]
"""A quantity in each of the graphs."""
_Parts = tuple[tuple[_Vector, _Vector], ...]
"""What operators read of one storage, see `ReadPart`, in each of the graphs."""


@dataclass(frozen=True, slots=True)
class _AlignedGraphs:
    """Corresponding quantities of the graphs, as vectors over the graphs."""

    costs: Counter[tuple[CountedOp, ...]]
    storages: list[_Vector]
    moved: Counter[tuple[_Vector, _Parts | None]]

    @classmethod
    def of(cls, graphs: Sequence[Graph], counts: Sequence[Sequence[CountedOp]]) -> _AlignedGraphs | None:
        """Align the graphs; None where operators do not read the same storages."""
        sizes = ([item.bytes for item in graph.storages] for graph in graphs)
        storages = list(zip(*sizes, strict=True))
        read = [reads_by_storage(graph, counted) for graph, counted in zip(graphs, counts, strict=True)]
        forms = [{index: len(parts) for index, parts in storage_parts.items()} for storage_parts in read]
        if any(form != forms[0] for form in forms):
            return None
        moved: Counter[tuple[_Vector, _Parts | None]] = Counter()
        for index in read[0]:
            moved[storages[index], _distinct_parts([storage_parts[index] for storage_parts in read])] += 1
        for index, item in enumerate(graphs[0].storages):
            if item.output and item.born >= 0:
                moved[storages[index], None] += 1
        return cls(Counter(zip(*counts, strict=True)), storages, moved)

    def vectors(self) -> set[_Vector]:
        """Return every distinct quantity to fit a polynomial to."""
        works = (vector for cost in self.costs for vector in _cost_vectors(cost))
        parts = (vector for _, parts in self.moved for part in parts or () for vector in part)
        return {*works, *self.storages, *parts}


def _distinct_parts(read: Sequence[Sequence[ReadPart]]) -> _Parts:
    """Return what operators read of one storage in each of the graphs, without duplicates."""
    held = zip(*([part[0] for part in parts] for parts in read), strict=True)
    left = zip(*([part[1] for part in parts] for parts in read), strict=True)
    return tuple(dict.fromkeys(zip(held, left, strict=True)))


def _cost_vectors(cost: Sequence[CountedOp]) -> list[_Vector]:
    """Return the quantities of one operator as vectors over the graphs, in the order of Counted."""
    return list(zip(*((c.macs, c.elementwise, c.skippable, c.read, c.written) for c in cost), strict=True))


def _same_structure(graphs: Sequence[Graph], counts: Sequence[Sequence[CountedOp]]) -> bool:
    """Check whether operators and storages are the same in everything but sizes."""
    forms = (
        (_structure(graph), [c.known for c in counted]) for graph, counted in zip(graphs, counts, strict=True)
    )
    first = next(forms)
    return len(first[1]) == len(graphs[0].ops) and all(form == first for form in forms)


def _structure(graph: Graph) -> tuple[list[tuple[str, str, str]], list[tuple[int, int | None, Role, bool]]]:
    return (
        [(op.kind, op.scope, op.phase) for op in graph.ops],
        [(item.born, item.died, item.role, item.output) for item in graph.storages],
    )


def _evaluate(polynomial: Polynomial, points: Sequence[_Vector]) -> _Vector:
    return tuple(polynomial.at(point) for point in points)


def _symbolic_totals(
    graphs: Sequence[Graph],
    grid: Grid,
    totals_by_graph: Sequence[Totals],
    rows: _AlignedGraphs,
    polynomials: Mapping[_Vector, Polynomial],
    least: int,
) -> SymbolicTotals:
    """Build the symbolic totals from the fitted polynomials."""
    first = graphs[0]
    size_index = {vector: at for at, vector in enumerate(dict.fromkeys(rows.storages))}
    spans = [
        (item.role in WORKING, (item.born, item.died, size_index[vector]))
        for item, vector in zip(first.storages, rows.storages, strict=True)
    ]
    return SymbolicTotals(
        basis=grid.basis,
        axes={
            name: SizeAxis.of(name, [graph.sizes[name] for graph in graphs], least)
            for name in grid.basis.names
        },
        ops=len(first.ops),
        counted=totals_by_graph[0].counted_calls,
        sums={
            name: grid.through([getattr(totals, name) for totals in totals_by_graph])
            for name in (*_ADDITIVE, "flops")
        },
        costs=tuple(
            (tuple(polynomials[vector] for vector in _cost_vectors(cost)), cost[0].known, times)
            for cost, times in rows.costs.items()
        ),
        sizes=tuple(polynomials[vector] for vector in size_index),
        working=tuple(span for works, span in spans if works),
        given=tuple(span for works, span in spans if not works),
        moved=tuple(
            (
                polynomials[size],
                None if parts is None else tuple((polynomials[h], polynomials[r]) for h, r in parts),
                times,
            )
            for (size, parts), times in rows.moved.items()
        ),
    )
