"""Where a study stands, in words and in seconds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.base.result.where import as_text
from modeldyno.base.stats.units import format_quantity
from modeldyno.sweeps.study import default_baseline
from modeldyno.sweeps.study.study import TrialPurpose

if TYPE_CHECKING:
    from collections.abc import Mapping

    from modeldyno.base.job.knob import KnobValue
    from modeldyno.sweeps.study.study import Study, Trial, TrialRequest


def describe_progress(study: Study) -> str:
    """Describe the progress of a study."""
    best = default_baseline.best_so_far(study)
    count = len(study.measured)
    best_text = ""
    if best is not None:
        point = _describe_point(study.resolved(best.point))
        best_text = f", best so far {_objective_text(study, best)} with {point}"
    return f"{count} {'trial' if count == 1 else 'trials'}{best_text}"


def describe_trial(study: Study, ask: TrialRequest) -> str:
    """Describe the trial that begins; the best so far comes first, because the point may be long."""
    best = default_baseline.best_so_far(study)
    so_far = "" if best is None else f" (best so far {_objective_text(study, best)})"
    again = "again " if ask.stage is TrialPurpose.VERIFY else ""
    return f"trial {len(study.trials) + 1}{so_far}: {again}{_describe_point(study.resolved(ask.point))}"


def mean_trial_seconds(study: Study, *, verifying: bool = False) -> float:
    """Return the mean seconds of a trial, among verifications or the others; 0 if there was none."""
    same_kind = [trial for trial in study.measured if (trial.stage is TrialPurpose.VERIFY) is verifying]
    seconds = [trial.seconds for trial in same_kind or study.measured]
    return sum(seconds) / len(seconds) if seconds else 0.0


def seconds_left(study: Study, elapsed: float) -> float | None:
    """Estimate the remaining seconds of a sweep; None if that is unknown."""
    budget, seconds_per_trial = study.budget, mean_trial_seconds(study)
    ends = [] if budget.max_time is None else [budget.max_time - elapsed]
    if budget.max_trials is not None and seconds_per_trial:
        ends.append((budget.max_trials - len(study.measured)) * seconds_per_trial)
    return max(0.0, min(ends)) if ends else None


def _describe_point(point: Mapping[str, KnobValue]) -> str:
    return ", ".join(f"{name}={as_text(value)}" for name, value in point.items()) or "default"


def _objective_text(study: Study, trial: Trial) -> str:
    """Return the value of the first objective in a trial; for the best trial it exists."""
    query = study.goal.objectives[0].query
    value = default_baseline.value_or_raw(trial, query)
    return format_quantity(value, query.unit, 3) if value is not None else "unknown"
