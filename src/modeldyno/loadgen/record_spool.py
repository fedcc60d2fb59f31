"""The records of a load: in memory up to a bound, and beyond it in a file that nobody else sees.

What is held is put in the order in which requests ended, and the earlier half of it written, so that a
driver may tell of them as late as the later half reaches back. The statistics of `core.load.load_analysis`
look at a part at a time, so that memory does not grow with the length of a load. See docs/decisions/0011.
"""

from __future__ import annotations

import os
import tempfile
from array import array
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Self

from modeldyno.core.load.request_log import COLUMNS, Records, joined
from modeldyno.core.stats.statistics import load_numpy
from modeldyno.errors import RunFailed

if TYPE_CHECKING:
    from collections.abc import Iterator

LIMIT = 16 << 20
"""Bytes of records that are held in memory; putting them in order takes three times as many for a moment."""
_PIECE, _STREAM = 40, 64
"""Bytes that the time of a piece takes, and the tuple that holds those of an answer."""
_PLACES = ("/var/tmp",)  # noqa: S108 - the file has no name; /tmp itself is often memory


@dataclass(frozen=True, slots=True, kw_only=True)
class _Chunk:
    """Columns in the file, one after the other; behind them the counts of pieces, and their times."""

    offset: int
    size: int
    """Bytes."""
    rows: int
    streamed: bool


class Tape:
    """Takes records as they come, and gives them in parts (`request_log.Parted`); to be closed."""

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        self._held: list[Records] = []
        self._bytes = 0
        self._file: IO[bytes] | None = None
        self._chunks: list[_Chunk] = []

    def __enter__(self) -> Self:
        """Begin."""
        return self

    def __exit__(self, *_: object) -> None:
        """Give the file back to the system."""
        if self._file is not None:
            self._file.close()

    def add(self, records: Records) -> None:
        """Keep some more, which are in the order in which they ended.

        Raises:
            RunFailed: they cannot be written.
        """
        if not len(records):
            return
        self._held.append(records)
        self._bytes += _size(records)
        if self._bytes > self._limit:
            self._put_away()

    def parts(self) -> Iterator[Records]:
        """Give them in the order in which the requests ended, as many at a time as were written at once."""
        for chunk in self._chunks:
            yield self._read(chunk)
        if len(self._held) > 1:
            self._held = [joined(self._held)]
        yield from self._held

    def _put_away(self) -> None:
        """Write the earlier half of what is held."""
        whole = joined(self._held)
        half = (len(whole) + 1) // 2
        self._held = [whole.chosen(load_numpy().arange(len(whole)) >= half)]
        self._bytes = _size(self._held[0])
        self._write(whole, half)

    def _write(self, records: Records, count: int) -> None:
        """Write the first so many."""
        blocks = [getattr(records, name)[:count].tobytes() for name in COLUMNS]
        if pieces := records.pieces[:count]:
            blocks.append(array("q", map(len, pieces)).tobytes())
            blocks.append(array("q", (when for each in pieces for when in each)).tobytes())
        place = _place()
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(prefix="modeldyno-", dir=place, buffering=0)  # noqa: SIM115 - closed by __exit__
            offset = self._chunks[-1].offset + self._chunks[-1].size if self._chunks else 0
            for block in blocks:
                _written(self._file, block)
        except OSError as error:
            where = place or tempfile.gettempdir()
            raise RunFailed(
                f"The records of the load could not be kept in {where}: {error.strerror}; name a directory "
                "with more room by TMPDIR."
            ) from error
        size = sum(map(len, blocks))
        self._chunks.append(_Chunk(offset=offset, size=size, rows=count, streamed=bool(records.pieces)))

    def _read(self, chunk: _Chunk) -> Records:
        np = load_numpy()
        assert self._file is not None
        data = os.pread(self._file.fileno(), chunk.size, chunk.offset)
        columns, at = {}, 0
        for name, dtype in COLUMNS.items():
            columns[name] = np.frombuffer(data, dtype, chunk.rows, at)
            at += columns[name].nbytes
        if not chunk.streamed:
            return Records(**columns)
        counts = np.frombuffer(data, "int64", chunk.rows, at).tolist()
        times = iter(np.frombuffer(data, "int64", sum(counts), at + 8 * chunk.rows).tolist())
        pieces = tuple(tuple(next(times) for _ in range(count)) for count in counts)
        return Records(**columns, pieces=pieces)


def _size(records: Records) -> int:
    """Give the bytes that they take in memory."""
    columns = sum(getattr(records, name).nbytes for name in COLUMNS)
    return int(columns) + _STREAM * len(records.pieces) + _PIECE * sum(map(len, records.pieces))


def _place() -> str | None:
    """Give a directory that is rather on a disk than in memory; None for the usual one."""
    if os.environ.get("TMPDIR"):
        return None
    return next((place for place in _PLACES if os.access(place, os.W_OK)), None)


def _written(file: IO[bytes], block: bytes) -> None:
    """Write all of it: the system may take less at once."""
    view = memoryview(block)
    while view:
        view = view[file.write(view) :]
