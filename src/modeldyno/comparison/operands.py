"""Resolve the operands of a comparison: Results, the winners of studies, or Jobs to run."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from modeldyno.base.document import StoredDocument
from modeldyno.base.errors import RequestError
from modeldyno.base.kinds import kind_of
from modeldyno.base.result.result import Result
from modeldyno.profiling.request import Request
from modeldyno.profiling.resolve_model import names_model
from modeldyno.stores.catalog import stored_result
from modeldyno.stores.lookup import find_any
from modeldyno.sweeps.study.ranking import winner
from modeldyno.sweeps.study.study import Study

if TYPE_CHECKING:
    from collections.abc import Sequence

    from modeldyno.base.job.job import Job

FEWEST = 2
"""Smallest number of sides of a comparison."""


Operand = Request | StoredDocument
"""An operand as the user gives it; the `model` of a Request may name a document."""


def resolve_operands(given_operands: Sequence[Operand], *, run: bool) -> tuple[Job, ...] | tuple[Result, ...]:
    """Return a Job for each operand, if all are models, or a Result for each, if all were measured.

    The baseline is the first. With `run`, measured operands become Jobs, too, to be run again.

    Raises:
        RequestError: there is only one, models and results are mixed, or one cannot be found.
    """
    if len(given_operands) < FEWEST:
        raise RequestError("A comparison needs a baseline and a candidate; name two models or two results.")
    operands = tuple(map(_resolve, given_operands))
    models = [operand for operand in operands if isinstance(operand, Request)]
    results = tuple(operand for operand in operands if isinstance(operand, Result))
    if not models and not run:
        return results
    if results and not run:
        typed = next(
            operand.model if isinstance(operand, Request) else operand.id[:6]
            for operand, resolved in zip(given_operands, operands, strict=True)
            if isinstance(resolved, Result)
        )
        raise RequestError(
            f"'{typed}' is a stored result, but '{models[0].model}' is a model; add `run` to "
            "run both in turns, or profile the model first and compare the results."
        )
    return tuple(
        operand.job() if isinstance(operand, Request) else rerun_job(operand) for operand in operands
    )


def _resolve(operand: Operand) -> Request | Result:
    """Return a model as it is, and a document as its Result."""
    if not isinstance(operand, Request):
        return result_of(operand)
    word = operand.model
    return operand if not isinstance(word, str) or names_model(word) else result_of(find_any(word))


def result_of(document: StoredDocument) -> Result:
    """Return the Result that represents a document: itself, or the winner of a study.

    Raises:
        RequestError: it combines several Results, or is a study without a winner.
    """
    match document:
        case Result():
            return document
        case Study():
            return winner(document, stored_result)
        case _:
            raise RequestError(
                f"{document.id[:6]} is a {kind_of(document).name}, which cannot be compared itself; compare "
                "its results, which modeldyno show lists."
            )


def rerun_job(result: Result) -> Job:
    """Return the Job of a Result, to be run once a round, without the files that it wrote."""
    job = result.job
    observation = replace(job.observation, trace=None, records=None, outputs=None)
    probes = tuple(probe for probe in job.probes if probe != "outputs")
    return replace(job, observation=observation, probes=probes, plan=replace(job.plan, processes=1))
