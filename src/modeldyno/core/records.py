"""Every request of a load, as columns."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import IntEnum
from typing import TYPE_CHECKING, TypeAlias

from modeldyno.core.statistics import load_numpy

if TYPE_CHECKING:
    from collections.abc import Sequence

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

    def chosen(self, mask: Column) -> Records:
        """Give those where `mask` holds."""
        columns = {name: getattr(self, name)[mask] for name in COLUMNS}
        pieces = tuple(piece for piece, keep in zip(self.pieces, mask, strict=False) if keep)
        return Records(**columns, pieces=pieces)


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
    columns = {name: np.concatenate([getattr(part, name) for part in parts]) for name in COLUMNS}
    order = np.argsort(columns["end"], kind="stable")
    streamed = any(part.pieces for part in parts)
    pieces = tuple(piece for part in parts for piece in part.pieces or ((),) * len(part)) if streamed else ()
    return Records(
        **{name: column[order] for name, column in columns.items()},
        pieces=tuple(pieces[i] for i in order) if pieces else (),
    )


assert {each.name for each in fields(Records)} == {*COLUMNS, "pieces"}
