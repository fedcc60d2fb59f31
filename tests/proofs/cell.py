"""A cell of the matrix of proofs: a claim at a door, tried again and again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path


class Outcome(StrEnum):
    """What one try says about the claim."""

    TRUE = "true"
    FALSE = "false"
    OPEN = "open"
    """The product gave no verdict, and said why."""


@dataclass(frozen=True, slots=True)
class Try:
    """One try: how it came out, and what the product said, in a line."""

    outcome: Outcome
    line: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A claim at a door."""

    claim: str
    """Key of `tests.proofs.cells.CLAIMS`."""
    door: str
    """Key of `tests.proofs.cells.DOORS`."""
    case: str = ""
    """What is varied, where a claim has several cells at one door, such as ``+5 %``."""
    command: str
    """What a user types."""
    attempt: Callable[[int, Path], Try]
    """Tries it once, in an empty folder, with a seed."""
    tries: int
    """Tries that the claim needs."""
    seconds: float
    """What a try takes on two quiet cores, about."""
    alone: bool = False
    """Whether nothing else may be tried meanwhile: it holds figures against the truth, or replaces clocks."""
    most_false: float = 0.0
    """Largest share of tries that may be false."""
    least_true: float = 0.0
    """Smallest share of tries that must be true; the rest may be open."""
    quick: str
    """The test of the default suite that represents it: its file and name."""

    @property
    def key(self) -> str:
        """What its record is kept under."""
        return " | ".join(filter(None, (self.claim, self.door, self.case)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What came of the tries of a cell so far."""

    true: int = 0
    false: int = 0
    open: int = 0
    seconds: float = 0.0
    """Time of all tries."""
    first: str = ""
    last: str = ""
    """Days of the first and the last try."""
    against: str = ""
    """What was said in the last try that was false, or else open."""

    @property
    def tries(self) -> int:
        """How many there were."""
        return self.true + self.false + self.open

    def add(self, one: Try, seconds: float, day: str) -> Record:
        """Count a try."""
        worse = one.outcome is Outcome.FALSE or (one.outcome is Outcome.OPEN and not self.false)
        counts = {one.outcome.value: getattr(self, one.outcome.value) + 1}
        return replace(
            self,
            **counts,
            seconds=round(self.seconds + seconds, 1),
            first=self.first or day,
            last=day,
            against=one.line if worse else self.against,
        )


def holds(cell: Cell, record: Record) -> bool | None:
    """Return whether a claim holds at a door; None while there are too few tries."""
    if record.false > cell.most_false * max(cell.tries, record.tries):
        return False
    if record.tries < cell.tries:
        return None
    return record.true >= cell.least_true * record.tries
