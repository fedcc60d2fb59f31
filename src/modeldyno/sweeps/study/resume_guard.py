"""Guard a resumed study or load series: model and machine must be unchanged; report a study's progress."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from modeldyno.base.errors import StaleStudy
from modeldyno.base.metrics.doubt import Doubt
from modeldyno.base.result.result import Environment, Event, Loaded, Progressed
from modeldyno.base.result.where import as_text
from modeldyno.base.stats.units import format_quantity
from modeldyno.serving.load.load_curve import LoadSeries
from modeldyno.sweeps.study import default_baseline
from modeldyno.sweeps.study.study import Study, TrialPurpose

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from modeldyno.base.job.knob import KnobValue
    from modeldyno.base.result.result import Fact
    from modeldyno.sweeps.study.study import Trial, TrialRequest


@dataclass(slots=True, kw_only=True)
class ConsistencyGuard:
    """Forward the events of trials; stop a trial with another model or machine before anything is timed."""

    force: bool
    """Whether a mismatch raises a doubt instead of an error."""
    watch: Callable[[Event], None]
    kind: str = "study"
    """What is resumed, in messages."""
    part: str = "trial"
    """What one measurement of it is called."""
    before: Study | LoadSeries | None = None
    """The document when the trial began."""
    label: str = ""
    """What precedes the stages of the trial; if empty, they stay as they are."""
    left: float | None = None
    doubts: list[Doubt] = field(default_factory=list)
    """For every trial from the moment that they are raised."""

    def begin(self, study: Study, ask: TrialRequest, left: float | None) -> None:
        """Begin a trial; `left` is the estimated remaining time of the study in seconds."""
        self.before, self.label, self.left = study, describe_trial(study, ask), left
        self.watch(Progressed(stage=self.label, left=left))

    def __call__(self, event: Event) -> None:
        """Handle an event of the trial.

        Raises:
            StaleStudy: the model or the machine differs from that of the trials so far.
        """
        if isinstance(event, Progressed) and self.label:
            event = replace(event, stage=f"{self.label}: {event.stage}", left=self.left)
        model = self.before.model if self.before else None
        environment = self.before.environment if self.before else None
        if isinstance(event, Loaded) and model is not None:
            self._compare_models(model.digest, event.model.digest)
        if isinstance(event, Environment) and environment is not None:
            self._compare_hardware(environment.hardware, event.hardware)
            self._compare_software(environment.software, event.software)
        self.watch(event)

    def _compare_models(self, before: str, now: str) -> None:
        if before != now:
            difference = (
                f"the model is another one ({now[:19]}) than in the {self.part}s so far ({before[:19]})"
            )
            self._reject_or_doubt("model-changed", difference)

    def _compare_hardware(self, before: Mapping[str, Fact], now: Mapping[str, Fact]) -> None:
        if differences := _differences(before, now, before.keys() | now.keys()):
            self._reject_or_doubt("hardware-changed", f"the machine is another one: {differences}")

    def _compare_software(self, before: Mapping[str, Fact], now: Mapping[str, Fact]) -> None:
        """Raise a doubt if versions differ; packages that only another backend needs are ignored."""
        if differences := _differences(before, now, before.keys() & now.keys()):
            advice = f"begin a new {self.kind} if the differences that matter to you are small"
            self._raise_doubt(
                Doubt(
                    code="software-changed", seen=f"since the first {self.part}, {differences}", advice=advice
                )
            )

    def _reject_or_doubt(self, code: str, difference: str) -> None:
        if not self.force:
            raise StaleStudy(
                f"The {self.kind} cannot be resumed: {difference}. Begin a new one, or resume it anyway with "
                "`force`."
            )
        self._raise_doubt(
            Doubt(
                code=code,
                seen=difference,
                advice=f"compare only {self.part}s with the same model and machine",
            )
        )

    def _raise_doubt(self, doubt: Doubt) -> None:
        if doubt not in self.doubts:
            self.doubts.append(doubt)
            self.watch(doubt)


def _differences(before: Mapping[str, Fact], now: Mapping[str, Fact], names: Iterable[str]) -> str:
    unlike = [name for name in sorted(names) if before.get(name) != now.get(name)]
    return ", ".join(f"{n} was {before.get(n, 'unknown')} and is {now.get(n, 'unknown')}" for n in unlike)


# --- where it stands -------------------------------------------------------------------------------


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
