"""The log of all requests of a load, as columns."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Protocol, TypeAlias

from modeldyno.base.result.request_outcome import RequestOutcome
from modeldyno.base.stats.statistics import load_numpy

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy import ndarray


Column: TypeAlias = "ndarray"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PieceTimes:
    """When the pieces of streamed answers arrived, in nanoseconds: those of all answers in one array."""

    times: Column
    """int64: answer after answer."""
    counts: Column
    """int64: number of pieces of each answer."""

    @classmethod
    def of(cls, answers: Sequence[Sequence[int]]) -> PieceTimes:
        """Build from the times of each answer."""
        np = load_numpy()
        times = np.fromiter((time for answer in answers for time in answer), "int64")
        return cls(times=times, counts=np.fromiter(map(len, answers), "int64", len(answers)))

    def __len__(self) -> int:
        return int(self.counts.size)

    @property
    def ends(self) -> Column:
        """Where the times of each answer end."""
        ends: Column = self.counts.cumsum()
        return ends

    def at(self, indices: Column) -> PieceTimes:
        """Return the times of the answers at these indices, in this order."""
        np = load_numpy()
        counts, ends = self.counts[indices], self.ends[indices]
        places = np.arange(counts.sum()) + np.repeat(ends - counts.cumsum(), counts)
        return PieceTimes(times=self.times[places], counts=counts)

    def first(self) -> Column:
        """Return the time of each answer's first piece; 0 for an answer without pieces."""
        return self.at_place(load_numpy().zeros(len(self), "int64"))

    def last(self) -> Column:
        """Return the time of each answer's last piece; 0 for an answer without pieces."""
        return self.at_place(self.counts - 1)

    def at_place(self, places: Column) -> Column:
        """Return the time of the piece at a place, from 0, of each answer; 0 for an answer without it."""
        times: Column = load_numpy().zeros(len(self), "int64")
        some = (places >= 0) & (places < self.counts)
        times[some] = self.times[(self.ends - self.counts + places)[some]]
        return times

    def only_first(self) -> PieceTimes:
        """Return the first piece of each answer alone."""
        some = self.counts > 0
        return PieceTimes(times=self.first()[some], counts=some.astype("int64"))

    def gaps(self) -> tuple[Column, Column]:
        """Return the time between each piece and the one before it in its answer, and when it arrived."""
        np = load_numpy()
        follows = np.ones(self.times.size, bool)
        follows[(self.ends - self.counts)[self.counts > 0]] = False
        places = np.flatnonzero(follows)
        when: Column = self.times[places]
        return when - self.times[places - 1], when


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Records:
    """Columns of equal length, in the order in which the requests ended.

    Times are nanoseconds of the monotonic clock, which all processes of a machine share.
    """

    due: Column
    """int64."""
    sent: Column
    """int64: just before the first byte was handed to the system; of the last attempt, if it was retried."""
    first: Column
    """int64: when the first byte of the answer arrived; 0 if none did."""
    end: Column
    """int64: when the last byte arrived, or the client gave up."""
    outcome: Column
    """uint8, of Outcome."""
    message: Column
    """int32: index of the target's message."""
    received: Column
    """int64: bytes of the response body."""
    retries: Column
    """int32: number of retries."""
    driver: Column
    """int32: index of the driver process."""
    tokens: Column
    """int32: tokens of the answer if the client can count them, else -1."""
    reasoning: Column
    """int32: how many of the first pieces of the answer are reasoning."""
    server: Column
    """int32: which of the target's servers it was sent to, from 0."""
    pieces: PieceTimes | None = None
    """Of streams: when the pieces of each answer with something in them arrived; else None."""
    turns: Column = field(default_factory=lambda: read_turns(b""))
    """Of sequences: int64, a row of TURN_COLUMNS for each request; else empty."""

    def __len__(self) -> int:
        return int(self.due.size)

    @property
    def fine(self) -> Column:
        """Mask of the requests that were answered well."""
        fine: Column = self.outcome == RequestOutcome.OK
        return fine

    @property
    def failed(self) -> Column:
        """Mask of the requests that were not answered well, but for those that the load gave up."""
        failed: Column = ~self.fine & (self.outcome != RequestOutcome.ABANDONED)
        return failed

    @property
    def weight(self) -> int:
        """Number of requests, or of stream chunks if there are more."""
        return len(self) if self.pieces is None else max(len(self), self.pieces.times.size)

    def turn(self, name: str) -> Column:
        """Return one of TURN_COLUMNS; zeros without sequences."""
        np = load_numpy()
        at = TURN_COLUMNS.index(name)
        column: Column = self.turns[:, at] if len(self.turns) else np.zeros(len(self), "int64")
        return column

    def chosen(self, mask: Column) -> Records:
        """Return the requests where `mask` holds."""
        return self.at(load_numpy().flatnonzero(mask))

    def at(self, indices: Column) -> Records:
        """Return the requests at these indices, in this order."""
        columns = {name: getattr(self, name)[indices] for name in COLUMNS}
        return Records(
            **columns,
            pieces=None if self.pieces is None else self.pieces.at(indices),
            turns=self.turns[indices] if len(self.turns) else self.turns,
        )

    def parts(self) -> Iterator[Records]:
        """Yield all of them as one part; see `RecordParts`."""
        yield self


COLUMNS = {
    "due": "int64", "sent": "int64", "first": "int64", "end": "int64", "outcome": "uint8",
    "message": "int32", "received": "int64", "retries": "int32", "driver": "int32", "tokens": "int32",
    "reasoning": "int32", "server": "int32",
}  # fmt: skip
"""Column to its dtype."""
TURN_COLUMNS = ("session", "turn", "think_time", "prompt_tokens", "cached_tokens")
"""Columns of requests of sequences: the number of the sequence and of the request in it, both from 1; the
nanoseconds between the answer before it and when it was due; the tokens of its prompt, and those of them that
the server had from earlier ones, -1 if unknown."""


def read_turns(data: bytes) -> Column:
    """Return rows of TURN_COLUMNS."""
    rows: Column = load_numpy().frombuffer(data, "<i8").reshape(-1, len(TURN_COLUMNS))
    return rows


def empty_records() -> Records:
    """Return an empty log."""
    np = load_numpy()
    return Records(**{name: np.empty(0, dtype) for name, dtype in COLUMNS.items()})


def join_records(parts: Sequence[Records]) -> Records:
    """Concatenate logs in the order in which the requests ended."""
    np = load_numpy()
    if not parts:
        return empty_records()
    order = np.argsort(np.concatenate([part.end for part in parts]), kind="stable")
    pieces, turns = _joined_pieces(parts), _joined_turns(parts)
    return Records(
        **{name: np.concatenate([getattr(part, name) for part in parts])[order] for name in COLUMNS},
        pieces=None if pieces is None else pieces.at(order),
        turns=turns[order] if len(turns) else turns,
    )


# --- more than memory holds ------------------------------------------------------------------------


class RecordParts(Protocol):
    """A log that may be too large for memory."""

    def parts(self) -> Iterator[Records]:
        """Yield the requests in the order in which they ended, as many at a time as memory can hold."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FilteredRecords:
    """The requests of a log for which a predicate holds, evaluated again on every use."""

    records: RecordParts
    holds: Callable[[Records], Column]

    def __len__(self) -> int:
        return sum(int(self.holds(part).sum()) for part in self.records.parts())

    def parts(self) -> Iterator[Records]:
        """Yield the matching requests of each part."""
        return (part.chosen(self.holds(part)) for part in self.records.parts())

    def where(self, holds: Callable[[Records], Column]) -> FilteredRecords:
        """Filter further."""
        return FilteredRecords(records=self, holds=holds)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FirstPieces:
    """A log whose answers have their first piece alone, for what is said of requests and not of pieces."""

    records: RecordParts

    def parts(self) -> Iterator[Records]:
        """Yield the requests of each part."""
        for part in self.records.parts():
            yield part if part.pieces is None else replace(part, pieces=part.pieces.only_first())


MOST = 1_000_000
"""Most records, or stream chunks, from which statistics are computed; larger logs are sampled."""


def sampling_step(records: RecordParts, most: int = MOST) -> int:
    """Return n such that `sample_records` draws one of every n records."""
    return max(1, math.ceil(sum(part.weight for part in records.parts()) / most))


def sample_records(records: RecordParts, most: int = MOST) -> Records:
    """Return the whole log, or a sample if it is too large, in the order in which the requests ended.

    One of every n is drawn at random, so that periodic requests, such as batches, are represented fairly.
    The greatest and least latency, service time and send lag are always in it.
    """
    np = load_numpy()
    step = sampling_step(records, most)
    if step == 1:
        return _concatenated([*records.parts()])
    rng, ends = np.random.default_rng(step), _extremes(records)
    drawn: list[Records] = []
    for number, part in enumerate(records.parts()):
        mask = np.zeros(len(part), bool)
        places = np.arange(0, len(part), step)
        places += rng.integers(step, size=places.size)
        mask[places[places < len(part)]] = True
        mask[[place for where, place in ends if where == number]] = True
        drawn.append(part.chosen(mask))
    return _concatenated(drawn)


def _concatenated(parts: list[Records]) -> Records:
    """Concatenate parts that are in order; empties the list to free memory."""
    if len(parts) <= 1:
        return parts.pop() if parts else empty_records()
    columns = [{name: getattr(part, name) for name in COLUMNS} for part in parts]
    pieces, turns = _joined_pieces(parts), _joined_turns(parts)
    parts.clear()
    merged = {name: load_numpy().concatenate([column.pop(name) for column in columns]) for name in COLUMNS}
    return Records(**merged, pieces=pieces, turns=turns)


def _joined_pieces(parts: Sequence[Records]) -> PieceTimes | None:
    """Return the piece times of all parts, if any part has some."""
    if all(part.pieces is None for part in parts):
        return None
    np = load_numpy()
    pieces = [part.pieces if part.pieces is not None else PieceTimes.of(((),) * len(part)) for part in parts]
    return PieceTimes(
        times=np.concatenate([each.times for each in pieces]),
        counts=np.concatenate([each.counts for each in pieces]),
    )


def _joined_turns(parts: Sequence[Records]) -> Column:
    """Return the rows of TURN_COLUMNS of all parts; none if they are of no sequences."""
    turns: Column = load_numpy().concatenate([part.turns for part in parts])
    return turns


def _extremes(records: RecordParts) -> set[tuple[int, int]]:
    """Find the extreme times as (index of the part, index in the part)."""
    extremes: dict[tuple[int, int], tuple[int, tuple[int, int]]] = {}
    for number, part in enumerate(records.parts()):
        times = (part.end - part.due, part.end - part.sent, part.sent - part.due)
        for key in ((which, sign) for which in range(len(times)) for sign in (1, -1) if len(part)):
            signed = key[1] * times[key[0]]
            place = int(signed.argmax())
            if key not in extremes or signed[place] > extremes[key][0]:
                extremes[key] = int(signed[place]), (number, place)
    return {where for _, where in extremes.values()}


assert {each.name for each in fields(Records)} == {*COLUMNS, "pieces", "turns"}
