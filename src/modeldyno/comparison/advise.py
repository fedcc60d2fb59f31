"""Advise on a model: try the settings that its findings suggest, each interleaved with the baseline."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from modeldyno.base import plugins
from modeldyno.base.clock import monotonic
from modeldyno.base.errors import OutOfTime, RequestError, RunFailed
from modeldyno.base.identity import new_identity
from modeldyno.base.job.knob import BATCH_SIZE
from modeldyno.base.job.static_options import HERE, Mode
from modeldyno.base.result.cost import check_price
from modeldyno.base.result.result import FailureKind
from modeldyno.comparison.advise_session import (
    BASELINE,
    FEWEST,
    MAX_TIME,
    TIMED,
    TOLERANCE,
    AdviseOptions,
    AdviseSession,
)
from modeldyno.comparison.change.advice import (
    Advice,
    TriedSetting,
    best_finalist,
    candidates,
    final_candidates,
    fixed_batch,
    relative_gain,
    which_helped,
    worth_rounds,
)
from modeldyno.comparison.change.build import with_second_pass
from modeldyno.engine.environment import machine
from modeldyno.engine.interfaces.backend import HOST_AXES
from modeldyno.profiling.findings.bottleneck import bottleneck
from modeldyno.profiling.findings.finding import Case
from modeldyno.profiling.findings.rules import findings
from modeldyno.profiling.views.findings import command_for_job
from modeldyno.sweeps.study.search_space import parse_axis

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from modeldyno.base.job.job import Job
    from modeldyno.base.result.result import Result
    from modeldyno.comparison.change.advice import CandidateSettings
    from modeldyno.engine.runtime.session import RunSession
    from modeldyno.sweeps.study.search_space import Axis

__all__ = ["MAX_TIME", "TOLERANCE", "AdviseOptions", "advise"]

_WATCH_PROBES = {("static", "ops", "layers"): 4.0, ("static", "ops"): 3.0, ("static",): 1.5}
"""Probes added to the timed ones, with the run time relative to a run without them. The first entry that the
backend supports and that there is time for is used."""
_WATCH_SHARE = 0.25
"""Share of the time that this may take."""
_CANDIDATE_ROUNDS, _FINAL_ROUNDS = 5, 7
"""Rounds of the candidates, and of the finalists."""
_FIRST_LOOK_SHARE, _ROUNDS_SHARE = 0.5, 0.75
"""Shares of the remaining time: for first looks at candidates, and for those plus their rounds; the rest is
for the finalists."""
_MIN_FIRST_LOOKS = 3
"""First looks that must fit before any time is reserved for rounds."""
_PROBE_SHARE, _MIN_PROBE_TIME = 1 / 60, 0.3
"""Share of the time that a probe of a run may measure, and its minimum in seconds."""


def advise(job: Job, wish: AdviseOptions, campaign: RunSession) -> Iterator[Advice]:
    """Try what may help; yield the Advice so far after each stage, the last one being the answer.

    The baseline is run, watched if there is time, and findings are derived from it. Each candidate is run
    once, which shows whether it works and what it does to the outputs; those not far worse are measured in
    turns with the baseline. What helped is combined and measured again, which avoids the selection bias of
    quoting the best of several measurements. No stage starts anything that would not end in time, except the
    first run of the baseline. After an interruption, what was measured by then is kept.

    Raises:
        RequestError: the model cannot be tried like this, or the metric cannot be improved.
        RunFailed: the baseline failed.
        OutOfTime: the time limit ended the baseline before what is improved was measured.
    """
    _check(job, wish)
    share = max(_MIN_PROBE_TIME, _PROBE_SHARE * wish.max_time)  # leaves time for several candidates
    plan = replace(job.plan, processes=1, max_time=min(job.plan.max_time, share))
    with tempfile.TemporaryDirectory() as folder:
        trial = AdviseSession(
            job=replace(job, plan=plan),
            wish=wish,
            campaign=replace(campaign, price=wish.price),
            folder=Path(folder),
            begun=monotonic(),
        )
        yield from _run_stages(trial)


def _run_stages(trial: AdviseSession) -> Iterator[Advice]:
    advice = _inspect_baseline(trial)
    yield advice
    all_candidates = candidates(
        advice.findings, _axes(trial, advice.baseline), advice.baseline, trial.wish.query.metric
    )
    remaining = max(0.0, trial.left)
    looked, left_out = _first_looks(trial, advice.baseline, all_candidates, _reserve(trial, remaining))
    advice = replace(advice, tried=looked, left_out=left_out)
    yield advice
    measured = trial.in_turns(
        worth_rounds(looked), _CANDIDATE_ROUNDS, trial.left - (1 - _ROUNDS_SHARE) * remaining
    )
    in_rounds = {id(tried.candidate): tried for tried in measured}
    advice = replace(advice, tried=tuple(in_rounds.get(id(tried.candidate), tried) for tried in looked))
    yield advice
    finalists = final_candidates(which_helped(advice.tried, trial.wish.tolerance))
    if not measured:  # there was no time for both: confirm the most promising candidate at once
        finalists = _most_promising(looked, trial.wish.tolerance)
    if not finalists or trial.campaign.interrupted():
        return
    finals = _measure_finalists(trial, advice, finalists)
    chosen = best_finalist(finals, trial.wish.tolerance)
    if chosen is not None and trial.job.observation.evaluate:
        chosen = trial.with_answers(chosen)
    command = "" if chosen is None else _command(trial, advice, chosen.candidate)
    yield replace(advice, finals=finals, best=chosen, command=command)


def _reserve(trial: AdviseSession, available: float) -> float:
    """Return the seconds reserved for rounds: enough to confirm one candidate, or else none."""
    reserve = max((1 - _FIRST_LOOK_SHARE) * available, 2 * FEWEST * trial.cost)
    return reserve if available - reserve >= _MIN_FIRST_LOOKS * trial.cost else 0.0


def _most_promising(looked: Sequence[TriedSetting], tolerance: float) -> tuple[CandidateSettings, ...]:
    """Return the candidate with the largest gain at its first look, if any gained."""
    gained = [
        tried
        for tried in worth_rounds(looked)
        if relative_gain(tried.change) > 0 and tried.error <= tolerance
    ]
    return tuple(tried.candidate for tried in gained[:1])


def _check(job: Job, wish: AdviseOptions) -> None:
    if plugins.serves(job.backend):
        raise RequestError(
            "modeldyno advise runs a model within a process; for a server, the findings of a load's result "
            "say what to try, and modeldyno sweep tries it."
        )
    if job.inspection.mode is Mode.TRAIN:
        raise RequestError("modeldyno advise times calls, not training steps; leave out `mode=train`.")
    if wish.price is None:
        check_price((wish.query,))
    if wish.query.metric not in {"latency", *TIMED[1:], "batch_rate", "cost"}:
        raise RequestError(
            f"{wish.query} is not a metric that advise can improve; give `metric=throughput`, "
            "latency.p50, or cost with `price=1.20/h`."
        )


def _command(trial: AdviseSession, advice: Advice, candidate: CandidateSettings) -> str:
    """Return the command that measures the model with these settings; empty for a live object."""
    if trial.job.model.live:
        return ""
    return command_for_job(advice.baseline, trial.of(candidate), plugins.backend(trial.job.backend).knobs)


# --- the stages ------------------------------------------------------------------------------------


def _inspect_baseline(trial: AdviseSession) -> Advice:
    """Run the baseline, then watch it with further probes.

    Raises:
        RunFailed: it failed.
    """
    result = trial.run_once(trial.job, BASELINE, BASELINE)
    if failure := result.failure:
        advice = ""
        if failure.kind is FailureKind.OOM:
            advice = _advise_batch(trial, result)
        raise RunFailed(f"The model failed in {failure.where}: {failure.message}{advice}")
    metric = trial.wish.query.metric
    if trial.campaign.limit is not None and result.find(metric) is None and trial.left <= 0:
        raise trial.campaign.limit.exceeded(metric)
    knobs = plugins.backend(trial.job.backend).knobs
    baseline = replace(_with_watched_run(trial, result), job=trial.job)
    return Advice(
        **new_identity(),
        query=trial.wish.query,
        tolerance=trial.wish.tolerance,
        price=trial.wish.price,
        baseline=baseline,
        bottleneck=bottleneck(Case(result=baseline, knobs={knob.name: knob for knob in knobs})),
        findings=findings(baseline, knobs),
    )


def _advise_batch(trial: AdviseSession, result: Result) -> str:
    """Say which batch fits, by a trial, or which is the smallest that did not in the time that there was."""
    if fixed_batch(result) is not None:
        return ""
    fits, smallest = _batch_that_fits(trial)
    if fits:
        return (
            f"; a batch of {fits:,} fits, as a trial showed: take batch_size={fits}, or let the probe "
            "largest-batch find the largest"
        )
    if smallest and not trial.left > 0:
        return f"; a batch of {smallest:,} does not fit either, and more time shows which does: `max_time`"
    return ""


def _batch_that_fits(trial: AdviseSession) -> tuple[int, int]:
    """Try smaller batches than the one that ran out of memory until one runs.

    Where the analysis says how much memory a batch takes, the next is what fits by it, or else the half.

    Returns:
        The batch that runs, 0 if none was found in time, and the smallest that was seen not to.
    """
    batch, failed = int(trial.job.config.get(BATCH_SIZE.name, 1)) // 2, 0
    probes = tuple(name for name in (_ANALYSIS,) if name in trial.job.probes)
    while batch and trial.left > 0 and not trial.campaign.interrupted():
        smaller = trial.job.at({BATCH_SIZE.name: batch})
        try:
            tried = trial.run_once(
                smaller, "smaller", f"a batch of {batch}", probes=probes, timeout=trial.left
            )
        except OutOfTime:
            break
        if tried.failure is None:
            return batch, failed
        if tried.failure.kind is not FailureKind.OOM:
            break
        failed, batch = batch, min(batch // 2, _batch_by_analysis(trial.job, tried, batch))
    return 0, failed


def _batch_by_analysis(job: Job, tried: Result, batch: int) -> int:
    """Return the batch that fits if memory grows with it, of two digits; no less than an eighth at once."""
    peak = tried.number("memory_peak")
    if not peak:
        return batch // 2
    limit = job.plan.memory_limit or machine.spare_memory()
    fitting = int(_USABLE * batch * limit / peak)
    coarse = int(10 ** max(0, len(str(fitting)) - 2))
    return max(fitting // coarse * coarse, batch // 8)


_ANALYSIS = "static"
_USABLE = 0.9
"""Share of the memory that a predicted batch may take: a runtime takes more than the analysis says."""


def _with_watched_run(trial: AdviseSession, result: Result) -> Result:
    """Add the observations of as many probes as the backend supports and as there is time for."""
    job = replace(trial.job, inspection=replace(trial.job.inspection, devices=(HERE,), modules=True))
    for probes, times in _WATCH_PROBES.items():
        if times * trial.cost > _WATCH_SHARE * trial.wish.max_time or trial.campaign.interrupted():
            continue
        try:
            watched = trial.run_once(job, "watched", "baseline, watched", probes=probes, timeout=trial.left)
        except RequestError:
            continue  # the backend cannot be watched with these probes
        except OutOfTime:
            break
        return with_second_pass(result, watched)
    return result


def _axes(trial: AdviseSession, baseline: Result) -> tuple[Axis, ...]:
    """Return the axes that the backend suggests trying on the device of the baseline."""
    backend = plugins.backend(trial.job.backend)
    if not trial.wish.space or not backend.space:
        return ()
    cores = len(trial.job.plan.pin) or int(machine.cpu_quota()) or 1
    axes = (parse_axis(text.replace("{cores}", str(cores))) for text in backend.space)
    return tuple(axis for axis in axes if baseline.environment.on_cpu or axis.name not in HOST_AXES)


def _first_looks(
    trial: AdviseSession, baseline: Result, all_candidates: tuple[CandidateSettings, ...], reserve: float
) -> tuple[tuple[TriedSetting, ...], tuple[CandidateSettings, ...]]:
    """Run each candidate once while time allows; return what was tried, and what was left out.

    `reserve` is the time in seconds to leave for the later stages.
    """
    looked: list[TriedSetting] = []
    for number, candidate in enumerate(all_candidates):
        if trial.campaign.interrupted():
            break
        if trial.left - trial.cost < reserve or trial.left <= 0:
            return tuple(looked), all_candidates[number:]
        label = f"candidate {number + 1} of {len(all_candidates)}"
        tried = trial.first_look(baseline, candidate, str(number), label)
        if tried.failure and trial.left <= 0:  # it was ended because time was up
            return tuple(looked), all_candidates[number:]
        looked.append(tried)
    return tuple(looked), ()


def _measure_finalists(
    trial: AdviseSession, advice: Advice, finalists: Sequence[CandidateSettings]
) -> tuple[TriedSetting, ...]:
    """Measure the finalists again; a combination is first run once."""
    already_tried = {id(tried.candidate): tried for tried in advice.tried}
    runnable = [
        already_tried.get(id(candidate))
        or trial.first_look(advice.baseline, candidate, "combination", "combination")
        for candidate in finalists
    ]
    successful = [replace(tried, rounds=0) for tried in runnable if not tried.failure]
    measured = trial.in_turns(successful, _FINAL_ROUNDS, trial.left)
    return (*measured, *(tried for tried in runnable if tried.failure))
