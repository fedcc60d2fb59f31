"""In which order several are run that are to be compared, and when to look whether that was enough.

A round has a fresh process of each. Where they can live side by side they measure slice by slice, in turns;
else one runs after the other. Rounds go through the sides to and fro (A B, B A, A B), so that neither
a machine that warms up nor the place in a round favours one of them. Looking several times and ending at
the first verdict would find a difference more often than it should: the error that is allowed is shared
among the looks that are planned (Bonferroni), of which there are few, each after twice as many rounds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from modeldyno.core.metrics.measurement_plan import Plan
from modeldyno.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Iterator

ALTERNATING, BLOCK, INTERLEAVED = "alternating", "block", "interleaved"
"""One run after the other, to and fro; all of one side first; the sides of a round slice by slice."""
FEWEST_ROUNDS, MOST_ROUNDS = 5, 20
PLAN = Plan(max_time=5.0, min_time=0.5)
"""How carefully a process of a round is measured: more processes tell more than longer ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turns:
    """How many rounds, and how they are laid out."""

    sides: int
    """Baseline and candidates."""
    first: int = FEWEST_ROUNDS
    """Rounds before the first look."""
    most: int = MOST_ROUNDS
    max_time: float | None = None
    """Seconds that the rounds may take; what does not fit into them is not begun, but for the first round."""
    block: bool = False
    """Whether one side has all its runs of a batch before the next: what competes for a shared cache, or
    a device that stays warm, is kept apart; drift of the machine then looks like a difference."""

    def __post_init__(self) -> None:
        """Refuse, in one sentence, what cannot be."""
        if not 1 <= self.first <= self.most:
            raise RequestError(
                f"A comparison of {self.first} to {self.most} rounds cannot be; give at least one, and at "
                "least as many at most as at first."
            )

    @property
    def order(self) -> str:
        """What the layout is called."""
        return BLOCK if self.block else ALTERNATING

    @property
    def looks(self) -> tuple[int, ...]:
        """After how many rounds it is looked whether that is enough."""
        found = [self.first]
        while found[-1] < self.most:
            found.append(min(self.most, 2 * found[-1]))
        return tuple(found)

    def level(self, whole: float) -> float:
        """Give the confidence at each look that leaves that of all looks together at `whole`."""
        return 1 - (1 - whole) / len(self.looks)

    def rounds(self, begin: int, end: int) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Give each round from `begin` up to `end`, and the order of its sides; in blocks, one at a time."""
        there = tuple(range(self.sides))
        if self.block:
            yield from ((number, (side,)) for side in there for number in range(begin, end))
            return
        yield from ((number, there[::-1] if number % 2 else there) for number in range(begin, end))
