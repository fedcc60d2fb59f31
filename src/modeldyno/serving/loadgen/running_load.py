"""A load that goes on: what it has sent so far, and what it cost when it has ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from modeldyno.engine.interfaces.request_target import Reply
from modeldyno.serving.load.request_log import Records

if TYPE_CHECKING:
    from collections.abc import Sequence

    from modeldyno.serving.load.request_log import Column


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PieceArrivals:
    """Pieces of streamed answers that came between two reports of a driver, of answers in flight, too."""

    begin: int
    """Nanoseconds of the monotonic clock."""
    end: int
    count: int
    """Less than 0 where more pieces were lost with requests that are sent again than have come."""
    first_times: Column
    """int64: nanoseconds from when a request was due to its first piece, for each that has come."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadProgress:
    """What happened since the last call of `take`."""

    records: Records
    in_flight: int
    """Requests sent but not ended, over all drivers."""
    backlog: int
    """Requests due but not sent: the limit of requests in flight was reached, or the driver is late."""
    ended: bool
    """Whether all requests (of the given number, or of the trace) have been sent and have ended."""
    arrivals: tuple[PieceArrivals, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverUsage:
    """What a driver process cost, and what it sent."""

    cpu: float
    """Seconds of processor time during the load."""
    wall: float
    """Seconds of the load."""
    sent: int
    """Requests sent."""
    opened: int
    """Connections opened."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadEnd:
    """The rest of the records and replies, when a load has ended."""

    records: Records
    replies: tuple[Reply, ...]
    """The first and the last reply to each message, to be checked."""
    usages: tuple[DriverUsage, ...]
    """One per driver."""
    faults: tuple[Reply, ...] = ()
    """Some error replies, for their error messages."""
    unsent: int = 0
    """Requests that were due before the stop but had not been sent."""
    failure: str = ""
    """Exception of the first failed call, if requests are calls of the user's code."""


class RunningLoad(Protocol):
    """A running load."""

    @property
    def pids(self) -> Sequence[int]:
        """Process ids of the drivers, which are not part of what is measured."""

    def take(self, wait: float) -> LoadProgress:
        """Return what happened since the last call, after `wait` seconds at most.

        Raises RunFailed if a driver died.
        """

    def usage(self) -> Sequence[DriverUsage]:
        """Return each driver's cost so far, as last reported (several times a second)."""

    def stop(self, grace: float) -> LoadEnd:
        """Stop sending, wait `grace` seconds for the requests in flight, and cancel the rest."""
