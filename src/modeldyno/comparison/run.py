"""Run baseline and candidates in turns until there is a verdict."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING

from modeldyno.base import plugins
from modeldyno.base.clock import monotonic
from modeldyno.base.errors import InputRefused, ModelDynoError, OutOfTime, RequestError, RunFailed
from modeldyno.base.identity import new_identity
from modeldyno.base.job.probe_options import EVALUATION
from modeldyno.base.metrics import doubt
from modeldyno.base.result.result import merge
from modeldyno.base.stats.schedule import FIRST_CALL, OWN_INPUTS, name_refusing_side, share_inputs
from modeldyno.comparison.change.build import compare_results, with_second_pass
from modeldyno.comparison.change.change_test import LEVEL, stays_unknown
from modeldyno.comparison.change.comparison import ChangeVerdict, Comparison
from modeldyno.engine.runtime.events import INTERRUPTED
from modeldyno.engine.runtime.interleaved import is_over

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from modeldyno.base.job.job import Job
    from modeldyno.base.result.result import Result
    from modeldyno.base.stats.schedule import RoundSchedule
    from modeldyno.comparison.change.build import CompareOptions
    from modeldyno.engine.runtime.session import RunSession

STORED = "stored"
"""Order of results that were measured separately."""


def build_comparison(
    results: Sequence[Result],
    criteria: CompareOptions,
    *,
    turns: RoundSchedule | None = None,
    order: str = STORED,
    sequence: Sequence[int] = (),
) -> Comparison:
    """Compare Results with the first of them.

    Raises:
        RequestError: the hardware differs, or a requested metric was not measured.
    """
    if criteria.outputs is not None and turns is None:
        raise RequestError(
            "Stored results have no outputs to judge; compare the models, or give no tolerance or verify."
        )
    baseline, *candidates = results
    level = LEVEL if turns is None else turns.level(LEVEL)
    paired = turns is not None and not turns.block and len({result.processes for result in results}) == 1
    return Comparison(
        **new_identity(),
        baseline=baseline,
        contrasts=tuple(
            compare_results(
                baseline, candidate, criteria, level=level, in_turns=turns is not None, paired=paired
            )
            for candidate in candidates
        ),
        order=order,
        sequence=tuple(sequence),
        level=level,
    )


def is_decided(compared: Comparison) -> bool:
    """Return whether there is a verdict on everything that is judged."""
    changes = (change for side in compared.contrasts for change in side.verdicts)
    return all(change.outcome is not ChangeVerdict.UNDECIDED or stays_unknown(change) for change in changes)


def any_failed(compared: Comparison) -> bool:
    """Return whether any of the models failed."""
    return any(
        result.failures for result in (compared.baseline, *(side.candidate for side in compared.contrasts))
    )


# --- in turns ----------------------------------------------------------------------------------------


def run_rounds(
    jobs: Sequence[Job],
    turns: RoundSchedule,
    criteria: CompareOptions,
    campaign: RunSession,
    evaluations: Sequence[Result] = (),
) -> Iterator[Comparison]:
    """Run Jobs in turns; yield the Comparison after each test, the last one being the answer.

    Stop when everything judged has a verdict, when rounds or time are used up, when a model fails, or when
    interrupted; yield nothing unless every side was run. If time is short, fewer rounds are run before the
    first test, but at least one, and a round that the limit of the campaign cut off is left out.

    Args:
        jobs: that of the baseline, then those of the candidates.
        turns: number of rounds and their order.
        criteria: what to judge.
        campaign: runs the Jobs.
        evaluations: what each side measured once on labelled samples, which is judged, too.

    Raises:
        RequestError: a Job cannot be run, or the criteria do not fit what was measured.
        RunFailed: the baseline failed before anything else was run.
        OutOfTime: nothing could be measured within the limit of the campaign.
    """
    started = monotonic()
    too_late = False
    runs: list[list[Result]] = [[] for _ in jobs]
    sequence: list[int] = []
    done = 0
    later_jobs = list(map(without_analysis, jobs))
    for rounds in turns.interim_rounds:
        end = min(rounds, _affordable_rounds(turns, len(sequence), monotonic() - started))
        if end <= done:
            return
        for number, turn_order in turns.rounds(done, end):
            if number >= end:
                continue
            label = f"round {number + 1} of {describe_rounds(turns)}"
            round_jobs = later_jobs if number else jobs
            labelled = [(f"{label}, {side_label(side, len(jobs))}", round_jobs[side]) for side in turn_order]
            results = _run_in_time(campaign, labelled, number / turns.most, first=not all(runs))
            too_late = results is None
            if results is None:
                break
            for side, result in _uninterrupted(turn_order, results, jobs):
                runs[side].append(result)
                sequence.append(side)
            if any(map(is_over, results)) or campaign.interrupted():
                break
            # Each round improves the estimate of what a round takes.
            end = max(number + 1, min(end, _affordable_rounds(turns, len(sequence), monotonic() - started)))
        if not all(runs):
            _raise_if_failed(runs, jobs)
            return
        done = end
        pooled = _pool_sides(runs, evaluations, stopped=bool(campaign.interrupted()))
        order = turns.order if campaign.together is None or turns.block else campaign.together.order
        compared = build_comparison(pooled, criteria, turns=turns, order=order, sequence=sequence)
        yield compared
        if too_late or campaign.interrupted() or any_failed(compared) or is_decided(compared):
            return


def _run_in_time(
    campaign: RunSession, labelled: Sequence[tuple[str, Job]], share: float, *, first: bool
) -> list[Result | ModelDynoError] | None:
    """Run a round; None if the limit of the campaign cut it off, but nothing is measured without the first.

    Raises:
        OutOfTime: the first round was cut off.
    """
    try:
        return campaign.run_round(labelled, share)
    except OutOfTime:
        if first:
            raise
        return None


def _uninterrupted(
    order: Sequence[int], results: Sequence[Result | ModelDynoError], jobs: Sequence[Job]
) -> Iterator[tuple[int, Result]]:
    """Yield the uninterrupted runs of a round, with their sides; raise the error of a wrong request."""
    for side, result in zip(order, results, strict=False):
        if isinstance(result, InputRefused):
            raise InputRefused(name_refusing_side(str(result), side, jobs))
        if isinstance(result, ModelDynoError):
            raise result
        if not result.interrupted:
            yield side, result


def _raise_if_failed(runs: Sequence[Sequence[Result]], jobs: Sequence[Job]) -> None:
    """Raise an error for a failure that leaves nothing to compare.

    Raises:
        RunFailed: a side failed.
    """
    for result in chain.from_iterable(runs):
        if failure := result.failure:
            advice = f"; {OWN_INPUTS}" if failure.where == FIRST_CALL and share_inputs(jobs) else ""
            raise RunFailed(
                f"{result.name} failed in {failure.where}: {failure.message.rstrip('.')}{advice}."
            )


def _affordable_rounds(turns: RoundSchedule, runs: int, spent: float) -> int:
    """Return how many rounds fit into the time, judging by the runs so far."""
    return turns.affordable_rounds(turns.side_count * spent / runs if runs else 0.0)


def describe_rounds(turns: RoundSchedule) -> str:
    """Return the number of rounds: ``5 to 20``, or ``up to 20`` where the time may end them earlier."""
    if turns.max_time is not None and turns.most > 1:
        return f"up to {turns.most}"
    return f"{turns.first}" if turns.first == turns.most else f"{turns.first} to {turns.most}"


def evaluate_once(jobs: Sequence[Job], campaign: RunSession) -> list[Result]:
    """Evaluate each model on its labelled samples, in one process, as others would answer alike.

    Raises:
        RequestError: the samples do not fit a model.
        RunFailed: a model failed.
    """
    results = []
    for side, job in enumerate(jobs):
        once = replace(job, probes=(EVALUATION,), plan=replace(job.plan, processes=1))
        label = campaign.label_progress(f"evaluating, {side_label(side, len(jobs))}")
        try:
            results.append(campaign.execute(once, watch=label))
        except InputRefused as error:
            raise InputRefused(name_refusing_side(str(error), side, jobs)) from error
        if failure := results[-1].failure:
            raise RunFailed(f"{results[-1].name} could not be evaluated: {failure.message.rstrip('.')}.")
    return results


def without_evaluation(job: Job) -> Job:
    """Return a Job that does not evaluate the model: see `evaluate_once`."""
    return replace(
        job,
        probes=tuple(probe for probe in job.probes if probe != EVALUATION),
        observation=replace(job.observation, evaluate=(), data=None),
    )


def is_timed(probe: str) -> bool:
    """Return whether a probe calls the model; the others tell the same in every process."""
    return plugins.probe(probe).needs is not None


def without_analysis(job: Job) -> Job:
    """Return a Job that does not analyse the model again, as its first run did."""
    timed = tuple(probe for probe in job.probes if is_timed(probe))
    return replace(job, probes=timed or job.probes)


def side_label(side: int, side_count: int) -> str:
    """Name a side for the progress line."""
    if not side:
        return "baseline"
    return "candidate" if side_count == 2 else f"candidate {side}"


def _pool_sides(
    runs: Sequence[Sequence[Result]], evaluations: Sequence[Result], *, stopped: bool
) -> list[Result]:
    """Pool the processes of each side, and add what it measured once on labelled samples."""
    pooled = [_pool(of_side, stopped=stopped) for of_side in runs]
    if evaluations:
        return [with_second_pass(*both) for both in zip(pooled, evaluations, strict=True)]
    return pooled


def _pool(results: Sequence[Result], *, stopped: bool) -> Result:
    """Pool the processes of one side."""
    pooled = merge(results)
    job = replace(pooled.job, plan=replace(pooled.job.plan, processes=len(results)))
    successful = sum(not result.failures for result in results)
    new_doubts = (*doubt.process_count_doubts(successful, claimed=True), *((INTERRUPTED,) if stopped else ()))
    return replace(pooled, job=job, doubts=tuple(dict.fromkeys((*pooled.doubts, *new_doubts))))
