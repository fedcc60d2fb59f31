"""The report of a gate as one list: bounds and changes, each with its verdict and a sentence."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from modeldyno.base.document import Document
from modeldyno.base.metrics.constraints import Judgement, Verdict
from modeldyno.base.metrics.doubt import Doubt
from modeldyno.base.result.result import Result
from modeldyno.base.stats.units import format_change, format_changes, format_quantity
from modeldyno.comparison.change.comparison import Change, ChangeVerdict, difference_in_points, in_points
from modeldyno.comparison.change.gate_rule import GateDecision, shown_to_hold

BOUND, CHANGE, FAILURE = "bound", "change", "failure"


class Undecided(StrEnum):
    """What an undecided gate counts as."""

    PASS = "pass"  # noqa: S105 - no password
    FAIL = "fail"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that the gate checked."""

    kind: str
    """A bound, a change since the baseline, or a failure of the run."""
    name: str
    """The constraint or query."""
    verdict: Verdict
    text: str
    """A sentence with figures."""
    change: Change | None = None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class GateReport(Document):
    """A Result, the checks on it, and their verdicts."""

    KIND = "gate"
    result: Result
    judgements: tuple[Judgement, ...] = ()
    baseline: Result | None = None
    ruling: GateDecision | None = None
    notes: tuple[str, ...] = ()
    """How it was judged: in turns, what the gate can detect here."""
    doubts: tuple[Doubt, ...] = ()
    """Of the comparison."""
    undecided: Undecided | None = None
    """What an undecided verdict counts as; None: neither as passed nor as failed."""

    def __bool__(self) -> bool:
        """Whether the gate is passed, so that ``assert check(...)`` fails where it is broken or undecided."""
        return bool(self.outcome)

    @property
    def checks(self) -> tuple[Check, ...]:
        """All checks: failures first, then bounds, then changes."""
        failures = (
            Check(
                kind=FAILURE,
                name=failure.where,
                verdict=Verdict.BROKEN,
                text=f"failed: {failure.message.rstrip('.')}",
            )
            for failure in self.result.failures
        )
        bounds = (
            Check(
                kind=BOUND,
                name=str(judgement.constraint),
                verdict=judgement.verdict,
                text=judgement.sentence().partition(": ")[2],
            )
            for judgement in self.judgements
        )
        return (*failures, *bounds, *self._change_checks())

    @property
    def verdict(self) -> Verdict:
        """Broken if any check is, held only if all are."""
        verdicts = {check.verdict for check in self.checks if check.kind != CHANGE}
        verdicts |= {self.ruling.verdict} if self.ruling else set()
        if Verdict.BROKEN in verdicts:
            return Verdict.BROKEN
        return Verdict.HELD if verdicts == {Verdict.HELD} else Verdict.UNDECIDED

    @property
    def outcome(self) -> Verdict:
        """The verdict, where an undecided one counts as what was asked for."""
        if self.verdict is not Verdict.UNDECIDED or self.undecided is None:
            return self.verdict
        return Verdict.HELD if self.undecided is Undecided.PASS else Verdict.BROKEN

    def of(self, verdict: Verdict) -> tuple[Check, ...]:
        """Return the checks with this verdict."""
        return tuple(check for check in self.checks if check.verdict is verdict)

    def with_notes(self, *notes: str) -> GateReport:
        """Add notes."""
        return replace(self, notes=(*self.notes, *filter(None, notes)))

    def with_bounds(self, judgements: tuple[Judgement, ...]) -> GateReport:
        """Set the judgements on bounds."""
        return replace(self, judgements=judgements)

    def _change_checks(self) -> tuple[Check, ...]:
        """Return the check of each change; one that says why, where nothing could be compared."""
        if self.ruling is None:
            return ()
        if not self.ruling.changes:
            verdict, why = Verdict.UNDECIDED, self.ruling.why or "nothing was compared"
            return (Check(kind=CHANGE, name="changes since the baseline", verdict=verdict, text=why),)
        return tuple(map(self._change_check, self.ruling.changes))

    def _change_check(self, change: Change) -> Check:
        """Return the check of a change, with its own verdict within that of the gate as a whole."""
        assert self.ruling is not None
        broken = self.ruling.verdict is Verdict.BROKEN and change in self.ruling.worse
        holds = self.ruling.verdict is Verdict.HELD or shown_to_hold(change)
        verdict = Verdict.BROKEN if broken else Verdict.HELD if holds else Verdict.UNDECIDED
        text = describe_change(change, confirmed=verdict is not Verdict.UNDECIDED)
        return Check(kind=CHANGE, name=str(change.query), verdict=verdict, text=text, change=change)


def describe_change(change: Change, *, confirmed: bool = True) -> str:
    """Describe how a metric changed: ``12.3 ms -> 13.5 ms, +9.6% (+8.1 to +11.2%): worse``."""
    worse = change.outcome is ChangeVerdict.WORSE and not confirmed
    outcome = "looks worse, not confirmed" if worse else str(change.outcome)
    unit = change.query.unit
    values = " -> ".join(
        "not known" if value is None else format_quantity(value, unit)
        for value in (change.baseline, change.candidate)
    )
    if change.difference is None:
        return f"{values}: {outcome} ({change.why})"
    why = f" ({change.why})" if change.interval is None else ""
    if in_points(change):
        return f"{values}, {difference_in_points(change)}: {outcome}{why}"
    span = ""
    if change.interval is not None and change.interval.low != change.interval.high:
        span = f" ({format_changes(change.interval.low, change.interval.high)})"
    return f"{values}, {format_change(change.difference)}{span}: {outcome}{why}"
