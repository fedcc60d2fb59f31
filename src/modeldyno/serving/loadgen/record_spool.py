"""The records of a load: in memory up to a limit, and beyond it in an unnamed file.

Records in memory are sorted by the end of their requests, and the earlier half is written to the file, so a
driver may report late by as much as the later half covers. The statistics of `serving.load.load_analysis`
read one part at a time, so memory does not grow with the length of a load. See docs/decisions/0011.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import zipfile
from dataclasses import dataclass
from itertools import chain
from typing import IO, TYPE_CHECKING, Any, Self

from modeldyno.base.errors import RunFailed
from modeldyno.base.result.request_outcome import RequestOutcome
from modeldyno.base.result.result import Artifact
from modeldyno.base.stats.statistics import load_numpy
from modeldyno.serving.load.request_log import (
    COLUMNS,
    TURN_COLUMNS,
    PieceTimes,
    Records,
    join_records,
    read_turns,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from modeldyno.serving.load.request_log import Column, RecordParts

LIMIT = 16 << 20
"""Bytes of records in memory; sorting them needs three times as much for a moment."""
_DIRECTORIES = ("/var/tmp",)  # noqa: S108 - the file has no name; /tmp itself is often memory
_STREAM_COLUMNS: dict[str, Callable[[PieceTimes], Column]] = {
    "pieces": lambda pieces: pieces.counts,
    "first_piece": PieceTimes.first,
    "last_piece": PieceTimes.last,
}
"""Additional columns of streams, computed from the times of their pieces."""
_BATCH = 10_000
"""Number of requests formatted at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Chunk:
    """The position of records in the file: columns, then turns, then the counts of pieces and their times."""

    offset: int
    size: int
    """Bytes."""
    rows: int
    streamed: bool
    turns: int
    """Bytes."""


class RecordSpool:
    """Collects records, and yields them in parts (`request_log.RecordParts`); a context manager."""

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        self._in_memory: list[Records] = []
        self._memory_used = 0
        self._file: IO[bytes] | None = None
        self._chunks: list[_Chunk] = []

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file, which deletes it."""
        if self._file is not None:
            self._file.close()

    def add(self, records: Records) -> None:
        """Add records, which are sorted by the end of their requests.

        Raises:
            RunFailed: the records cannot be written.
        """
        if not len(records):
            return
        self._in_memory.append(records)
        self._memory_used += _size(records)
        if self._memory_used > self._limit:
            self._spill()

    def parts(self) -> Iterator[Records]:
        """Yield the records sorted by the end of their requests, in the parts in which they were written."""
        for chunk in self._chunks:
            yield self._read(chunk)
        if len(self._in_memory) > 1:
            self._in_memory = [join_records(self._in_memory)]
        yield from self._in_memory

    def _spill(self) -> None:
        """Write the earlier half of the records in memory."""
        records = join_records(self._in_memory)
        half = (len(records) + 1) // 2
        self._in_memory = [records.chosen(load_numpy().arange(len(records)) >= half)]
        self._memory_used = _size(self._in_memory[0])
        self._write(records, half)

    def _write(self, records: Records, count: int) -> None:
        """Write the first `count` records."""
        turns = records.turns[:count].tobytes()
        blocks = [*(getattr(records, name)[:count].tobytes() for name in COLUMNS), turns]
        if records.pieces is not None:
            counts = records.pieces.counts[:count]
            blocks += [counts.tobytes(), records.pieces.times[: counts.sum()].tobytes()]
        directory = _directory()
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(prefix="modeldyno-", dir=directory, buffering=0)  # noqa: SIM115 - closed by __exit__
            offset = self._chunks[-1].offset + self._chunks[-1].size if self._chunks else 0
            for block in blocks:
                _write_fully(self._file, block)
        except OSError as error:
            where = directory or tempfile.gettempdir()
            raise RunFailed(
                f"The records of the load could not be written to {where}: {error.strerror}; set TMPDIR to a "
                "directory with more space."
            ) from error
        size = sum(map(len, blocks))
        streamed = records.pieces is not None
        self._chunks.append(_Chunk(offset=offset, size=size, rows=count, streamed=streamed, turns=len(turns)))

    def _read(self, chunk: _Chunk) -> Records:
        np = load_numpy()
        assert self._file is not None
        data = os.pread(self._file.fileno(), chunk.size, chunk.offset)
        columns, offset = {}, 0
        for name, dtype in COLUMNS.items():
            columns[name] = np.frombuffer(data, dtype, chunk.rows, offset)
            offset += columns[name].nbytes
        turns, offset = read_turns(data[offset : offset + chunk.turns]), offset + chunk.turns
        if not chunk.streamed:
            return Records(**columns, turns=turns)
        counts = np.frombuffer(data, "int64", chunk.rows, offset)
        times = np.frombuffer(data, "int64", counts.sum(), offset + counts.nbytes)
        return Records(**columns, pieces=PieceTimes(times=times, counts=counts), turns=turns)


def _size(records: Records) -> int:
    """Return the bytes that records take in memory."""
    columns = records.turns.nbytes + sum(getattr(records, name).nbytes for name in COLUMNS)
    pieces = records.pieces
    return int(columns) + (0 if pieces is None else int(pieces.times.nbytes + pieces.counts.nbytes))


def _directory() -> str | None:
    """Return a directory that is on a disk rather than in memory; None for the default one."""
    if os.environ.get("TMPDIR"):
        return None
    return next((place for place in _DIRECTORIES if os.access(place, os.W_OK)), None)


def _write_fully(file: IO[bytes], block: bytes) -> None:
    """Write a whole block; the system may accept only a part at a time."""
    view = memoryview(block)
    while view:
        view = view[file.write(view) :]


def write_records(records: RecordParts, path: Path) -> Artifact:
    """Write every request: one column each in ``.npz``, or else one line of CSV or JSON each.

    Times are nanoseconds of the monotonic clock; for streams there are also columns about their pieces, for
    sequences about their turns.
    """
    streamed = any(part.pieces is not None for part in records.parts())
    in_turns = any(len(part.turns) for part in records.parts())
    names = (*COLUMNS, *(TURN_COLUMNS if in_turns else ()), *(_STREAM_COLUMNS if streamed else ()))
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
    if name in TURN_COLUMNS:
        return part.turn(name)
    if part.pieces is None:
        none: Column = load_numpy().zeros(len(part), "int64")
        return none
    return _STREAM_COLUMNS[name](part.pieces)
