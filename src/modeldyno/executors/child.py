"""The child process of the isolated and the warm executor: reads a Job, writes events.

``python -m modeldyno.executors.child FD [--warm | --baton GRANTED ASKED]``: the Job comes as JSON on
standard input, the events go as JSON lines to the file descriptor FD. What the model prints goes to standard
output and error. A warm child reads a Job a line, equal but for load, Plan and config, until the input ends;
what runs the model stays open for the next of the same config, and is closed at an empty line. Drivers wait
for the next load. One with a baton works while it has it: see `baton`.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING

from modeldyno import wire
from modeldyno.core.result import Refused
from modeldyno.errors import ModelDynoError, RequestError
from modeldyno.executors.baton import Held
from modeldyno.loadgen.hands import waiting
from modeldyno.ports import ALONE
from modeldyno.processes import end_with_parent
from modeldyno.run import Warm, events

if TYPE_CHECKING:
    from collections.abc import Callable

    from modeldyno.core.job import Job
    from modeldyno.core.result import Event
    from modeldyno.ports import Baton


def main(descriptor: int, *, warm: bool = False, seat: tuple[int, int] | None = None) -> None:
    """Run the Job on standard input, or one after the other; with a seat, when the baton allows it."""
    end_with_parent()
    interrupted = _interruption()

    def send(event: Event) -> None:
        data = memoryview(wire.encode_event(event) + b"\n")
        while data:
            data = data[os.write(descriptor, data) :]

    if not warm:
        data = sys.stdin.buffer.read()
        baton: Baton = ALONE
        if seat is not None:
            baton = held = Held(granted=seat[0], asked=seat[1])
            held.begin()
        _carry_out(data, interrupted, send, None, baton)
        return
    with Warm() as kept, waiting():
        for line in sys.stdin.buffer:
            if line.strip():
                _carry_out(line, interrupted, send, kept)
            else:
                kept.close()


def _carry_out(
    data: bytes,
    interrupted: list[int],
    send: Callable[[Event], None],
    kept: Warm | None,
    baton: Baton = ALONE,
) -> None:
    try:
        job = wire.decode_job(data)
        _pin(job)
        for event in events(job, interrupted=lambda: bool(interrupted), watch=send, warm=kept, baton=baton):
            send(event)
    except ModelDynoError as error:
        send(Refused(error=type(error).__name__, message=str(error)))


def _interruption() -> list[int]:
    """Note interruptions instead of dying of them; the list is empty until the first."""
    seen: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _frame: seen.append(number))
    return seen


def _pin(job: Job) -> None:
    if job.plan.pin and hasattr(os, "sched_setaffinity"):
        try:
            os.sched_setaffinity(0, job.plan.pin)
        except OSError as error:
            allowed = ", ".join(map(str, sorted(os.sched_getaffinity(0))))
            raise RequestError(
                f"Cannot stay on the cores {', '.join(map(str, job.plan.pin))}; allowed are {allowed}."
            ) from error


if __name__ == "__main__":
    _descriptor, *_options = sys.argv[1:]
    _seat = (int(_options[1]), int(_options[2])) if "--baton" in _options else None
    main(int(_descriptor), warm="--warm" in _options, seat=_seat)
