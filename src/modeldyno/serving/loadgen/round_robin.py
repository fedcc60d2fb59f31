"""Several servers of the same model: each request goes to the next one, all of a sequence to the same."""

from __future__ import annotations

from itertools import cycle
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from modeldyno.serving.loadgen.request import Call, Carrier, OpenSequence


class RoundRobin:
    """A carrier over those of several servers."""

    def __init__(self, carriers: Sequence[Carrier], first: int = 0) -> None:
        """Begin with the carrier at `first`, so that drivers do not all begin with the same server."""
        self._carriers = carriers
        count = len(carriers)
        self._next = cycle([(first + step) % count for step in range(count)])

    @property
    def opened(self) -> int:
        """Number of connections opened."""
        return sum(carrier.opened for carrier in self._carriers)

    def send(self, call: Call, now: int) -> None:
        """Send a request to the server whose turn it is, or to that of its sequence."""
        sequence = call.sequence
        if sequence is None:
            call.server = next(self._next)
        else:
            if sequence.server < 0:
                sequence.server = next(self._next)
            call.server = sequence.server
        self._carriers[call.server].send(call, now)

    def drop(self, call: Call) -> None:
        """Abandon a request without reporting it."""
        self._carriers[call.server].drop(call)

    def leave(self, sequence: OpenSequence) -> None:
        """Give the connection of a sequence that has ended to others."""
        self._carriers[sequence.server].leave(sequence)
