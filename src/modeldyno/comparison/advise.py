"""A model, its findings, and what comes of trying them: each in turns with the model as it is."""

from __future__ import annotations

import secrets
import tempfile
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from modeldyno import plugins
from modeldyno.comparison.advise_session import BASELINE, FEWEST, MAX_TIME, TIMED, TOLERANCE, Trial, Wish
from modeldyno.core.advice.advice import (
    Advice,
    Tried,
    best,
    candidates,
    combinations,
    gain,
    helped,
    promising,
)
from modeldyno.core.advice.bottleneck import bottleneck
from modeldyno.core.advice.finding import Case
from modeldyno.core.advice.rules import findings
from modeldyno.core.comparison.build import enriched
from modeldyno.core.spec.static_options import HERE, Mode
from modeldyno.core.study.search_space import parse_axis
from modeldyno.environment import machine
from modeldyno.errors import RequestError, RunFailed
from modeldyno.interfaces import HasSpace
from modeldyno.runtime.engine import serves
from modeldyno.views.advice.findings import typed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from modeldyno.core.advice.advice import Candidate
    from modeldyno.core.result.result import Result
    from modeldyno.core.spec.job import Job
    from modeldyno.core.study.search_space import Axis
    from modeldyno.runtime.session import Campaign

__all__ = ["MAX_TIME", "TOLERANCE", "Wish", "advise"]

_LOOKS = {("static", "ops", "layers"): 4.0, ("static", "ops"): 3.0, ("static",): 1.5}
"""Probes beside the timed ones, and about how many times as long as without them a run takes: those of the
first line that the backend bears, and that there is time for, are taken."""
_WATCHING = 0.25
"""Part of the time that this may take."""
_ROUNDS, _FINAL = 5, 7
"""Rounds of the candidates, and of the finalists."""
_FIRST, _SHARE = 0.5, 0.75
"""Parts of what is left then: for the first looks at candidates, and for their rounds, too; the rest is for
the finalists."""
_SEVERAL = 3
"""First looks for which there must be time before any is kept for rounds."""
_PORTION, _BRIEFEST = 1 / 60, 0.3
"""Part of the time that a probe of a run may measure, and seconds that it always may."""


def advise(job: Job, wish: Wish, campaign: Campaign) -> Iterator[Advice]:
    """Try what may help; give the Advice so far after each stage, the last one being the answer.

    The baseline is looked at, and where there is time for that, watched, and findings made of it. Each
    candidate is run once, which shows whether it runs and what it does to the outputs; those not far worse
    are measured in turns with the baseline. What helped is combined and measured anew, so that the best of
    several is not quoted for its luck. No stage begins what would not end in time, but for the first run of
    the baseline.

    Args:
        job: the baseline.
        wish: what to improve, and how long.
        campaign: what runs Jobs; after an interruption what was measured by then is kept.

    Raises:
        RequestError: the model cannot be tried so, or the metric is none to improve.
        RunFailed: the baseline failed.
    """
    _check(job, wish)
    with tempfile.TemporaryDirectory() as folder:
        trial = Trial(
            job=replace(job, plan=replace(job.plan, processes=1, max_time=_measuring(job, wish))),
            wish=wish,
            campaign=campaign,
            folder=Path(folder),
            begun=time.monotonic(),
        )
        yield from _tried(trial)


def _measuring(job: Job, wish: Wish) -> float:
    """Say how long a probe may measure, so that there is time for several candidates."""
    return min(job.plan.max_time, max(_BRIEFEST, _PORTION * wish.max_time))


def _tried(trial: Trial) -> Iterator[Advice]:
    advice = _looked(trial)
    yield advice
    every = candidates(advice.findings, _axes(trial), advice.baseline, trial.wish.query.metric)
    whole = max(0.0, trial.left)
    looked, left_out = _first_looks(trial, advice.baseline, every, _reserve(trial, whole))
    advice = replace(advice, tried=looked, left_out=left_out)
    yield advice
    measured = trial.in_turns(promising(looked), _ROUNDS, trial.left - (1 - _SHARE) * whole)
    advice = replace(advice, tried=_merged(looked, measured))
    yield advice
    finalists = combinations(helped(advice.tried, trial.wish.tolerance))
    if not measured:  # there was no time for both: what looks best is confirmed at once
        finalists = _likeliest(looked, trial.wish.tolerance)
    if not finalists or trial.campaign.interrupted():
        return
    finals = _finals(trial, advice, finalists)
    chosen = best(finals, trial.wish.tolerance)
    told = "" if chosen is None else _command(trial, advice, chosen.candidate)
    yield replace(advice, finals=finals, best=chosen, command=told)


def _reserve(trial: Trial, whole: float) -> float:
    """Say how much of the time is kept for rounds: enough to confirm one candidate, or else nothing."""
    kept = max((1 - _FIRST) * whole, 2 * FEWEST * trial.cost)
    return kept if whole - kept >= _SEVERAL * trial.cost else 0.0


def _likeliest(looked: Sequence[Tried], tolerance: float) -> tuple[Candidate, ...]:
    """Give the one candidate that gained most at its first look, if any did."""
    gained = [tried for tried in promising(looked) if gain(tried.change) > 0 and tried.error <= tolerance]
    return tuple(tried.candidate for tried in gained[:1])


def _check(job: Job, wish: Wish) -> None:
    if serves(job.backend):
        raise RequestError(
            "modeldyno advise runs a model in a process; for a server see what modeldyno show RESULT "
            "--findings suggests, and try it with modeldyno sweep."
        )
    if job.inspection.mode is Mode.TRAIN:
        raise RequestError("modeldyno advise times calls, and no training steps; leave --mode train away.")
    if wish.query.metric not in {"latency", *TIMED[1:], "batch_rate"}:
        raise RequestError(
            f"{wish.query} is not what advise can improve; give --metric throughput, or latency.p50."
        )


def _command(trial: Trial, advice: Advice, candidate: Candidate) -> str:
    return typed(advice.baseline, trial.of(candidate), plugins.backend(trial.job.backend).knobs)


# --- the stages ------------------------------------------------------------------------------------


def _looked(trial: Trial) -> Advice:
    """Look at the baseline, and then watch it.

    Raises:
        RunFailed: it failed.
    """
    found = trial.look(trial.job, BASELINE, BASELINE)
    if found.failures:
        failure = found.failures[0]
        raise RunFailed(f"The model failed in {failure.where}: {failure.message}")
    knobs = plugins.backend(trial.job.backend).knobs
    baseline = replace(_watched(trial, found), job=trial.job)
    return Advice(
        id=secrets.token_hex(6),
        created=datetime.now(UTC).isoformat(timespec="milliseconds"),
        query=trial.wish.query,
        tolerance=trial.wish.tolerance,
        baseline=baseline,
        bottleneck=bottleneck(Case(result=baseline, knobs={knob.name: knob for knob in knobs})),
        findings=findings(baseline, knobs),
    )


def _watched(trial: Trial, found: Result) -> Result:
    """Add what can be seen of it with as many probes as it bears and as there is time for."""
    job = replace(trial.job, inspection=replace(trial.job.inspection, devices=(HERE,), modules=True))
    for probes, times in _LOOKS.items():
        if times * trial.cost > _WATCHING * trial.wish.max_time or trial.campaign.interrupted():
            continue
        try:
            seen = trial.look(job, "watched", "baseline, watched", probes=probes, timeout=trial.left)
        except RequestError:
            continue  # the backend cannot be watched so
        return enriched(found, seen)
    return found


def _axes(trial: Trial) -> tuple[Axis, ...]:
    """Give the axes that the backend finds worth a look."""
    backend = plugins.backend(trial.job.backend)
    if not trial.wish.space or not isinstance(backend, HasSpace):
        return ()
    cores = len(trial.job.plan.pin) or int(machine.cpu_quota()) or 1
    return tuple(parse_axis(text.replace("{cores}", str(cores))) for text in backend.space)


def _first_looks(
    trial: Trial, baseline: Result, every: tuple[Candidate, ...], reserve: float
) -> tuple[tuple[Tried, ...], tuple[Candidate, ...]]:
    """Run each candidate once, as many as the time allows; give those it does not.

    `reserve` is what is to be left for the later stages, in seconds.
    """
    looked: list[Tried] = []
    for number, candidate in enumerate(every):
        if trial.campaign.interrupted():
            break
        if trial.left - trial.cost < reserve or trial.left <= 0:
            return tuple(looked), every[number:]
        label = f"candidate {number + 1} of {len(every)}"
        tried = trial.first_look(baseline, candidate, str(number), label)
        if tried.failure and trial.left <= 0:  # it was ended with the time
            return tuple(looked), every[number:]
        looked.append(tried)
    return tuple(looked), ()


def _merged(looked: Sequence[Tried], measured: Sequence[Tried]) -> tuple[Tried, ...]:
    """Put what was measured in turns in the place of the first look."""
    better = {id(tried.candidate): tried for tried in measured}
    return tuple(better.get(id(tried.candidate), tried) for tried in looked)


def _finals(trial: Trial, advice: Advice, finalists: Sequence[Candidate]) -> tuple[Tried, ...]:
    """Measure the finalists anew; a combination is run once before."""
    known = {id(tried.candidate): tried for tried in advice.tried}
    ready = [
        known.get(id(candidate)) or trial.first_look(advice.baseline, candidate, "combination", "combination")
        for candidate in finalists
    ]
    running = [replace(tried, rounds=0) for tried in ready if not tried.failure]
    measured = trial.in_turns(running, _FINAL, trial.left)
    return (*measured, *(tried for tried in ready if tried.failure))
