"""The child process of the isolated and the warm executor: reads a Job, writes events.

``python -m modeldyno.engine.runtime.worker FD [--warm | --turns GRANTED ASKED] [--region GRANTED]
[--limit ...]``: the Job comes as JSON on standard input, the events go as JSON lines to the file descriptor
FD. What the model prints goes to standard output and error. A warm child reads one Job per line, equal but
for load, Plan and config, until the input ends; the session stays open for the next Job of the same config,
and is closed at an empty line. Load drivers wait for the next load. With ``--turns`` it works only while it
holds the token: see `engine.runtime.turn_token`. With ``--region`` it asks before it measures: see
`engine.runtime.measured_region`. With ``--limit`` it measures no longer than the command may: see
`engine.runtime.time_limit`.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import nullcontext
from typing import TYPE_CHECKING

from modeldyno.base import codec
from modeldyno.base.errors import ModelDynoError, RequestError
from modeldyno.base.metrics.doubt import Doubt
from modeldyno.base.result.result import Ended, Failure, Progressed, Refused
from modeldyno.base.system.process_tree import end_with_parent
from modeldyno.engine.interfaces.probe import NO_TURNS
from modeldyno.engine.runtime.engine import OpenSession, events
from modeldyno.engine.runtime.exit_cause import UNTOLD
from modeldyno.engine.runtime.exit_handlers import run_exit_handlers
from modeldyno.engine.runtime.failures import failure_of, whole_traceback
from modeldyno.engine.runtime.forked_analysis import analyse_isolated
from modeldyno.engine.runtime.measured_region import MeasuredRegion
from modeldyno.engine.runtime.time_limit import TimeLimit
from modeldyno.engine.runtime.turn_token import TurnWaiter

if TYPE_CHECKING:
    from collections.abc import Callable

    from modeldyno.base.job.job import Job
    from modeldyno.base.result.result import Event
    from modeldyno.engine.interfaces.probe import TurnToken
    from modeldyno.engine.runtime.measured_region import Region


def main(
    descriptor: int,
    *,
    warm: bool = False,
    token_pipes: tuple[int, int] | None = None,
    granted: int | None = None,
    limit: TimeLimit | None = None,
) -> None:
    """Run the Job or Jobs on standard input; with a token_pipes, only while holding the turn token.

    Where `granted` is given, the parent is asked before anything is measured, and its byte is read there.
    """
    end_with_parent()
    interrupted = _count_interrupts()
    os.set_inheritable(descriptor, False)  # a program that the model execs must not write events
    write, process_id, leave = os.write, os.getpid, os._exit  # the model may change what os has
    own_pid = process_id()

    def send(event: Event) -> None:
        in_fork = process_id() != own_pid
        data = memoryview(codec.encode_event(FORKED if in_fork else event) + b"\n")
        try:
            while data:
                data = data[write(descriptor, data) :]
        except OSError:  # the model has closed the descriptor
            while not in_fork:
                signal.pause()  # the parent notices, ends us and reports it
        if in_fork:  # the model forked, and the fork returned from the call as well
            leave(0)

    region: Region = nullcontext
    if granted is not None:
        os.set_inheritable(granted, False)
        region = MeasuredRegion(tell=send, granted=granted)
    try:
        _serve(interrupted, send, region, limit, warm=warm, token_pipes=token_pipes)
    except SystemExit:
        raise
    except BaseException:  # noqa: BLE001 - nothing can be reported any more
        leave(UNTOLD)
    run_exit_handlers()
    leave(0)  # tearing a framework down takes a third of the time of its import


def _serve(
    interrupted: list[int],
    send: Callable[[Event], None],
    region: Region,
    limit: TimeLimit | None,
    *,
    warm: bool,
    token_pipes: tuple[int, int] | None,
) -> None:
    if not warm:
        data = sys.stdin.buffer.read()
        turns: TurnToken = NO_TURNS
        if token_pipes is not None:
            turns = holder = TurnWaiter(granted=token_pipes[0], request_end=token_pipes[1])
            holder.begin()
        _run_one(data, interrupted, send, None, turns, region=region, limit=limit)
        return
    from modeldyno.serving.loadgen.driver_process import prestarting_drivers  # only for loads

    with OpenSession() as warm_state, prestarting_drivers():
        for line in sys.stdin.buffer:
            if line.strip():
                _run_one(line, interrupted, send, warm_state, limit=limit)
            else:
                warm_state.close()


def _run_one(
    data: bytes,
    interrupted: list[int],
    send: Callable[[Event], None],
    warm: OpenSession | None,
    turns: TurnToken = NO_TURNS,
    *,
    region: Region = nullcontext,
    limit: TimeLimit | None = None,
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
            warm=warm,
            turns=turns,
            region=region,
            analyst=analyse_isolated,
            limit=limit,
        )
        for event in stream:
            failed = failed or isinstance(event, Failure)
            send(event)
    except ModelDynoError as error:
        send(
            Refused(
                error=type(error).__name__,
                message=str(error),
                probe=getattr(error, "probe", ""),
                trace=whole_traceback(error),
            )
        )
    except SystemExit:
        raise  # the model ends its process, which the parent reports
    except BaseException as error:  # noqa: BLE001 - interruptions raise nothing here, so any error is the model's
        if not failed:
            send(failure_of(error, stage))
        send(Ended())


def _count_interrupts() -> list[int]:
    """Record interruptions instead of dying of them; return the list that they are appended to.

    A scheduler may send SIGTERM to all processes of a job, which the parent counts as an interruption, too.
    """
    interrupts: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _frame: interrupts.append(number))
    return interrupts


FORKED = Doubt(
    code="forked",
    seen="a call forked the process and also returned in the fork, which was ended at once",
    advice="end the fork within the call by os._exit(0): it ran during the measurement",
)


def _pin(job: Job) -> None:
    if job.plan.pin and hasattr(os, "sched_setaffinity"):
        try:
            os.sched_setaffinity(0, job.plan.pin)
        except OSError as error:
            allowed = ", ".join(map(str, sorted(os.sched_getaffinity(0))))
            raise RequestError(
                f"Cannot pin to the cores {', '.join(map(str, job.plan.pin))}; allowed are {allowed}."
            ) from error


if __name__ == "__main__":
    _descriptor, *_options = sys.argv[1:]
    _token_pipes = (int(_options[1]), int(_options[2])) if "--turns" in _options else None
    _granted = int(_options[_options.index("--region") + 1]) if "--region" in _options else None
    _limit = _options.index("--limit") + 1 if "--limit" in _options else None
    main(
        int(_descriptor),
        warm="--warm" in _options,
        token_pipes=_token_pipes,
        granted=_granted,
        limit=None if _limit is None else TimeLimit.parse(_options[_limit : _limit + 4]),
    )
