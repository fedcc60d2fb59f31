"""The one loop: sends what is due, and records what became of it.

All happens in the callbacks of one event loop; a request costs neither a task nor a timer of its own. In a
closed loop a slot sends its next request as soon as the last one has ended; one whose requests fail again and
again pauses between them. In an open loop a timer rings
when the next one is due; those beyond the limit wait in line, and their latency counts.
"""

from __future__ import annotations

from array import array
from collections import deque
from itertools import cycle, tee
from time import monotonic_ns, process_time_ns
from typing import TYPE_CHECKING

from modeldyno.core.load.request_log import Outcome
from modeldyno.core.load.request_target import BrokenStream
from modeldyno.core.spec.load_spec import pause_after
from modeldyno.loadgen.arrivals import due_times
from modeldyno.loadgen.record_frames import ROW, Block
from modeldyno.loadgen.request import Call, reply

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterator

    from modeldyno.core.load.request_target import Reply
    from modeldyno.core.spec.load_spec import Load
    from modeldyno.loadgen.arrivals import Share
    from modeldyno.loadgen.kernel_timer import Timer
    from modeldyno.loadgen.request import Carrier, Raw

    Kept = tuple[int, int, Raw]
    """Bytes, when it came, and what came."""

BEAT = 0.02
"""Seconds between two looks for requests that have been on their way for too long."""
REST = 0.05
"""Seconds before a slot, or a retry, tries again to connect where no connection could be made."""
KEPT = 1 << 27
"""Bytes of replies that are kept in all."""
_AT_ONCE = 64
"""Requests that are sent before the loop looks at what has come."""
_UNANSWERED = frozenset({Outcome.REFUSED, Outcome.RESET, Outcome.TRUNCATED})
"""What a retry may help."""
_FAULTS_KEPT = 16
"""Distinct statuses of failed requests of which the first reply is kept."""
_NEVER = 1 << 62
_OK, _REFUSED = Outcome.OK, Outcome.REFUSED


class Drive:
    """A share of a load on its way. Set `carrier` and `timer`, then `start`."""

    carrier: Carrier
    timer: Timer

    def __init__(
        self, load: Load, share: Share, messages: int, loop: asyncio.AbstractEventLoop, *, seed: int = 0
    ) -> None:
        self.finished: Callable[[], None] = lambda: None
        """Called once, when nothing is on its way any more after `stop`."""
        self.count_tokens: Callable[[Reply], int] | None = None
        self._loop = loop
        self._closed = load.closed
        self._retries = load.retries
        self._timeout = int(load.timeout * 1e9)
        self._limit = _NEVER if load.slots is None else max(1, share.amount(load.slots))
        self._left = self._requests = _NEVER if load.requests is None else share.amount(load.requests)
        self._times, schedule = tee(due_times(load, share, seed=seed))
        self._schedule = iter(()) if load.closed else schedule
        """The same times, to know which have passed, however late the timer is."""
        self._passing = next(self._schedule, None)
        self._passed = self._rung = 0
        """Due times that have passed, and those of them for which the timer has rung."""
        self._message = cycle([(share.index + i * share.of) % messages for i in range(messages)])
        self._flying: dict[Call, int] = {}
        """On their way, in the order in which they began to be, and when that was."""
        self._late: deque[int] = deque()
        """When those were due that the limit holds back."""
        self._resting = 0
        """Slots that pause, as their last requests failed."""
        self._answered = False
        """Whether any request was answered well yet."""
        self._retrying: dict[Call, asyncio.Handle] = {}
        """Those on their way that are about to be sent again."""
        self._stopping: int | None = None
        """When to give up what is still on its way."""
        self._unsent = 0
        """What was due and not sent when it was told to stop."""
        self._rows = bytearray()
        self._pieces = array("q")
        self._first: dict[int, Kept] = {}
        self._last: dict[int, Kept] = {}
        self._faults: dict[int, tuple[int, Kept]] = {}
        self._budget = KEPT
        self._sent = 0
        self._due = _NEVER
        self._began = self._cpu = 0

    def start(self, when: int) -> None:
        """Begin at this time of the monotonic clock."""
        self._began, self._cpu = when, process_time_ns()
        self._loop.call_later(BEAT, self._beat)
        self._advance()

    def stop(self, grace: float) -> None:
        """Send no more; give up after so many seconds what is on its way."""
        if self._stopping is None:
            self._unsent = self._backlog()
            self._times = iter(())
            self._due = _NEVER
            self._left = 0
            self._late.clear()
            self._stopping = monotonic_ns() + int(grace * 1e9)

    def _advance(self) -> None:
        """Find out when the next one is due, and set the timer."""
        due = next(self._times, None) if self._left else None
        self._due = _NEVER if due is None else self._began + due
        if due is not None:
            self.timer.set(self._due)

    def ring(self) -> None:
        """Send what is due; called by the timer."""
        now = monotonic_ns()
        for _ in range(_AT_ONCE):
            due = self._due
            if due > now:
                break
            self._rung += 1
            if self._closed:
                self._renew(Call(0, 0), due)
            elif self._left:
                self._left -= 1
                if len(self._flying) + self._resting >= self._limit:
                    self._late.append(due)
                else:
                    self._put(Call(next(self._message), due))
            following = next(self._times, None) if self._left else None
            self._due = _NEVER if following is None else self._began + following
        if self._due != _NEVER:
            self.timer.set(self._due)

    def _renew(self, call: Call, due: int) -> None:
        """Have a slot of a closed loop send its next request."""
        if self._left:
            self._left -= 1
            call.begin(next(self._message), due)
            self._put(call)

    def _put(self, call: Call) -> None:
        now = monotonic_ns()
        self._flying[call] = now
        self._sent += 1
        self.carrier.send(call, now)

    def done(self, call: Call, outcome: Outcome, end: int, raw: Raw | None) -> None:
        """Record how a request ended, and send what may be sent now."""
        del self._flying[call]
        tokens = -1
        if self.count_tokens is not None and raw is not None and outcome is _OK:
            outcome, tokens = self._counted(call.message, raw)
        if outcome is not _OK and self._retries and self._retry(call, outcome, end):
            return
        if raw is not None:
            self._keep(call, outcome, end, raw)
        pieces = call.pieces
        self._rows += ROW.pack(
            call.due, call.sent, call.first, end, call.received, call.message, call.retries, tokens,
            len(pieces), outcome,
        )  # fmt: skip
        if pieces:
            self._pieces.extend(pieces)
        if not self._closed:
            if self._late:
                self._put(Call(next(self._message), self._late.popleft()))
        elif outcome is _OK:
            call.failures, self._answered = 0, True
            self._renew(call, end)
        else:
            self._rest(call, outcome, end)

    def _rest(self, call: Call, outcome: Outcome, end: int) -> None:
        """Have a slot whose request failed pause, or it would do nothing but fail again."""
        call.failures += 1
        pause = REST if outcome is _REFUSED else pause_after(call.failures, answered=self._answered)
        if not pause:
            self._renew(call, end)
            return
        self._resting += 1
        self._loop.call_later(pause, self._rested, call)

    def _rested(self, call: Call) -> None:
        self._resting -= 1
        self._renew(call, monotonic_ns())

    def _retry(self, call: Call, outcome: Outcome, now: int) -> bool:
        """Send it again, if that may help."""
        if outcome not in _UNANSWERED or call.retries >= self._retries or self._stopping is not None:
            return False
        call.retries += 1
        call.again()
        call.sent = now
        self._flying[call] = now
        rest = REST if outcome is _REFUSED else 0.0
        self._retrying[call] = self._loop.call_later(rest, self._again, call)
        return True

    def _again(self, call: Call) -> None:
        del self._retrying[call], self._flying[call]
        self._put(call)

    def _counted(self, message: int, raw: Raw) -> tuple[Outcome, int]:
        """Count the tokens of a stream, and see that it is a whole one, as its status says."""
        assert self.count_tokens is not None
        try:
            return _OK, self.count_tokens(reply(message, raw))
        except BrokenStream as error:
            return error.outcome, -1
        except ValueError:
            return Outcome.MALFORMED, -1

    def _keep(self, call: Call, outcome: Outcome, end: int, raw: Raw) -> None:
        """Keep the first and last answer to each message, and the first of each status that is a failure."""
        message, size = call.message, call.received
        if outcome is not _OK:
            if len(self._faults) < _FAULTS_KEPT and raw[0] not in self._faults and size <= self._budget:
                self._budget -= size
                self._faults[raw[0]] = message, (size, end, raw)
            return
        kept = self._last if message in self._first else self._first
        before = kept.get(message)
        grown = size - before[0] if before is not None else size
        if grown <= self._budget:
            self._budget -= grown
            kept[message] = size, end, raw

    def _beat(self) -> None:
        """Give up what has been on its way for too long."""
        now = monotonic_ns()
        if self._stopping is not None and (not self._busy or now >= self._stopping):
            self._give_up([*self._flying], Outcome.CANCELLED, now)
            self.finished()
            return
        latest = now - self._timeout
        expired = []
        for call, began in self._flying.items():
            if began > latest:
                break
            expired.append(call)
        self._give_up(expired, Outcome.TIMEOUT, now)
        self._loop.call_later(BEAT, self._beat)

    def _give_up(self, calls: list[Call], outcome: Outcome, now: int) -> None:
        for call in calls:
            if (retrying := self._retrying.pop(call, None)) is not None:
                retrying.cancel()
            else:
                self.carrier.drop(call)
        for call in calls:
            self.done(call, outcome, now, None)

    @property
    def _busy(self) -> bool:
        return bool(self._flying or (self._resting and self._left))

    def _backlog(self) -> int:
        """Count what is due and was not sent: as the limit holds it back, or as the timer is late."""
        if self._stopping is not None or not self._began:
            return self._unsent
        now = monotonic_ns() - self._began
        while self._passing is not None and self._passing <= now:
            self._passed += 1
            self._passing = next(self._schedule, None)
        return len(self._late) + max(0, min(self._passed, self._requests) - self._rung)

    def block(self) -> Block:
        """Give what happened since the last block."""
        rows, self._rows = bytes(self._rows), bytearray()
        times, self._pieces = self._pieces.tobytes(), array("q")
        return Block(
            in_flight=len(self._flying),
            backlog=self._backlog(),
            ended=self._began > 0 and self._due == _NEVER and not self._busy and not self._late,
            cpu=process_time_ns() - self._cpu,
            wall=max(0, monotonic_ns() - self._began),
            sent=self._sent,
            opened=self.carrier.opened,
            rows=rows,
            times=times,
        )

    def answers(self) -> Iterator[tuple[int, Reply]]:
        """Give the good replies that were kept, each with when it came."""
        for kept in (self._first, self._last):
            for message, (_, end, raw) in kept.items():
                yield end, reply(message, raw)

    def faults(self) -> Iterator[tuple[int, Reply]]:
        """Give those of failed requests, likewise."""
        for message, (_, end, raw) in self._faults.values():
            yield end, reply(message, raw)
