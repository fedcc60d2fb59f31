"""The child process of the isolated and the warm executor: reads a Job, writes events.

``python -m modeldyno.runtime.worker FD [--warm | --baton GRANTED ASKED]``: the Job comes as JSON on
standard input, the events go as JSON lines to the file descriptor FD. What the model prints goes to standard
output and error. A warm child reads a Job a line, equal but for load, Plan and config, until the input ends;
what runs the model stays open for the next of the same config, and is closed at an empty line. Drivers wait
for the next load. One with a baton works while it has it: see `baton`.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import signal
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from modeldyno import codec
from modeldyno.core.metrics.doubt import Doubt
from modeldyno.core.result.result import Doubted, Ended, Failed, Progressed, Refused
from modeldyno.environment.process_tree import end_with_parent
from modeldyno.errors import ModelDynoError, RequestError
from modeldyno.interfaces import ALONE
from modeldyno.loadgen.driver_process import waiting
from modeldyno.runtime.engine import Warm, events
from modeldyno.runtime.exit_cause import UNTOLD
from modeldyno.runtime.failures import failure_of
from modeldyno.runtime.forked_analysis import in_copy
from modeldyno.runtime.turn_token import Held

if TYPE_CHECKING:
    from collections.abc import Callable

    from modeldyno.core.result.result import Event
    from modeldyno.core.spec.job import Job
    from modeldyno.interfaces import Baton


def main(descriptor: int, *, warm: bool = False, seat: tuple[int, int] | None = None) -> None:
    """Run the Job on standard input, or one after the other; with a seat, when the baton allows it."""
    end_with_parent()
    interrupted = _interruption()
    os.set_inheritable(descriptor, False)  # the program that the model becomes, if it does, tells nothing
    write, number, leave = os.write, os.getpid, os._exit  # the model may change what os has
    own = number()

    def send(event: Event) -> None:
        copied = number() != own
        data = memoryview(codec.encode_event(Doubted(doubt=FORKED) if copied else event) + b"\n")
        try:
            while data:
                data = data[write(descriptor, data) :]
        except OSError:  # the model has closed it
            while not copied:
                signal.pause()  # the parent sees that, ends us and says so
        if copied:  # by the model, and it came back from the call as we did
            leave(0)

    try:
        _serve(interrupted, send, warm=warm, seat=seat)
    except SystemExit:
        raise
    except BaseException:  # noqa: BLE001 - nothing that can be told is left to be raised
        leave(UNTOLD)
    _tidy_up()
    leave(0)  # to take a framework apart takes a third of the time that it takes to import it


def _tidy_up() -> None:
    """Do what the end of a process owes to others: run its exit handlers, and write out what was printed."""
    with suppress(Exception):
        atexit._run_exitfuncs()  # noqa: SLF001 - there is no other name for it
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    with suppress(Exception):
        ctypes.CDLL(None).fflush(None)  # what native code has printed


def _serve(
    interrupted: list[int], send: Callable[[Event], None], *, warm: bool, seat: tuple[int, int] | None
) -> None:
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
    stage, failed = "start", False

    def watch(event: Event) -> None:
        nonlocal stage
        if isinstance(event, Progressed):
            stage = event.stage
        send(event)

    try:
        job = codec.decode_job(data)
        _pin(job)
        stream = events(
            job,
            interrupted=lambda: bool(interrupted),
            watch=watch,
            warm=kept,
            baton=baton,
            analyst=in_copy,
        )
        for event in stream:
            failed = failed or isinstance(event, Failed)
            send(event)
    except ModelDynoError as error:
        send(Refused(error=type(error).__name__, message=str(error)))
    except SystemExit:
        raise  # the model ends its process, and our parent tells that
    except BaseException as error:  # noqa: BLE001 - an interruption raises nothing here: all is the model's
        if not failed:
            send(Failed(failure=failure_of(error, stage)))
        send(Ended())


def _interruption() -> list[int]:
    """Note interruptions instead of dying of them; the list is empty until the first.

    A scheduler may send SIGTERM to all processes of a job, which our parent takes for an interruption, too.
    """
    seen: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _frame: seen.append(number))
    return seen


FORKED = Doubt(
    code="forked",
    seen="a call forked the process, and returned in the copy as well; the copy was ended at once",
    advice="end the copy within the call, by os._exit(0): it ran beside what was measured",
)


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
