"""The page of the matrix, written from the records."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from tests.proofs.cell import Cell, Record, holds
from tests.proofs.cells import CELLS, CLAIMS, DOORS, UNTRIED

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs" / "explanation" / "proofs.md"
RECORDS = Path(__file__).with_name("records.json")

_INTRODUCTION = """\
# What is proven, and where

After reading this page you know which verdicts of ModelDyno were tried at which door, by which command,
how often, and what came. `make proofs` writes it: for an hour it types the documented commands on models
whose speed is known, and goes on where it stopped. `make proofs HOURS=8` tries more, `ONLY=pytest` some.
Each cell is tried once, and then the one that has had the least time, so that what takes minutes is tried
less often. What holds figures against the truth has the machine for itself, and one measurement answers all
its cells; of the others two are tried at a time.

Cells marked `recorded` type the same commands, but each process measures what one on a busy machine measured
before (`bench/gate_runs`: three models, whose runs spread by 9 to 22 %), so that nobody waits. On a machine
that is so restless most verdicts stay open; what counts there is how few are false. The steps of the GitHub
action are carried out by a shell, as on a runner; the `modeldyno` that they find replays in its own process.

Beside neighbours, every core has a busy process while one side is measured and not the other, as on a shared
runner: unchanged code is not worse for it, and what has become slower does not pass.

A try is true, false, or open: the product gave no verdict and said why. `97 + 3 / 100` reads: of 100 tries 97
were true, 3 open, and none false. A cell with fewer tries than it needs is marked `so far`; an empty one was
not tried yet. A dash: this door gives no such verdict.
"""


def read_records() -> dict[str, Record]:
    """Return what was recorded, by the key of the cell."""
    if not RECORDS.is_file():
        return {}
    return {key: Record(**fields) for key, fields in json.loads(RECORDS.read_text(encoding="utf-8")).items()}


def render(records: Mapping[str, Record]) -> str:
    """Return the page as Markdown."""
    return "\n".join((_INTRODUCTION, *_matrix(records), *_details(records)))


def _matrix(records: Mapping[str, Record]) -> Iterator[str]:
    claims = [claim for claim in CLAIMS if any(cell.claim == claim for cell in CELLS)]
    for door in DOORS:
        if any(cell.door == door for cell in CELLS):
            break
    yield "## Claims and doors\n"
    yield f"| door | {' | '.join(claims)} |"
    yield f"|---|{'---|' * len(claims)}"
    for door, sentence in DOORS.items():
        shown = (
            _shown([c for c in CELLS if (c.claim, c.door) == (claim, door)], records) for claim in claims
        )
        yield f"| {sentence} | {' | '.join(shown)} |"
    yield ""


def _shown(cells: Sequence[Cell], records: Mapping[str, Record]) -> str:
    if not cells:
        return "—"
    return "<br>".join(
        f"{cell.case} {_result(cell, records.get(cell.key, Record()))}".strip() for cell in cells
    )


def _result(cell: Cell, record: Record) -> str:
    if not record.tries:
        return ""
    opened = f" + {record.open}" if record.open else ""
    counts = f"{record.true}{opened} / {record.tries}"
    return {True: counts, None: f"{counts} so far", False: f"**{counts}: does not hold**"}[
        holds(cell, record)
    ]


def _details(records: Mapping[str, Record]) -> Iterator[str]:
    for claim, sentence in CLAIMS.items():
        cells = [cell for cell in CELLS if cell.claim == claim]
        if not cells:
            continue
        yield f"## {claim[0].upper()}{claim[1:]}\n"
        yield f"{sentence}\n"
        yield "| door | command | promised | came | tried | quick test |"
        yield "|---|---|---|---|---|---|"
        for cell in cells:
            record = records.get(cell.key, Record())
            came = _result(cell, record) or "not tried yet"
            against = f"; {_escape(record.against)}" if record.against else ""
            days = record.first if record.first == record.last else f"{record.first} to {record.last}"
            case = f", {cell.case}" if cell.case else ""
            yield (
                f"| {DOORS[cell.door]}{case} | `{_escape(cell.command)}` | {promise(cell)} | {came}{against} "
                f"| {days} | `{cell.quick}` |"
            )
        for row in UNTRIED:
            if row.claim == claim:
                yield f"| {DOORS[row.door]}, {row.case} | `{_escape(row.command)}` | — | {row.why} | | — |"
        yield ""


def promise(cell: Cell) -> str:
    """Say what must come of the tries of a cell."""
    false = f"at most {cell.most_false * cell.tries:.0f} false" if cell.most_false else "none false"
    true = f", at least {cell.least_true:.0%} true" if cell.least_true else ""
    return f"{false}{true} of {cell.tries}"


def _escape(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
