"""What was concluded from several Results."""

from __future__ import annotations

import pytest

from modeldyno.core.comparison.saved_kinds import KINDS, kind_of, name_of
from modeldyno.testing.sample_series import a_capacity, a_comparison, a_ladder


@pytest.mark.parametrize(
    ("found", "kind"),
    [(a_comparison(), "comparison"), (a_ladder(), "ladder"), (a_capacity(), "capacity")],
)
def test_a_conclusion_says_what_it_is(found: object, kind: str) -> None:
    """By the name that its document has."""
    assert kind_of(found) == kind  # type: ignore[arg-type]
    assert isinstance(found, KINDS[kind])


def test_a_conclusion_is_of_a_model() -> None:
    """A comparison is of that of its baseline."""
    assert name_of(a_ladder()) == a_ladder().name
    assert name_of(a_comparison()) == a_comparison().baseline.name
