"""Models that were compared, run once more: whether their outputs agree, and where a change comes from.

Each model is looked at in processes of its own, apart from those that were timed; where it is watched for
causes, in two, in turns, for a machine that has a bad minute would else name the wrong layer.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass, replace
from math import inf, isfinite
from pathlib import Path
from typing import TYPE_CHECKING

from modeldyno.comparison.run import called, comparison, failed, in_turns
from modeldyno.core.comparison.build import Question, enriched
from modeldyno.core.comparison.comparison import Comparison, Contrast, Outcome
from modeldyno.core.comparison.schedule import Turns
from modeldyno.core.metrics.doubt import Doubt
from modeldyno.core.result.result import merge
from modeldyno.core.spec.input_spec import InputSpec
from modeldyno.core.spec.knob import BATCH_SIZE
from modeldyno.core.spec.probe_options import Observation
from modeldyno.core.spec.static_options import Mode
from modeldyno.data import outputs
from modeldyno.errors import RequestError
from modeldyno.runtime.engine import serves
from modeldyno.runtime.session import silent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from modeldyno.core.result.result import Result
    from modeldyno.core.spec.job import Job
    from modeldyno.interfaces import Feed
    from modeldyno.runtime.session import Campaign

_LOOKS = (("static", "layers", "ops", "memory"), ("static", "layers", "ops"), ("static",), ())
"""Probes that tell where time and memory go; those of the first line that the backends bear are taken."""
_EXPLAINED = frozenset({
    "latency", "process_memory", "device_memory", "allocated_peak", "flops", "weight_bytes",
})  # fmt: skip
"""Metrics whose change is worth a second look."""
_COST = dict(zip(_LOOKS, (4.0, 3.0, 1.5, 1.0), strict=True))
"""How many times as long as a timed run a look takes, about."""
_TIMES = 2
"""Processes in which each is watched."""
_ROUNDS = 0.7
"""Part of the time that the rounds may take; the rest is for looking at causes."""
_HASTIEST = 0.3
"""Seconds that a probe measures in a round, in however short a time."""
_TELLING = 3
"""Rounds from which on there may be a verdict."""
_SHORTEST = 1.0
"""Seconds that a look is given at least."""
UNEXPLAINED = Doubt(
    code="unexplained",
    seen="no time was left to look at the outputs, or at where the changes come from",
    advice="give it more with --max-time",
)
CLOSE, COSINE = 0.01, 0.999
"""Outputs that differ by more, relative to their largest value, or are less alike, are doubted."""


def carried_out(
    jobs: Sequence[Job], turns: Turns, question: Question, campaign: Campaign
) -> Comparison | None:
    """Run Jobs in turns until that is decided, and look at their causes; None where nothing was finished.

    Raises:
        RequestError: a Job cannot be carried out, or the question does not fit what was measured.
    """
    begun, last = time.monotonic(), None
    why = question.why and not any(serves(job.backend) or job.inspection.mode is Mode.TRAIN for job in jobs)
    limit = turns.max_time
    first = replace(turns, max_time=limit * _ROUNDS) if why and limit is not None else turns
    jobs = _shortened(jobs, first)
    for found in in_turns(jobs, first, question, campaign):
        last = found
    if last is None or not why or failed(last) or campaign.interrupted():
        return last
    budget = _Budget(
        run=(time.monotonic() - begun) / len(last.sequence), end=inf if limit is None else begun + limit
    )
    return explained(last, jobs, turns, question, campaign, budget)


def _shortened(jobs: Sequence[Job], turns: Turns) -> Sequence[Job]:
    """Have as many rounds as a verdict takes fit into the time; the first one is made in any case."""
    if turns.max_time is None:
        return jobs
    probes = sum(max(1, len(job.probes)) for job in jobs)
    each = max(_HASTIEST, turns.max_time / (min(_TELLING, turns.most) * probes))
    return [
        replace(
            job,
            plan=replace(
                job.plan, max_time=min(each, job.plan.max_time), min_time=min(each, job.plan.min_time)
            ),
        )
        for job in jobs
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Budget:
    """The time that is left for looking at the models."""

    run: float
    """Seconds that a run of one of them has taken so far."""
    end: float
    """Monotonic seconds at which it is over."""

    @property
    def left(self) -> float:
        """Seconds."""
        return self.end - time.monotonic()

    def runs(self, cost: float, sides: int) -> float:
        """Say how often there is time to run all sides, at so many times the cost of a run."""
        each = cost * self.run * sides
        return self.left // each if isfinite(self.left) and each else inf


def explained(
    found: Comparison,
    jobs: Sequence[Job],
    turns: Turns,
    question: Question,
    campaign: Campaign,
    budget: _Budget,
) -> Comparison:
    """Add how far the outputs agree, and where layers, operators and memory differ if anything has moved.

    What there is no time for is left out, and a doubt says so.
    """
    results = (found.baseline, *(each.candidate for each in found.contrasts))
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"{side}.npz" for side in range(len(jobs))]
        moved = _moved(found)
        looks, complete = _looks(jobs, paths, moved, campaign, budget)
        seen = [
            result if look is None else enriched(result, _without(look, path))
            for result, look, path in zip(results, looks, paths, strict=True)
        ]
        again = comparison(seen, question, turns=turns, order=found.order, sequence=found.sequence)
        contrasts = tuple(
            # What only the look has seen is told, and no part of the verdict.
            _with_outputs(replace(each, judged=before.judged), job, paths[0], path, campaign, budget)
            for each, before, job, path in zip(
                again.contrasts, found.contrasts, jobs[1:], paths[1:], strict=True
            )
        )
    if not complete:
        contrasts = tuple(replace(each, doubts=(*each.doubts, UNEXPLAINED)) for each in contrasts)
    return replace(again, id=found.id, created=found.created, contrasts=contrasts)


def _moved(found: Comparison) -> set[str]:
    """Name the metrics that are better or worse."""
    outcomes = {Outcome.BETTER, Outcome.WORSE}
    changes = (change for each in found.contrasts for change in each.changes)
    return {change.query.metric for change in changes if change.outcome in outcomes}


def _looks(
    jobs: Sequence[Job], paths: Sequence[Path], moved: set[str], campaign: Campaign, budget: _Budget
) -> tuple[list[Result | None], bool]:
    """Look at each model by the same probes: as many as all of them bear, and as there is time for.

    Returns:
        what was seen of each, and whether all that was wanted could be looked at in time.
    """
    complete = True
    for probes in _LOOKS if moved & _EXPLAINED else _LOOKS[-1:]:
        times = min(_TIMES if "layers" in probes else 1, budget.runs(_COST[probes], len(jobs)))
        if times < 1:
            complete = False  # unless it can be done by less
            continue
        found: list[list[Result]] = [[] for _ in jobs]
        try:
            sides = [side for _, order in Turns(sides=len(jobs)).rounds(0, int(times)) for side in order]
            for number, side in enumerate(sides, 1):
                label = f"looking for causes, {number} of {len(sides)}, {called(side, len(jobs))}"
                job = _looking(jobs[side], paths[side], probes, budget.left)
                found[side].append(campaign.execute(job, watch=campaign.labelled(label)))
                if campaign.interrupted() or budget.left <= 0:
                    break
        except RequestError:
            continue  # a backend that cannot be watched so
        complete = (complete or "layers" in probes) and all(found)
        return [merge(each) if each else None for each in found], complete
    return [None] * len(jobs), complete


def _looking(job: Job, path: Path, probes: tuple[str, ...], left: float) -> Job:
    """Give the Job of a look, which is ended when no time is left."""
    end = min(job.plan.timeout or inf, max(left, _SHORTEST))
    return replace(
        job,
        plan=replace(job.plan, timeout=end if isfinite(end) else None),
        probes=(*probes, "outputs"),
        inspection=replace(job.inspection, modules=True),
        observation=Observation(outputs=str(path)),
    )


def _without(look: Result, path: Path) -> Result:
    """Leave away the file of outputs, which is not kept."""
    kept = tuple(artifact for artifact in look.artifacts if artifact.path != str(path))
    return replace(look, artifacts=kept)


# --- outputs -----------------------------------------------------------------------------------------


def _with_outputs(
    found: Contrast, job: Job, baseline: Path, candidate: Path, campaign: Campaign, budget: _Budget
) -> Contrast:
    """Hold the outputs against each other, or say why that cannot be."""
    if not baseline.is_file() or not candidate.is_file():
        return found
    fed, expected = outputs.load(baseline)
    try:
        given, returned = outputs.load(candidate)
        if not outputs.alike(fed, given):
            given, returned = _fed(job, fed, given, candidate, campaign, budget)
        agreed = outputs.agreement(expected, returned)
    except (ValueError, RequestError) as error:
        return replace(found, doubts=(*found.doubts, _unlike(str(error).rstrip("."))))
    found = replace(found, outputs=agreed)
    far = [each for each in agreed if each.relative > CLOSE or each.cosine < COSINE]
    if not far:
        return found
    worst = max(far, key=lambda each: each.relative)
    seen = f"its output '{worst.output}' differs by {worst.relative:.2g} of the largest value"
    return replace(found, doubts=(*found.doubts, _unlike(f"{seen} (cosine {worst.cosine:.4f})", known=True)))


def _fed(
    job: Job, wanted: Feed, own: Feed, path: Path, campaign: Campaign, budget: _Budget
) -> tuple[Feed, Feed]:
    """Have a candidate called with what the baseline was given; its inputs may have other names.

    Raises ValueError, in a phrase, where that does not fit.
    """
    if budget.left <= 0:
        raise ValueError("no time was left to feed both the same")
    kinds = [[(values.shape, values.dtype) for values in feed.values()] for feed in (wanted, own)]
    if kinds[0] != kinds[1]:
        raise ValueError("their inputs differ in number, shape or dtype")
    files = outputs.save(wanted, path.parent)
    names = own if wanted.keys() != own.keys() else wanted
    inputs = tuple(InputSpec(name=name, source=str(file)) for name, file in zip(names, files, strict=True))
    rows = {values.shape[0] for values in wanted.values() if values.shape}
    again = job.at({BATCH_SIZE.name: rows.pop()}) if len(rows) == 1 else job
    path.unlink()
    campaign.execute(replace(_looking(again, path, (), budget.left), inputs=inputs), watch=silent)
    if not path.is_file():
        raise ValueError("the candidate failed with the inputs of the baseline")
    given, returned = outputs.load(path)
    if not outputs.alike(wanted, given):
        raise ValueError("the candidate was not fed what the baseline was")
    return given, returned


def _unlike(why: str, *, known: bool = False) -> Doubt:
    seen = why if known else f"what the two return could not be held against each other: {why}"
    advice = "judge by your data whether the candidate still does what it is for"
    return Doubt(code="unlike-outputs", seen=seen, advice=advice)
