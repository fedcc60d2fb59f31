"""Several loads on one server: a ladder of them, and the search for the largest that holds its bounds.

Both are generators: whoever runs them saves each Outcome before the next is measured, shows it, and stops.
The server stays open while only the load changes.
"""

from __future__ import annotations

import secrets
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from modeldyno.core.load import request_log
from modeldyno.core.load.capacity import Capacity, careful, propose, so_far, under
from modeldyno.core.load.capacity_spec import CONCURRENCY, RATE, Search
from modeldyno.core.load.capacity_steps import End
from modeldyno.core.load.load_curve import Ladder, Rung, worth_climbing
from modeldyno.core.result.result import Progressed
from modeldyno.errors import RequestError
from modeldyno.profiling.request import server_for
from modeldyno.profiling.run import INTERRUPTED, Outcome, judged
from modeldyno.runtime.child_process import isolated
from modeldyno.runtime.warm_worker import warm

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from modeldyno.core.result.result import Event, Result
    from modeldyno.core.spec.job import Job
    from modeldyno.core.spec.load_spec import Load
    from modeldyno.interfaces import Executor
    from modeldyno.profiling.request import Request


def climb(
    request: Request,
    loads: Sequence[int],
    *,
    all_of_them: bool = True,
    watch: Callable[[Event], None] = lambda _event: None,
) -> Iterator[tuple[Outcome, Ladder]]:
    """Measure one concurrency after the other on one server; give each with the ladder so far.

    Ends early at a failure of the server, or when interrupted; and where not all of them are asked for, once
    more load gives no more.

    Raises:
        RequestError: the request is wrong; nothing was measured.
    """
    job, load = _served(request)
    constraints = request.constraints()
    ladder = Ladder(knob=CONCURRENCY, rungs=(), id=secrets.token_hex(6), created=_now())
    with warm() as execute:
        for number, value in enumerate(loads, 1):
            watch(Progressed(stage=f"load {number} of {len(loads)}: concurrency {value}"))
            result = execute(replace(job, load=replace(load, concurrency=value)), watch=watch)
            outcome = judged(result, constraints)
            rung = Rung.of(outcome.result, value, constraints)
            ladder = replace(ladder, rungs=(*ladder.rungs, rung), name=result.name)
            yield outcome, ladder
            if outcome.exit_code == INTERRUPTED or result.failures:
                return
            if not (all_of_them or worth_climbing(ladder)):
                return


def search(
    request: Request, what: Search, *, watch: Callable[[Event], None] = lambda _event: None
) -> Iterator[tuple[Outcome, Capacity | None]]:
    """Search the largest load that holds every bound, then measure it again on a freshly started server.

    Gives each Outcome as it is measured, the last ones with the answer: when interrupted, that by then.

    Raises:
        RequestError: the request is wrong; nothing was measured.
    """
    job, load = _served(request)
    if what.knob == RATE and load.closed:
        raise RequestError("A closed loop has no rate to search; give --rate, or search the concurrency.")
    history: tuple[Rung, ...] = ()
    found: Capacity | None = None
    own, created, ours = secrets.token_hex(6), _now(), server_for(request.model) is not None
    with warm() as execute:
        while not isinstance(step := propose(what, history), Capacity):
            watch(Progressed(stage=f"measurement {len(history) + 1}: {what.knob} {step.load:,g}"))
            outcome = _measured(execute, job, under(load, step.load, step.care), what, step.care, watch)
            history = (*history, Rung.of(outcome.result, step.load, what.bounds, care=step.care))
            end = _ended(outcome, history)
            answer = propose(what, history) if end is None else so_far(what, history, end)
            if isinstance(answer, Capacity):
                found = replace(answer, ours=ours, id=own, created=created, name=outcome.result.name)
            yield outcome, found
            if end is not None:
                return
    if found is None or found.passed is None:
        return
    watch(Progressed(stage=f"verifying {what.knob} {found.passed:,g} in a fresh process"))
    care = found.best.care if found.best is not None else 1.0
    with isolated() as execute:
        outcome = _measured(execute, job, under(load, found.passed, care), what, care, watch)
    yield outcome, found.with_verification(Rung.of(outcome.result, found.passed, what.bounds, care=care))


def _ended(outcome: Outcome, history: Sequence[Rung]) -> End | None:
    """Say why no further load is worth a measurement, whatever the search has seen."""
    if outcome.exit_code == INTERRUPTED:
        return End.INTERRUPTED
    refused = all(rung.failure for rung in history) and _refused(outcome.result)
    return End.REFUSED if refused else None


def _refused(result: Result) -> bool:
    """Say whether every request was refused as a wrong one, such as that for a model that is not there."""
    ends = {m.scope for m in result.measurements if m.metric == "requests"}
    return ends == {request_log.Outcome.CLIENT_ERROR.word}


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _measured(
    execute: Executor, job: Job, load: Load, what: Search, care: float, watch: Callable[[Event], None]
) -> Outcome:
    plan = careful(job.plan, care, what.bounds)
    return judged(execute(replace(job, load=load, plan=plan), watch=watch), what.bounds)


def _served(request: Request) -> tuple[Job, Load]:
    """Give the Job and its load.

    Raises:
        RequestError: nothing is served, or fresh processes are asked for.
    """
    job = request.job()
    if job.load is None:
        raise RequestError(
            f"The backend '{job.backend}' calls the model within a process; several loads need a server: "
            "choose one with --backend triton, or give its URL."
        )
    if job.plan.processes > 1:
        raise RequestError("Several loads are measured on one server; leave --processes away.")
    return job, job.load
