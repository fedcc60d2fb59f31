from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modeldyno.base.errors import RequestError
from modeldyno.models.flops import CountedOp
from modeldyno.models.static.graph import Graph, Op, Role, Storage, Tensor
from modeldyno.models.static.symbolic_costs import (
    Basis,
    Grid,
    Polynomial,
    SymbolicTotals,
    fit_totals,
    sizes_to_trace,
)
from modeldyno.models.static.totals import sum_totals

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

Trace = tuple[Graph, list[CountedOp]]
ASKED = {"batch": (1, 8, 64), "seq": (16, 128, 512)}


def attention(sizes: Mapping[str, int], layers: int = 2, width: int = 8) -> Trace:
    """Trace a toy transformer: each layer a product, scores squared in the sequence, and a sum."""
    batch, seq = sizes.get("batch", 1), sizes.get("seq", 1)
    rows, scores = batch * seq * width, batch * seq * seq
    ops: list[Op] = []
    counted: list[CountedOp] = []
    storages = [Storage(4 * rows, Role.INPUT, -1), Storage(4 * 1000 * width, Role.WEIGHT, -1, scope="table")]
    for layer in range(layers):
        at, scope = 3 * layer, f"layers.{layer}"
        weight = len(storages)
        storages += [
            Storage(4 * width * width, Role.WEIGHT, -1, scope=scope),
            Storage(4 * rows, Role.ACTIVATION, at, at + 2, scope),
            Storage(4 * scores, Role.ACTIVATION, at + 1, at + 3, scope),
            Storage(4 * rows, Role.ACTIVATION, at + 2, at + 4, scope, output=layer == layers - 1),
        ]
        table = Tensor((1000, width), "float32", 1)
        ops += [
            Op("aten.mm", {"self": Tensor((width, width), "float32", weight), "table": table}, (), scope),
            Op("aten.bmm", {}, (), scope),
            Op("aten.mystery", {}, (), scope),
        ]
        counted += [
            CountedOp(rows * width, rows, 0, 4 * rows, 4 * rows),
            CountedOp(scores * width, scores, scores // 2 * width, 8 * rows, 4 * scores),
            CountedOp(0, 0, 0, 4 * scores, 4 * rows, known=False, most=None),
        ]
    graph = Graph(ops=tuple(ops), storages=tuple(storages), sizes=dict(sizes), modules={"": "Net"})
    return graph, counted


def simple(sizes: Mapping[str, int], value: Callable[[Mapping[str, int]], int]) -> Trace:
    """Trace one operator that costs a function of the sizes."""
    graph = Graph(ops=(Op("aten.mm", {}, ()),), storages=(), sizes=dict(sizes))
    return graph, [CountedOp(value(sizes), 0, 0, 0, 0)]


def fitted(traces: Sequence[Trace], verify: int) -> SymbolicTotals | None:
    graphs, counts = zip(*traces, strict=True)
    return fit_totals(graphs, counts, verify=verify)


def family_of(
    trace: Callable[[Mapping[str, int]], Trace], requested: Mapping[str, Sequence[int]]
) -> SymbolicTotals | None:
    points = sizes_to_trace(requested)
    return fitted([trace(point) for point in points], len(points) - points_of_the_grid(requested))


def points_of_the_grid(requested: Mapping[str, Sequence[int]]) -> int:
    count = 1
    for name in requested:
        count *= 2 if name == "batch" else 3
    return count


def totals_of(
    trace: Callable[[Mapping[str, int]], Trace], requested: Mapping[str, Sequence[int]]
) -> SymbolicTotals:
    family = family_of(trace, requested)
    assert family is not None
    return family


class TestSample:
    @pytest.mark.parametrize(
        ("requested", "sizes"),
        [
            (range(1, 257), [2, 3, 4, 256, 1]),
            ((8, 64, 512), [8, 64, 120, 512, 176]),
            ((8, 512), [8, 16, 24, 512, 32]),
            ((1, 128), [2, 3, 4, 128, 1]),
            ((128,), [80, 96, 112, 128, 64]),
            ((224,), [128, 160, 192, 224, 96]),
            ((224, 256, 288, 320), [224, 256, 288, 320, 192]),
            ((1,), [2, 3, 4, 1, 5]),
            ((8, 64, 100, 200, 301, 512), [8, 64, 100, 512, 301]),
            ((512, 8, 8), [8, 16, 24, 512, 32]),
        ],
    )
    def test_one_dimension(self, requested: Sequence[int], sizes: list[int]) -> None:
        """Three sizes that were asked for, or are aligned alike, then the largest and others."""
        assert [point["seq"] for point in sizes_to_trace({"seq": requested})] == sizes

    def test_the_batch_takes_two(self) -> None:
        """The batch is of degree 1."""
        assert [point["batch"] for point in sizes_to_trace({"batch": range(1, 33)})] == [2, 3, 32, 1]

    def test_several_dimensions_make_a_grid(self) -> None:
        """All combinations come first, then the largest of all dimensions and the smallest of all."""
        points = sizes_to_trace(ASKED)
        batches, lengths = {p["batch"] for p in points[:6]}, {p["seq"] for p in points[:6]}
        assert [(p["batch"], p["seq"]) for p in points[:6]] == list(product(sorted(batches), sorted(lengths)))
        assert points[6:] == ({"batch": 64, "seq": 512}, {"batch": 1, "seq": 16})

    def test_a_bad_alignment_is_verified(self) -> None:
        """Where smallest and largest are aligned better than another size, that one is a third check."""
        points = sizes_to_trace({"seq": (10, 32, 64, 96, 97, 128, 192)})
        assert [point["seq"] for point in points] == [10, 32, 64, 192, 97]
        assert len(sizes_to_trace({"batch": (2, 3, 4), "seq": (32, 96, 160, 193, 256)})) == 6 + 2
        assert len(sizes_to_trace({"batch": (1, 3, 4), "seq": (2, 64, 128, 192, 193, 254)})) == 6 + 3

    def test_no_dimension_is_one_point(self) -> None:
        """A network without free dimensions is traced once."""
        assert sizes_to_trace({}) == ({},)

    @given(
        requested=st.dictionaries(
            st.sampled_from(("batch", "seq", "height")),
            st.sets(st.integers(1, 600), min_size=1, max_size=6).map(tuple),
            min_size=1,
        )
    )
    def test_whatever_is_asked(self, requested: dict[str, tuple[int, ...]]) -> None:
        """The grid is full and free of ones, nothing is traced twice, and the largest is verified."""
        points, size = sizes_to_trace(requested), points_of_the_grid(requested)
        assert Grid.over(points[:size]) is not None
        assert all(value > 1 for point in points[:size] for value in point.values())
        assert len({tuple(point.values()) for point in points}) == len(points) >= size + 2
        assert points[size] == {name: max(sizes) for name, sizes in requested.items()}
        assert min(value for point in points for value in point.values()) >= 1


class TestGrid:
    @given(seed=st.integers(0, 2**32), extra=st.integers(0, 3))
    def test_a_polynomial_is_found_from_its_values(self, seed: int, extra: int) -> None:
        """Through the values of any polynomial of the degrees of the grid goes that polynomial."""
        chance = random.Random(seed)
        axes = {
            name: chance.sample(range(1, 5000), 2 + extra // 2) for name in ("batch", "seq", "h")[: 1 + extra]
        }
        points = [dict(zip(axes, point, strict=True)) for point in product(*axes.values())]
        chance.shuffle(points)
        grid = Grid.over(points)
        assert grid is not None
        polynomial = Polynomial(tuple(chance.randrange(-(10**30), 10**30) for _ in grid.basis.exponents), 1)
        through = grid.through([polynomial.at(grid.basis.at(point)) for point in points])
        elsewhere = {name: chance.randrange(1, 10**9) for name in axes}
        assert through.at(grid.basis.at(elsewhere)) == polynomial.at(grid.basis.at(elsewhere))
        assert through.text(grid.basis) == polynomial.text(grid.basis)

    @pytest.mark.parametrize(
        "points",
        [
            [],
            [{"a": 1}, {"b": 2}],
            [{"a": 1, "b": 1}, {"a": 2, "b": 2}],
            [{"a": 1}, {"a": 1}],
            [{}, {}],
        ],
    )
    def test_what_is_no_grid_is_refused(self, points: list[dict[str, int]]) -> None:
        """Without all combinations, each once, there is no polynomial."""
        assert Grid.over(points) is None

    @pytest.mark.parametrize(
        ("numerators", "denominator", "text"),
        [
            ((0, 0, 0, 14942208, 0, 36864), 1, "36,864*batch*seq^2 + 14,942,208*batch"),
            ((5, -1, 0, 0, 0, 0), 1, "-seq + 5"),
            ((-1234, 0, 1, -1, 0, 0), 2, "1/2*seq^2 - 1/2*batch - 617"),
            ((1, 0, 0, 0, 1, 0), 1, "batch*seq + 1"),
            ((0,) * 6, 7, "0"),
        ],
    )
    def test_text(self, numerators: tuple[int, ...], denominator: int, text: str) -> None:
        """Polynomials read like formulas, the highest degree first."""
        basis = Basis(("batch", "seq"), tuple(product(range(2), range(3))))
        assert Polynomial(numerators, denominator).text(basis) == text


class TestFamily:
    @given(batch=st.integers(1, 10**6), seq=st.integers(1, 2000))
    def test_totals_elsewhere_are_those_of_a_trace(self, batch: int, seq: int) -> None:
        """At any sizes that are as aligned, the totals are exactly those of tracing there."""
        family = totals_of(attention, ASKED)
        sizes = {"batch": batch, "seq": 16 * seq}
        assert family.at(sizes) == sum_totals(*attention(sizes))

    def test_costs_elsewhere_are_those_of_a_trace(self) -> None:
        """What operators cost is exact too, each cost with the number of operators that have it."""
        sizes = {"batch": 5, "seq": 48}
        assert totals_of(attention, ASKED).counts(sizes) == Counter(attention(sizes)[1])

    def test_text_is_the_formula(self) -> None:
        """The formulas of what adds up are written out."""
        text = totals_of(attention, ASKED).text()
        assert text["macs"] == "16*batch*seq^2 + 128*batch*seq"
        assert text["flops"] == "34*batch*seq^2 + 272*batch*seq"
        assert text["input_bytes"] == text["output_bytes"] == "32*batch*seq"
        assert set(text) == {"macs", "flops", "bytes_read", "bytes_written", "input_bytes", "output_bytes"}

    def test_strides_hold_for_their_remainder(self) -> None:
        """What rounds is a polynomial of the sizes of one alignment, and asked for no others."""

        def pooled(sizes: Mapping[str, int]) -> Trace:
            return simple(sizes, lambda at: at["batch"] * (-(-at["height"] // 32)) ** 2)

        family = totals_of(pooled, {"batch": (4,), "height": (224, 256, 288, 320)})
        assert family.at({"batch": 3, "height": 960}).macs == 3 * 30 * 30
        assert not family.covers({"batch": 3, "height": 961})
        with pytest.raises(
            RequestError, match=r"height = 32, 64, ... \(traced to 320\), not for .*height = 961"
        ):
            family.at({"batch": 3, "height": 961})
        with pytest.raises(RequestError, match="trace the model"):
            family.counts({"batch": 0, "height": 960})
        assert family_of(pooled, {"batch": (4,), "height": (224, 230, 256, 300)}) is None

    def test_a_network_without_dimensions(self) -> None:
        """One trace is a family of one."""
        family = totals_of(attention, {})
        assert family.at({}) == sum_totals(*attention({}))
        assert family.text()["macs"] == "144"

    def test_a_dimension_of_one_size_is_no_variable(self) -> None:
        """Where every trace has the same size, no other is covered."""
        points = [{"batch": batch, "seq": 32} for batch in (2, 3, 9)]
        family = fitted([attention(point) for point in points], 1)
        assert family is not None
        assert family.covers({"batch": 77, "seq": 32})
        assert not family.covers({"batch": 2, "seq": 64})

    def test_an_empty_graph(self) -> None:
        """A network that runs nothing still holds its weights."""
        graphs = [
            Graph(ops=(), storages=(Storage(9, Role.WEIGHT, -1),), sizes={"batch": n}) for n in (2, 3, 4)
        ]
        family = fit_totals(graphs, [[], [], []], verify=1)
        assert family is not None
        assert family.at({"batch": 50}) == sum_totals(graphs[0], [])

    @pytest.mark.no_cover
    def test_a_large_network_has_few_polynomials(self) -> None:
        """Seven thousand operators and more storages are a few polynomials, each evaluated once."""

        def deep(sizes: Mapping[str, int]) -> Trace:
            return attention({"seq": 16, **sizes}, layers=2400)

        family = totals_of(deep, {"batch": (1, 8)})
        assert family.ops == len(family.working) == 7200
        assert len(family.sizes) == 4
        assert len(family.costs) == 3
        assert family.at({"batch": 30, "seq": 16}) == sum_totals(*deep({"batch": 30}))


class TestFit:
    @pytest.mark.parametrize(
        "change",
        [
            lambda graph: replace(graph, ops=(replace(graph.ops[0], kind="aten.mv"), *graph.ops[1:])),
            lambda graph: replace(graph, ops=(replace(graph.ops[0], scope="else"), *graph.ops[1:])),
            lambda graph: replace(graph, storages=graph.storages[:-1]),
            lambda graph: replace(graph, storages=(replace(graph.storages[0], died=4), *graph.storages[1:])),
            lambda graph: replace(graph, storages=(replace(graph.storages[0], bytes=9), *graph.storages[1:])),
            lambda graph: replace(graph, ops=(replace(graph.ops[0], arguments={}), *graph.ops[1:])),
        ],
        ids=["kind", "scope", "fewer", "died", "bytes", "arguments"],
    )
    @pytest.mark.parametrize("where", [0, -1])
    def test_another_course_is_no_family(self, change: Callable[[Graph], Graph], where: int) -> None:
        """Where one of the traces differs in more than its sizes, no polynomial is claimed."""
        traces = [attention(point) for point in sizes_to_trace(ASKED)]
        traces[where] = change(traces[where][0]), traces[where][1]
        assert fitted(traces, 2) is None

    def test_another_formula_is_no_family(self) -> None:
        """An operator that is understood at some sizes only makes no polynomial."""
        traces = [attention(point) for point in sizes_to_trace(ASKED)]
        traces[0] = traces[0][0], [replace(cost, known=False) for cost in traces[0][1]]
        assert fitted(traces, 2) is None

    def test_counts_of_another_length_are_no_family(self) -> None:
        """Every operator must have been counted."""
        assert (
            fitted([(graph, cost[:-1]) for graph, cost in map(attention, sizes_to_trace(ASKED))], 2) is None
        )

    @pytest.mark.parametrize(
        "value",
        [
            lambda at: at["seq"] ** 3,
            lambda at: 2 ** at["seq"],
            lambda at: at["seq"] // 2,
            lambda at: at["batch"] ** 2,
        ],
    )
    def test_what_is_no_polynomial_of_these_degrees_is_none(
        self, value: Callable[[Mapping[str, int]], int]
    ) -> None:
        """The verification finds a higher degree, a power and what rounds."""
        assert family_of(lambda at: simple(at, value), {"batch": (1, 2, 9), "seq": range(1, 100)}) is None

    def test_too_few_points_are_none(self) -> None:
        """Sizes that are no grid have no polynomial."""
        assert fitted([attention(point) for point in sizes_to_trace(ASKED)[1:]], 2) is None

    def test_exact_where_floats_are_not(self) -> None:
        """Numbers beyond 2^53 are exact."""
        family = totals_of(lambda at: simple(at, lambda to: 10**40 * to["batch"] + 1), {"batch": range(1, 9)})
        assert family.at({"batch": 3}).macs == 3 * 10**40 + 1


class TestDomain:
    def test_it_says_where_the_formulas_hold(self) -> None:
        """The batch has no alignment, other dimensions that of the sizes that were traced."""
        assert (
            totals_of(attention, ASKED).domain()
            == "batch >= 1 (traced to 64), seq = 16, 32, ... (traced to 512)"
        )
        pooled = totals_of(attention, {"seq": (66, 98, 130)})
        assert pooled.domain() == "seq = 2, 34, ... (traced to 130)"
        assert not pooled.covers({"seq": 64})

    def test_it_begins_where_it_is_told_to(self) -> None:
        """Sizes below the least are not covered; a dimension of one size has no others."""
        points = [{"batch": batch, "seq": 32} for batch in (2, 3, 9)]
        graphs, counts = zip(*map(attention, points), strict=True)
        family = fit_totals(graphs, counts, verify=1, least=2)
        assert family is not None
        assert family.domain() == "batch >= 2 (traced to 9), seq = 32"
        assert not family.covers({"batch": 1, "seq": 32})
