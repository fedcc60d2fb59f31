"""Every request of a load, as columns."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from enum import IntEnum
from typing import TYPE_CHECKING, Protocol, TypeAlias

from modeldyno.core.stats.statistics import load_numpy

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy import ndarray


Column: TypeAlias = "ndarray"


class Outcome(IntEnum):
    """How a request ended; each has exactly one of these."""

    OK = 0
    TIMEOUT = 1
    """No whole answer within the timeout."""
    REFUSED = 2
    """No connection could be made."""
    RESET = 3
    """The connection broke before the answer was whole, or in the middle of sending."""
    TRUNCATED = 4
    """The server closed the connection in an orderly way before the answer was whole."""
    MALFORMED = 5
    """What came is no answer of the protocol: a bad status line, a bad chunk, a wrong length."""
    REJECTED = 6
    """The server said that it is overloaded: 429, 503; gRPC 8 and 14."""
    CLIENT_ERROR = 7
    """Any other 4xx, or what gRPC has in their place."""
    SERVER_ERROR = 8
    """Any other 5xx, or what gRPC has in their place; an error told in a stream."""
    CANCELLED = 9
    """Given up by us, as the load ended."""

    @property
    def word(self) -> str:
        """Say it in lower case."""
        return self.name.lower().replace("_", "-")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Records:
    """Columns of equal length, in the order in which the requests ended.

    Times are nanoseconds of the monotonic clock, which all processes of a machine share.
    """

    due: Column
    """int64."""
    sent: Column
    """int64: before the first byte was handed to the system. The last time, where it was sent again."""
    first: Column
    """int64: when the first byte of the answer was there; 0 if none came."""
    end: Column
    """int64: when the last byte was there, or it was given up."""
    outcome: Column
    """uint8, of Outcome."""
    message: Column
    """int32: which of the target's messages it was."""
    received: Column
    """int64: bytes of the answer's body."""
    retries: Column
    """int32: times that it was sent again."""
    driver: Column
    """int32: which process sent it."""
    tokens: Column
    """int32: tokens of the answer, of a stream whose client can tell; else -1."""
    pieces: tuple[tuple[int, ...], ...] = ()
    """Of a stream: when (nanoseconds) the pieces of each answer came that bear something; else empty."""

    def __len__(self) -> int:
        return int(self.due.size)

    @property
    def fine(self) -> Column:
        """Whether each was answered."""
        fine: Column = self.outcome == Outcome.OK
        return fine

    @property
    def weight(self) -> int:
        """How many there are, or pieces of theirs, where these are more."""
        return max(len(self), sum(map(len, self.pieces)))

    def chosen(self, mask: Column) -> Records:
        """Give those where `mask` holds."""
        return self.at(load_numpy().flatnonzero(mask))

    def at(self, places: Column) -> Records:
        """Give those at these places, in this order."""
        columns = {name: getattr(self, name)[places] for name in COLUMNS}
        return Records(**columns, pieces=tuple(self.pieces[i] for i in places) if self.pieces else ())

    def parts(self) -> Iterator[Records]:
        """Give them all at once, as they are held already; see `Parted`."""
        yield self


COLUMNS = {
    "due": "int64", "sent": "int64", "first": "int64", "end": "int64", "outcome": "uint8",
    "message": "int32", "received": "int64", "retries": "int32", "driver": "int32", "tokens": "int32",
}  # fmt: skip
"""Column to its dtype."""


def none() -> Records:
    """Give no records."""
    np = load_numpy()
    return Records(**{name: np.empty(0, dtype) for name, dtype in COLUMNS.items()})


def joined(parts: Sequence[Records]) -> Records:
    """Put records together, in the order in which the requests ended."""
    np = load_numpy()
    if not parts:
        return none()
    order = np.argsort(np.concatenate([part.end for part in parts]), kind="stable")
    pieces = _in_step(parts)
    return Records(
        **{name: np.concatenate([getattr(part, name) for part in parts])[order] for name in COLUMNS},
        pieces=tuple(pieces[i] for i in order) if pieces else (),
    )


# --- more than memory holds ------------------------------------------------------------------------


class Parted(Protocol):
    """Records that may be too many to be held in memory."""

    def parts(self) -> Iterator[Records]:
        """Give them from the first that ended to the last, as many at a time as can be held."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Chosen:
    """Those of some records for which something holds, looked for each time that they are needed."""

    records: Parted
    holds: Callable[[Records], Column]

    def __len__(self) -> int:
        return sum(int(self.holds(part).sum()) for part in self.records.parts())

    def parts(self) -> Iterator[Records]:
        """Give those of each part."""
        return (part.chosen(self.holds(part)) for part in self.records.parts())

    def where(self, holds: Callable[[Records], Column]) -> Chosen:
        """Choose among them."""
        return Chosen(records=self, holds=holds)


MOST = 1_000_000
"""Records, or pieces of streams, from which statistics are made; of more than these a sample is drawn."""


def thinning(records: Parted, most: int = MOST) -> int:
    """Give of how many records `sample` draws one."""
    return max(1, math.ceil(sum(part.weight for part in records.parts()) / most))


def sample(records: Parted, most: int = MOST) -> Records:
    """Give all of them together, or of too many a sample, in the order in which the requests ended.

    Of every so many one is drawn at random: what recurs at equal steps, as batches do, has its share.
    The greatest and least latency, service time and send lag are always in it.
    """
    np = load_numpy()
    step = thinning(records, most)
    if step == 1:
        return _together([*records.parts()])
    rng, ends = np.random.default_rng(step), _extremes(records)
    drawn: list[Records] = []
    for number, part in enumerate(records.parts()):
        mask = np.zeros(len(part), bool)
        places = np.arange(0, len(part), step)
        places += rng.integers(step, size=places.size)
        mask[places[places < len(part)]] = True
        mask[[place for where, place in ends if where == number]] = True
        drawn.append(part.chosen(mask))
    return _together(drawn)


def _together(parts: list[Records]) -> Records:
    """Put parts one behind the other, which are in order; takes them out of the list, to free them."""
    if len(parts) <= 1:
        return parts.pop() if parts else none()
    columns = [{name: getattr(part, name) for name in COLUMNS} for part in parts]
    pieces = _in_step(parts)
    parts.clear()
    joined_ = {name: load_numpy().concatenate([each.pop(name) for each in columns]) for name in COLUMNS}
    return Records(**joined_, pieces=pieces)


def _in_step(parts: Sequence[Records]) -> tuple[tuple[int, ...], ...]:
    """Give the pieces of all, where any has some."""
    if not any(part.pieces for part in parts):
        return ()
    return tuple(piece for part in parts for piece in part.pieces or ((),) * len(part))


def _extremes(records: Parted) -> set[tuple[int, int]]:
    """Find where the greatest and least times are: the number of the part, and the place in it."""
    found: dict[tuple[int, int], tuple[int, tuple[int, int]]] = {}
    for number, part in enumerate(records.parts()):
        times = (part.end - part.due, part.end - part.sent, part.sent - part.due)
        for key in ((which, sign) for which in range(len(times)) for sign in (1, -1) if len(part)):
            signed = key[1] * times[key[0]]
            place = int(signed.argmax())
            if key not in found or signed[place] > found[key][0]:
                found[key] = int(signed[place]), (number, place)
    return {where for _, where in found.values()}


assert {each.name for each in fields(Records)} == {*COLUMNS, "pieces"}
