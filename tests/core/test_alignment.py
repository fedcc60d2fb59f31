"""How the modules of two models are matched."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from modeldyno.core import alignment
from modeldyno.core.alignment import Node, align

MLP = ("0 Linear", "1 ReLU", "2 Linear", "3 ReLU")


def nodes(*texts: str, whole: bool = True) -> list[Node]:
    """Make modules of ``path Kind``, the whole before them."""
    parts = [text.partition(" ") for text in texts]
    return [*([Node("", "Net")] if whole else []), *(Node(path, kind) for path, _, kind in parts)]


def paths(before: list[Node], after: list[Node]) -> dict[str | None, str | None]:
    """Give what each has become, without the whole; None is new."""
    pairs = align(before, after)
    return {new.path if new else None: old.path if old else None for old, new in pairs if (old or new).path}  # type: ignore[union-attr]


def test_what_is_alike_is_matched_with_itself() -> None:
    """Two equal models have every module matched, the whole with the whole."""
    found = align(nodes(*MLP), nodes(*MLP))

    assert all(old == new for old, new in found)
    assert len(found) == 5


def test_an_inserted_module_shifts_the_numbers_of_those_behind_it() -> None:
    """They are matched by their class and order, and only the new one is new."""
    found = paths(nodes(*MLP), nodes("0 Linear", "1 ReLU", "2 Dropout", "3 Linear", "4 ReLU"))

    assert found == {"0": "0", "1": "1", "2": None, "3": "2", "4": "3"}


def test_a_removed_module_is_gone() -> None:
    """It comes last, without anything that it has become."""
    found = align(nodes(*MLP), nodes("0 Linear", "1 Linear", "2 ReLU"))

    assert found[-1] == (Node("1", "ReLU"), None)
    assert [new.path for _, new in found[:-1] if new] == ["", "0", "1", "2"]


def test_a_name_outweighs_nothing_but_a_number_is_only_a_place() -> None:
    """A module of the same name and another class is the same, changed."""
    found = paths(nodes("body Block", "head Linear"), nodes("body Wide", "head Linear"))

    assert found == {"body": "body", "head": "head"}


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
    assert alignment.parent_of("a.b.c", {"a", "a.b.c"}) == "a"
    assert alignment.parent_of("a.b", {"a.b"}) == ""


def test_a_whole_that_one_of_them_lacks_is_new_or_gone() -> None:
    """Nothing is matched with what is not there."""
    assert align(nodes(whole=True), []) == ((Node("", "Net"), None),)
    assert align([], nodes(whole=True)) == ((None, Node("", "Net")),)


def test_very_many_are_matched_by_their_names() -> None:
    """Beyond a bound, no way through all pairs is sought."""
    before = nodes("b Linear", *(f"a{n} Linear" for n in range(1100)))
    after = nodes("c Norm", *(f"a{n} Linear" for n in range(1100)))

    found = paths(before, after)

    assert found["a1099"] == "a1099"
    assert found["c"] is None


kinds = st.sampled_from(["Linear", "ReLU", "Norm", ""])
sequences = st.lists(kinds, max_size=8).map(lambda ks: nodes(*(f"{n} {kind}" for n, kind in enumerate(ks))))


@given(sequences, sequences)
def test_every_module_comes_up_once(before: list[Node], after: list[Node]) -> None:
    """Whatever the two are, nothing is lost and nothing is counted twice, and what is matched is alike."""
    found = align(before, after)

    assert [new for _, new in found if new is not None] == after
    olds = [old for old, _ in found if old is not None]
    assert sorted(olds, key=before.index) == before
    assert all(old.kind == new.kind or old.label == new.label for old, new in found if old and new)
