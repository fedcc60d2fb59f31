"""What is to be compared, from words: Results, the winners of studies, or Jobs to be run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from modeldyno.core.comparison.saved_kinds import Conclusion, kind_of
from modeldyno.core.result.result import Result
from modeldyno.core.study.best_result import winner
from modeldyno.core.study.study import Study
from modeldyno.documents.lookup import find_any, kept
from modeldyno.errors import RequestError
from modeldyno.profiling.request import Request
from modeldyno.profiling.resolve_model import refers_to_model

if TYPE_CHECKING:
    from collections.abc import Sequence

    from modeldyno.core.spec.job import Job

FEWEST = 2
"""Sides of a comparison."""


Asked = Request | Result | Study | Conclusion
"""What a user asks for; a Request may name a document where its model is not one."""


def sides(asked: Sequence[Asked], *, run: bool) -> tuple[Job, ...] | tuple[Result, ...]:
    """Give a Job for each, if all are models, or a Result for each, if all were measured.

    Args:
        asked: baseline and candidates.
        run: make Jobs of what was measured, too: those that the Results come from.

    Raises:
        RequestError: there is only one, some are models and some were measured, or one cannot be had.
    """
    if len(asked) < FEWEST:
        raise RequestError("A comparison needs a baseline and a candidate; name two models or two results.")
    found = tuple(map(_found, asked))
    models = [each for each in found if isinstance(each, Request)]
    results = tuple(each for each in found if isinstance(each, Result))
    if not models and not run:
        return results
    if results and not run:
        raise RequestError(
            f"'{results[0].id[:6]}' was measured already, and '{models[0].model}' is a model; add --run to "
            "run both in turns, or profile the model first and compare the results."
        )
    return tuple(each.job() if isinstance(each, Request) else again(each) for each in found)


def _found(asked: Asked) -> Request | Result:
    """Leave a model as it is, and look documents up."""
    if not isinstance(asked, Request):
        return result_of(asked)
    return asked if names_model(asked.model) else result_of(find_any(asked.model))


def names_model(word: str) -> bool:
    """Say whether a word is a model: a reference, ``file.py:name``, or a path that is no document."""
    path = Path(word)
    if path.suffix == ".json" and path.is_file():
        return False
    return path.exists() or refers_to_model(word)


def result_of(document: Result | Study | Conclusion) -> Result:
    """Give the Result that stands for a document: itself, or that of the winner of a study.

    Raises:
        RequestError: it is of several Results itself, or a study without a winner.
    """
    match document:
        case Result():
            return document
        case Study():
            return winner(document, kept)
        case _:
            raise RequestError(
                f"{document.id[:6]} is a {kind_of(document)} itself; modeldyno show shows it; its results "
                "can be compared."
            )


def again(result: Result) -> Job:
    """Give the Job that a Result comes from, to be run once a round, without the files that it wrote."""
    job = result.job
    observation = replace(job.observation, trace=None, records=None, outputs=None)
    probes = tuple(probe for probe in job.probes if probe != "outputs")
    return replace(job, observation=observation, probes=probes, plan=replace(job.plan, processes=1))
