"""Try the cells of the matrix, going on where it stopped, and write docs/explanation/proofs.md.

python -m tests.proofs [--hours 1] [--only WORD ...] [--lanes 2] [--fresh] [--page]
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from tests.proofs.cell import Cell, Outcome, Record, Try, holds
from tests.proofs.cells import CELLS
from tests.proofs.page import PAGE, RECORDS, read_records, render

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Records = dict[str, Record]


def main() -> int:
    """Try what lacks tries until the time is over; 0 if no claim is refuted."""
    parser = argparse.ArgumentParser(prog="python -m tests.proofs", description=__doc__.splitlines()[0])
    parser.add_argument("--hours", type=float, default=1.0, help="time in which the tries end")
    parser.add_argument(
        "--only", nargs="*", default=[], metavar="WORD", help="cells whose key has each of these words"
    )
    parser.add_argument(
        "--lanes", type=int, default=2, help="tries at a time, of cells that do not need all of the machine"
    )
    parser.add_argument("--fresh", action="store_true", help="forget the earlier tries of these cells")
    parser.add_argument("--page", action="store_true", help="try nothing; write the page again")
    arguments = parser.parse_args()

    cells = [cell for cell in CELLS if all(word in cell.key for word in arguments.only)]
    records = read_records()
    if arguments.fresh:
        records = {key: record for key, record in records.items() if key not in {cell.key for cell in cells}}
    if not arguments.page:
        _try_all(cells, records, 3600 * arguments.hours, arguments.lanes)
    PAGE.write_text(render(records), encoding="utf-8")
    refuted = [cell for cell in cells if holds(cell, records.get(cell.key, Record())) is False]
    for cell in refuted:
        print(f"does not hold: {cell.key}: {records[cell.key].against}")
    return 1 if refuted else 0


def _try_all(cells: Sequence[Cell], records: Records, seconds: float, lanes: int) -> None:
    """Try cells for so long: first those that need the machine alone, then so many others at a time."""
    begin = time.monotonic()
    for together, until in stages(cells, records, seconds, lanes):
        width = lanes if together else 1
        some = [cell for cell in cells if cell.alone is not together]
        for cell, one, took in _tries(some, records, begin + until, width):
            today = datetime.now(UTC).date().isoformat()
            records[cell.key] = _record(cell, records).add(one, took, today)
            _write(records)
            tried = sum(cell.key in records for cell in cells)
            left = max(0.0, begin + seconds - time.monotonic()) / 60
            print(
                f"[{left:.0f} min left, {tried} of {len(cells)} cells tried] "
                f"{cell.key}: {one.outcome} in {took:.0f} s; {one.line}",
                flush=True,
            )


def stages(
    cells: Sequence[Cell], records: Records, seconds: float, lanes: int
) -> tuple[tuple[bool, float], tuple[bool, float]]:
    """Return when the tries of cells alone end, and those together.

    Each has the time of one try of each cell, and of what is left a part by the number of its cells.
    """
    lacking = [cell for cell in cells if _record(cell, records).tries < cell.tries]
    costs, counts = (
        [
            sum(value(cell) for cell in lacking if cell.alone is alone) / width
            for alone, width in ((True, 1), (False, lanes))
        ]
        for value in (lambda cell: expected(cell, records), lambda _: 1)
    )
    rest = seconds - sum(costs)
    shares, time = (counts, rest) if rest > 0 else (costs, seconds)
    alone = (costs[0] if rest > 0 else 0.0) + time * shares[0] / (sum(shares) or 1)
    return (False, alone), (True, seconds)


def expected(cell: Cell, records: Records) -> float:
    """Return the seconds that the next try will take, about."""
    record = _record(cell, records)
    return record.seconds / record.tries if record.tries else cell.seconds


def next_cell(cells: Sequence[Cell], records: Records, busy: Sequence[Cell], left: float) -> Cell | None:
    """Return the cell to try: each once, the quickest first, then the one that has had the least time.

    So one that takes minutes is tried less often. One that would not end in the seconds left is not begun.
    """
    lacking = [
        cell
        for cell in cells
        if cell not in busy
        and _record(cell, records).tries < cell.tries
        and _SLOWER * expected(cell, records) <= left
    ]
    return min(lacking, key=lambda cell: (_record(cell, records).seconds, cell.seconds), default=None)


_SLOWER = 1.2
"""Factor by which a try may be slower than expected, and still ends in time."""


def _tries(
    cells: Sequence[Cell], records: Records, end: float, lanes: int
) -> Iterator[tuple[Cell, Try, float]]:
    """Yield what came of each try, and its seconds, as they end."""
    running: dict[Future[tuple[Try, float]], Cell] = {}
    with ThreadPoolExecutor(lanes) as pool:
        while True:
            while len(running) < lanes:
                cell = next_cell(cells, records, list(running.values()), end - time.monotonic())
                if cell is None:
                    break
                seed = _record(cell, records).tries
                if lanes == 1:  # replaying needs the main thread
                    yield cell, *_attempt(cell, seed)
                else:
                    running[pool.submit(_attempt, cell, seed)] = cell
            if not running:
                return
            for done in wait(running, return_when=FIRST_COMPLETED).done:
                yield running.pop(done), *done.result()


def _record(cell: Cell, records: Records) -> Record:
    return records.get(cell.key, Record())


def _attempt(cell: Cell, seed: int) -> tuple[Try, float]:
    """Try a cell; return what came, and how many seconds it took."""
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="proof-", ignore_cleanup_errors=True) as folder:
        try:
            one = cell.attempt(seed, Path(folder))
        except Exception as error:  # noqa: BLE001 - whatever breaks is an answer that a user would not have had
            one = Try(Outcome.FALSE, f"{type(error).__name__}: {error}")
    return one, time.monotonic() - begin


def _write(records: Records) -> None:
    lines = ",\n".join(f"{json.dumps(key)}: {json.dumps(asdict(records[key]))}" for key in sorted(records))
    unfinished = RECORDS.with_suffix(".part")
    unfinished.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")
    unfinished.replace(RECORDS)


if __name__ == "__main__":
    sys.exit(main())
