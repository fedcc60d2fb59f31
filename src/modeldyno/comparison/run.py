"""Baseline and candidates, run in turns until there is a verdict."""

from __future__ import annotations

import secrets
import time
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from modeldyno.core.comparison.build import contrast
from modeldyno.core.comparison.change_test import LEVEL
from modeldyno.core.comparison.comparison import Comparison, Outcome
from modeldyno.core.metrics import doubt
from modeldyno.core.result.result import merge
from modeldyno.errors import ModelDynoError, RunFailed
from modeldyno.runtime.engine import INTERRUPTED
from modeldyno.runtime.interleaved import is_over

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from modeldyno.core.comparison.build import Question
    from modeldyno.core.comparison.schedule import Turns
    from modeldyno.core.result.result import Result
    from modeldyno.core.spec.job import Job
    from modeldyno.runtime.session import Campaign


STORED = "stored"
"""The order of what was measured apart from each other."""


def comparison(
    results: Sequence[Result],
    question: Question,
    *,
    turns: Turns | None = None,
    order: str = STORED,
    sequence: Sequence[int] = (),
) -> Comparison:
    """Compare Results with the first of them.

    Raises:
        RequestError: the hardware is not the same, or something asked for was not measured.
    """
    baseline, *candidates = results
    level = LEVEL if turns is None else turns.level(LEVEL)
    whole = turns is not None and not turns.block and len({result.processes for result in results}) == 1
    return Comparison(
        id=secrets.token_hex(6),
        created=datetime.now(UTC).isoformat(timespec="milliseconds"),
        baseline=baseline,
        contrasts=tuple(
            contrast(baseline, candidate, question, level=level, in_turns=turns is not None, paired=whole)
            for candidate in candidates
        ),
        order=order,
        sequence=tuple(sequence),
        level=level,
    )


def decided(found: Comparison) -> bool:
    """Say whether there is a verdict on all that is judged."""
    changes = (change for each in found.contrasts for change in each.verdicts)
    return all(change.outcome is not Outcome.UNDECIDED for change in changes)


def failed(found: Comparison) -> bool:
    """Say whether any of the models failed."""
    return any(result.failures for result in (found.baseline, *(each.candidate for each in found.contrasts)))


# --- in turns ----------------------------------------------------------------------------------------


def in_turns(
    jobs: Sequence[Job], turns: Turns, question: Question, campaign: Campaign
) -> Iterator[Comparison]:
    """Run Jobs in turns; give the Comparison after each look, the last one being the answer.

    Ends when all that is judged has a verdict, when rounds or time are used up, when a model fails, or when
    interrupted; what was not run on both sides gives nothing. Where time is short, fewer rounds are made
    before the first look, and one in any case.

    Args:
        jobs: that of the baseline, and those of the candidates.
        turns: rounds and their order.
        question: what to judge.
        campaign: what runs them.

    Raises:
        RequestError: a Job cannot be carried out, or the question does not fit what was measured.
        RunFailed: the baseline failed before anything else was run.
    """
    begun = time.monotonic()
    runs: list[list[Result]] = [[] for _ in jobs]
    sequence: list[int] = []
    done = 0
    for look in turns.looks:
        end = min(look, _affordable(turns, len(sequence), time.monotonic() - begun))
        if end <= done:
            return
        for number, sides in turns.rounds(done, end):
            if number >= end:
                continue
            where = f"round {number + 1} of {_rounds(turns)}"
            named = [(f"{where}, {called(side, len(jobs))}", jobs[side]) for side in sides]
            found = campaign.play(named)
            for side, result in _whole(sides, found):
                runs[side].append(result)
                sequence.append(side)
            if any(map(is_over, found)) or campaign.interrupted():
                break
            # What a round takes is known better after each.
            end = max(number + 1, min(end, _affordable(turns, len(sequence), time.monotonic() - begun)))
        if not all(runs):
            _check_failed(runs)
            return
        done = end
        pooled = [_pooled(of_side, stopped=bool(campaign.interrupted())) for of_side in runs]
        order = turns.order if campaign.together is None or turns.block else campaign.together.order
        compared = comparison(pooled, question, turns=turns, order=order, sequence=sequence)
        yield compared
        if campaign.interrupted() or failed(compared) or decided(compared):
            return


def _whole(sides: Sequence[int], found: Sequence[Result | ModelDynoError]) -> Iterator[tuple[int, Result]]:
    """Give the runs of a round that were not interrupted, with their sides; raise a wrong request."""
    for side, result in zip(sides, found, strict=False):
        if isinstance(result, ModelDynoError):
            raise result
        if not any(each.code == INTERRUPTED.code for each in result.doubts):
            yield side, result


def _check_failed(runs: Sequence[Sequence[Result]]) -> None:
    """Tell of a failure before there is anything to compare.

    Raises:
        RunFailed: a side failed.
    """
    for result in (result for of_side in runs for result in of_side if result.failures):
        failure = result.failures[0]
        raise RunFailed(f"{result.name} failed in {failure.where}: {failure.message.rstrip('.')}.")


def _affordable(turns: Turns, runs: int, spent: float) -> int:
    """Say how many rounds the time allows in all, by what the runs so far have taken."""
    if not runs or not spent or turns.max_time is None:
        return turns.most
    return int(turns.max_time / (turns.sides * spent / runs))


def _rounds(turns: Turns) -> str:
    return f"{turns.first}" if turns.first == turns.most else f"{turns.first} to {turns.most}"


def called(side: int, sides: int) -> str:
    """Name a side for the line of progress."""
    if not side:
        return "baseline"
    return "candidate" if sides == 2 else f"candidate {side}"  # noqa: PLR2004 - a pair


def _pooled(results: Sequence[Result], *, stopped: bool) -> Result:
    """Pool the fresh processes of one side."""
    found = merge(results)
    job = replace(found.job, plan=replace(found.job.plan, processes=len(results)))
    whole = sum(not result.failures for result in results)
    more = (*doubt.of_processes(whole, claimed=True), *((INTERRUPTED,) if stopped else ()))
    return replace(found, job=job, doubts=tuple(dict.fromkeys((*found.doubts, *more))))
