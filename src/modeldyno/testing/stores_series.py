"""The part of a store's test suite that is about series, such as comparisons and ladders."""

from __future__ import annotations

import random
import string
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from modeldyno.core.load.load_curve import LoadPoint
from modeldyno.errors import RequestError
from modeldyno.testing.sample_conversions import a_conversion
from modeldyno.testing.sample_results import a_result
from modeldyno.testing.sample_series import a_capacity, a_comparison, a_ladder

if TYPE_CHECKING:
    from modeldyno.interfaces.store import Store

_ALPHABET = string.ascii_letters + string.digits
ODD_NAMES = {
    "quotes": """it's "quoted" `three` ways""",
    "unicode": "模型 ﷽ 🏋️ e\u0301",
    "sql": "x'); DROP TABLE results; --",
    "wildcards": "100%_of[a-z]*?",
    "newlines": "one\ntwo\r\n\tthree",
    "null": "a\0b",
    "placeholders": "%s %(name)s :name ?1 {0}",
    "backslash": "\\N\\",
    "blank": " ",
    "10 kB": "".join(random.Random(0).choices(_ALPHABET, k=10_000)),
}
"""Names that have broken programs that concatenate text."""


class ConclusionSuite:
    """Tests of a store that keeps series; the fixture `store` is that of StoreSuite."""

    def test_conclusion_round_trip(self, store: Store) -> None:
        """A comparison, a load curve, a search and a conversion are got by the beginning of their ids."""
        documents = (a_comparison(), a_ladder(), a_capacity(), replace(a_conversion(), id="5e" * 6))
        for document in documents:
            store.put_conclusion(document, headline="It is so.")

        assert [store.conclusion(document.id[:8]) for document in documents] == list(documents)

    def test_conclusion_entry(self, store: Store) -> None:
        """A list says when it was made, what it is, of which model, and what came out; the newest first."""
        store.put_conclusion(a_ladder(), headline="The knee is at 4.")
        store.put_conclusion(replace(a_capacity(), created="2027-01-01", name="other"), headline="4 holds.")

        first, second = store.conclusions()

        assert (first.id, first.kind, first.name, first.headline) == (
            a_capacity().id, "capacity", "other", "4 holds.",
        )  # fmt: skip
        assert (second.kind, second.created) == ("ladder", a_ladder().created)
        assert [entry.id for entry in store.conclusions(name=a_ladder().name)] == [a_ladder().id]
        assert [entry.id for entry in store.conclusions(limit=1)] == [first.id]

    def test_pages_of_conclusions(self, store: Store) -> None:
        """Those of some kinds are listed alone, and the page after an entry begins with the next one."""
        store.put_conclusion(a_ladder(), headline="")
        store.put_conclusion(replace(a_capacity(), created="2027-01-01"), headline="")
        store.put_conclusion(replace(a_comparison(), created="2028-01-01"), headline="")

        loads = store.conclusions(kinds=("ladder", "capacity"))

        assert [entry.kind for entry in loads] == ["capacity", "ladder"]
        assert [entry.kind for entry in store.conclusions(before=loads[0].mark)] == ["ladder"]

    @pytest.mark.parametrize("prefix", ["", "none", "%", "_"])
    def test_unknown_conclusion(self, store: Store, prefix: str) -> None:
        """What is not there, and what would be all of them, is a wrong request."""
        store.put_conclusion(a_ladder(), headline="")

        with pytest.raises(RequestError):
            store.conclusion(prefix)

    def test_put_conclusion_again(self, store: Store) -> None:
        """The same id is kept once, as it was put last."""
        store.put_conclusion(a_ladder(), headline="first")
        longer = replace(a_ladder(), rungs=(*a_ladder().rungs, LoadPoint(load=9, failure="no answer")))
        store.put_conclusion(longer, headline="second")

        assert store.conclusion(longer.id) == longer
        assert [entry.headline for entry in store.conclusions()] == ["second"]

    def test_remove_conclusion(self, store: Store) -> None:
        """The document goes, and the results that it was concluded from stay."""
        result = a_result()
        store.put(result, headline="")
        store.put_conclusion(a_ladder(), headline="")

        assert store.remove_conclusion(a_ladder().id[:5]) == a_ladder().id
        assert list(store.conclusions()) == []
        assert store.get(result.id) == result

    @pytest.mark.parametrize("kind", ODD_NAMES)
    def test_odd_conclusion_names(self, store: Store, kind: str) -> None:
        """Any text can be the name of a model of which something was concluded."""
        store.put_conclusion(replace(a_ladder(), name=ODD_NAMES[kind]), headline=ODD_NAMES[kind])

        assert [entry.id for entry in store.conclusions(name=ODD_NAMES[kind])] == [a_ladder().id]
