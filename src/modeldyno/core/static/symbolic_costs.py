"""A network at all sizes: the totals of a few traces as exact polynomials, verified on others.

Costs of operators and sizes of storages are polynomials of the dimensions wherever shapes are: of degree
1 in the batch and 2 at most in another, attention being what squares it. `sample` says what to trace,
`fit` finds the polynomials, or finds that there are none.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import chain, count, islice, product
from math import gcd
from typing import TYPE_CHECKING

from modeldyno.core.spec.input_spec import BATCH
from modeldyno.core.static.flops import Counted
from modeldyno.core.static.liveness import WORKING, course
from modeldyno.core.static.totals import Part, Totals, reads, totals, touched
from modeldyno.core.stats.polynomial import Basis, Grid, Polynomial
from modeldyno.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from modeldyno.core.static.graph import Graph, Role

_DEGREE = 2
_CHECKS = 2
_ADDED = (
    "macs", "elementwise", "skippable", "bytes_read", "bytes_written", "input_bytes", "output_bytes",
    "gradient_bytes", "optimizer_bytes",
)  # fmt: skip
_SHOWN = ("macs", "flops", "bytes_read", "bytes_written", "input_bytes", "output_bytes")


def sample(dimensions: Mapping[str, Sequence[int]]) -> tuple[dict[str, int], ...]:
    """Choose the sizes to trace, given those asked for: a full grid, and then two or more to verify on.

    The grid has 2 sizes of the batch and 3 of every other dimension. They are those asked for where
    there are enough, else others between them or below, as far apart as those are aligned; never 1, at
    which operators may take another course, nor the largest, which the first verification has. The next
    verification has the smallest, if the grid has not. Without dimensions there is one point, and none to
    verify on.
    """
    axes = {name: _axis(sorted(set(asked)), _degree(name)) for name, asked in dimensions.items()}
    grid = list(product(*(axis.taken for axis in axes.values())))
    ends = (
        tuple(axis.last for axis in axes.values()),
        tuple(axis.first for axis in axes.values()),
        tuple(axis.spare for axis in axes.values()),
    )
    enough = _CHECKS + any(axis.needs_spare for axis in axes.values())
    checks = [end for end in dict.fromkeys(ends) if end not in grid][:enough]
    return tuple(dict(zip(axes, point, strict=True)) for point in (*grid, *checks))


@dataclass(frozen=True, slots=True)
class _Taken:
    taken: tuple[int, ...]
    first: int
    last: int
    spare: int
    needs_spare: bool = False
    """Whether only that one is as badly aligned as what was asked for."""


def _degree(name: str) -> int:
    return 1 if name == BATCH else _DEGREE


def _axis(asked: Sequence[int], degree: int) -> _Taken:
    needed = degree + 2
    tries = (list(islice(_candidates(asked, step), needed)) for step in _steps(asked))
    found = next(sizes for sizes in tries if len(sizes) == needed)
    first, last = asked[0], asked[-1]
    *taken, spare = found
    aligned = gcd(*(size - last for size in (*taken, first)))
    worst = min(asked, key=lambda size: gcd(aligned, size - last))
    needs_spare = gcd(aligned, worst - last) < aligned
    return _Taken(tuple(sorted(taken)), first, last, worst if needs_spare else spare, needs_spare)


def _steps(asked: Sequence[int]) -> list[int]:
    """Give distances between sizes that keep to the alignment of those asked for, ever less strictly."""
    apart = gcd(*(asked[-1] - size for size in asked[:-1]))
    common = gcd(*asked)
    power = common & -common
    return [step for step in (apart, common, *(power >> by for by in range(power.bit_length()))) if step]


def _candidates(asked: Sequence[int], step: int) -> Iterator[int]:
    first, last = asked[0], asked[-1]
    between = (size for size in range(first + (last - first) % step, last, step) if size not in asked)
    below = range(first - step, 1, -step) if (last - first) % step == 0 else ()
    above = count(last + 1) if step == 1 else ()
    return (size for size in chain(asked[:-1], between, below, above) if size > 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """The sizes of one dimension for which polynomials hold: from `least` on, at a distance of `step`.

    What a stride cuts off is no polynomial of the size, but is one of all the sizes of one remainder. The
    batch has no strides: its step is 1, if more than one was traced.
    """

    least: int
    step: int
    """0 where all traces had one size."""
    most: int
    """The largest that was traced."""

    @classmethod
    def of(cls, name: str, traced: Sequence[int], least: int) -> Axis:
        """Find the distance that the sizes of all traces keep, and the first such size from `least` on."""
        step = gcd(*(size - traced[0] for size in traced))
        step = min(step, 1) if name == BATCH else step
        first = least + (traced[0] - least) % step if step else traced[0]
        return cls(least=first, step=step, most=max(traced))

    def holds(self, size: int) -> bool:
        """Tell whether a size is one of them."""
        return size >= self.least and not (size - self.least) % self.step if self.step else size == self.least

    def text(self, name: str) -> str:
        """Write it: ``batch >= 2 (traced to 64)``, ``seq = 16k (traced to 512)``, ``seq = 32``."""
        if not self.step:
            return f"{name} = {self.least}"
        begin = "" if self.least == self.step else f"{self.least} + "
        held = f"{name} >= {self.least}" if self.step == 1 else f"{name} = {begin}{self.step}k"
        return f"{held} (traced to {self.most:,})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """The totals of a network as polynomials of its dimensions."""

    basis: Basis
    axes: dict[str, Axis]
    """Dimension to the sizes for which the polynomials hold."""
    ops: int
    counted: int
    """Operators that have a formula."""
    sums: dict[str, Polynomial]
    """Of what adds up, by its name in Totals, and of `flops`."""
    costs: tuple[tuple[tuple[Polynomial, ...], bool, int], ...]
    """Of the operators, each kind of cost once: its polynomials in the order of Counted, whether it is
    known, and how many operators have it."""
    sizes: tuple[Polynomial, ...]
    """Of the storages, each once."""
    working: tuple[tuple[int, int | None, int], ...]
    """Of activations and gradients: born, died, and index into `sizes`."""
    given: tuple[tuple[int, int | None, int], ...]
    """The same of everything else."""
    moved: tuple[tuple[Polynomial, tuple[tuple[Polynomial, Polynomial], ...] | None, int], ...]
    """Of storages that move: their size, what operators read of them (None where they are returned, which
    moves them whole), and how many they are; see `totals.moved`."""

    def covers(self, sizes: Mapping[str, int]) -> bool:
        """Tell whether sizes are as aligned as those on which the polynomials were found."""
        return all(axis.holds(sizes[name]) for name, axis in self.axes.items())

    def at(self, sizes: Mapping[str, int]) -> Totals:
        """Give the totals at other sizes: exactly, if the network takes the course there that was traced.

        Between the sizes that were traced it mostly does; beyond them that is an extrapolation.

        Raises:
            RequestError: the sizes are not covered.
        """
        products = self._products(sizes)
        held = [size.at(products) for size in self.sizes]
        length = max(self.ops, 1)
        working = course(((born, died, held[i]) for born, died, i in self.working), length)
        given = course(((born, died, held[i]) for born, died, i in self.given), length)
        return Totals(
            calls=self.ops,
            counted_calls=self.counted,
            moved=sum(_moves(size, parts, products) * times for size, parts, times in self.moved),
            activation_peak=max(working),
            memory_peak=max(map(int.__add__, working, given)),
            **{name: self.sums[name].at(products) for name in _ADDED},
        )

    def counts(self, sizes: Mapping[str, int]) -> Counter[Counted]:
        """Give what the operators cost at other sizes, and how many cost that; without a formula, unbounded.

        Raises:
            RequestError: the sizes are not covered.
        """
        products = self._products(sizes)
        found: Counter[Counted] = Counter()
        for work, known, times in self.costs:
            macs, elementwise, skippable, read, written = (each.at(products) for each in work)
            found[Counted(macs, elementwise, skippable, read, written, known, 0 if known else None)] += times
        return found

    def text(self) -> dict[str, str]:
        """Write the polynomials of what adds up, by metric."""
        return {name: self.sums[name].text(self.basis) for name in _SHOWN}

    def domain(self) -> str:
        """Write for which sizes they hold: ``batch >= 2 (traced to 64), seq = 16k (traced to 512)``."""
        return ", ".join(axis.text(name) for name, axis in self.axes.items())

    def _products(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        if self.covers(sizes):
            return self.basis.at(sizes)
        asked = ", ".join(f"{name} = {sizes[name]}" for name in self.basis.names)
        raise RequestError(
            f"The formulas hold for {self.domain()}, not for {asked}; trace the model at those sizes."
        )


def _moves(
    size: Polynomial, parts: Sequence[tuple[Polynomial, Polynomial]] | None, products: tuple[int, ...]
) -> int:
    whole = size.at(products)
    if parts is None:
        return whole
    return touched(whole, ((held.at(products), read.at(products)) for held, read in parts))


def fit(
    graphs: Sequence[Graph], counts: Sequence[Sequence[Counted]], *, verify: int, least: int = 1
) -> Family | None:
    """Find the polynomials through all graphs but the last `verify`, and check them on those.

    None where operators or storages differ between the graphs in more than their sizes, where the sizes
    are no full grid, or where any polynomial misses what it is checked on.

    Args:
        graphs: traces at the sizes of `sample`, in its order.
        counts: what the operators of each of them cost.
        verify: how many of the last are to check the others.
        least: the size from which they shall hold, of every dimension.
    """
    known = len(graphs) - verify
    grid = Grid.over([graph.sizes for graph in graphs[:known]])
    rows = None if grid is None or not _aligned(graphs, counts) else _Rows.of(graphs, counts)
    if grid is None or rows is None:
        return None
    found = {vector: grid.through(vector[:known]) for vector in rows.vectors()}
    checks = [grid.basis.at(graph.sizes) for graph in graphs[known:]]
    if any(_values(polynomial, checks) != vector[known:] for vector, polynomial in found.items()):
        return None
    wholes = [totals(graph, counted) for graph, counted in zip(graphs, counts, strict=True)]
    family = _family(graphs, grid, wholes[:known], rows, found, least)
    agrees = all(family.at(graph.sizes) == whole for graph, whole in zip(graphs, wholes, strict=True))
    return family if agrees else None


_Vector = tuple[int, ...]
"""A quantity in each of the graphs."""
_Parts = tuple[tuple[_Vector, _Vector], ...]
"""What operators read of one storage, see `totals.Part`, in each of the graphs."""


@dataclass(frozen=True, slots=True)
class _Rows:
    """What the graphs hold side by side: the same thing in each of them."""

    costs: Counter[tuple[Counted, ...]]
    storages: list[_Vector]
    moved: Counter[tuple[_Vector, _Parts | None]]

    @classmethod
    def of(cls, graphs: Sequence[Graph], counts: Sequence[Sequence[Counted]]) -> _Rows | None:
        """Put them side by side; None where operators do not read the same storages."""
        sizes = ([item.bytes for item in graph.storages] for graph in graphs)
        storages = list(zip(*sizes, strict=True))
        read = [reads(graph, counted) for graph, counted in zip(graphs, counts, strict=True)]
        forms = [{index: len(parts) for index, parts in each.items()} for each in read]
        if any(form != forms[0] for form in forms):
            return None
        moved: Counter[tuple[_Vector, _Parts | None]] = Counter()
        for index in read[0]:
            moved[storages[index], _side_by_side([each[index] for each in read])] += 1
        for index, item in enumerate(graphs[0].storages):
            if item.output and item.born >= 0:
                moved[storages[index], None] += 1
        return cls(Counter(zip(*counts, strict=True)), storages, moved)

    def vectors(self) -> set[_Vector]:
        """Give every quantity that is to be a polynomial, once."""
        works = (vector for cost in self.costs for vector in _works(cost))
        parts = (vector for _, parts in self.moved for part in parts or () for vector in part)
        return {*works, *self.storages, *parts}


def _side_by_side(read: Sequence[Sequence[Part]]) -> _Parts:
    """Give what operators read of one storage in each of the graphs, once where several read the same."""
    held = zip(*([part[0] for part in parts] for parts in read), strict=True)
    left = zip(*([part[1] for part in parts] for parts in read), strict=True)
    return tuple(dict.fromkeys(zip(held, left, strict=True)))


def _works(cost: Sequence[Counted]) -> list[_Vector]:
    """Turn one operator's costs in each graph into its quantities, in the order of Counted."""
    return list(zip(*((c.macs, c.elementwise, c.skippable, c.read, c.written) for c in cost), strict=True))


def _aligned(graphs: Sequence[Graph], counts: Sequence[Sequence[Counted]]) -> bool:
    """Tell whether operators and storages are the same in everything but sizes."""
    forms = (
        (_form(graph), [c.known for c in counted]) for graph, counted in zip(graphs, counts, strict=True)
    )
    first = next(forms)
    return len(first[1]) == len(graphs[0].ops) and all(form == first for form in forms)


def _form(graph: Graph) -> tuple[list[tuple[str, str, str]], list[tuple[int, int | None, Role, bool]]]:
    return (
        [(op.kind, op.scope, op.phase) for op in graph.ops],
        [(item.born, item.died, item.role, item.output) for item in graph.storages],
    )


def _values(polynomial: Polynomial, points: Sequence[_Vector]) -> _Vector:
    return tuple(polynomial.at(point) for point in points)


def _family(
    graphs: Sequence[Graph],
    grid: Grid,
    wholes: Sequence[Totals],
    rows: _Rows,
    found: Mapping[_Vector, Polynomial],
    least: int,
) -> Family:
    """Put the polynomials in their places."""
    first = graphs[0]
    places = {vector: at for at, vector in enumerate(dict.fromkeys(rows.storages))}
    spans = [
        (item.role in WORKING, (item.born, item.died, places[vector]))
        for item, vector in zip(first.storages, rows.storages, strict=True)
    ]
    return Family(
        basis=grid.basis,
        axes={
            name: Axis.of(name, [graph.sizes[name] for graph in graphs], least) for name in grid.basis.names
        },
        ops=len(first.ops),
        counted=wholes[0].counted_calls,
        sums={name: grid.through([getattr(whole, name) for whole in wholes]) for name in (*_ADDED, "flops")},
        costs=tuple(
            (tuple(found[vector] for vector in _works(cost)), cost[0].known, times)
            for cost, times in rows.costs.items()
        ),
        sizes=tuple(found[vector] for vector in places),
        working=tuple(span for works, span in spans if works),
        given=tuple(span for works, span in spans if not works),
        moved=tuple(
            (found[size], None if parts is None else tuple((found[h], found[r]) for h, r in parts), times)
            for (size, parts), times in rows.moved.items()
        ),
    )
