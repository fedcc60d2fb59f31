"""What runs a model in fresh processes refuses an object of this one, with what to give instead."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from torch import zeros
from torch.nn import Linear
from torch.utils.data import DataLoader, TensorDataset

import modeldyno
from modeldyno.base.errors import RequestError
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


@pytest.mark.parametrize("function", ["gate", "doctor", "load", "load_curve", "find_load", "serve"])
def test_whatever_runs_it_elsewhere_says_the_same(function: str) -> None:
    """One sentence for all of them."""
    arguments = ("baseline.json",) if function == "gate" else ()
    with pytest.raises(RequestError, match="no Linear of this one; give a function of a file that makes it"):
        getattr(modeldyno, function)(Linear(2, 2), *arguments)


@pytest.mark.slow
def test_advice_is_given_for_a_live_object() -> None:
    """Its settings are tried in this process, and there is no command that a shell could run."""
    advice = modeldyno.advise(Linear(2, 2), zeros(1, 2), max_time="20s", progress=False)

    assert advice.baseline["throughput"]
    assert any(tried.change for tried in advice.tried)
    assert "not-isolated" in {doubt.code for doubt in advice.baseline.doubts}
    assert advice.command == ""
