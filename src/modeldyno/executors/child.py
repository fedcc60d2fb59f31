"""The child process of the isolated and the warm executor: reads a Job, writes events.

``python -m modeldyno.executors.child FD [--warm]``: the Job comes as JSON on standard input, the events go
as JSON lines to the file descriptor FD. What the model prints goes to standard output and error. A warm
child reads a Job a line, equal but for load, Plan and config, until the input ends; what runs the model
stays open for the next of the same config, and is closed at an empty line. Drivers wait for the next load.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING

from modeldyno import wire
from modeldyno.core.result import Refused
from modeldyno.errors import ModelDynoError, RequestError
from modeldyno.loadgen.hands import waiting
from modeldyno.processes import end_with_parent
from modeldyno.run import Warm, events

if TYPE_CHECKING:
    from collections.abc import Callable

    from modeldyno.core.job import Job
    from modeldyno.core.result import Event


def main(descriptor: int, *, warm: bool = False) -> None:
    """Run the Job on standard input, or one after the other."""
    end_with_parent()
    interrupted = _interruption()

    def send(event: Event) -> None:
        data = memoryview(wire.encode_event(event) + b"\n")
        while data:
            data = data[os.write(descriptor, data) :]

    if not warm:
        _carry_out(sys.stdin.buffer.read(), interrupted, send, None)
        return
    with Warm() as kept, waiting():
        for line in sys.stdin.buffer:
            if line.strip():
                _carry_out(line, interrupted, send, kept)
            else:
                kept.close()


def _carry_out(data: bytes, interrupted: list[int], send: Callable[[Event], None], kept: Warm | None) -> None:
    try:
        job = wire.decode_job(data)
        _pin(job)
        for event in events(job, interrupted=lambda: bool(interrupted), watch=send, warm=kept):
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
    main(int(sys.argv[1]), warm="--warm" in sys.argv[2:])
