"""Starts the driver processes of a load, collects their records, and stops them."""

from __future__ import annotations

import os
import secrets
import selectors
import subprocess
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from modeldyno.base.clock import monotonic, monotonic_ns
from modeldyno.base.errors import RunFailed
from modeldyno.base.stats.statistics import load_numpy
from modeldyno.engine.data.trace_file import read_trace
from modeldyno.serving.load.request_log import join_records
from modeldyno.serving.loadgen import driver_process, driver_protocol, record_frames
from modeldyno.serving.loadgen.arrivals import LoadShare
from modeldyno.serving.loadgen.running_load import DriverUsage, LoadEnd, LoadProgress, PieceArrivals
from modeldyno.serving.loadgen.single_request import resolve_address, send_once

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from modeldyno.base.job.load_spec import Load
    from modeldyno.engine.interfaces.request_target import Reply, Target
    from modeldyno.serving.load.request_log import Records
    from modeldyno.serving.loadgen.driver_process import DriverProcess
    from modeldyno.serving.loadgen.record_frames import RecordBlock

__all__ = ["run_load_drivers", "send_once"]

_CHUNK = 1 << 20
_READY_TIME = 30.0
"""Seconds that a driver may take to start."""
_LEAD = 0.005
"""Seconds from the go command to the start, so that all drivers have received it."""
_ENDING_TIME = 10.0
"""Seconds, beyond the grace, that the last records may take."""
_FIRST_SEQUENCES = 1 << 30
"""Ids of sequences to begin with at random, so that two clients of a server use different ones."""
_LOG_TAIL = 500
"""Bytes at the end of a dead driver's output that are read."""


@contextmanager
def run_load_drivers(target: Target, load: Load, *, seed: int = 0) -> Iterator[DriverPool]:
    """Put a target under a load until the block is left; `load.requests` counts from the start.

    Ignores `load.duration`: the caller decides when to stop. Raises RequestError for a trace or TLS files
    that cannot be read, and RunFailed if the drivers do not start.
    """
    pool = DriverPool(target)
    if load.trace:
        read_trace(load.trace)  # fail here, not in a child
    _check_tls(target)
    try:
        pool.start(load, seed)
        yield pool
    finally:
        pool.kill()


def _check_tls(target: Target) -> None:
    from modeldyno.serving.loadgen import tls  # few have it

    for server in target.servers:
        tls.make_ssl_context(server)


class DriverPool:
    """The drivers of a running load, see `loadgen.RunningLoad`."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._drivers: list[DriverProcess] = []
        self._parts: list[Records] = []
        self._arrivals: list[PieceArrivals] = []
        self._begin = 0
        """When the drivers begin, in nanoseconds of the monotonic clock."""
        self._selector = selectors.DefaultSelector()

    def start(self, load: Load, seed: int) -> None:
        """Start the drivers, and let them begin at the same time."""
        count = load.processes
        addresses = tuple(map(resolve_address, self._target.servers))
        first_sequence = secrets.randbelow(_FIRST_SEQUENCES)
        for index in range(count):
            share = LoadShare(index=index, of=count)
            command = driver_protocol.DriverCommand(
                target=self._target, load=load, share=share, seed=seed, addresses=addresses,
                first_sequence=first_sequence,
            )  # fmt: skip
            self._drivers.append(driver_process.acquire_driver(index))
            self._selector.register(self._drivers[-1].pipe, selectors.EVENT_READ, self._drivers[-1])
            self._write(self._drivers[-1], driver_protocol.encode_command(command))
        self._receive_until(_READY_TIME, lambda: all(driver.ready for driver in self._drivers))
        if not all(driver.ready for driver in self._drivers):
            raise RunFailed(f"A load driver did not start within {_READY_TIME:g} s.")
        self._begin = monotonic_ns() + int(_LEAD * 1e9)
        for driver in self._drivers:
            self._write(driver, b"go %d\n" % self._begin)

    @property
    def pids(self) -> Sequence[int]:
        """Process ids of the drivers."""
        return [driver.process.pid for driver in self._drivers]

    def take(self, wait: float) -> LoadProgress:
        """Return what happened within `wait` seconds, or until all requests have ended."""
        self._receive_until(wait, lambda: self._ended)
        blocks = [driver.latest for driver in self._drivers if driver.latest is not None]
        arrivals, self._arrivals = self._arrivals, []
        return LoadProgress(
            records=self._records(),
            in_flight=sum(block.in_flight for block in blocks),
            backlog=sum(block.backlog for block in blocks),
            ended=self._ended,
            arrivals=tuple(arrivals),
        )

    def usage(self) -> Sequence[DriverUsage]:
        """Return each driver's cost so far."""
        return [_usage(driver.latest) for driver in self._drivers]

    def stop(self, grace: float) -> LoadEnd:
        """Stop sending, wait for the requests in flight, and cancel the rest."""
        for driver in self._drivers:
            self._write(driver, f"stop {grace!r}\n".encode())
        self._receive_until(grace + _ENDING_TIME, lambda: all(driver.over for driver in self._drivers))
        if not all(driver.over for driver in self._drivers):
            raise RunFailed("A load driver did not stop in time.")
        return LoadEnd(
            records=self._records(),
            replies=_first_and_last(reply for driver in self._drivers for reply in driver.answers),
            usages=tuple(self.usage()),
            faults=_first_and_last(reply for driver in self._drivers for reply in driver.faults),
            unsent=sum(driver.latest.backlog for driver in self._drivers if driver.latest is not None),
        )

    def kill(self) -> None:
        """Kill the drivers and release their resources."""
        for driver in self._drivers:
            driver.process.kill()
        for driver in self._drivers:
            driver.end()
        self._selector.close()
        driver_process.prestart_drivers(len(self._drivers))
        self._drivers.clear()

    @property
    def _ended(self) -> bool:
        return all(driver.latest is not None and driver.latest.ended for driver in self._drivers)

    def _records(self) -> Records:
        parts, self._parts = self._parts, []
        return join_records(parts)

    def _write(self, driver: DriverProcess, data: bytes) -> None:
        assert driver.process.stdin is not None
        try:
            driver.process.stdin.write(data)
            driver.process.stdin.flush()
        except BrokenPipeError:
            raise _death_error(driver) from None

    def _receive_until(self, wait: float, enough: Callable[[], bool]) -> None:
        """Read the drivers' frames until `enough` returns true, or `wait` seconds have passed."""
        deadline = monotonic() + wait
        while not enough():
            left = deadline - monotonic()
            ready = self._selector.select(max(0.0, left))
            for key, _ in ready:
                self._receive(key.data)
            if left <= 0:
                break

    def _receive(self, driver: DriverProcess) -> None:
        data = os.read(driver.pipe, _CHUNK)
        if not data:
            self._selector.unregister(driver.pipe)
            if not driver.over:
                raise _death_error(driver)
        driver.data += data
        for kind, body in record_frames.frames(driver.data):
            if kind == record_frames.BLOCK:
                self._read_block(driver, record_frames.read_block(body))
            elif kind == record_frames.ANSWER:
                driver.answers.append(record_frames.read_answer(body))
            elif kind == record_frames.FAULT:
                driver.faults.append(record_frames.read_answer(body))
            driver.ready = driver.ready or kind == record_frames.READY
            driver.over = driver.over or kind == record_frames.END

    def _read_block(self, driver: DriverProcess, block: RecordBlock) -> None:
        """Keep the records of a report, and what came of answers in flight."""
        ended = None
        if block.rows:
            ended = record_frames.decode_rows(block.rows, block.times, driver.index, block.turns)
            self._parts.append(ended)
        if self._target.stream and block.sent:
            self._arrivals.append(_piece_arrivals(self._begin, driver.latest, block, ended))
        driver.latest = block


def _piece_arrivals(
    started: int, before: RecordBlock | None, block: RecordBlock, ended: Records | None
) -> PieceArrivals:
    """Return which pieces came between two reports of a driver, which began its load at `started`."""
    np = load_numpy()
    begin, counted = (started + before.wall, before.pieces) if before and before.sent else (started, 0)
    count, first_times = block.pieces - counted, np.frombuffer(block.first_times, "<i8")
    if ended is not None and ended.pieces is not None:
        count += ended.pieces.times.size
        first = ended.pieces.first()
        first_times = np.concatenate([first_times, (first - ended.due)[first > begin]])
    return PieceArrivals(begin=begin, end=started + block.wall, count=count, first_times=first_times)


def _death_error(driver: DriverProcess) -> RunFailed:
    """Return an error with the last line of a dead driver's output."""
    with suppress(subprocess.TimeoutExpired):
        driver.process.wait(1.0)
    driver.log.seek(0)
    lines = driver.log.read()[-_LOG_TAIL:].decode(errors="replace").strip().splitlines()
    last = f": {lines[-1]}" if lines else ""
    return RunFailed(f"A load driver died with code {driver.process.returncode}{last}.")


def _usage(block: RecordBlock | None) -> DriverUsage:
    if block is None:
        return DriverUsage(cpu=0.0, wall=0.0, sent=0, opened=0)
    return DriverUsage(cpu=block.cpu / 1e9, wall=block.wall / 1e9, sent=block.sent, opened=block.opened)


def _first_and_last(answers: Iterable[tuple[int, Reply]]) -> tuple[Reply, ...]:
    """Return the first and the last reply per message and status."""
    first: dict[tuple[int, int], Reply] = {}
    last: dict[tuple[int, int], Reply] = {}
    for _, answer in sorted(answers, key=lambda item: item[0]):
        key = answer.message, answer.status
        if key in first:
            last[key] = answer
        else:
            first[key] = answer
    return (*first.values(), *last.values())
