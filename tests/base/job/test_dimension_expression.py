from __future__ import annotations

import pytest

from modeldyno.base.job.dimension_expression import evaluate, is_expression, names_in, rename, solve

SIZES = {"s0": 5, "past": 7, "seq": 3}


@pytest.mark.parametrize(
    ("dimension", "expected"),
    [
        ("past + seq", 10),
        ("past_sequence + 1", None),
        ("2*s0", 10),
        ("s0 - 1", 4),
        ("(s0 + 1)//2", 3),
        ("floor(s0/2)", 2),
        ("ceiling(s0/2)", 3),
        ("s0/2", None),
        ("FloorDiv(s0, 2)", 2),
        ("Max(1, s0, seq)", 5),
        ("Min(4, s0)", 4),
        ("Mod(s0, 3)", 2),
        ("s0 % 3", 2),
        ("-3 + s0", 2),
        ("seq - s0", None),
        ("s0//(s0 - 5)", None),
        ("floor(s0, seq)", None),
    ],
)
def test_the_size_of_an_expression(dimension: str, expected: int | None) -> None:
    """Sums, products, quotients and the functions of SymPy; no size is fractional, negative or unknown."""
    assert is_expression(dimension)
    assert evaluate(dimension, SIZES) == expected


@pytest.mark.parametrize(
    "name",
    ["batch", "batch-size", "unk__12", "", "?", "64", "s0 s1", "2**s0", "f(s0)", "x.y", "(" * 250, "a[0]",
     "Max()", "Max(a, key=b)", "not s0", "1.5*s0", "(" * 150],
)  # fmt: skip
def test_anything_else_is_a_name(name: str) -> None:
    """What is not understood is not evaluated."""
    assert not is_expression(name)
    assert names_in(name) == (name,)
    assert evaluate(name, SIZES) is None
    assert evaluate(name, {name: 4}) == 4
    assert rename(name, {name: "b"}) == "b"
    assert solve(name, 4, {}) == {name: 4}


def test_names() -> None:
    """Those of the sizes, not of functions, each once; and they can be others."""
    assert names_in("Max(s0, past + s0)") == ("s0", "past")
    assert rename("2*s0 + s01", {"s0": "batch"}) == "2*batch + s01"


@pytest.mark.parametrize(
    ("dimension", "size", "sizes", "expected"),
    [
        ("past + seq", 20, {"seq": 1}, {"past": 19}),
        ("2*s0", 128, {}, {"s0": 64}),
        ("2*s0", 7, {}, {}),
        ("past + seq", 20, {}, {}),
        ("past + seq", 20, {"seq": 1, "past": 2}, {}),
        ("past + seq", 2, {"seq": 5}, {}),
        ("s0*s0", 49, {}, {}),
        ("s0 - s0", 0, {}, {}),
        ("Max(8, s0)", 8, {}, {}),
    ],
)
def test_the_only_unknown_is_solved(
    dimension: str, size: int, sizes: dict[str, int], expected: dict[str, int]
) -> None:
    """Where an expression is linear in it, and the answer is a size."""
    assert solve(dimension, size, sizes) == expected
