"""How the modules of two models are matched."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modeldyno.comparison.change import module_alignment
from modeldyno.comparison.change.module_alignment import AlignedModule, align, group_unmatched

MLP = ("0 Linear", "1 ReLU", "2 Linear", "3 ReLU")


def nodes(*texts: str, whole: bool = True) -> list[AlignedModule]:
    """Make modules of ``path Kind``, the whole before them."""
    parts = [text.partition(" ") for text in texts]
    return [
        *([AlignedModule("", "Net")] if whole else []),
        *(AlignedModule(path, kind) for path, _, kind in parts),
    ]


def paths(before: list[AlignedModule], after: list[AlignedModule]) -> dict[str | None, str | None]:
    """Give what each has become, without the whole; None is new."""
    pairs = align(before, after)
    return {new.path if new else None: old.path if old else None for old, new in pairs if (old or new).path}  # type: ignore[union-attr]


def test_what_is_alike_is_matched_with_itself() -> None:
    """Two equal models have every module matched, the whole with the whole."""
    pairs = align(nodes(*MLP), nodes(*MLP))

    assert all(old == new for old, new in pairs)
    assert len(pairs) == 5


def test_an_inserted_module_shifts_the_numbers_of_those_behind_it() -> None:
    """They are matched by their class and order, and only the new one is new."""
    partners = paths(nodes(*MLP), nodes("0 Linear", "1 ReLU", "2 Dropout", "3 Linear", "4 ReLU"))

    assert partners == {"0": "0", "1": "1", "2": None, "3": "2", "4": "3"}


def test_a_removed_module_is_gone() -> None:
    """It comes behind what it followed, without anything that it has become."""
    pairs = align(nodes(*MLP), nodes("0 Linear", "1 Linear", "2 ReLU"))

    assert pairs[2] == (AlignedModule("1", "ReLU"), None)
    assert [new.path for _, new in pairs if new] == ["", "0", "1", "2"]


def test_what_went_from_the_beginning_comes_first() -> None:
    """Nothing is before it that is still there."""
    assert align([AlignedModule("0", "Norm")], [AlignedModule("0", ""), AlignedModule("1", "")])[0] == (
        AlignedModule("0", "Norm"),
        AlignedModule("0", ""),
    )
    assert align([AlignedModule("a", "Norm"), AlignedModule("b", "Act")], [AlignedModule("b", "Act")])[0] == (
        AlignedModule("a", "Norm"),
        None,
    )


def test_what_a_layer_gives_outweighs_its_number() -> None:
    """Where a layer was put before others of its class, it is that one that is new."""
    before = [AlignedModule(str(n), "Linear", shape) for n, shape in enumerate("abc")]
    after = [AlignedModule(str(n), "Linear", shape) for n, shape in enumerate("zabc")]

    assert paths(before, after) == {"0": None, "1": "0", "2": "1", "3": "2"}


def test_a_name_outweighs_what_a_layer_gives() -> None:
    """A layer that was named is the same where it has become wider."""
    before = [AlignedModule("up", "Linear", "a"), AlignedModule("down", "Linear", "b")]
    after = [
        AlignedModule("in", "Linear", "a"),
        AlignedModule("up", "Linear", "c"),
        AlignedModule("down", "Linear", "b"),
    ]

    assert paths(before, after) == {"in": None, "up": "up", "down": "down"}


@pytest.mark.parametrize(
    ("path", "kind", "numbered"),
    [
        ("body.3", "Linear", True),
        ("act.MatMul", "MatMul", True),
        ("act.MatMul_3", "MatMul", True),
        ("act.Gelu_1", "fused Gelu", True),
        ("head", "Linear", False),
        ("conv1", "Conv2d", False),
        ("holder", "", False),
    ],
)
def test_a_number_only_tells_the_place(path: str, kind: str, numbered: bool) -> None:
    """So does an operator's turn among those of its kind; an attribute's name tells more."""
    assert AlignedModule(path, kind).numbered is numbered


def groups(before: list[AlignedModule], after: list[AlignedModule]) -> list[list[str]]:
    """Give the paths that are told together, those that are gone in brackets; the whole is left out."""
    return [
        [new.path if new else f"({old.path})" for old, new in group if old or new]  # type: ignore[union-attr]
        for group in group_unmatched(align(before, after))
        if group[0] != (AlignedModule("", "Net"), AlignedModule("", "Net"))
    ]


def test_an_operator_that_was_split_is_told_by_the_module_that_it_was_split_in() -> None:
    """All that is new in it, and what went from it, is one thing."""
    before = nodes("act ", "act.Gelu fused Gelu", "MatMul MatMul")
    after = nodes("act ", "act.Div Div", "act.Erf Erf", "act.Mul Mul", "MatMul MatMul")

    assert groups(before, after) == [["act", "(act.Gelu)", "act.Div", "act.Erf", "act.Mul"], ["MatMul"]]
    assert groups(after, before) == [["act"], ["act.Gelu", "(act.Div)", "(act.Erf)", "(act.Mul)"], ["MatMul"]]


def test_what_was_taken_out_of_a_module_is_told_by_it() -> None:
    """Several of one place have no name in common but that of their module."""
    assert groups(nodes("a Block", "a.b Norm", "a.c Act"), nodes("a Block")) == [["a", "(a.b)", "(a.c)"]]


def test_what_is_new_with_all_that_is_in_it_is_one_thing() -> None:
    """A block is named, not the layers in it."""
    before = nodes("body List", "body.0 Block", "body.0.fc Linear")
    after = [*before, *nodes("body.1 Block", "body.1.fc Linear", "body.1.fc.w Part", whole=False)]

    assert groups(before, after) == [
        ["body"],
        ["body.0"],
        ["body.0.fc"],
        ["body.1", "body.1.fc", "body.1.fc.w"],
    ]


def test_what_is_new_in_the_whole_is_told_by_the_first_of_it() -> None:
    """The whole names nothing; what is new elsewhere is told by itself."""
    before = nodes("MatMul MatMul", "Add Add")
    after = nodes("MatMul MatMul", "Tanh Tanh", "Exp Exp", "Add Add", "Div Div")

    assert groups(before, after) == [["MatMul"], ["Tanh", "Exp"], ["Add"], ["Div"]]


def test_one_that_was_replaced_by_another_is_told_by_what_it_has_become() -> None:
    """Wherever the two stand."""
    before, after = nodes("a Block", "a.act GELU", "norm Norm"), nodes("a Block", "a.fast Tanh", "norm Norm")

    assert groups(before, after) == [["a"], ["a.fast", "(a.act)"], ["norm"]]


def test_a_module_that_is_listed_behind_those_in_it_holds_them_all_the_same() -> None:
    """Such as a list of modules, which is never called."""
    after = nodes("body.0 Block", "body.0.fc Linear", "body List")

    assert groups(nodes(), after) == [["body", "body.0", "body.0.fc"]]


def test_a_name_outweighs_nothing_but_a_number_is_only_a_place() -> None:
    """A module of the same name and another class is the same, changed."""
    partners = paths(nodes("body Block", "head Linear"), nodes("body Wide", "head Linear"))

    assert partners == {"body": "body", "head": "head"}


def test_a_replaced_module_in_a_sequence_is_matched_with_what_it_replaces() -> None:
    """Where nothing else is to be matched, the place is enough."""
    assert paths(nodes("0 Linear", "1 GELU"), nodes("0 Linear", "1 Slow")) == {"0": "0", "1": "1"}


def test_what_was_wrapped_is_found_again() -> None:
    """The parts of a model that stands within another now are matched by their classes."""
    before = nodes("net Sequential", "net.fc Linear", "net.act GELU")
    after = nodes("model Net", "model.net Sequential", "model.net.fc Linear", "model.net.act GELU")

    assert paths(before, after) == {
        "model": None,
        "model.net": "net",
        "model.net.fc": "net.fc",
        "model.net.act": "net.act",
    }


def test_a_parent_that_is_not_listed_is_skipped() -> None:
    """A module belongs to the nearest one around it that is listed."""
    assert module_alignment.parent_of("a.b.c", {"a", "a.b.c"}) == "a"
    assert module_alignment.parent_of("a.b", {"a.b"}) == ""


def test_a_whole_that_one_of_them_lacks_is_new_or_gone() -> None:
    """Nothing is matched with what is not there."""
    assert align(nodes(whole=True), []) == ((AlignedModule("", "Net"), None),)
    assert align([], nodes(whole=True)) == ((None, AlignedModule("", "Net")),)


def test_very_many_are_matched_by_their_names() -> None:
    """Beyond a bound, no way through all pairs is sought."""
    before = nodes("b Linear", *(f"a{n} Linear" for n in range(1100)))
    after = nodes("c Norm", *(f"a{n} Linear" for n in range(1100)))

    partners = paths(before, after)

    assert partners["a1099"] == "a1099"
    assert partners["c"] is None


kinds = st.sampled_from(["Linear", "ReLU", "Norm", ""])
sequences = st.lists(kinds, max_size=8).map(lambda ks: nodes(*(f"{n} {kind}" for n, kind in enumerate(ks))))


@given(sequences, sequences)
def test_every_module_comes_up_once(before: list[AlignedModule], after: list[AlignedModule]) -> None:
    """Whatever the two are, nothing is lost and nothing is counted twice, and what is matched is alike."""
    pairs = align(before, after)

    assert [new for _, new in pairs if new is not None] == after
    olds = [old for old, _ in pairs if old is not None]
    assert sorted(olds, key=before.index) == before
    assert all(old.kind == new.kind or old.label == new.label for old, new in pairs if old and new)
    grouped = [pair for group in group_unmatched(pairs) for pair in group]
    assert sorted(map(str, grouped)) == sorted(map(str, pairs))
