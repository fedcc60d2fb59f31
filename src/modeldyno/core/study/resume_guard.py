"""Going on with a study: where it stands, in words, and whether it still measures the same thing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from modeldyno.core.metrics.doubt import Doubt
from modeldyno.core.result.result import Doubted, Event, Loaded, Located, Progressed
from modeldyno.core.stats.units import format_quantity
from modeldyno.core.study import default_baseline
from modeldyno.core.study.study import Stage, Study
from modeldyno.errors import StaleStudy

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from modeldyno.core.result.result import Fact
    from modeldyno.core.study.study import Ask, Trial


@dataclass(slots=True, kw_only=True)
class Guard:
    """Passes the events of trials on, and stops one that is not of this study before anything is timed."""

    force: bool
    """Whether that is a doubt instead."""
    watch: Callable[[Event], None]
    study: Study | None = None
    """As it was when the trial began."""
    label: str = ""
    left: float | None = None
    doubts: list[Doubt] = field(default_factory=list)
    """Of every trial from when they were told."""

    def begin(self, study: Study, ask: Ask, left: float | None) -> None:
        """Begin a trial; `left` are the seconds that the whole may still take."""
        self.study, self.label, self.left = study, label(study, ask), left
        self.watch(Progressed(stage=self.label, left=left))

    def __call__(self, event: Event) -> None:
        """Take an event of the trial.

        Raises:
            StaleStudy: the model or the machine is another one than in the trials so far.
        """
        if isinstance(event, Progressed):
            event = replace(event, stage=f"{self.label}: {event.stage}", left=self.left)
        model = self.study.model if self.study else None
        there = self.study.environment if self.study else None
        if isinstance(event, Loaded) and model is not None:
            self._compare_models(model.digest, event.model.digest)
        if isinstance(event, Located) and there is not None:
            self._compare_hardware(there.hardware, event.environment.hardware)
            self._compare_software(there.software, event.environment.software)
        self.watch(event)

    def _compare_models(self, before: str, now: str) -> None:
        if before != now:
            seen = f"the model is another one ({now[:19]}) than in the trials so far ({before[:19]})"
            self._changed("model-changed", seen)

    def _compare_hardware(self, before: Mapping[str, Fact], now: Mapping[str, Fact]) -> None:
        if said := _differences(before, now, before.keys() | now.keys()):
            self._changed("hardware-changed", f"the machine is another one: {said}")

    def _compare_software(self, before: Mapping[str, Fact], now: Mapping[str, Fact]) -> None:
        """Doubt what other versions gave; a package that only another backend needs is no difference."""
        if said := _differences(before, now, before.keys() & now.keys()):
            advice = "begin a new study if the differences that matter to you are small"
            self._tell(Doubt(code="software-changed", seen=f"since the first trial, {said}", advice=advice))

    def _changed(self, code: str, seen: str) -> None:
        if not self.force:
            raise StaleStudy(
                f"The study cannot go on: {seen}; begin a new one, or go on all the same with --force."
            )
        self._tell(Doubt(code=code, seen=seen, advice="compare only the trials that were made alike"))

    def _tell(self, doubt: Doubt) -> None:
        if doubt not in self.doubts:
            self.doubts.append(doubt)
            self.watch(Doubted(doubt=doubt))


def _differences(before: Mapping[str, Fact], now: Mapping[str, Fact], names: Iterable[str]) -> str:
    unlike = [name for name in sorted(names) if before.get(name) != now.get(name)]
    return ", ".join(f"{n} was {before.get(n, 'not told')} and is {now.get(n, 'not told')}" for n in unlike)


# --- where it stands -------------------------------------------------------------------------------


def headline(study: Study) -> str:
    """Say how far a study has come."""
    best = default_baseline.best_so_far(study)
    count = len(study.measured)
    found = "" if best is None else f", best so far {_value(study, best)} with {_named(best.point)}"
    return f"{count} {'trial' if count == 1 else 'trials'}{found}"


def label(study: Study, ask: Ask) -> str:
    """Say which trial begins, and before its many words what the best was so far."""
    best = default_baseline.best_so_far(study)
    so_far = "" if best is None else f" (best so far {_value(study, best)})"
    again = "again " if ask.stage is Stage.VERIFY else ""
    return f"trial {len(study.trials) + 1}{so_far}: {again}{_named(ask.point)}"


def usual(study: Study, *, verifying: bool = False) -> float:
    """Give the seconds that a trial takes, of those that verify or of the others; 0 where none was made."""
    alike = [trial for trial in study.measured if (trial.stage is Stage.VERIFY) is verifying]
    taken = [trial.seconds for trial in alike or study.measured]
    return sum(taken) / len(taken) if taken else 0.0


def left(study: Study, elapsed: float) -> float | None:
    """Estimate the seconds that a sweep will still take; None where nobody can know."""
    budget, each = study.budget, usual(study)
    ends = [] if budget.max_time is None else [budget.max_time - elapsed]
    if budget.max_trials is not None and each:
        ends.append((budget.max_trials - len(study.measured)) * each)
    return max(0.0, min(ends)) if ends else None


def _named(point: Mapping[str, object]) -> str:
    return ", ".join(f"{name}={_word(value)}" for name, value in point.items()) or "default"


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _value(study: Study, trial: Trial) -> str:
    """Give what a trial said of the first objective, which it did where it is the best."""
    query = study.goal.objectives[0].query
    value = default_baseline.value(trial, query)
    return format_quantity(value, query.unit, 3) if value is not None else "unknown"
