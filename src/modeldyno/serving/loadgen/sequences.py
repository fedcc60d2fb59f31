"""Sequences of requests for stateful models: which one a request belongs to, and what it carries."""

from __future__ import annotations

from collections import deque
from itertools import accumulate, count, cycle
from random import Random
from typing import TYPE_CHECKING, Protocol

from modeldyno.base.job.load_spec import Arrivals
from modeldyno.serving.interfaces.client import SINGLE_SEQUENCE
from modeldyno.serving.loadgen.request import OpenSequence

if TYPE_CHECKING:
    from modeldyno.base.job.load_spec import Load
    from modeldyno.serving.loadgen.arrivals import LoadShare
    from modeldyno.serving.loadgen.request import Call


class Mark(Protocol):
    """Writes what makes a request one of a sequence."""

    def __call__(self, number: int, *, first: bool, last: bool) -> bytes:
        """Return bytes of a constant length."""


class OpenSequences:
    """The sequences of a driver's share of a load.

    A request takes the sequence that was idle longest; in an open loop only once as many are open as may be,
    so that their number does not depend on how quick the server is. Sequences that arrive begin with a
    request that is due, and their other requests follow. A sequence whose request failed is left.
    """

    def __init__(
        self, load: Load, share: LoadShare, streams: tuple[int, ...], mark: Mark, *, first: int, seed: int
    ) -> None:
        """Use `streams` (numbers of messages) in turn; `first` is the first id of all drivers."""
        self._mark = mark
        self._at_once = 0 if load.closed else share.amount(load.slots or 1)
        self._arriving = load.arrivals is Arrivals.SEQUENCES
        self._lengths = load.sequence or (1, 1)
        ranges = [range(end - size, end) for end, size in zip(accumulate(streams), streams, strict=True)]
        self._streams = cycle(ranges[share.index :: share.of] or ranges)
        self._numbers = count(first + share.index, share.of)
        self._random = Random(f"{seed}/{share.index}")
        self._idle: deque[OpenSequence] = deque()
        self._open = 0

    def assign(self, call: Call) -> None:
        """Make a request the next one of a sequence, which it opens if none is idle."""
        if self._idle and self._open >= self._at_once and not self._arriving:
            call.sequence = self._idle.popleft()
        else:
            call.sequence = self._begin()
        self._write(call, call.sequence)

    def assign_following(self, call: Call) -> bool:
        """Make a request the next one of a sequence that goes on by itself; return whether there was one."""
        if not (self._arriving and self._idle):
            return False
        call.sequence = self._idle.popleft()
        self._write(call, call.sequence)
        return True

    def assign_last(self, call: Call) -> bool:
        """Make a request the last one of an idle sequence; return whether there was one."""
        if not self._idle:
            return False
        call.sequence = self._idle.popleft()
        call.sequence.left = 1
        self._write(call, call.sequence)
        return True

    def release(self, call: Call, *, answered: bool) -> None:
        """Take back the sequence of a request that ended."""
        sequence, call.sequence, call.mark = call.sequence, None, b""
        assert sequence is not None
        sequence.left -= 1
        if answered and sequence.left:
            self._idle.append(sequence)
        else:
            self._open -= 1

    def _begin(self) -> OpenSequence:
        self._open += 1
        fewest, most = self._lengths
        number = next(self._numbers) % (SINGLE_SEQUENCE - 1) + 1
        stream = next(self._streams)
        length = self._random.randint(fewest, most) if most else len(stream)
        return OpenSequence(number, cycle(stream), length)

    def _write(self, call: Call, sequence: OpenSequence) -> None:
        call.message = next(sequence.messages)
        call.mark = self._mark(sequence.number, first=not sequence.started, last=sequence.left == 1)
        sequence.started = True
