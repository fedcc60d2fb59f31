from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modeldyno.models.flops import CountedOp
from modeldyno.models.static.graph import Graph, Op, Role, Storage, Tensor
from modeldyno.models.static.totals import AdditiveCost, Totals, cost_by_module, least_moved_bytes, sum_totals

SCOPES = ("", "a", "a.b", "a.b.c", "a.x", "d", "d.0.e", "zz.y")


def op(*storages: int, scope: str = "") -> Op:
    return Op("aten.mm", {"self": [Tensor((2,), "float32", at) for at in storages]}, (), scope)


def network() -> tuple[Graph, list[CountedOp]]:
    graph = Graph(
        ops=(op(0, 1), op(2, scope="a.b")),
        storages=(
            Storage(100, Role.WEIGHT, -1, scope="a"),
            Storage(40, Role.INPUT, -1),
            Storage(30, Role.ACTIVATION, 0, scope="a"),
            Storage(20, Role.ACTIVATION, 1, output=True),
            Storage(100, Role.GRADIENT, 1, scope="a"),
            Storage(200, Role.STATE, -1),
            Storage(1000, Role.WEIGHT, -1, scope="unused"),
        ),
        modules={"": "Net", "a": "Block"},
    )
    return graph, [CountedOp(7, 3, 2, 60, 30), CountedOp(0, 0, 0, 30, 20, known=False, most=9)]


class TestTotals:
    def test_every_field_adds_up_what_it_says(self) -> None:
        """Operators are added up, storages by their role, and both peaks are taken."""
        assert sum_totals(*network()) == Totals(
            macs=7,
            elementwise=3,
            skippable=2,
            bytes_read=90,
            bytes_written=50,
            calls=2,
            counted_calls=1,
            input_bytes=40,
            output_bytes=20,
            gradient_bytes=100,
            optimizer_bytes=200,
            moved=8 + 8 + 20,
            activation_peak=150,
            memory_peak=1490,
        )

    def test_what_is_derived_follows(self) -> None:
        """Operations, what a causal kernel does, coverage and intensity come from the sums."""
        totals = sum_totals(*network())
        assert (totals.flops, totals.causal_macs, totals.coverage) == (17, 5, 0.5)
        assert totals.arithmetic_intensity == pytest.approx(17 / 140)

    def test_nothing_costs_nothing(self) -> None:
        """A graph without operators has full coverage, no intensity, and what it was given in memory."""
        totals = sum_totals(Graph(ops=(), storages=(Storage(5, Role.WEIGHT, -1),)), [])
        assert (totals.coverage, totals.arithmetic_intensity) == (1.0, None)
        assert (totals.memory_peak, totals.activation_peak) == (5, 0)


class TestMoved:
    def test_a_weight_moves_once_and_no_further_than_it_is_read(self) -> None:
        """Two operators that read one weight need it once; one that looks up rows needs those only."""
        weight, table = Tensor((2,), "float32", 0), Tensor((100, 2), "float32", 1)
        rows = Op("aten.embedding", {"weight": table, "indices": Tensor((3,), "int64", 2)}, ())
        graph = Graph(
            ops=(Op("aten.mm", {"self": weight}, ()), Op("aten.mm", {"self": weight}, ()), rows),
            storages=tuple(Storage(size, Role.WEIGHT, -1) for size in (8, 800, 24)),
        )
        read = 3 * 8 + 24
        assert least_moved_bytes(
            graph, [CountedOp(0, 0, 0, 8, 0), CountedOp(0, 0, 0, 8, 0), CountedOp(0, 0, 0, read, 0)]
        ) == (
            8 + 24 + 0  # The indices may be what is read least: only what surely moves is in the bound.
        )

    def test_a_part_of_a_table_does_not_move_it_whole(self) -> None:
        """Of a table of 100 rows 10 are added to what is much larger: those move, however often they do."""
        part, tensor = Tensor((10, 2), "float32", 0), Tensor((50, 10, 2), "float32", 1)
        add = Op("aten.add", {"self": tensor, "other": part}, ())
        graph = Graph(
            ops=(add, add, add), storages=(Storage(800, Role.WEIGHT, -1), Storage(4000, Role.INPUT, -1))
        )
        assert least_moved_bytes(graph, [CountedOp(0, 0, 0, 4080, 0)] * 3) == 80 + 4000

    def test_parts_of_one_operator_add_up(self) -> None:
        """Keys and values that lie beside each other in one storage are both read."""
        halves = {name: Tensor((5,), "float32", 0, None, at) for name, at in (("k", 0), ("v", 5))}
        graph = Graph(ops=(Op("aten.mul", halves, ()),), storages=(Storage(40, Role.INPUT, -1),))
        assert least_moved_bytes(graph, [CountedOp(0, 0, 0, 40, 0)]) == 40

    def test_an_input_that_is_returned_is_not_written(self) -> None:
        """What was there before is counted as read, not as returned."""
        graph = Graph(ops=(op(0),), storages=(Storage(8, Role.INPUT, -1, output=True),))
        assert least_moved_bytes(graph, [CountedOp(0, 0, 0, 8, 0)]) == 8


class TestByScope:
    def test_parents_hold_their_children(self) -> None:
        """Every listed path and all its parents have the sums of what lies below."""
        graph = Graph(
            ops=(op(scope="a.b.c"), op(scope="a.b.c.deep.unlisted"), op(scope="a"), op(scope="other")),
            storages=(),
            modules={"": "Net", "a.b.c": "Linear"},
        )
        costs = cost_by_module(graph, [CountedOp(10**at, 0, 0, 0, 0) for at in range(4)])
        assert {scope: cost.macs for scope, cost in costs.items()} == {
            "": 1111,
            "a": 111,
            "a.b": 11,
            "a.b.c": 11,
        }

    def test_parents_come_before_their_children(self) -> None:
        """The order is that of the definition, with a parent that is not listed before its first child."""
        graph = Graph(ops=(), storages=(), modules={"b.c": "", "a": "", "b": ""})
        assert list(cost_by_module(graph, [])) == ["", "b", "b.c", "a"]

    @given(
        modules=st.lists(st.sampled_from(SCOPES), unique=True),
        ops=st.lists(st.tuples(st.sampled_from(SCOPES), st.integers(0, 99), st.booleans()), max_size=9),
    )
    def test_every_module_has_what_lies_in_it(
        self, modules: list[str], ops: list[tuple[str, int, bool]]
    ) -> None:
        """Each sum is that of the operators whose path is the module's or begins with it and a dot."""
        graph = Graph(
            ops=tuple(op(scope=scope) for scope, _, _ in ops), storages=(), modules=dict.fromkeys(modules, "")
        )
        counted = [CountedOp(size, 2 * size, 3, 4, 5, known) for _, size, known in ops]
        for path, cost in cost_by_module(graph, counted).items():
            inside = [
                one
                for (scope, _, _), one in zip(ops, counted, strict=True)
                if not path or scope == path or scope.startswith(path + ".")
            ]
            assert cost == AdditiveCost(
                macs=sum(one.macs for one in inside),
                elementwise=sum(one.elementwise for one in inside),
                skippable=3 * len(inside),
                bytes_read=4 * len(inside),
                bytes_written=5 * len(inside),
                calls=len(inside),
                counted_calls=sum(one.known for one in inside),
            )
