"""Try the cells of the matrix, going on where it stopped, and write docs/explanation/proofs.md.

python -m tests.proofs [--hours 1] [--only WORD ...] [--fresh] [--page]
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from tests.proofs.cell import Cell, Outcome, Record, Try, holds
from tests.proofs.cells import CELLS
from tests.proofs.page import PAGE, RECORDS, read_records, render


def main() -> int:
    """Try what lacks tries until the time is over; 0 if no claim is refuted."""
    parser = argparse.ArgumentParser(prog="python -m tests.proofs", description=__doc__.splitlines()[0])
    parser.add_argument("--hours", type=float, default=1.0, help="time after which no further try begins")
    parser.add_argument(
        "--only", nargs="*", default=[], metavar="WORD", help="cells whose key has each of these words"
    )
    parser.add_argument("--fresh", action="store_true", help="forget the earlier tries of these cells")
    parser.add_argument("--page", action="store_true", help="try nothing; write the page again")
    arguments = parser.parse_args()

    cells = [cell for cell in CELLS if all(word in cell.key for word in arguments.only)]
    records = read_records()
    if arguments.fresh:
        records = {key: record for key, record in records.items() if key not in {cell.key for cell in cells}}
    end = time.monotonic() + (0.0 if arguments.page else 3600 * arguments.hours)
    while time.monotonic() < end and (cell := _next(cells, records)):
        began = time.monotonic()
        one = _attempt(cell, records.get(cell.key, Record()).tries)
        seconds = time.monotonic() - began
        today = datetime.now(UTC).date().isoformat()
        records[cell.key] = records.get(cell.key, Record()).add(one, seconds, today)
        _write(records)
        print(f"{cell.key}: {one.outcome} in {seconds:.0f} s; {one.line}", flush=True)
    PAGE.write_text(render(records), encoding="utf-8")
    refuted = [cell for cell in cells if holds(cell, records.get(cell.key, Record())) is False]
    for cell in refuted:
        print(f"does not hold: {cell.key}: {records[cell.key].against}")
    return 1 if refuted else 0


def _next(cells: list[Cell], records: dict[str, Record]) -> Cell | None:
    """Return the cell that has the smallest share of its tries."""
    lacking = [cell for cell in cells if records.get(cell.key, Record()).tries < cell.tries]
    return min(lacking, key=lambda cell: records.get(cell.key, Record()).tries / cell.tries, default=None)


def _attempt(cell: Cell, seed: int) -> Try:
    with tempfile.TemporaryDirectory(prefix="proof-", ignore_cleanup_errors=True) as folder:
        try:
            return cell.attempt(seed, Path(folder))
        except Exception as error:  # noqa: BLE001 - whatever breaks is an answer that a user would not have had
            return Try(Outcome.FALSE, f"{type(error).__name__}: {error}")


def _write(records: dict[str, Record]) -> None:
    lines = ",\n".join(f"{json.dumps(key)}: {json.dumps(asdict(records[key]))}" for key in sorted(records))
    unfinished = RECORDS.with_suffix(".part")
    unfinished.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")
    unfinished.replace(RECORDS)


if __name__ == "__main__":
    sys.exit(main())
