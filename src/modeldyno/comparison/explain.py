"""Explain a comparison with a second run of each model: do the outputs agree, and what caused a change?

Each model is run again in separate processes; when causes are sought, in two processes each, in turns,
because otherwise a noisy minute of the machine would point to the wrong layer.
"""

from __future__ import annotations

import tempfile
from contextlib import suppress
from dataclasses import dataclass, replace
from math import inf, isfinite
from pathlib import Path
from typing import TYPE_CHECKING

from modeldyno.base import plugins
from modeldyno.base.clock import monotonic
from modeldyno.base.errors import OutOfTime, RequestError
from modeldyno.base.job.input_spec import InputSpec
from modeldyno.base.job.knob import BATCH_SIZE
from modeldyno.base.job.probe_options import ProbeOptions
from modeldyno.base.job.static_options import Mode
from modeldyno.base.metrics.doubt import Doubt
from modeldyno.base.result.output_agreement import CLOSE
from modeldyno.base.result.result import merge
from modeldyno.base.stats.schedule import VERDICT_ROUNDS, RoundSchedule
from modeldyno.comparison.change.build import CompareOptions, with_second_pass
from modeldyno.comparison.change.comparison import CandidateComparison, ChangeVerdict, Comparison
from modeldyno.comparison.run import (
    any_failed,
    build_comparison,
    evaluate_once,
    is_timed,
    run_rounds,
    side_label,
    without_evaluation,
)
from modeldyno.conversion.judge_outputs import judge
from modeldyno.engine.data import outputs
from modeldyno.engine.runtime.session import ignore_event

if TYPE_CHECKING:
    from collections.abc import Sequence

    from modeldyno.base.job.job import Job
    from modeldyno.base.result.result import Result
    from modeldyno.conversion.agreement.rule import OutputCheck
    from modeldyno.engine.runtime.session import RunSession
    from modeldyno.models.interface import Feed

_WATCH_PROBES = (("static", "layers", "ops", "memory"), ("static", "layers", "ops"), ("static",), ())
"""Probes that show where time and memory go; the first entry that the backends support is used."""
_EXPLAINABLE = frozenset({
    "latency", "process_memory", "device_memory", "allocated_peak", "flops", "weight_bytes",
})  # fmt: skip
"""Metrics whose change is worth explaining."""
_RELATIVE_COST = dict(zip(_WATCH_PROBES, (4.0, 3.0, 1.5, 1.0), strict=True))
"""Approximate run time, relative to a timed run."""
_WATCH_PROCESSES = 2
"""Processes in which each model is watched."""
_ROUNDS_SHARE = 0.7
"""Share of the time that the rounds beyond those of a verdict may take; the rest is for finding causes."""
_MIN_PROBE_TIME = 0.3
"""Minimum seconds that a probe measures in a round, however short the time."""
_START_TIME = 1.0
"""Seconds that a process is expected to take beside its probes: for its start, loading and first calls."""
_MIN_TIMEOUT = 1.0
"""Seconds granted to a run at least."""
COSINE = 0.999
"""Outputs with a lower cosine are doubted, and those that differ by more than `CLOSE`."""
_UNLIKE = "unlike-outputs"


def run_comparison(
    jobs: Sequence[Job], turns: RoundSchedule, criteria: CompareOptions, campaign: RunSession
) -> Comparison | None:
    """Run Jobs in turns until there is a verdict, then look for causes; None if nothing was finished.

    If outputs are to be judged, each model is called once before anything is measured.

    Raises:
        RequestError: a Job cannot be run, or the criteria do not fit what was measured.
    """
    judged = [] if criteria.outputs is None else _judge_outputs(jobs, criteria.outputs, campaign)
    compared = _measure(jobs, turns, criteria, campaign)
    if compared is None or not judged:
        return compared
    contrasts = tuple(
        replace(
            side,
            outputs_verdict=verdict,
            unlike=why,
            doubts=(*(d for d in side.doubts if d.code != _UNLIKE), *doubts),
        )
        for side, (verdict, why, doubts) in zip(compared.contrasts, judged, strict=True)
    )
    return replace(compared, contrasts=contrasts)


def _measure(
    jobs: Sequence[Job], turns: RoundSchedule, criteria: CompareOptions, campaign: RunSession
) -> Comparison | None:
    """Run Jobs in turns until there is a verdict, then look for causes; None if nothing was finished."""
    started, last = monotonic(), None
    ending = inf if turns.max_time is None else started + turns.max_time
    if campaign.limit is not None:  # which began before, with the command
        ending = campaign.limit.end
        # The first round of a quick look may be ended later than no further one is started.
        longer = campaign.limit.seconds - (turns.max_time or campaign.limit.seconds)
        turns = replace(turns, max_time=max(_MIN_TIMEOUT, campaign.limit.left - longer))
    why = criteria.why and not any(
        plugins.serves(job.backend) or job.inspection.mode is Mode.TRAIN for job in jobs
    )
    first = replace(turns, share=_ROUNDS_SHARE) if why else turns
    evaluations = evaluate_once(jobs, campaign) if any(job.observation.evaluate for job in jobs) else []
    jobs = list(map(without_evaluation, jobs))
    jobs = _shorten_probes(jobs, first)
    for latest in run_rounds(jobs, first, criteria, campaign, evaluations):
        last = latest
    if last is None or not why or any_failed(last) or campaign.interrupted():
        return last
    budget = _Budget(run=(monotonic() - started) / len(last.sequence), end=ending)
    return explain_comparison(last, jobs, turns, criteria, campaign, budget)


def _shorten_probes(jobs: Sequence[Job], turns: RoundSchedule) -> Sequence[Job]:
    """Shorten the probes so that enough rounds for a verdict fit into the time; at least one is run."""
    if turns.max_time is None:
        return jobs
    probes = max(1, sum(is_timed(probe) for job in jobs for probe in job.probes))
    round_time = turns.max_time / min(VERDICT_ROUNDS, turns.most)
    seconds = max(_MIN_PROBE_TIME, (round_time - len(jobs) * _START_TIME) / probes)
    return [
        replace(
            job,
            plan=replace(
                job.plan, max_time=min(seconds, job.plan.max_time), min_time=min(seconds, job.plan.min_time)
            ),
        )
        for job in jobs
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Budget:
    """The time left for explaining."""

    run: float
    """Seconds that one run has taken so far, on average."""
    end: float
    """Deadline in monotonic seconds."""

    @property
    def left(self) -> float:
        """Seconds left."""
        return self.end - monotonic()

    def runs(self, cost: float, side_count: int) -> float:
        """Return how often there is time to run all sides, at `cost` times the cost of a run."""
        seconds = cost * self.run * side_count
        return self.left // seconds if isfinite(self.left) and seconds else inf


def explain_comparison(
    compared: Comparison,
    jobs: Sequence[Job],
    turns: RoundSchedule,
    criteria: CompareOptions,
    campaign: RunSession,
    budget: _Budget,
) -> Comparison:
    """Add how far the outputs agree, and if anything changed, how layers, operators and memory differ.

    What there is no time for is left out, which adds a doubt.
    """
    results = (compared.baseline, *(side.candidate for side in compared.contrasts))
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"{side}.npz" for side in range(len(jobs))]
        changed = _changed_metrics(compared)
        watched, complete = _watch_each(jobs, paths, changed, campaign, budget)
        merged = [
            result
            if watched_result is None
            else with_second_pass(result, _without_output_file(watched_result, path))
            for result, watched_result, path in zip(results, watched, paths, strict=True)
        ]
        explained_comparison = build_comparison(
            merged, criteria, turns=turns, order=compared.order, sequence=compared.sequence
        )
        contrasts = tuple(
            # What only the second run shows is reported, but is not part of the verdict.
            _with_outputs(replace(side, judged=before.judged), job, paths[0], path, campaign, budget)
            for side, before, job, path in zip(
                explained_comparison.contrasts, compared.contrasts, jobs[1:], paths[1:], strict=True
            )
        )
    if not complete:
        contrasts = tuple(
            replace(side, doubts=(*side.doubts, _unexplained(outputs_compared=bool(side.outputs))))
            for side in contrasts
        )
    return replace(explained_comparison, id=compared.id, created=compared.created, contrasts=contrasts)


def _unexplained(*, outputs_compared: bool) -> Doubt:
    missing = "" if outputs_compared else "compare the outputs, or to "
    return Doubt(
        code="unexplained",
        seen=f"no time was left to {missing}find where the changes come from",
        advice="allow more time with `max_time`",
    )


def _changed_metrics(compared: Comparison) -> set[str]:
    """Return the metrics that are better or worse."""
    outcomes = {ChangeVerdict.BETTER, ChangeVerdict.WORSE}
    changes = (change for side in compared.contrasts for change in side.changes)
    return {change.query.metric for change in changes if change.outcome in outcomes}


def _watch_each(
    jobs: Sequence[Job], paths: Sequence[Path], changed: set[str], campaign: RunSession, budget: _Budget
) -> tuple[list[Result | None], bool]:
    """Watch each model with the same probes: as many as all backends support and as there is time for.

    Returns:
        A merged Result for each, and whether everything wanted was done in time.
    """
    complete = True
    for probes in _WATCH_PROBES if changed & _EXPLAINABLE else _WATCH_PROBES[-1:]:
        times = min(
            _WATCH_PROCESSES if "layers" in probes else 1, budget.runs(_RELATIVE_COST[probes], len(jobs))
        )
        if times < 1:
            complete = False  # unless a cheaper entry fits
            continue
        runs_by_side: list[list[Result]] = [[] for _ in jobs]
        try:
            run_order = [
                side
                for _, order in RoundSchedule(side_count=len(jobs)).rounds(0, int(times))
                for side in order
            ]
            for number, side in enumerate(run_order, 1):
                label = f"looking for causes, {number} of {len(run_order)}, {side_label(side, len(jobs))}"
                job = _watch_job(jobs[side], paths[side], probes, budget.left)
                try:
                    watched = campaign.execute(job, watch=campaign.label_progress(label))
                except OutOfTime:
                    break
                runs_by_side[side].append(watched)
                if campaign.interrupted() or budget.left <= 0:
                    break
        except RequestError:
            continue  # a backend that cannot be watched with these probes
        complete = (complete or "layers" in probes) and all(runs_by_side)
        return [merge(runs) if runs else None for runs in runs_by_side], complete
    return [None] * len(jobs), complete


def _watch_job(job: Job, path: Path, probes: tuple[str, ...], left: float) -> Job:
    """Return the Job of a second run, with a timeout at the deadline."""
    end = min(job.plan.timeout or inf, max(left, _MIN_TIMEOUT))
    return replace(
        job,
        plan=replace(job.plan, timeout=end if isfinite(end) else None),
        probes=(*probes, "outputs"),
        inspection=replace(job.inspection, modules=True),
        observation=ProbeOptions(outputs=str(path), preprocess=job.observation.preprocess),
    )


def _without_output_file(watched: Result, path: Path) -> Result:
    """Remove the file of outputs, which is temporary, from the artifacts."""
    kept = tuple(artifact for artifact in watched.artifacts if artifact.path != str(path))
    return replace(watched, artifacts=kept)


# --- outputs -----------------------------------------------------------------------------------------


def _judge_outputs(
    jobs: Sequence[Job], check: OutputCheck, campaign: RunSession
) -> list[tuple[ChangeVerdict, str, tuple[Doubt, ...]]]:
    """Call each model once, and judge the outputs of the candidates beside those of the baseline.

    Returns:
        For each candidate the verdict, why its outputs will not do, and the doubt if nobody knows.

    Raises:
        RequestError: a model is not called in a process, or the tolerance or the user's function is wrong.
    """
    if any(plugins.serves(job.backend) or job.inspection.mode is Mode.TRAIN for job in jobs):
        raise RequestError(
            "Outputs are judged of models that are called in a process; of servers and training steps, leave "
            "out tolerance and verify."
        )
    limit = campaign.limit
    budget = _Budget(run=0.0, end=inf if limit is None else limit.end)
    judged: list[tuple[ChangeVerdict, str, tuple[Doubt, ...]]] = []
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"{side}.npz" for side in range(len(jobs))]
        for number, (job, path) in enumerate(zip(jobs, paths, strict=True)):
            watch = campaign.label_progress(f"outputs of the {side_label(number, len(jobs))}")
            campaign.execute(_watch_job(job, path, (), budget.left), watch=watch)
        for job, path in zip(jobs[1:], paths[1:], strict=True):
            try:
                expected, actual = _calls_alike(job, paths[0], path, campaign, budget)
            except ValueError as error:
                judged.append((ChangeVerdict.UNDECIDED, "", (_outputs_doubt(str(error)),)))
                continue
            why = judge(expected, actual, check)
            judged.append((ChangeVerdict.WORSE if why else ChangeVerdict.SAME, why, ()))
    return judged


def _calls_alike(
    job: Job, baseline: Path, candidate: Path, campaign: RunSession, budget: _Budget
) -> tuple[Feed, Feed]:
    """Return the outputs of the baseline and of a candidate for the same inputs.

    Raises:
        ValueError: there are none; the message is a phrase.
    """
    for path, name in ((baseline, "baseline"), (candidate, "candidate")):
        if not path.is_file():
            raise ValueError(f"the {name} returned none")
    expected_inputs, expected = outputs.load_call(baseline)
    actual_inputs, actual = outputs.load_call(candidate)
    if not outputs.same_values(expected_inputs, actual_inputs):
        _, actual = _run_with_inputs(job, expected_inputs, actual_inputs, candidate, campaign, budget)
    return expected, actual


def _with_outputs(
    compared: CandidateComparison,
    job: Job,
    baseline: Path,
    candidate: Path,
    campaign: RunSession,
    budget: _Budget,
) -> CandidateComparison:
    """Compare the outputs, or add a doubt that says why that is impossible."""
    if not baseline.is_file() or not candidate.is_file():
        return compared
    try:
        agreements = outputs.agreement(*_calls_alike(job, baseline, candidate, campaign, budget))
    except (ValueError, RequestError) as error:
        return replace(compared, doubts=(*compared.doubts, _outputs_doubt(str(error).rstrip("."))))
    compared = replace(compared, outputs=agreements)
    unlike = [
        agreement for agreement in agreements if agreement.relative > CLOSE or agreement.cosine < COSINE
    ]
    if not unlike:
        return compared
    worst = max(unlike, key=lambda agreement: agreement.relative)
    difference = f"its output '{worst.output}' differs by {worst.relative:.2g} of the largest value"
    return replace(
        compared,
        doubts=(*compared.doubts, _outputs_doubt(f"{difference} (cosine {worst.cosine:.4f})", compared=True)),
    )


def _run_with_inputs(
    job: Job, expected: Feed, original: Feed, path: Path, campaign: RunSession, budget: _Budget
) -> tuple[Feed, Feed]:
    """Call a candidate with the inputs of the baseline, by its own names; return its inputs and outputs.

    Raises:
        ValueError: the inputs do not fit; the message is a phrase.
    """
    if budget.left <= 0:
        raise ValueError("no time was left to give both the same inputs")
    kinds = [[(values.shape, values.dtype) for values in feed.values()] for feed in (expected, original)]
    if kinds[0] != kinds[1]:
        raise ValueError("their inputs differ in number, shape or dtype")
    files = outputs.save_inputs(expected, path.parent)
    names = original if expected.keys() != original.keys() else expected
    inputs = tuple(InputSpec(name=name, source=str(file)) for name, file in zip(names, files, strict=True))
    rows = {values.shape[0] for values in expected.values() if values.shape}
    rerun = job.at({BATCH_SIZE.name: rows.pop()}) if len(rows) == 1 else job
    rerun = replace(rerun, observation=ProbeOptions())  # these are inputs of the model itself
    path.unlink()
    with suppress(OutOfTime):
        campaign.execute(replace(_watch_job(rerun, path, (), budget.left), inputs=inputs), watch=ignore_event)
    if not path.is_file():
        raise ValueError("the candidate failed with the inputs of the baseline")
    actual, returned = outputs.load_call(path)
    if not outputs.same_values(expected, actual):
        raise ValueError("the candidate was not run with the inputs of the baseline")
    return actual, returned


def _outputs_doubt(why: str, *, compared: bool = False) -> Doubt:
    text = why if compared else f"the outputs could not be compared: {why}"
    advice = "check with your data whether the candidate's outputs are good enough"
    return Doubt(code=_UNLIKE, seen=text, advice=advice)
