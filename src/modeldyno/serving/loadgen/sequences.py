"""Sequences of requests: which one a request belongs to, and what it carries.

A sequence is one of a stateful model, whose requests bear its mark, or the session of a chat, whose requests
bear its history: all that was said in it, the server's own answers included. The session of an agent is
several sequences, see `session_graph`.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import accumulate, count, cycle
from random import Random
from typing import TYPE_CHECKING, Protocol

from modeldyno.base.job.load_spec import Arrivals
from modeldyno.serving.interfaces.client import SINGLE_SEQUENCE
from modeldyno.serving.loadgen.request import OpenSequence
from modeldyno.serving.loadgen.session_graph import OpenGraph, plan_session

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from modeldyno.base.job.load_spec import Load
    from modeldyno.engine.interfaces.request_target import Reply, Target
    from modeldyno.serving.interfaces.client import Client
    from modeldyno.serving.loadgen.arrivals import LoadShare
    from modeldyno.serving.loadgen.request import AgentSession, Call

_NANO = 1e9


class Mark(Protocol):
    """Writes what makes a request one of a sequence."""

    def __call__(self, number: int, *, first: bool, last: bool) -> bytes:
        """Return bytes of a constant length."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chat:
    """What the turns of chats say, and how answers are read."""

    target: Target
    client: Client

    def exchange(self, message: int, reply: Reply) -> bytes:
        """Return a turn and its answer as a part of the history; raise ValueError if it is no answer."""
        question = self.target.messages[message][self.target.marks[message] : self.target.turn_ends[message]]
        return b"%b,%b," % (question, self.client.assistant_message(reply))

    def prompt_tokens(self, reply: Reply | None) -> tuple[int, int]:
        """Return the tokens of a prompt, and how many of them the server had; -1 where it does not say."""
        if reply is None:
            return -1, -1
        return self.client.prompt_tokens(reply), self.client.cached_tokens(reply)


class OpenSequences:
    """The sequences of a driver's share of a load.

    A request takes the sequence that was idle longest; in an open loop only once as many are open as may be,
    so that their number does not depend on how quick the server is. Sequences that arrive begin with a
    request that is due, and their other requests follow. A sequence whose request failed is left.
    """

    def __init__(
        self,
        load: Load,
        share: LoadShare,
        streams: tuple[int, ...],
        mark: Mark,
        *,
        first: int,
        seed: int,
        chat: Chat | None = None,
    ) -> None:
        """Use `streams` (numbers of messages) in turn; `first` is the first id of all drivers.

        Of a chat without streams each session begins with another message: all would begin alike otherwise.
        """
        self._mark = mark
        self.chat = chat
        self._follows = load.closed or load.arrivals is Arrivals.SEQUENCES
        self._at_once = 0 if load.closed else share.amount(load.slots or 1)
        self._arriving = load.arrivals is Arrivals.SEQUENCES
        self._lengths = load.sequence or (1, 1)
        self._think_time = load.think_time
        self._think_times = () if chat is None else chat.target.think_times
        ranges = [range(end - size, end) for end, size in zip(accumulate(streams), streams, strict=True)]
        if chat is not None and any(self._lengths):
            ranges = [range(begin, begin + sum(streams)) for begin in range(sum(streams))]
        self._messages = sum(streams)
        links = () if chat is None else chat.target.links
        self._plans = {
            range_.start: plan_session(range_.start, links[range_.start : range_.stop])
            for range_ in (ranges if links else ())
        }
        """Of sessions of agents, by their first messages."""
        self.started: list[OpenSequence] = []
        """Branches that began with the last request that ended, beside the one that went on with it."""
        self.goes_on_without = False
        """Whether the session of that request goes on, though nothing follows that request itself."""
        self._streams = cycle(ranges[share.index :: share.of] or ranges)
        counted = count(first + share.index, share.of)
        self._numbers = (number % (SINGLE_SEQUENCE - 1) + 1 for number in counted)
        self._random = Random(f"{seed}/{share.index}")
        self._thinking = Random(f"{seed}/{share.index}/think time")
        self._idle: deque[OpenSequence] = deque()
        self._open = 0

    @property
    def open_graphs(self) -> int | None:
        """Number of agents' sessions that have not ended; None if sessions are no agents'."""
        return self._open if self._plans else None

    def assign(self, call: Call) -> None:
        """Make a request the next one of a sequence, which it opens if none is idle."""
        if self._idle and self._open >= self._at_once and not self._arriving:
            call.sequence = self._idle.popleft()
        else:
            call.sequence = self._begin()
        self.write(call)

    def assign_following(self, call: Call) -> bool:
        """Make a request the next one of a sequence that goes on by itself; return whether there was one."""
        if not (self._arriving and self._idle):
            return False
        call.sequence = self._idle.popleft()
        self.write(call)
        return True

    def assign_last(self, call: Call) -> bool:
        """Make a request the last one of an idle sequence; return whether there was one.

        A chat has no end that its server waits for.
        """
        if not self._idle or self.chat is not None:
            return False
        call.sequence = self._idle.popleft()
        call.sequence.left = 1
        self.write(call)
        return True

    def write(self, call: Call) -> None:
        """Make a request the next one of the sequence that it has."""
        sequence = call.sequence
        assert sequence is not None
        call.message = sequence.message
        call.mark = (
            self._mark(sequence.number, first=sequence.turn == 1, last=sequence.left == 1)
            if self.chat is None
            else sequence.history
        )

    def describe(self, call: Call, reply: Reply | None) -> tuple[int, int, int, int, int]:
        """Return a request's sequence, turn and pause before it, and the tokens of its prompt."""
        sequence = call.sequence
        assert sequence is not None
        tokens = (-1, -1) if self.chat is None else self.chat.prompt_tokens(reply)
        return sequence.number, sequence.turn, sequence.pause, *tokens

    def hear(self, call: Call, reply: Reply | None) -> None:
        """Add an answer to the history of its chat, if that goes on; raise ValueError if it is none."""
        sequence = call.sequence
        assert sequence is not None
        if self.chat is not None and sequence.left > 1:
            if reply is None:
                raise ValueError("the answer was too long to be kept")
            sequence.history += self.chat.exchange(call.message, reply)

    def release(self, call: Call, *, answered: bool) -> Iterable[OpenSequence]:
        """Take back the sequence of a request that ended; return those that have ended.

        A sequence that goes on by itself after a pause stays with the request, see `OpenSequence.pause`, and
        so does a branch of an agent's session, with or without a pause.
        """
        sequence, call.mark = call.sequence, b""
        assert sequence is not None
        if sequence.graph is not None:
            return self._release_branch(call, sequence, sequence.graph, answered=answered)
        sequence.left -= 1
        if not (answered and sequence.left):
            call.sequence = None
            self._open -= 1
            return (sequence,)
        sequence.go_on()
        sequence.pause = self._pause(sequence.message)
        if not sequence.pause:
            self.settle(call)
        return ()

    def _release_branch(
        self, call: Call, branch: OpenSequence, graph: AgentSession, *, answered: bool
    ) -> Iterable[OpenSequence]:
        """End a request of an agent's session; the first of those that follow takes its place."""
        ready, ended = graph.end(branch, answered=answered)
        for each in ready:
            each.pause = self._pause(each.message)
        call.sequence = ready[0] if ready else None
        self.started += ready[1:]
        self.goes_on_without = not ready and graph.under_way > 0
        self._open -= not graph.under_way
        return ended

    def settle(self, call: Call) -> None:
        """Make the sequence of a request that ended an idle one; a branch is left, as the load ends."""
        assert call.sequence is not None
        if call.sequence.graph is None:
            self._idle.append(call.sequence)
        call.sequence = None

    def _pause(self, message: int) -> int:
        """Return the nanoseconds before a message is due after an answer: its own, or those of the load."""
        if not self._follows:
            return 0
        own = self._think_times[message] if self._think_times else -1.0
        if own < 0 and self._think_time is not None:
            own = self._think_time.draw(self._thinking)
        return round(max(0.0, own) * _NANO)

    def _begin(self) -> OpenSequence:
        self._open += 1
        fewest, most = self._lengths
        stream = next(self._streams)
        if self._plans:
            return OpenGraph(self._plans[stream.start], self._numbers).begin()
        number = next(self._numbers)
        length = self._random.randint(fewest, most) if most else len(stream)
        return OpenSequence(number, self._cycle(stream), length)

    def _cycle(self, stream: range) -> Iterator[int]:
        return (at % self._messages for at in cycle(stream))
