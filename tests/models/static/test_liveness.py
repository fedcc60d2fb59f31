from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from modeldyno.base.result.static_data import MemoryItem
from modeldyno.models.static.graph import Graph, Op, Role, Storage
from modeldyno.models.static.totals import EVERYTHING, WORKING, find_static_peak, live_bytes_by_operator

STORAGES = st.lists(
    st.builds(
        Storage,
        st.integers(0, 5000),
        st.sampled_from(Role),
        st.integers(-1, 7),
        st.none() | st.integers(0, 9),
        st.sampled_from(("", "a", "a.b")),
    ),
    max_size=12,
)


def graph(ops: int, *storages: Storage) -> Graph:
    return Graph(ops=(Op("aten.relu", {}, ()),) * ops, storages=storages)


def lives(item: Storage, op: int) -> bool:
    return item.born <= op and (item.died is None or op < item.died)


class TestTimeline:
    @given(storages=STORAGES, roles=st.frozensets(st.sampled_from(Role)))
    def test_each_operator_holds_what_is_live_during_it(
        self, storages: list[Storage], roles: frozenset[Role]
    ) -> None:
        """The differences give what adding up the live storages of every operator gives."""
        expected = [
            sum(item.bytes for item in storages if item.role in roles and lives(item, op)) for op in range(8)
        ]
        assert live_bytes_by_operator(graph(8, *storages), roles=roles) == expected

    def test_a_storage_is_gone_during_the_operator_it_died_before(self) -> None:
        """A storage lives from the operator that makes it to the last before its death."""
        made = graph(4, Storage(10, Role.ACTIVATION, 1, 3), Storage(1, Role.WEIGHT, -1))
        assert live_bytes_by_operator(made) == [1, 11, 11, 1]


class TestPeak:
    def test_it_names_who_holds_what(self) -> None:
        """Storages of one module and role are one line, and the largest line is first."""
        at_peak = find_static_peak(
            graph(
                3,
                Storage(5, Role.WEIGHT, -1, scope="a"),
                Storage(4, Role.ACTIVATION, 0, 2, "a"),
                Storage(3, Role.ACTIVATION, 1, 2, "a"),
                Storage(90, Role.ACTIVATION, 0, 1, "b"),
                Storage(2, Role.INPUT, -1),
            )
        )
        assert (at_peak.bytes, at_peak.op) == (101, 0)
        assert at_peak.held == (
            MemoryItem(scope="b", role="activation", bytes=90),
            MemoryItem(scope="a", role="weight", bytes=5),
            MemoryItem(scope="a", role="activation", bytes=4),
            MemoryItem(scope="", role="input", bytes=2),
        )

    def test_the_same_module_and_role_merge(self) -> None:
        """Two storages of one module and one role are added up."""
        made = graph(1, Storage(5, Role.WEIGHT, -1, scope="a"), Storage(6, Role.WEIGHT, -1, scope="a"))
        assert find_static_peak(made).held == (MemoryItem(scope="a", role="weight", bytes=11),)

    def test_without_operators_it_is_what_is_there(self) -> None:
        """A graph that runs nothing holds what it was given."""
        at_peak = find_static_peak(graph(0, Storage(5, Role.WEIGHT, -1), Storage(7, Role.ACTIVATION, 0)))
        assert (at_peak.bytes, at_peak.op) == (5, -1)

    @given(storages=STORAGES)
    def test_it_is_the_highest_moment(self, storages: list[Storage]) -> None:
        """The peak is the largest of the timeline, at its first place, for any roles."""
        made = graph(8, *storages)
        for roles in (EVERYTHING, WORKING):
            live, peak = live_bytes_by_operator(made, roles=roles), find_static_peak(made, roles=roles)
            assert (peak.bytes, peak.op) == (max(live), live.index(max(live)))
            assert peak.bytes == sum(item.bytes for item in peak.held)

    def test_large_graphs_take_one_pass(self) -> None:
        """Ten thousand operators with a storage each hold what two neighbours take together."""
        spans = (Storage(1, Role.ACTIVATION, op, op + 2) for op in range(10_000))
        assert find_static_peak(graph(10_000, *spans)).bytes == 2


def test_roles_are_told_apart() -> None:
    """Working memory is activations and gradients, and nothing that a call is given."""
    assert {role for role, working in product(Role, [WORKING]) if role in working} == {
        Role.ACTIVATION,
        Role.GRADIENT,
    }
