"""Each door of a change, on quiet and on recorded processes: what it finds and says, without the time."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest
from tests.proofs.commands import write_function
from tests.proofs.doors import CHANGE_DOORS, ChangeDoor
from tests.proofs.recorded import Neighbours, replayed

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("slowdown", [0.0, 0.05, 0.5])
@pytest.mark.parametrize(
    "door",
    [
        pytest.param(door, id=door.key, marks=pytest.mark.slow if door.key == "action" else [])
        for door in CHANGE_DOORS
    ],
)
@pytest.mark.filterwarnings("ignore::modeldyno.base.errors.UndecidedWarning")
def test_a_change_is_judged_at_each_door(door: ChangeDoor, slowdown: float, tmp_path: Path) -> None:
    """Unchanged code passes; 5 % is worse in turns, and undecided against what was stored; 50 % is worse."""
    with replayed(None):
        verdict, line = door.judge(tmp_path, write_function, partial(write_function, slowdown=slowdown))
    expected = {0.0: "not worse", 0.05: "undecided" if door.stored else "worse", 0.5: "worse"}[slowdown]
    assert verdict == expected, line


@pytest.mark.parametrize("slowdown", [0.0, 0.2])
@pytest.mark.parametrize("door", [pytest.param(each, id=each.key) for each in CHANGE_DOORS if each.stored])
@pytest.mark.filterwarnings("ignore::modeldyno.base.errors.UndecidedWarning")
def test_neighbours_of_one_side_are_no_change(door: ChangeDoor, slowdown: float, tmp_path: Path) -> None:
    """Those of an unchanged candidate make it no worse; those of the baseline hide nothing that is worse."""
    neighbours = Neighbours()

    def before(folder: Path) -> str:
        neighbours.here = bool(slowdown)
        return write_function(folder)

    def after(folder: Path) -> str:
        neighbours.here = not slowdown
        return write_function(folder, slowdown)

    with replayed(None, neighbours):
        verdict, line = door.judge(tmp_path, before, after)

    assert verdict == "undecided", line


RESTLESS = 47
"""Where in the recording two times of one model differ most, each as if it were sure of itself."""


@pytest.mark.parametrize("door", [pytest.param(each, id=each.key) for each in CHANGE_DOORS if each.stored])
@pytest.mark.filterwarnings("ignore::modeldyno.base.errors.UndecidedWarning")
def test_two_times_of_a_restless_machine_are_no_change(door: ChangeDoor, tmp_path: Path) -> None:
    """Unchanged code whose median was 27 % higher five hours later is not called worse."""
    with replayed(RESTLESS):
        verdict, line = door.judge(tmp_path, write_function, write_function)

    assert verdict != "worse", line
