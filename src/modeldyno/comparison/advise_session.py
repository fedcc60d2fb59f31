"""One advise session: run each setting once, then measure the promising ones in turns with the baseline."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from modeldyno.base.clock import monotonic
from modeldyno.base.errors import ModelDynoError, OutOfTime
from modeldyno.base.job.job import Job
from modeldyno.base.metrics.metric import Query
from modeldyno.base.result.cost import Price, with_cost
from modeldyno.base.stats.schedule import RoundSchedule
from modeldyno.comparison.change.advice import CandidateSettings, TriedSetting, with_outputs
from modeldyno.comparison.change.build import CompareOptions, compare_results
from modeldyno.comparison.change.change_test import judge_changes
from modeldyno.comparison.run import evaluate_once, run_rounds
from modeldyno.engine.data import outputs
from modeldyno.engine.runtime.session import RunSession

if TYPE_CHECKING:
    from collections.abc import Sequence

    from modeldyno.base.result.result import Result
    from modeldyno.comparison.change.comparison import CandidateComparison

TOLERANCE = 0.01
"""Largest difference of outputs, relative to their largest element, at which settings are still combined."""
MAX_TIME = 180.0
TIMED = ("latency", "throughput")
BASELINE = "baseline"
"""Name of the baseline."""
FEWEST = 3
"""Smallest number of rounds worth running."""
_SECONDARY_METRIC = "latency.p50"
_FIRST_LOOK_TIMEOUT_SHARE = 1 / 3
"""Share of the time that any first look may take, including loading and compiling."""
_MIN_TIMEOUT = 1.0
"""Seconds granted to a look at least."""
_MIN_COST = 1e-6
_UNCHANGED = CandidateSettings(codes=(), settings={})


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviseOptions:
    """Options of an advise session."""

    query: Query
    max_time: float = MAX_TIME
    """Seconds in all."""
    tolerance: float = TOLERANCE
    space: bool = True
    """Whether the usual values of the backend's knobs are tried in addition to what findings suggest."""
    price: Price | None = None
    """Of the machine, for what inferences cost; None to leave that out."""


@dataclass(slots=True, kw_only=True)
class AdviseSession:
    """One advise session; it times its runs, to estimate what the next would take."""

    job: Job
    wish: AdviseOptions
    campaign: RunSession
    folder: Path
    begun: float
    """Start of the session, in monotonic seconds."""
    times: list[float] = field(default_factory=list)
    """Seconds of each run without additional probes."""

    @property
    def left(self) -> float:
        """Seconds left."""
        limit = self.campaign.limit
        return self.wish.max_time - (monotonic() - self.begun) if limit is None else limit.left

    @property
    def cost(self) -> float:
        """Estimated seconds of a run: the median of those so far."""
        return median(self.times)

    @property
    def patience(self) -> float:
        """Seconds after which a run is given up, so that one candidate cannot use up the time of all."""
        return max(
            _MIN_TIMEOUT, 2 * max(self.times, default=0.0), _FIRST_LOOK_TIMEOUT_SHARE * self.wish.max_time
        )

    def of(self, candidate: CandidateSettings) -> Job:
        """Return the Job with the settings of a candidate."""
        return self.job.at(candidate.settings)

    def run_once(
        self, job: Job, name: str, label: str, *, probes: tuple[str, ...] = (), timeout: float | None = None
    ) -> Result:
        """Run a Job once, and save its outputs.

        Args:
            job: the model with its settings.
            name: stem of the file of its outputs.
            label: label of the progress line.
            probes: in addition to those that time calls.
            timeout: seconds after which it is given up, if its Plan sets none.
        """
        job_with_outputs = replace(
            job,
            probes=(*probes, *TIMED, "outputs"),
            plan=replace(job.plan, timeout=job.plan.timeout or timeout),
            observation=replace(job.observation, outputs=str(self.folder / f"{name}.npz")),
        )
        started = monotonic()
        result = self.campaign.execute(job_with_outputs, watch=self.campaign.label_progress(label))
        result = with_cost(result, self.wish.price)
        if not probes:
            self.times.append(monotonic() - started)
        artifacts = tuple(
            artifact for artifact in result.artifacts if not artifact.path.startswith(str(self.folder))
        )
        return replace(result, job=replace(result.job, observation=job.observation), artifacts=artifacts)

    def first_look(
        self, baseline: Result, candidate: CandidateSettings, name: str, label: str
    ) -> TriedSetting:
        """Run a candidate once, to see whether it works, about how fast, and what it does to the outputs.

        The baseline is the first run of the unchanged model; name and label are those of `run_once`.
        """
        try:
            timeout = max(_MIN_TIMEOUT, min(self.patience, self.left))
            result = self.run_once(self.of(candidate), name, label, timeout=timeout)
        except ModelDynoError as error:  # this model or machine does not support the setting
            return TriedSetting(candidate=candidate, failure=str(error))
        if result.failure:
            return TriedSetting(candidate=candidate, failure=result.failure.message)
        change, *others = compare_results(baseline, result, self.criteria, in_turns=True).changes
        tried = TriedSetting(candidate=candidate, change=change, beside=tuple(others))
        return _with_output_agreement(tried, self.folder / f"{BASELINE}.npz", self.folder / f"{name}.npz")

    @property
    def criteria(self) -> CompareOptions:
        """What is compared: the requested metric, the time of a call, and with a price the cost."""
        cost = () if self.wish.price is None else ("cost",)
        metrics = tuple(dict.fromkeys((str(self.wish.query), _SECONDARY_METRIC, *cost)))
        return CompareOptions(metrics=metrics, why=False)

    def in_turns(
        self, chosen: Sequence[TriedSetting], rounds: int, seconds: float
    ) -> tuple[TriedSetting, ...]:
        """Measure candidates in rounds with the baseline; if time is short, only the first ones.

        Args:
            chosen: candidates, the best first.
            rounds: largest number of rounds.
            seconds: time limit; if not even the fewest rounds of one candidate fit, nothing is run.
        """
        affordable = seconds / max(self.cost, _MIN_COST)
        affordable_candidates = chosen[: max(0, int(affordable / FEWEST) - 1)]
        side_count = 1 + len(affordable_candidates)
        round_count = min(rounds, int(affordable / side_count))
        if not affordable_candidates or self.campaign.interrupted():
            return ()
        settings = (_UNCHANGED, *(tried.candidate for tried in affordable_candidates))
        comparisons = run_rounds(
            [self._timed_job(candidate) for candidate in settings],
            RoundSchedule(side_count=side_count, first=round_count, most=round_count, max_time=seconds),
            self.criteria,
            self.campaign,
        )
        latest = None
        with suppress(OutOfTime):
            for latest in comparisons:  # noqa: B007 - the last one is final
                pass
        if latest is None:
            return ()
        return tuple(
            _with_changes(tried, comparison, latest.baseline.processes)
            for tried, comparison in zip(affordable_candidates, latest.contrasts, strict=True)
        )

    def with_answers(self, tried: TriedSetting) -> TriedSetting:
        """Evaluate the unchanged model and a candidate on the labelled samples, and compare the answers.

        Raises:
            RunFailed: one of them could not be evaluated.
        """
        jobs = [self.of(candidate) for candidate in (_UNCHANGED, tried.candidate)]
        baseline, candidate = evaluate_once(jobs, self.campaign)
        queries = tuple(Query(metric=name) for name in self.job.observation.evaluate)
        return replace(tried, answers=judge_changes(baseline, candidate, queries=queries))

    def _timed_job(self, candidate: CandidateSettings) -> Job:
        job = self.of(candidate)
        return replace(job, probes=TIMED, plan=replace(job.plan, timeout=job.plan.timeout or self.patience))


def _with_output_agreement(tried: TriedSetting, baseline: Path, candidate: Path) -> TriedSetting:
    """Compare the outputs with those of the baseline; with another batch size, the samples in both."""
    with suppress(OSError):
        try:
            before, after = outputs.load_call(baseline), outputs.load_call(candidate)
            agreement = outputs.agreement(*outputs.shared_samples(before, after))
            return with_outputs(tried, agreement)
        except ValueError as error:
            return with_outputs(tried, (), str(error))
    return with_outputs(tried, (), "the outputs were not saved")


def _with_changes(tried: TriedSetting, comparison: CandidateComparison, rounds: int) -> TriedSetting:
    if failure := comparison.candidate.failure:
        return replace(tried, failure=failure.message)
    change, *others = comparison.changes
    return replace(tried, change=change, beside=tuple(others), rounds=rounds)
