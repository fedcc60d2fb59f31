"""One session of trying settings: each is run once, and those that promise something run in turns."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from modeldyno.comparison.run import in_turns
from modeldyno.core.advice.advice import Candidate, Tried, with_outputs
from modeldyno.core.comparison.build import Question, contrast
from modeldyno.core.comparison.schedule import Turns
from modeldyno.core.metrics.metric import Query
from modeldyno.core.spec.job import Job
from modeldyno.data import outputs
from modeldyno.errors import ModelDynoError
from modeldyno.runtime.session import Campaign

if TYPE_CHECKING:
    from collections.abc import Sequence

    from modeldyno.core.comparison.comparison import Contrast
    from modeldyno.core.result.result import Result

TOLERANCE = 0.01
"""Largest difference of outputs, relative to their largest element, up to which settings are combined."""
MAX_TIME = 180.0
TIMED = ("latency", "throughput")
BASELINE = "baseline"
"""Name of what the candidates are held against."""
FEWEST = 3
"""Rounds that are worth making."""
_BESIDE = "latency.p50"
_PATIENCE = 1 / 3
"""Part of the time that any first look may take, loading and compiling included."""
_SHORTEST = 1.0
"""Seconds that a look is given at least."""
_INSTANT = 1e-6
_NOTHING = Candidate(codes=(), settings={})


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What advice is asked for."""

    query: Query
    max_time: float = MAX_TIME
    """Seconds in all; the baseline is looked at in any case."""
    tolerance: float = TOLERANCE
    space: bool = True
    """Whether what is usual for the backend's knobs is tried beside what findings suggest."""


@dataclass(slots=True, kw_only=True)
class Trial:
    """One session of trying; it times its runs, for what the next would take."""

    job: Job
    wish: Wish
    campaign: Campaign
    folder: Path
    begun: float
    """Monotonic seconds."""
    times: list[float] = field(default_factory=list)
    """Seconds of each run without further probes."""

    @property
    def left(self) -> float:
        """Seconds."""
        return self.wish.max_time - (time.monotonic() - self.begun)

    @property
    def cost(self) -> float:
        """Seconds that a run takes: the median of those so far."""
        return median(self.times)

    @property
    def patience(self) -> float:
        """Seconds after which a run is given up: one candidate is not to take the time of all."""
        return max(_SHORTEST, 2 * max(self.times, default=0.0), _PATIENCE * self.wish.max_time)

    def of(self, candidate: Candidate) -> Job:
        """Give the Job with what is to be tried."""
        return self.job.at(candidate.settings)

    def look(
        self, job: Job, name: str, label: str, *, probes: tuple[str, ...] = (), timeout: float | None = None
    ) -> Result:
        """Run a Job once, and keep what it returned.

        Args:
            job: the model with its settings.
            name: of the file of its outputs.
            label: what progress is called.
            probes: beside those that time calls.
            timeout: seconds after which it is given up, where its Plan gives none.
        """
        looking = replace(
            job,
            probes=(*probes, *TIMED, "outputs"),
            plan=replace(job.plan, timeout=job.plan.timeout or timeout),
            observation=replace(job.observation, outputs=str(self.folder / f"{name}.npz")),
        )
        begun = time.monotonic()
        found = self.campaign.execute(looking, watch=self.campaign.labelled(label))
        if not probes:
            self.times.append(time.monotonic() - begun)
        kept = tuple(each for each in found.artifacts if not each.path.startswith(str(self.folder)))
        return replace(found, job=replace(found.job, observation=job.observation), artifacts=kept)

    def first_look(self, baseline: Result, candidate: Candidate, name: str, label: str) -> Tried:
        """Run a candidate once: whether it runs, about how fast, and what it does to the outputs.

        Args:
            baseline: the first look at the model as it is.
            candidate: what to try.
            name: of the file of its outputs.
            label: what progress is called.
        """
        try:
            end = max(_SHORTEST, min(self.patience, self.left))
            found = self.look(self.of(candidate), name, label, timeout=end)
        except ModelDynoError as error:  # a setting that this model or this machine does not bear
            return Tried(candidate=candidate, failure=str(error))
        if found.failures:
            return Tried(candidate=candidate, failure=found.failures[0].message)
        first, *others = contrast(baseline, found, self.question).changes
        tried = Tried(candidate=candidate, change=first, beside=tuple(others))
        return _compared(tried, self.folder / f"{BASELINE}.npz", self.folder / f"{name}.npz")

    @property
    def question(self) -> Question:
        """What is judged: the wish, and the time of a call beside it."""
        metrics = tuple(dict.fromkeys((str(self.wish.query), _BESIDE)))
        return Question(metrics=metrics, why=False)

    def in_turns(self, chosen: Sequence[Tried], rounds: int, seconds: float) -> tuple[Tried, ...]:
        """Measure candidates in rounds beside the baseline; of too many for the time the first are taken.

        Args:
            chosen: the best first.
            rounds: at most.
            seconds: that they may take; where not even the fewest rounds of one candidate fit, none is made.
        """
        affordable = seconds / max(self.cost, _INSTANT)
        few = chosen[: max(0, int(affordable / FEWEST) - 1)]
        sides = 1 + len(few)
        made = min(rounds, int(affordable / sides))
        if not few or self.campaign.interrupted():
            return ()
        settings = (_NOTHING, *(tried.candidate for tried in few))
        looks = tuple(
            in_turns(
                [self._timed(candidate) for candidate in settings],
                Turns(sides=sides, first=made, most=made, max_time=seconds),
                self.question,
                self.campaign,
            )
        )
        if not looks:
            return ()
        found = looks[-1]
        return tuple(
            _with_changes(tried, contrast, found.baseline.processes)
            for tried, contrast in zip(few, found.contrasts, strict=True)
        )

    def _timed(self, candidate: Candidate) -> Job:
        job = self.of(candidate)
        return replace(job, probes=TIMED, plan=replace(job.plan, timeout=job.plan.timeout or self.patience))


def _compared(tried: Tried, baseline: Path, candidate: Path) -> Tried:
    """Hold the outputs against those of the baseline; of another batch those of the samples in both."""
    with suppress(OSError):
        try:
            before, after = outputs.load(baseline), outputs.load(candidate)
            agreed = outputs.agreement(*outputs.shared_samples(before, after))
            return with_outputs(tried, agreed)
        except ValueError as error:
            return with_outputs(tried, (), str(error))
    return with_outputs(tried, (), "the outputs were not kept")


def _with_changes(tried: Tried, found: Contrast, rounds: int) -> Tried:
    failures = found.candidate.failures
    if failures:
        return replace(tried, failure=failures[0].message)
    first, *others = found.changes
    return replace(tried, change=first, beside=tuple(others), rounds=rounds)
