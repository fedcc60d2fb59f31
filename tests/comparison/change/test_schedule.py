"""In which order sides are run, and when it is looked whether that was enough."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modeldyno.base.errors import RequestError
from modeldyno.base.stats.schedule import RoundSchedule


def test_rounds_go_to_and_fro() -> None:
    """Neither side is always the first of a round."""
    turns = RoundSchedule(side_count=2, first=3, most=3)

    assert [side for _, order in turns.rounds(0, 3) for side in order] == [0, 1, 1, 0, 0, 1]
    assert turns.order == "alternating"


def test_three_sides_go_to_and_fro_as_well() -> None:
    """The middle one stays in the middle, and the others change places."""
    assert [order for _, order in RoundSchedule(side_count=3).rounds(1, 3)] == [(2, 1, 0), (0, 1, 2)]


def test_blocks_are_one_side_after_the_other() -> None:
    """All runs of a side come together."""
    turns = RoundSchedule(side_count=2, first=3, most=3, block=True)

    assert [side for _, order in turns.rounds(0, 3) for side in order] == [0, 0, 0, 1, 1, 1]
    assert turns.order == "block"


def test_looks_are_few() -> None:
    """Each comes after twice as many rounds as the one before, the last at the most."""
    assert RoundSchedule(side_count=2, first=5, most=20).interim_rounds == (5, 10, 20)
    assert RoundSchedule(side_count=2, first=5, most=12).interim_rounds == (5, 10, 12)
    assert RoundSchedule(side_count=2, first=5, most=5).interim_rounds == (5,)


def test_the_error_is_shared_among_the_looks() -> None:
    """With three looks, each may err a third as often."""
    assert RoundSchedule(side_count=2, first=5, most=20).level(0.95) == pytest.approx(1 - 0.05 / 3)
    assert RoundSchedule(side_count=2, first=5, most=5).level(0.95) == 0.95


@pytest.mark.parametrize(("first", "most"), [(0, 5), (6, 5)])
def test_impossible_rounds_are_refused(first: int, most: int) -> None:
    """There is at least one round, and no more at first than at most."""
    with pytest.raises(RequestError, match="rounds cannot be"):
        RoundSchedule(side_count=2, first=first, most=most)


@given(st.integers(2, 5), st.integers(0, 5), st.integers(1, 6), st.booleans())
def test_each_side_is_run_once_in_each_round(side_count: int, begin: int, more: int, block: bool) -> None:
    """However they are laid out."""
    rounds = RoundSchedule(side_count=side_count, block=block).rounds(begin, begin + more)
    runs = Counter((number, side) for number, order in rounds for side in order)

    assert runs == Counter(
        (number, side) for number in range(begin, begin + more) for side in range(side_count)
    )


def test_the_rounds_of_a_verdict_may_take_all_of_the_time() -> None:
    """What is found of causes without a verdict is worth nothing; further rounds leave a share."""
    turns = RoundSchedule(side_count=2, first=5, most=20, max_time=10.0, share=0.5)

    assert [turns.affordable_rounds(cost) for cost in (11.0, 4.0, 3.0, 1.0, 0.5)] == [0, 2, 3, 5, 10]


def test_without_a_limit_or_a_cost_all_rounds_are_affordable() -> None:
    """Before the first round its cost is unknown."""
    assert RoundSchedule(side_count=2, most=20).affordable_rounds(1e9) == 20
    assert RoundSchedule(side_count=2, most=20, max_time=1.0).affordable_rounds(0.0) == 20
