"""Writes every request of a load to a file of the user's, one part at a time."""

from __future__ import annotations

import hashlib
import json
import zipfile
from itertools import chain
from typing import TYPE_CHECKING, Any

from modeldyno.core.load.request_log import COLUMNS, RequestOutcome
from modeldyno.core.result.result import Artifact
from modeldyno.core.stats.statistics import load_numpy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from modeldyno.core.load.request_log import Column, RecordParts, Records

_STREAM_COLUMNS: dict[str, Callable[[tuple[int, ...]], int]] = {
    "pieces": len,
    "first_piece": lambda pieces: pieces[0] if pieces else 0,
    "last_piece": lambda pieces: pieces[-1] if pieces else 0,
}
"""Additional columns of streams, computed from the times of their pieces."""
_BATCH = 10_000
"""Number of requests formatted at a time."""


def write_records(records: RecordParts, path: Path) -> Artifact:
    """Write every request: one column each in ``.npz``, or else one line of CSV or JSON each.

    Times are nanoseconds of the monotonic clock; for streams there are also columns about their pieces.
    """
    streamed = any(part.pieces for part in records.parts())
    names = (*COLUMNS, *(_STREAM_COLUMNS if streamed else ()))
    if path.suffix == ".npz":
        _archive(records, names, path)
    else:
        with path.open("w", encoding="utf-8") as file:
            if path.suffix == ".jsonl":
                rows = _rows(records, names)
                file.writelines(json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in rows)
            else:
                lines = chain([names], _rows(records, names))
                file.writelines(",".join(map(str, row)) + "\n" for row in lines)
    with path.open("rb") as written:
        digest = hashlib.file_digest(written, "sha256").hexdigest()
    return Artifact(name="records", path=str(path), digest=f"sha256:{digest}")


def _rows(records: RecordParts, names: tuple[str, ...]) -> Iterator[tuple[Any, ...]]:
    names_of_outcomes = [outcome.word for outcome in RequestOutcome]
    for part in records.parts():
        for begin in range(0, len(part), _BATCH):
            batch = slice(begin, begin + _BATCH)
            columns = {name: _column(part, name)[batch].tolist() for name in names}
            columns["outcome"] = [names_of_outcomes[outcome] for outcome in columns["outcome"]]
            yield from zip(*columns.values(), strict=True)


def _archive(records: RecordParts, names: tuple[str, ...], path: Path) -> None:
    """Write an archive for ``numpy.load``, with each column as a file in it."""
    np = load_numpy()
    count = sum(map(len, records.parts()))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name in names:
            head = {
                "descr": np.dtype(COLUMNS.get(name, "int64")).str,
                "fortran_order": False,
                "shape": (count,),
            }
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                np.lib.format.write_array_header_1_0(file, head)
                for part in records.parts():
                    file.write(_column(part, name).tobytes())


def _column(part: Records, name: str) -> Column:
    if name in COLUMNS:
        column: Column = getattr(part, name)
        return column
    times = part.pieces or ((),) * len(part)
    values: Column = load_numpy().fromiter(map(_STREAM_COLUMNS[name], times), "int64", len(part))
    return values
