"""Guard a resumed study or load series: model and machine must be unchanged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from modeldyno.base.errors import StaleStudy
from modeldyno.base.metrics.doubt import Doubt
from modeldyno.base.result.result import Environment, Event, Loaded, Progressed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from modeldyno.base.job.model_ref import ModelIdentity
    from modeldyno.base.result.result import Fact


class MeasuredSoFar(Protocol):
    """A document that grows: its model and machine, None before they are known."""

    @property
    def model(self) -> ModelIdentity | None:
        """The model that all of it is of."""

    @property
    def environment(self) -> Environment | None:
        """The machine that all of it is of."""


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
    before: MeasuredSoFar | None = None
    """The document when the trial began."""
    label: str = ""
    """What precedes the stages of the trial; if empty, they stay as they are."""
    left: float | None = None
    doubts: list[Doubt] = field(default_factory=list)
    """For every trial from the moment that they are raised."""

    def begin(self, before: MeasuredSoFar, label: str, left: float | None) -> None:
        """Begin a trial; `left` is the estimated remaining time of the study in seconds."""
        self.before, self.label, self.left = before, label, left
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
