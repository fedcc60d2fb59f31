"""A gate runs its model in fresh processes: an object of this one is refused with what to give instead."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from torch import zeros
from torch.nn import Linear
from torch.utils.data import DataLoader, TensorDataset

import modeldyno
from modeldyno.errors import RequestError
from modeldyno.pytest_plugin import Profile

if TYPE_CHECKING:
    from pathlib import Path


def work() -> float:
    """Stand for a model."""
    return 0.0


@pytest.mark.parametrize(
    ("model", "instead"),
    [
        (work, f"no work of this one; give a reference, 'call:{__file__}:work'"),
        (lambda: 0.0, "give a function of a file that makes it, 'torch:file.py:factory'"),
        (Linear(2, 2), "no Linear of this one; give a function of a file that makes it"),
        ((Linear(2, 2), (zeros(1, 2),)), "no Linear of this one"),
        (DataLoader(TensorDataset(zeros(4, 2))), "A DataLoader is no model; give a reference"),
        ({"weights": 1}, "A dict is no model"),
        (None, "A NoneType is no model"),
    ],
)
def test_a_live_object_is_refused_with_what_to_give(model: object, instead: str, tmp_path: Path) -> None:
    """By `gate` with a baseline, and by the fixture without one."""
    any_model: Any = model
    with pytest.raises(RequestError) as of_gate:
        modeldyno.gate(any_model, "baseline.json")
    fixture = Profile(folder=tmp_path, name="test", update=False, budget=1.0, undecided="pass")
    with pytest.raises(RequestError) as of_fixture:
        fixture(any_model)
    assert instead in str(of_gate.value)
    assert str(of_fixture.value) == str(of_gate.value)
