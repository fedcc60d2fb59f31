"""Find measurements of other studies that are the same as a trial, so that they need not be made again.

The same is: the whole Job, the digest of the model, the hardware and the versions of the software. The first
trial of a study is always measured, and shows these. Verification is, too: what is recommended rests on
measurements of its own.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from modeldyno.base.errors import ModelDynoError
from modeldyno.base.job.job import Job
from modeldyno.stores.interface import Store
from modeldyno.sweeps.point_to_job import job_at_point
from modeldyno.sweeps.study.study import Study, Trial, TrialPurpose, TrialRequest, TrialState
from modeldyno.sweeps.study.trial_effort import trial_job

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modeldyno.base.result.result import Result
    from modeldyno.sweeps.study.search_space import Point

REUSED = "reused"
_LOOKED_AT = frozenset({TrialPurpose.DEFAULT, TrialPurpose.SEARCH, TrialPurpose.BISECT})
"""Purposes for which an earlier measurement will do."""
_STUDIES = 50
"""Most other studies that are looked through, the newest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierTrials:
    """Trials of other studies of the same model, by which those of a study can be replaced."""

    trials: tuple[tuple[Job, Trial], ...]
    """Each with its Job, at an ordinary effort."""
    store: Store

    @classmethod
    def of(cls, study: Study, store: Store, oldest: float) -> EarlierTrials:
        """Read the studies of the model that are at most so many seconds old."""
        since = (datetime.now(UTC) - timedelta(seconds=oldest)).isoformat()
        entries = [
            entry
            for entry in store.studies(name=study.name or None, limit=_STUDIES)
            if entry.created >= since and entry.id != study.id
        ]
        trials = [pair for entry in entries for pair in _trials_of(store.study(entry.id))]
        return cls(trials=tuple(trials), store=store)

    def find(self, study: Study, ask: TrialRequest) -> Trial | None:
        """Return a trial that was measured for another study, numbered as the next of this one."""
        if ask.stage not in _LOOKED_AT or study.model is None or not self.trials:
            return None
        job = _job(study, ask.point)
        for earlier_job, earlier in self.trials:
            if earlier_job != job or earlier.care < ask.care:
                continue
            result = _stored(self.store, earlier.result)
            if result is None or not _is_same(study, result):
                continue
            trial = Trial.of(result, study.goal, ask, number=len(study.trials) + 1, seconds=0.0)
            if all(trial.ask(query) is not None for query in study.goal.queries):
                return replace(trial, doubts=(*trial.doubts, REUSED))
        return None


def _trials_of(study: Study) -> Iterator[tuple[Job, Trial]]:
    """Yield the trials of a search that were measured, each with its Job."""
    for trial in study.trials:
        if trial.state is TrialState.DONE and trial.stage in _LOOKED_AT and REUSED not in trial.doubts:
            with suppress(ModelDynoError):  # a plugin of then may be gone
                yield _job(study, trial.point), trial


def _job(study: Study, point: Point) -> Job:
    """Return the Job at a point with an ordinary effort, without what does not change a measurement."""
    job = trial_job(job_at_point(study, point), study.goal, TrialRequest(point=point))
    return replace(job, name="")


def _stored(store: Store, result: str) -> Result | None:
    with suppress(ModelDynoError):
        return store.get(result)
    return None


def _is_same(study: Study, result: Result) -> bool:
    """Return whether a Result is of the model, the machine and the software of a study."""
    environment = study.environment
    return (
        study.model is not None
        and environment is not None
        and result.model is not None
        and result.model.digest == study.model.digest
        and result.environment.hardware == environment.hardware
        and result.environment.software == environment.software
        and not result.failures
    )
