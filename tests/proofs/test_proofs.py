"""The matrix of proofs is whole: doors have rows, rows have tests, and the page says what was recorded."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

import pytest
from tests.proofs.__main__ import next_cell, stages
from tests.proofs.cell import Cell, Outcome, Record, Try, holds
from tests.proofs.cells import CELLS, CLAIMS, DOORS
from tests.proofs.page import PAGE, ROOT, read_records, render

from modeldyno.cli import COMMANDS

if TYPE_CHECKING:
    from pathlib import Path

JUDGES = {
    "profile": ("command", "tag", "json", "store", "checkout", "directory", "job file", "action"),
    "load": ("load",),
    "sweep": ("sweep",),
    "compare": ("compare",),
    "check": ("check",),
    "trend": ("trend",),
    "convert": ("command",),
    "verify": ("command",),
    "registry": ("registry", "canary"),
    "worker": ("registry",),
}
"""Doors of each command that judges."""
UNTRIED = {"advise", "explain", "doctor", "optimize", "reconcile", "ui"}
"""Commands that judge, and that the matrix does not try yet: their tests are their own."""
JUDGES_NOTHING = {
    "comment", "devices", "engine", "export", "help", "import", "inspect", "list", "plugins", "prune",
    "report", "rm", "run", "schema", "serve", "servers", "show", "tag",
}  # fmt: skip


def a_cell(**fields: object) -> Cell:
    """Return a cell of no importance."""
    values: dict[str, object] = {"claim": "a", "door": "b", "command": "c", "tries": 10, "seconds": 1.0}
    values |= {"quick": "", "attempt": lambda _seed, _folder: Try(Outcome.TRUE)}
    return Cell(**{**values, **fields})  # type: ignore[arg-type]


def test_each_command_that_judges_is_a_door_with_rows() -> None:
    """A command of the product has rows, or is named as one that judges nothing or is not tried yet."""
    assert set(COMMANDS) == set(JUDGES) | UNTRIED | JUDGES_NOTHING
    assert {door for doors in JUDGES.values() for door in doors} <= set(DOORS)
    assert set(DOORS) == {cell.door for cell in CELLS}
    assert set(CLAIMS) == {cell.claim for cell in CELLS}
    assert len({cell.key for cell in CELLS}) == len(CELLS)


def test_unchanged_code_is_tried_at_each_door_of_a_change() -> None:
    """A door at which a planted change is tried tries unchanged code as well, and the other way round."""
    doors = [
        {cell.door for cell in CELLS if cell.claim == claim}
        for claim in ("unchanged code", "planted changes")
    ]
    assert doors[0] == doors[1]


@pytest.mark.parametrize("quick", sorted({cell.quick for cell in CELLS}))
def test_the_quick_test_of_a_cell_exists(quick: str) -> None:
    """It is a file of tests, or a function in one."""
    path, _, name = quick.partition("::")
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    assert not name or name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_the_page_says_what_was_recorded() -> None:
    """It was written from the records (`python -m tests.proofs --page`), and each record is of a cell."""
    assert PAGE.read_text(encoding="utf-8") == render(read_records())
    assert set(read_records()) <= {cell.key for cell in CELLS}


def test_a_claim_holds_only_after_enough_tries() -> None:
    """Too few tries prove nothing, a false one too many refutes at once, and open ones are not true."""
    cell = a_cell(least_true=0.8)
    assert holds(cell, Record(true=9)) is None
    assert holds(cell, Record(true=10)) is True
    assert holds(cell, Record(true=1, false=1)) is False
    assert holds(cell, Record(true=7, open=3)) is False
    assert holds(a_cell(most_false=0.1), Record(true=9, false=1)) is True


def test_a_record_keeps_what_speaks_against_the_claim() -> None:
    """The words of a false try are kept in preference to those of an open one."""
    record = Record()
    for outcome in (Outcome.OPEN, Outcome.FALSE, Outcome.OPEN, Outcome.TRUE):
        record = record.add(Try(outcome, outcome.value), 1.0, "2026-01-01")
    assert (record.true, record.false, record.open, record.against) == (1, 1, 2, "false")


def test_each_cell_is_tried_once_before_one_has_more_time() -> None:
    """The quickest first; then the one that has had the least time, if it ends before the time does."""
    cells = [a_cell(door=str(seconds), seconds=seconds) for seconds in (100.0, 5.0, 30.0)]
    slow, quick, middle = cells
    assert next_cell(cells, {}, [], 1000) is quick
    assert next_cell(cells, {}, [quick], 1000) is middle
    records = {quick.key: Record(true=2, seconds=10.0), middle.key: Record(true=1, seconds=50.0)}
    assert next_cell(cells, records, [], 1000) is slow
    assert next_cell(cells, records, [], 100) is quick
    records[quick.key] = Record(true=10, seconds=50.0)
    assert next_cell(cells, records, [], 100) is middle
    assert next_cell(cells, records, [], 20) is None


def test_cells_alone_and_together_share_the_time() -> None:
    """Each has one try of all its cells, and what is left by their number; or else as they cost."""
    cells = [a_cell(door="a", alone=True), a_cell(door="b", seconds=8.0), a_cell(door="c", seconds=12.0)]
    assert stages(cells, {}, 71.0, 2) == ((False, 1 + 60 / 2), (True, 71.0))
    assert stages(cells, {}, 5.5, 2)[0] == (False, 0.5)
    assert stages([], {}, 60.0, 2) == ((False, 0.0), (True, 60.0))


@pytest.mark.slow
@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.key)
def test_one_try_of_each_cell_is_not_false(cell: Cell, tmp_path: Path) -> None:
    """Each cell, tried once on whatever machine this is."""
    one = cell.attempt(0, tmp_path)
    assert one.outcome is not Outcome.FALSE, one.line
