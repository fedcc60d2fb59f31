"""The load loop: sends requests when they are due, and records their outcomes.

Everything happens in callbacks of one event loop; a request needs neither a task nor a timer of its own. In a
closed loop a slot sends its next request as soon as the last one has ended; if its requests fail repeatedly,
it pauses between them. In an open loop a timer fires when the next request is due; requests beyond the limit
wait in a queue, and the wait counts as latency (no coordinated omission). If the user of a sequence thinks,
its next request is due a while after an answer; the same timer waits for it.
"""

from __future__ import annotations

from array import array
from collections import deque
from heapq import heappop, heappush
from itertools import count, cycle, tee
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from modeldyno.base.clock import monotonic_ns, process_time_ns
from modeldyno.base.job.load_spec import pause_after
from modeldyno.base.result.request_outcome import RequestOutcome
from modeldyno.engine.interfaces.request_target import BrokenStream
from modeldyno.serving.loadgen.arrivals import due_times
from modeldyno.serving.loadgen.record_frames import ROW, RecordBlock
from modeldyno.serving.loadgen.request import Call, make_reply
from modeldyno.serving.loadgen.retry import REST, pause_before_retry

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterator

    from modeldyno.base.job.cancellation import Cancellation
    from modeldyno.base.job.load_spec import Load
    from modeldyno.engine.interfaces.request_target import Reply
    from modeldyno.serving.loadgen.arrivals import LoadShare
    from modeldyno.serving.loadgen.kernel_timer import Timer
    from modeldyno.serving.loadgen.request import Carrier, Raw
    from modeldyno.serving.loadgen.sequences import OpenSequences

    Kept = tuple[int, int, Raw]
    """Bytes, time of arrival, and the reply."""

BEAT = 0.02
"""Seconds between two checks for timeouts."""
KEPT = 1 << 27
"""Maximum bytes of all replies that are kept."""
_AT_ONCE = 64
"""Maximum requests sent before the loop handles replies."""
_FAULTS_KEPT = 16
"""Maximum number of distinct error statuses whose first reply is kept."""
_COUNTED_AT_ONCE = 4
"""Answers whose tokens are counted before the loop handles replies: half a millisecond."""
_NEVER = 1 << 62
_OK, _REFUSED, _ABANDONED = RequestOutcome.OK, RequestOutcome.REFUSED, RequestOutcome.ABANDONED


class LoadLoop:
    """A share of a running load. Set `carrier` and `timer`, then call `start`."""

    carrier: Carrier
    timer: Timer
    streamed = False
    """Whether answers come in pieces, which are counted as they come."""
    fresh_words: Callable[[int], bytes] | None = None
    """Returns the first words with which a message is sent; None: it is sent as it is."""
    _reported = 0
    """When the last block was written."""
    _pausing = 0
    """Number of slots that pause because their last requests failed."""
    _answered = False
    """Whether any request has succeeded yet."""
    _counts_later = False
    """Whether the next request is sent before the tokens of an answer are counted, while none is broken."""
    _prefilling = 0
    """Number of requests in flight whose answer has no piece yet, if they are limited."""

    def __init__(
        self, load: Load, share: LoadShare, messages: int, loop: asyncio.AbstractEventLoop, *, seed: int = 0
    ) -> None:
        self.finished: Callable[[], None] = lambda: None
        """Called once, when no request is in flight after `stop`."""
        self.count_tokens: Callable[[Reply], int] | None = None
        self.sequences: OpenSequences | None = None
        """The sequences that the requests are of; None without."""
        self._loop = loop
        self._closed = load.closed
        self._retries = load.retries
        self._timeout = int(load.timeout * 1e9)
        self._limit = _share_of(load.slots, share)
        self._left = self._requests = _NEVER if load.requests is None else share.amount(load.requests)
        self._times, schedule = tee(due_times(load, share, seed=seed))
        self._schedule = iter(()) if load.closed else schedule
        """The same times, to count those that have passed even if the timer is late."""
        self._passing = next(self._schedule, None)
        self._passed = self._rung = 0
        """Number of due times that have passed, and of those for which the timer has fired."""
        self._message = cycle([(share.index + i * share.of) % messages for i in range(messages)])
        self._in_flight: dict[Call, int] = {}
        """Requests in flight to when they were handed over, in that order."""
        self._queued: deque[int] = deque()
        """Due times of requests that the limit holds back."""
        self._thinking: list[tuple[int, int, Call]] = []
        """Requests of sequences whose users think: when each is due, a number, and the request; a heap."""
        self._prefill_limit = _share_of(load.prefill_concurrency, share)
        self._held: deque[Call] = deque()
        """Requests that this limit holds back."""
        self._order = count()
        self._cancel = load.cancel
        self._chance = Random(f"{seed}/{share.index}/cancel")
        self._to_abandon: list[tuple[int, int, Call]] = []
        """Requests to give up unless they end before: when, a number, and the request; a heap."""
        self._retrying: dict[Call, asyncio.Handle] = {}
        """Requests in flight that are about to be sent again."""
        self._give_up_at: int | None = None
        """When to cancel the requests still in flight; None before `stop`."""
        self._unsent = 0
        """Number of requests that were due but not sent at `stop`."""
        self._uncounted: deque[_Ended] = deque()
        self._rows = bytearray()
        self._pieces = array("q")
        self._turns = array("q")
        """Of sequences, for each row what `OpenSequences.describe` says."""
        self._first: dict[int, Kept] = {}
        self._last: dict[int, Kept] = {}
        self._faults: dict[int, tuple[int, Kept]] = {}
        self._budget = KEPT
        self._sent = 0
        self._due = _NEVER
        self._started = self._cpu = 0

    def start(self, when: int) -> None:
        """Start the load at this time of the monotonic clock."""
        self._started, self._cpu = when, process_time_ns()
        self._counts_later = self.count_tokens is not None and self.sequences is None and not self._retries
        self._loop.call_later(BEAT, self._check_timeouts)
        self._advance()

    def stop(self, grace: float) -> None:
        """Stop sending; cancel after `grace` seconds the requests still in flight."""
        if self._give_up_at is None:
            self._unsent = self._backlog()
            self._times = iter(())
            self._due = _NEVER
            self._left = 0
            self._queued.clear()
            again = [call for call in self._held if call.retries]
            unsent = [call for _, _, call in self._thinking] + [
                call for call in self._held if not call.retries
            ]
            self._thinking, self._held = [], deque()
            self._give_up_at = monotonic_ns() + int(grace * 1e9)
            for call in again:  # they were sent before, and have to end
                self._send(call)
            for call in unsent:
                if call.sequence is not None:
                    self._settle(call)
            self._end_sequences()

    def _advance(self) -> None:
        """Determine when the next request is due, and set the timer."""
        due = next(self._times, None) if self._left else None
        self._due = _NEVER if due is None else self._started + due
        if due is not None:
            self.timer.set(self._due)

    def _set_timer(self) -> None:
        """Set the timer to when the next request is due."""
        due = min([self._due, *(heap[0][0] for heap in (self._thinking, self._to_abandon) if heap)])
        if due != _NEVER:
            self.timer.set(due)

    def ring(self) -> None:
        """Send the requests that are due; the timer's callback."""
        now = monotonic_ns()
        self._abandon(now)
        self._send_thought(now)
        for _ in range(_AT_ONCE):
            due = self._due
            if due > now:
                break
            self._rung += 1
            if self._closed:
                self._send_next(Call(0, 0), due)
            elif self._left:
                self._left -= 1
                if self._open_slots >= self._limit:
                    self._queued.append(due)
                else:
                    self._send_due(Call(0, due), due)
            following = next(self._times, None) if self._left else None
            self._due = _NEVER if following is None else self._started + following
        self._set_timer()

    def _send_thought(self, now: int) -> None:
        """Send the requests of sequences whose users have thought."""
        for _ in range(_AT_ONCE):
            if not self._thinking or self._thinking[0][0] > now:
                break
            due, _, call = heappop(self._thinking)
            self._send_turn(call, due)

    def _send_turn(self, call: Call, due: int) -> None:
        """Send the next request of the sequence that a request has."""
        assert self.sequences is not None
        call.begin(0, due)
        self.sequences.write(call)
        self._send(call)

    def _think(self, call: Call, end: int) -> bool:
        """Have what follows in the session of a request that ended wait; return whether anything does."""
        if self.sequences is None:
            return False
        started, self.sequences.started = self.sequences.started, []
        goes_on = self.sequences.goes_on_without if call.sequence is None else self._go_on(call, end)
        for sequence in started:
            branch = Call(0, end)
            branch.sequence = sequence
            self._go_on(branch, end)
        return goes_on

    def _go_on(self, call: Call, end: int) -> bool:
        """Have a sequence that goes on by itself wait for its next request; return whether it does."""
        assert call.sequence is not None
        if self._give_up_at is not None or (self._closed and not self._left):
            self._settle(call)
            return False
        if self._closed:
            self._left -= 1
            call.failures, self._answered = 0, True
        if not call.sequence.pause:
            self._send_turn(call, end)
            return True
        heappush(self._thinking, (end + call.sequence.pause, next(self._order), call))
        if self._thinking[0][2] is call:
            self._set_timer()
        return True

    def _settle(self, call: Call) -> None:
        assert self.sequences is not None
        self.sequences.settle(call)

    def _send_next(self, call: Call, due: int) -> None:
        """Send the next request of a closed loop's slot."""
        if self._left:
            self._left -= 1
            self._send_due(call, due)

    def _send_due(self, call: Call, due: int) -> None:
        """Send the next message, or that of a sequence."""
        if self.sequences is None:
            call.begin(next(self._message), due)
            if self.fresh_words is not None:
                call.mark = self.fresh_words(call.message)
        else:
            call.begin(0, due)
            self.sequences.assign(call)
        self._send(call)

    def _send_waiting(self, end: int) -> None:
        """Send what follows in the sequence of a request that has ended, or else what the limit held back."""
        following = Call(0, end)
        following.begin(0, end)
        if self.sequences is not None and self.sequences.assign_following(following):
            self._send(following)
        elif self._queued:
            due = self._queued.popleft()
            self._send_due(Call(0, due), due)

    def _end_sequences(self) -> None:
        """Send the last request of each idle sequence, so that the server does not wait for more."""
        while self.sequences is not None and self.sequences.assign_last(call := Call(0, monotonic_ns())):
            self._send(call)

    def _send(self, call: Call) -> None:
        """Send a request, unless as many wait for a first piece as may."""
        if self._prefill_limit != _NEVER and self._give_up_at is None:
            if self._prefilling >= self._prefill_limit:
                self._held.append(call)
                return
            self._prefilling += 1
            call.begun = self._end_prefill
        now = monotonic_ns()
        self._in_flight[call] = now
        self._sent += 1
        self.carrier.send(call, now)
        if self._cancel is not None and not call.retries and self._chance.random() < self._cancel.share:
            self._abandon_later(call, call.sent, self._cancel)

    def _end_prefill(self, call: Call) -> None:
        """Send what waited until the answer to a request begins, or ends without having begun."""
        call.begun = None
        self._prefilling -= 1
        if self._held:
            self._send(self._held.popleft())

    def _abandon_later(self, call: Call, sent: int, cancel: Cancellation) -> None:
        call.abandon_at = sent + round(cancel.after * 1e9)
        heappush(self._to_abandon, (call.abandon_at, next(self._order), call))
        if self._to_abandon[0][2] is call:
            self._set_timer()

    def _abandon(self, now: int) -> None:
        """Give up the requests whose time has come; that of one without a connection has not begun."""
        while self._to_abandon and self._to_abandon[0][0] <= now:
            when, _, call = heappop(self._to_abandon)
            if call.abandon_at != when or call not in self._in_flight:
                continue
            assert self._cancel is not None
            sent = now if call.carrier is None else call.sent
            if sent + round(self._cancel.after * 1e9) > now:
                self._abandon_later(call, sent, self._cancel)
            else:
                self._give_up([call], _ABANDONED, now)

    def done(self, call: Call, outcome: RequestOutcome, end: int, raw: Raw | None) -> None:
        """Record how a request ended, and send the next one if allowed."""
        del self._in_flight[call]
        if call.begun is not None:
            self._end_prefill(call)
        if self._counts_later and outcome is _OK and raw is not None:
            if not self._uncounted:
                self._loop.call_soon(self._count_some)
            self._uncounted.append(_ended(call, end, raw))
            self._follow(call, outcome, end)
            return
        self.count_all()  # what ended before is recorded before
        tokens = -1
        if self.count_tokens is not None and raw is not None and outcome is _OK:
            outcome, tokens = self._count(call.message, raw)
        if outcome is not _OK and self._retries and self._retry(call, outcome, end, raw):
            return
        if self.sequences is not None:
            outcome = self._release(self.sequences, call, outcome, raw)
        self._record(_ended(call, end, raw), outcome, tokens)
        if not self._think(call, end):
            self._follow(call, outcome, end)

    @property
    def uncounted(self) -> int:
        """Number of answers whose tokens are still to be counted."""
        return len(self._uncounted)

    def count_all(self) -> None:
        """Count the tokens of all answers that have ended, and record them."""
        while self._uncounted:
            self._count_next()

    def _count_some(self) -> None:
        """Count the tokens of a few answers; what arrives meanwhile is read before the next ones."""
        for _ in range(max(_COUNTED_AT_ONCE, len(self._uncounted) >> 4)):
            if not self._uncounted:
                return
            self._count_next()
        if self._uncounted:
            self._loop.call_soon(self._count_some)

    def _count_next(self) -> None:
        ended = self._uncounted.popleft()
        assert ended.raw is not None
        outcome, tokens = self._count(ended.message, ended.raw)
        if outcome is not _OK:
            self._counts_later = False  # from now on a slot has to know whether to pause
        self._record(ended, outcome, tokens)

    def _record(self, ended: _Ended, outcome: RequestOutcome, tokens: int) -> None:
        if ended.raw is not None:
            self._keep(ended, outcome, ended.raw)
        pieces = ended.pieces
        self._rows += ROW.pack(
            ended.due, ended.sent, ended.first, ended.end, ended.received, ended.message, ended.retries,
            tokens, ended.reasoning, ended.server, len(pieces), outcome,
        )  # fmt: skip
        if pieces:
            self._pieces.extend(pieces)

    def _follow(self, call: Call, outcome: RequestOutcome, end: int) -> None:
        """Send what follows a request that ended."""
        if self._give_up_at is not None:
            self._end_sequences()
        elif not self._closed:
            self._send_waiting(end)
        elif outcome is _OK:
            call.failures, self._answered = 0, True
            self._send_next(call, end)
        elif outcome is _ABANDONED:
            self._send_next(call, end)
        else:
            self._pause(call, outcome, end)

    def _release(
        self, sequences: OpenSequences, call: Call, outcome: RequestOutcome, raw: Raw | None
    ) -> RequestOutcome:
        """Note which request of its sequence this was, and let that go on or end; return the outcome."""
        reply = None if raw is None or outcome is not _OK else make_reply(call.message, raw)
        self._turns.extend(sequences.describe(call, reply))
        try:
            if outcome is _OK:
                sequences.hear(call, reply)
        except ValueError:
            outcome = RequestOutcome.MALFORMED
        for ended in sequences.release(call, answered=outcome is _OK):
            self.carrier.leave(ended)
        return outcome

    def _pause(self, call: Call, outcome: RequestOutcome, end: int) -> None:
        """Pause a slot whose request failed, so that it does not fail in a tight loop."""
        call.failures += 1
        pause = REST if outcome is _REFUSED else pause_after(call.failures, answered=self._answered)
        if not pause:
            self._send_next(call, end)
            return
        self._pausing += 1
        self._loop.call_later(pause, self._end_pause, call)

    def _end_pause(self, call: Call) -> None:
        self._pausing -= 1
        self._send_next(call, monotonic_ns())

    def _retry(self, call: Call, outcome: RequestOutcome, now: int, raw: Raw | None) -> bool:
        """Send a request again if a retry may help; return whether it is sent again."""
        if call.retries >= self._retries or self._give_up_at is not None:
            return False
        pause = pause_before_retry(
            outcome, begun=call.first > 0, retries=call.retries, head=b"" if raw is None else raw[1]
        )
        if pause is None or pause * 1e9 > self._timeout:  # it would be given up before
            return False
        call.retries += 1
        call.reset()
        call.sent = now
        self._in_flight[call] = now
        self._retrying[call] = self._loop.call_later(pause, self._resend, call)
        return True

    def _resend(self, call: Call) -> None:
        del self._retrying[call], self._in_flight[call]
        self._send(call)

    def _count(self, message: int, raw: Raw) -> tuple[RequestOutcome, int]:
        """Return the outcome and the tokens of a stream, after checking that it is complete."""
        assert self.count_tokens is not None
        try:
            return _OK, self.count_tokens(make_reply(message, raw))
        except BrokenStream as error:
            return error.outcome, -1
        except ValueError:
            return RequestOutcome.MALFORMED, -1

    def _keep(self, ended: _Ended, outcome: RequestOutcome, raw: Raw) -> None:
        """Keep the first and last reply to each message, and the first reply of each error status."""
        message, size, end = ended.message, ended.received, ended.end
        if outcome is not _OK:
            if len(self._faults) < _FAULTS_KEPT and raw[0] not in self._faults and size <= self._budget:
                self._budget -= size
                self._faults[raw[0]] = message, (size, end, raw)
            return
        kept = self._last if message in self._first else self._first
        previous = kept.get(message)
        growth = size - previous[0] if previous is not None else size
        if growth <= self._budget:
            self._budget -= growth
            kept[message] = size, end, raw

    def _check_timeouts(self) -> None:
        """End requests that exceed the timeout."""
        now = monotonic_ns()
        if self._give_up_at is not None and (not self._busy or now >= self._give_up_at):
            self._give_up([*self._in_flight], RequestOutcome.CANCELLED, now)
            self.finished()
            return
        latest = now - self._timeout
        expired = []
        for call, began in self._in_flight.items():
            if began > latest:
                break
            expired.append(call)
        self._give_up(expired, RequestOutcome.TIMEOUT, now)
        self._loop.call_later(BEAT, self._check_timeouts)

    def _give_up(self, calls: list[Call], outcome: RequestOutcome, now: int) -> None:
        for call in calls:
            if (retrying := self._retrying.pop(call, None)) is not None:
                retrying.cancel()
            else:
                self.carrier.drop(call)
        for call in calls:
            self.done(call, outcome, now, None)

    @property
    def _busy(self) -> bool:
        return bool(self._in_flight or self._thinking or self._held or (self._pausing and self._left))

    @property
    def _open_slots(self) -> int:
        """Number of slots that have a request or the session of an agent, or pause before the next one."""
        graphs = None if self.sequences is None else self.sequences.open_graphs
        if graphs is not None:
            return graphs
        return len(self._in_flight) + len(self._thinking) + len(self._held) + self._pausing

    def _backlog(self) -> int:
        """Return the number of requests that are due but not sent, because of the limit or a late timer."""
        if self._give_up_at is not None or not self._started:
            return self._unsent
        now = monotonic_ns() - self._started
        while self._passing is not None and self._passing <= now:
            self._passed += 1
            self._passing = next(self._schedule, None)
        held = sum(not call.retries for call in self._held)  # the others were sent before
        return len(self._queued) + held + max(0, min(self._passed, self._requests) - self._rung)

    def block(self) -> RecordBlock:
        """Return what happened since the last block."""
        self.count_all()
        rows, self._rows = bytes(self._rows), bytearray()
        times, self._pieces = self._pieces.tobytes(), array("q")
        turns, self._turns = self._turns.tobytes(), array("q")
        pieces, first_times = self._look_at_pieces() if self.streamed else (0, b"")
        self._reported = monotonic_ns()
        return RecordBlock(
            in_flight=len(self._in_flight),
            backlog=self._backlog(),
            ended=self._started > 0 and self._due == _NEVER and not self._busy and not self._queued,
            cpu=process_time_ns() - self._cpu,
            wall=max(0, self._reported - self._started),
            sent=self._sent,
            opened=self.carrier.opened,
            pieces=pieces,
            rows=rows,
            times=times,
            turns=turns,
            first_times=first_times,
        )

    def _look_at_pieces(self) -> tuple[int, bytes]:
        """Count the pieces of answers in flight, and return how long the first ones took that are new."""
        pieces, first_times = 0, array("q")
        for call in self._in_flight:
            if times := call.pieces:
                pieces += len(times)
                if times[0] > self._reported:
                    first_times.append(times[0] - call.due)
        return pieces, first_times.tobytes()

    def answers(self) -> Iterator[tuple[int, Reply]]:
        """Yield the kept replies of successful requests, each with its time of arrival."""
        for kept in (self._first, self._last):
            for message, (_, end, raw) in kept.items():
                yield end, make_reply(message, raw)

    def faults(self) -> Iterator[tuple[int, Reply]]:
        """Yield the kept replies of failed requests, each with its time of arrival."""
        for message, (_, end, raw) in self._faults.values():
            yield end, make_reply(message, raw)


class _Ended(NamedTuple):
    """A request that has ended, as its `Call` was then; that is used again."""

    due: int
    sent: int
    first: int
    end: int
    received: int
    message: int
    retries: int
    reasoning: int
    server: int
    pieces: list[int]
    raw: Raw | None


def _ended(call: Call, end: int, raw: Raw | None) -> _Ended:
    return _Ended(
        call.due, call.sent, call.first, end, call.received, call.message, call.retries, call.reasoning,
        call.server, call.pieces, raw,
    )  # fmt: skip


def _share_of(limit: int | None, share: LoadShare) -> int:
    """Return a driver's part of a limit, which is at least 1."""
    return _NEVER if limit is None else max(1, share.amount(limit))
