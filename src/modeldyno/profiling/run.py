"""Request -> Outcome: what the command line and the Python API have in common."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from modeldyno.core.metrics import doubt
from modeldyno.core.metrics.constraints import Judgement, Verdict
from modeldyno.core.result.result import Result
from modeldyno.errors import RequestError
from modeldyno.runtime.child_process import isolated
from modeldyno.runtime.inline import inline
from modeldyno.runtime.repeated import replicated

if TYPE_CHECKING:
    from collections.abc import Callable

    from modeldyno.core.metrics.constraints import Constraint
    from modeldyno.core.result.result import Event
    from modeldyno.core.spec.job import Job
    from modeldyno.profiling.request import Request

OK, BROKEN, FAILED, UNDECIDED, INTERRUPTED = 0, 1, 4, 5, 130
"""Exit codes of what was measured; those of wrong requests stand in modeldyno.errors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A Result, and the verdicts on the bounds that were asked for."""

    result: Result
    judgements: tuple[Judgement, ...] = ()

    @property
    def exit_code(self) -> int:
        """What a script is told."""
        verdicts = {judgement.verdict for judgement in self.judgements}
        if any(found.code == "interrupted" for found in self.result.doubts):
            return INTERRUPTED
        if self.result.failures:
            return FAILED
        if Verdict.BROKEN in verdicts:
            return BROKEN
        return UNDECIDED if Verdict.UNDECIDED in verdicts else OK


def measure(
    request: Request, *, in_process: bool = False, watch: Callable[[Event], None] = lambda _event: None
) -> Outcome:
    """Carry a Request out in fresh processes (or in this one), and judge it.

    Raises:
        RequestError: the request is wrong; nothing was measured.
        MissingExtra: an optional package is not installed.
    """
    constraints = request.constraints()
    job = request.job()
    if in_process:
        _check_inline(job)
        result = replicated(inline, job, watch=watch)
    else:
        with isolated() as execute:
            result = replicated(execute, job, watch=watch)
    return judged(result, constraints)


def _check_inline(job: Job) -> None:
    """Refuse what only a child process can do."""
    plan = job.plan
    if job.trust:
        raise RequestError(
            "Files that run code are only loaded in a child process; drop --inline or --trust."
        )
    asked = {
        "processes": plan.processes > 1,
        "pin": plan.pin,
        "timeout": plan.timeout,
        "memory_limit": plan.memory_limit,
    }
    if wrong := [name for name, given in asked.items() if given]:
        raise RequestError(
            f"Inside the calling process there is no {', '.join(wrong)}; name the model by a reference, "
            "such as torch:file.py:factory, to run it in processes of its own."
        )


def judged(result: Result, constraints: tuple[Constraint, ...]) -> Outcome:
    """Judge a Result by bounds, and add the doubts that only a claim gives rise to.

    A metric that a failed or interrupted run lacks is left out.
    """
    cut_short = bool(result.failures) or any(found.code == "interrupted" for found in result.doubts)
    wanted = [c for c in constraints if not cut_short or result.find(c.query.metric, c.query.scope)]
    judgements = tuple(result.judge(c) for c in wanted)
    observed = [str(j.constraint.query) for j in judgements if j.answer.observed]
    inherent = judgements and all(j.answer.exact for j in judgements)
    claims = () if inherent or not judgements else doubt.of_processes(result.processes, claimed=True)
    added = (*claims, *doubt.of_observations(observed))
    return Outcome(
        result=replace(result, doubts=tuple(dict.fromkeys((*result.doubts, *added)))), judgements=judgements
    )
