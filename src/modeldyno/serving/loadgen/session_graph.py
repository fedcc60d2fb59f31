"""Sessions of agents: requests that wait for others of their session, several of which may be in flight.

A request is due when all that it waits for have been answered, and its pause is over. Its history is that of
one of these, or none. What waits for a request that failed is never sent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from modeldyno.serving.loadgen.request import OpenSequence

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

NO_HISTORY = -1
"""In place of the request that is extended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionPlan:
    """Which requests of a session wait for which; each has a number from 0 on."""

    first: int
    """Message of request 0, which waits for none; the others follow."""
    waits: tuple[int, ...]
    """How many others each waits for."""
    followers: tuple[tuple[int, ...], ...]
    """Those that wait for each."""
    extends: tuple[int, ...]
    """Whose history each has, its answer included; NO_HISTORY for none."""
    heirs: tuple[int | None, ...]
    """The last one that extends each, which keeps its connection; None if none does."""


def plan_session(first: int, links: Sequence[Sequence[int]]) -> SessionPlan:
    """Plan a session whose first message has this number.

    Args:
        first: number of the message.
        links: of each request the one that it extends, and then all that it waits for.
    """
    followers: list[list[int]] = [[] for _ in links]
    heirs: list[int | None] = [None] * len(links)
    for number, (extended, *waits) in enumerate(links):
        for other in waits:
            followers[other].append(number)
        if extended != NO_HISTORY:
            heirs[extended] = number
    return SessionPlan(
        first=first,
        waits=tuple(len(link) - 1 for link in links),
        followers=tuple(map(tuple, followers)),
        extends=tuple(link[0] for link in links),
        heirs=tuple(heirs),
    )


def longest_chain(links: Sequence[Sequence[int]]) -> int:
    """Return the most requests of a session that are sent one after the other.

    Args:
        links: as `plan_session` takes them; each request waits for some before it.
    """
    lengths = list[int]()
    for _, *waits in links:
        lengths.append(1 + max((lengths[other] for other in waits), default=0))
    return max(lengths)


class OpenGraph:
    """A session of an agent that has not ended.

    Each of its branches is a sequence, which has one request in flight at most and a connection of its own.
    """

    __slots__ = ("_histories", "_missing", "_numbers", "_parked", "_plan", "under_way")

    def __init__(self, plan: SessionPlan, numbers: Iterator[int]) -> None:
        """Take the numbers of branches from `numbers`."""
        self._plan = plan
        self._numbers = numbers
        self._missing = [*plan.waits]
        self._parked: dict[int, OpenSequence] = {}
        """Branches whose next request waits, by that request."""
        self._histories: dict[int, tuple[bytes, int]] = {}
        """What was said up to the end of a request, and its turn."""
        self.under_way = 1
        """Requests in flight, and those that are about to be sent."""

    def begin(self) -> OpenSequence:
        """Return the branch of the first request."""
        return self._opened(0, b"", 1)

    def end(self, branch: OpenSequence, *, answered: bool) -> tuple[list[OpenSequence], list[OpenSequence]]:
        """End a branch's request; see `AgentSession`."""
        number, plan = branch.message - self._plan.first, self._plan
        heir = plan.heirs[number] if answered else None
        if heir is not None:
            self._parked[heir] = branch
            self._histories[number] = branch.history, branch.turn
        ready = []
        for follower in plan.followers[number] if answered else ():
            self._missing[follower] -= 1
            if not self._missing[follower]:
                ready.append(self._go_on(follower))
        self.under_way += len(ready) - 1
        ended = [branch] if heir is None else []
        if not self.under_way:
            ended += self._parked.values()
        return ready, ended

    def _go_on(self, number: int) -> OpenSequence:
        """Return the branch of a request that waits for nothing any more."""
        extended = self._plan.extends[number]
        history, turn = self._histories.get(extended, (b"", 0))
        branch = self._parked.pop(number, None)
        if branch is None:
            return self._opened(number, history, turn + 1)
        branch.turn += 1
        branch.message = self._plan.first + number
        branch.left = self._left(number)
        return branch

    def _opened(self, number: int, history: bytes, turn: int) -> OpenSequence:
        branch = OpenSequence(next(self._numbers), iter((self._plan.first + number,)), self._left(number))
        branch.graph, branch.history, branch.turn = self, history, turn
        return branch

    def _left(self, number: int) -> int:
        """Return 2 for a request whose answer is a part of another's history, or 1."""
        return 1 if self._plan.heirs[number] is None else 2
