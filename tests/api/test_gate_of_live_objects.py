"""A gate runs its model in fresh processes: an object of this one is refused with what to give instead."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import modeldyno
from modeldyno.errors import RequestError
from modeldyno.pytest_plugin import Profile

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def work() -> float:
    """Stand for a model."""
    return 0.0


@pytest.mark.parametrize(
    ("model", "instead"),
    [
        (work, f"no work of this one; give a reference, 'call:{__file__}:work'"),
        (lambda: 0.0, "'torch:file.py:factory'"),
        ({"weights": 1}, "no dict of this one"),
    ],
)
def test_a_live_object_is_refused_with_what_to_give(
    model: Callable[[], float] | dict[str, int], instead: str, tmp_path: Path
) -> None:
    """By `gate` with a baseline, and by the fixture without one."""
    any_model: Any = model
    with pytest.raises(RequestError) as of_gate:
        modeldyno.gate(any_model, "baseline.json")
    fixture = Profile(folder=tmp_path, name="test", update=False, budget=1.0, undecided="pass")
    with pytest.raises(RequestError) as of_fixture:
        fixture(any_model)
    assert instead in str(of_gate.value)
    assert str(of_fixture.value) == str(of_gate.value)
