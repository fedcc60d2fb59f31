"""Which values of a converted graph are those of which layer."""

from __future__ import annotations

import numpy as np

from modeldyno.conversion.agreement.inner_values import (
    MOST_VALUES,
    End,
    GraphStep,
    InnerValue,
    ScopeEnds,
    ends_of_scopes,
    keep_value,
    match_layers,
    most_values,
    pair_values,
)


def value(*shape: int, dtype: str = "float32") -> InnerValue:
    return keep_value(np.zeros(shape, dtype), None, MOST_VALUES)


def test_what_enters_and_leaves_a_module_are_its_ends() -> None:
    """What a later step of another module takes has left it, and so has what the graph returns."""
    steps = [
        GraphStep(inputs=("x",), outputs=("h",), scopes=("", "net", "net.a")),
        GraphStep(inputs=("h",), outputs=("i",), scopes=("", "net", "net.a")),
        GraphStep(inputs=("i", "x"), outputs=("j",), scopes=("", "net", "net.b")),
        GraphStep(inputs=("j",), outputs=("y",), scopes=("", "net")),
    ]
    ends = ends_of_scopes(steps, {"y"})

    assert ends["net.a"] == ScopeEnds(inputs=("x",), outputs=("i",))
    assert ends["net.b"].at(End.INPUT) == ("i", "x")
    assert ends["net.b"].at(End.OUTPUT) == ("j",)
    assert ends["net"] == ScopeEnds(inputs=("x",), outputs=("y",))


def test_an_end_that_touches_a_step_of_unknown_modules_is_unknown() -> None:
    """Such a step, of a quantiser, may belong to the module or not."""
    steps = [
        GraphStep(inputs=("x",), outputs=("q",), scopes=()),
        GraphStep(inputs=("q",), outputs=("h",), scopes=("a",)),
        GraphStep(inputs=("h", "x"), outputs=("i",), scopes=("b",)),
        GraphStep(inputs=("i",), outputs=("y",), scopes=()),
    ]
    ends = ends_of_scopes(steps, {"y"})

    assert ends["a"] == ScopeEnds(inputs=(), outputs=("h",))
    assert ends["b"] == ScopeEnds(inputs=("h", "x"), outputs=())


def test_layers_match_modules_behind_the_prefix_that_most_share() -> None:
    """An exporter wraps the model; a name that fits behind another prefix is another module."""
    layers = ["a", "b.c", "gone"]

    assert match_layers(layers, {"", "inner", "inner.a", "inner.b.c", "x.y.a"}) == {
        "a": "inner.a",
        "b.c": "inner.b.c",
    }
    assert match_layers(layers, {"a", "b.c"}) == {"a": "a", "b.c": "b.c"}
    assert match_layers(layers, {"", "other"}) == {}


def test_a_large_value_is_thinned_alike_in_each_sample() -> None:
    """A small one is kept whole; many layers keep less of each."""
    array = np.arange(20.0).reshape(2, 10)

    assert keep_value(array, 2, 6).values.tolist() == [[0, 4, 8], [10, 14, 18]]
    assert keep_value(array, None, 100).values.shape == (1, 20)
    assert keep_value(np.zeros((3, 0)), 3, 5).values.shape == (3, 0)
    assert keep_value(array, 2, 6).shape == (2, 10)
    assert most_values(1) == MOST_VALUES // 2
    assert most_values(10**9) == 4096


def test_an_only_value_is_known_by_its_place() -> None:
    """Another size is a difference; the same numbers in another layout, or of another kind, are not."""
    assert len(list(pair_values([value(2, 3)], [value(2, 3)]))) == 1
    assert len(list(pair_values([value(2, 3)], [value(1, 3)]))) == 1
    assert list(pair_values([value(2, 3)], [value(3, 2)])) == []
    assert list(pair_values([value(2, 3)], [value(2, 3, dtype="bool")])) == []
    assert len(list(pair_values([value(2, dtype="int64")], [value(2, dtype="int32")]))) == 1


def test_several_values_are_known_by_their_shapes() -> None:
    """Those of one shape could be taken for each other, and are left out."""
    hidden, mask = value(2, 5, 4), value(2, 1, 5, 5)

    assert [place for place, *_ in pair_values([hidden, mask], [mask, hidden])] == [0, 1]
    assert list(pair_values([hidden, hidden], [hidden, hidden])) == []
    assert list(pair_values([hidden, mask], [])) == []
