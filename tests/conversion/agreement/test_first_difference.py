"""Where a converted model first differs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from modeldyno.conversion.agreement.first_difference import find_first
from modeldyno.conversion.agreement.inner_values import End, InnerValue, Moment, keep_value
from modeldyno.conversion.agreement.rule import AgreementRule

if TYPE_CHECKING:
    from modeldyno.conversion.agreement.agreement import FirstDifference

RULE = AgreementRule()
BATCH = 4
Key = tuple[str, End]


def value(seed: int, *shape: int, change: float = 0.0) -> InnerValue:
    array = np.random.default_rng(seed).normal(0, 1, (BATCH, *(shape or (6,)))).astype(np.float32)
    return keep_value(array + np.float32(change), BATCH, 1000)


X, A, B, C = (value(seed) for seed in range(4))


def moment(layer: str, end: End, *values: InnerValue) -> Moment:
    return Moment(layer=layer, kind="Linear", end=end, values=values)


def run(**outputs: InnerValue) -> list[Moment]:
    """Return a run of layers in a row, within the layer ``net``."""
    moments, inputs = [moment("net", End.INPUT, X)], X
    for name, output in outputs.items():
        moments += [moment(f"net.{name}", End.INPUT, inputs), moment(f"net.{name}", End.OUTPUT, output)]
        inputs = output
    return [*moments, moment("net", End.OUTPUT, inputs)]


SOURCE = run(a=A, b=B, c=C)


def first(
    inner: dict[Key, InnerValue], again: dict[Key, InnerValue] | None = None, rule: AgreementRule = RULE
) -> FirstDifference:
    difference = find_first(
        SOURCE,
        {key: (value,) for key, value in inner.items()},
        {key: (value,) for key, value in (again or {}).items()},
        rule=rule,
        batch=BATCH,
        call="batch=4",
    )
    assert difference.layers == 4
    return difference


def inner_values(moments: list[Moment], *without: str) -> dict[Key, InnerValue]:
    return {(m.layer, m.end): m.values[0] for m in moments if m.layer not in without}


def test_the_first_layer_with_another_output_is_named() -> None:
    """Those after it differ as well, and say nothing."""
    difference = first(inner_values(run(a=A, b=value(9), c=value(8))))

    assert (difference.layer, difference.kind, difference.end, difference.after) == (
        "net.b",
        "Linear",
        End.OUTPUT,
        "net.a",
    )
    assert difference.sentence.startswith("first differs at net.b (Linear): cosine ")
    assert difference.sentence.endswith(" (its inputs agree)")
    assert (difference.place, difference.inputs_agree, difference.call) == ("at net.b", True, "batch=4")


def test_another_input_is_the_code_before_the_layer() -> None:
    """Which is that of the module around it."""
    difference = first(inner_values(SOURCE) | {("net.c", End.INPUT): value(2, change=1e-2)})

    assert difference.place == "before net.c"
    assert (
        "before net.c (Linear) and after net.b, in the code of net (Linear): off by 0.01"
        in difference.sentence
    )
    at_once = first({("net.a", End.INPUT): value(9)} | {("net", End.INPUT): X})
    assert at_once.sentence.startswith("first differs before net.a (Linear), in the code of net")
    assert first({("net", End.INPUT): value(9)}).sentence.startswith(
        "first differs before net (Linear), in the model's own code"
    )


def test_layers_that_are_not_in_the_graph_widen_the_place() -> None:
    """An exporter merged them with what comes after: their input is no input of that."""
    merged = {("net.b", End.INPUT): X, ("net.b", End.OUTPUT): value(9)}
    difference = first(merged)

    assert difference.place == "between the inputs and net.b"
    assert difference.unseen == ("net.a",)
    assert "at or before net.b (Linear), where net.a cannot be seen" in difference.sentence
    later = first({("net.a", End.OUTPUT): A, ("net.c", End.OUTPUT): value(9)})
    assert later.place == "between net.a and net.c"
    assert "between net.a and net.c (Linear), where net.b cannot be seen" in later.sentence


def test_a_layer_whose_own_input_agrees_is_to_blame_alone() -> None:
    """Although a layer before it is not in the graph."""
    inner = {("net.b", End.INPUT): A, ("net.b", End.OUTPUT): value(9)}

    assert first(inner).place == "at net.b"


def test_a_layer_that_changes_nothing_may_be_missing() -> None:
    """Such as dropout."""
    moments = [
        moment("a", End.INPUT, X),
        moment("a", End.OUTPUT, A),
        moment("drop", End.INPUT, A),
        moment("drop", End.OUTPUT, A),
        moment("b", End.INPUT, A),
        moment("b", End.OUTPUT, B),
    ]
    difference = find_first(
        moments,
        {("a", End.OUTPUT): (A,), ("b", End.OUTPUT): (value(9),)},
        {},
        rule=RULE,
        batch=BATCH,
        call="",
    )

    assert difference.place == "at b"
    assert not difference.inputs_agree


def test_many_unseen_layers_are_counted() -> None:
    """Three are named."""
    moments = [moment(f"l{number}", End.OUTPUT, value(number)) for number in range(6)]
    difference = find_first(moments, {("l5", End.OUTPUT): (value(9),)}, {}, rule=RULE, batch=BATCH, call="")

    assert "where l0, l1, l2 and 2 more cannot be seen" in difference.sentence


def test_layers_that_all_agree_leave_the_code_after_them() -> None:
    """The last of them is named."""
    difference = first(inner_values(SOURCE, "net"))

    assert difference.end is None
    assert difference.place == "after net.c"
    assert difference.sentence == (
        "first differs after net.c, in the model's own code: 3 of 4 layers were compared, and agree"
    )
    assert first({("net.a", End.INPUT): X}).sentence == (
        "where it first differs is not known: 1 of 4 layers were compared, and agree"
    )


def test_nothing_that_matches_is_told() -> None:
    """It names no place."""
    difference = first({})

    assert difference.place == ""
    assert difference.sentence == (
        "where it first differs is not known: none of the 4 layers of the source was found in it"
    )


def test_another_size_of_an_output_is_a_difference() -> None:
    """As with a batch that was frozen."""
    difference = first({("net.b", End.OUTPUT): value(9, 7)})

    assert difference.sentence.endswith(": 4x7 instead of 4x6")
    assert difference.cosine is None


def test_noise_is_none() -> None:
    """What the source does itself in float64 is its floor, in each layer."""
    near = value(2, change=3e-5)
    inner = inner_values(SOURCE) | {("net.b", End.OUTPUT): near}
    exact = InnerValue(shape=B.shape, values=B.values.astype(np.float64) + 2e-5)

    assert first(inner).place == "at net.b"
    assert first(inner, {("net.b", End.OUTPUT): exact}).end is None


def test_integers_must_be_the_same_ones() -> None:
    """Such as positions."""
    one, other = (keep_value(np.arange(BATCH) + shift, BATCH, 10) for shift in (0, 1))
    difference = find_first(
        [moment("words", End.INPUT, one)],
        {("words", End.INPUT): (other,)},
        {},
        rule=RULE,
        batch=BATCH,
        call="",
    )

    assert difference.sentence.endswith(": 4 of 4 samples differ")


@pytest.mark.parametrize(("change", "end"), [(1e-3, None), (2.0, End.OUTPUT)])
def test_a_lossy_recipe_keeps_the_direction_of_each_layer(change: float, end: End | None) -> None:
    """Its largest element is not asked for inside."""
    lossy = inner_values(SOURCE) | {("net.b", End.OUTPUT): value(2, change=change)}

    assert first(lossy, rule=AgreementRule(lossy=True)).end is end


def test_one_large_number_does_not_hide_what_quantising_did_to_the_others() -> None:
    """No place of a layer counts for more than the others."""
    large = InnerValue(shape=B.shape, values=B.values * np.array([1e4, 1, 1, 1, 1, 1], np.float32))
    coarse = InnerValue(
        shape=B.shape, values=np.where(large.values > 100, large.values, 0).astype(np.float32)
    )
    difference = find_first(
        [moment("b", End.OUTPUT, large)],
        {("b", End.OUTPUT): (coarse,)},
        {},
        rule=AgreementRule(lossy=True),
        batch=BATCH,
        call="",
    )

    assert difference.place == "at b"


def test_a_value_without_batch_is_compared_as_a_whole() -> None:
    """As positions are, which all samples share."""
    shared = keep_value(np.ones((7, 2), np.float32), BATCH, 100)
    difference = find_first(
        [moment("p", End.OUTPUT, shared)], {("p", End.OUTPUT): (shared,)}, {}, rule=RULE, batch=BATCH, call=""
    )

    assert difference.place == "after p"
