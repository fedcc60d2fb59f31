"""The drivers of a load: started together, listened to, and ended."""

from __future__ import annotations

import os
import selectors
import subprocess
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from modeldyno.core.load.request_log import joined
from modeldyno.errors import RunFailed
from modeldyno.loadgen import Ending, Taken, Usage, driver_process, driver_protocol, record_frames
from modeldyno.loadgen.arrivals import Share, read_trace
from modeldyno.loadgen.single_request import address, once

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from modeldyno.core.load.request_log import Records
    from modeldyno.core.load.request_target import Reply, Target
    from modeldyno.core.spec.load_spec import Load
    from modeldyno.loadgen.driver_process import Hand
    from modeldyno.loadgen.record_frames import Block

__all__ = ["driving", "once"]

_CHUNK = 1 << 20
_READY_TIME = 30.0
"""Seconds that a driver may take to start."""
_LEAD = 0.005
"""Seconds from the word to the start, so that all drivers have heard it."""
_ENDING_TIME = 10.0
"""Seconds, beyond the grace, that the last records may take."""
_LOG_TAIL = 500
"""Bytes of the end of what a dead driver said."""


@contextmanager
def driving(target: Target, load: Load, *, seed: int = 0) -> Iterator[Crew]:
    """Put a target under a load until the block is left; `load.requests` counts from the start.

    `load.duration` is not looked at: whoever takes the records decides when to stop. Raises RequestError
    for a trace or TLS files that cannot be read, and RunFailed when the drivers do not start.
    """
    crew = Crew(target)
    if load.trace:
        read_trace(load.trace)  # a wrong request is refused here, not in a child
    _refuse_tls(target)
    try:
        crew.start(load, seed)
        yield crew
    finally:
        crew.kill()


def _refuse_tls(target: Target) -> None:
    from modeldyno.loadgen import tls  # noqa: PLC0415 - few have it

    tls.context(target)


class Crew:
    """A load on its way, see `loadgen.Driving`."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._hands: list[Hand] = []
        self._parts: list[Records] = []
        self._selector = selectors.DefaultSelector()

    def start(self, load: Load, seed: int) -> None:
        """Start the drivers, and have them begin at the same time."""
        count = min(load.drivers, load.slots or load.drivers)
        found = address(self._target)
        for index in range(count):
            share = Share(index=index, of=count)
            told = driver_protocol.Order(
                target=self._target, load=load, share=share, seed=seed, address=found
            )
            self._hands.append(driver_process.hired(index))
            self._selector.register(self._hands[-1].pipe, selectors.EVENT_READ, self._hands[-1])
            self._write(self._hands[-1], driver_protocol.encode(told))
        self._listen(_READY_TIME, lambda: all(hand.ready for hand in self._hands))
        if not all(hand.ready for hand in self._hands):
            raise RunFailed(f"A load driver did not start within {_READY_TIME:g} s.")
        when = time.monotonic_ns() + int(_LEAD * 1e9)
        for hand in self._hands:
            self._write(hand, b"go %d\n" % when)

    @property
    def pids(self) -> Sequence[int]:
        """The drivers."""
        return [hand.process.pid for hand in self._hands]

    def take(self, wait: float) -> Taken:
        """Give what happened in so many seconds, or until all has ended."""
        self._listen(wait, lambda: self._ended)
        blocks = [hand.latest for hand in self._hands if hand.latest is not None]
        return Taken(
            records=self._records(),
            in_flight=sum(block.in_flight for block in blocks),
            backlog=sum(block.backlog for block in blocks),
            ended=self._ended,
        )

    def usage(self) -> Sequence[Usage]:
        """Give what each driver has cost so far."""
        return [_usage(hand.latest) for hand in self._hands]

    def stop(self, grace: float) -> Ending:
        """Send no more, wait for what is on its way, and cancel the rest."""
        for hand in self._hands:
            self._write(hand, f"stop {grace!r}\n".encode())
        self._listen(grace + _ENDING_TIME, lambda: all(hand.over for hand in self._hands))
        if not all(hand.over for hand in self._hands):
            raise RunFailed("A load driver did not stop in time.")
        return Ending(
            records=self._records(),
            replies=_outer(each for hand in self._hands for each in hand.answers),
            usages=tuple(self.usage()),
            faults=_outer(each for hand in self._hands for each in hand.faults),
            unsent=sum(hand.latest.backlog for hand in self._hands if hand.latest is not None),
        )

    def kill(self) -> None:
        """Leave nothing behind."""
        for hand in self._hands:
            hand.process.kill()
        for hand in self._hands:
            hand.end()
        self._selector.close()
        driver_process.succeeded(len(self._hands))
        self._hands.clear()

    @property
    def _ended(self) -> bool:
        return all(hand.latest is not None and hand.latest.ended for hand in self._hands)

    def _records(self) -> Records:
        parts, self._parts = self._parts, []
        return joined(parts)

    def _write(self, hand: Hand, data: bytes) -> None:
        assert hand.process.stdin is not None
        try:
            hand.process.stdin.write(data)
            hand.process.stdin.flush()
        except BrokenPipeError:
            raise _dead(hand) from None

    def _listen(self, wait: float, enough: Callable[[], bool]) -> None:
        """Read what the drivers say until it is enough, or so many seconds have passed."""
        deadline = time.monotonic() + wait
        while not enough():
            left = deadline - time.monotonic()
            ready = self._selector.select(max(0.0, left))
            for key, _ in ready:
                self._hear(key.data)
            if left <= 0:
                break

    def _hear(self, hand: Hand) -> None:
        data = os.read(hand.pipe, _CHUNK)
        if not data:
            self._selector.unregister(hand.pipe)
            if not hand.over:
                raise _dead(hand)
        hand.data += data
        for kind, body in record_frames.frames(hand.data):
            if kind == record_frames.BLOCK:
                hand.latest = record_frames.read_block(body)
                if hand.latest.rows:
                    self._parts.append(record_frames.records(hand.latest.rows, hand.latest.times, hand.index))
            elif kind == record_frames.ANSWER:
                hand.answers.append(record_frames.read_answer(body))
            elif kind == record_frames.FAULT:
                hand.faults.append(record_frames.read_answer(body))
            hand.ready = hand.ready or kind == record_frames.READY
            hand.over = hand.over or kind == record_frames.END


def _dead(hand: Hand) -> RunFailed:
    """Say that a driver died, and what its last words were."""
    with suppress(subprocess.TimeoutExpired):
        hand.process.wait(1.0)
    hand.log.seek(0)
    words = hand.log.read()[-_LOG_TAIL:].decode(errors="replace").strip().splitlines()
    last = f": {words[-1]}" if words else ""
    return RunFailed(f"A load driver died with code {hand.process.returncode}{last}.")


def _usage(block: Block | None) -> Usage:
    if block is None:
        return Usage(cpu=0.0, wall=0.0, sent=0, opened=0)
    return Usage(cpu=block.cpu / 1e9, wall=block.wall / 1e9, sent=block.sent, opened=block.opened)


def _outer(answers: Iterable[tuple[int, Reply]]) -> tuple[Reply, ...]:
    """Give the first and the last reply of each message and status."""
    first: dict[tuple[int, int], Reply] = {}
    last: dict[tuple[int, int], Reply] = {}
    for _, answer in sorted(answers, key=lambda each: each[0]):
        key = answer.message, answer.status
        if key in first:
            last[key] = answer
        else:
            first[key] = answer
    return (*first.values(), *last.values())
