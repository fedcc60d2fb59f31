"""The order of the rounds of a comparison, and when to test for a decision.

Each round has a fresh process per side. If the sides fit side by side, they measure slice by slice, in turns;
otherwise one runs after the other. The order alternates from round to round (A B, B A, A B), so that neither
warm-up of the machine nor the position in a round favours a side. Stopping at the first significant look
would find differences too often, so the allowed error is divided among the planned looks (Bonferroni), of
which there are few, each after twice as many rounds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from modeldyno.base.errors import RequestError
from modeldyno.base.metrics.measurement_plan import Plan

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from modeldyno.base.job.job import Job


ALTERNATING, BLOCK, INTERLEAVED = "alternating", "block", "interleaved"
"""One run after the other in alternating order; all of one side first; the sides of a round slice by
slice."""
FEWEST_ROUNDS, MOST_ROUNDS = 5, 20
VERDICT_ROUNDS = 3
"""Number of rounds from which on there may be a verdict."""
PLAN = Plan(max_time=5.0, min_time=0.5)
"""Plan of a process in a round: more processes tell more than longer ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuickLook:
    """What a comparison leaves out for an answer within seconds; its interval says what that costs."""

    min_rounds: int = VERDICT_ROUNDS
    max_rounds: int = 2 * VERDICT_ROUNDS
    max_time: float = 10.0
    """Seconds for the rounds; the first is completed all the same."""
    longest: float = 60.0
    """Seconds after which even the first round is ended: a framework may take ten seconds to be imported."""
    probes: tuple[str, ...] = ("latency",)
    why: bool = False
    plan: Plan = field(default_factory=lambda: Plan(max_time=0.5, min_time=0.1))
    """Of a process in a round."""


QUICK = QuickLook()


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundSchedule:
    """Number of rounds and their layout."""

    side_count: int
    """Baseline and candidates."""
    first: int = FEWEST_ROUNDS
    """Rounds before the first look."""
    most: int = MOST_ROUNDS
    max_time: float | None = None
    """Most seconds for the rounds; a round that does not fit is not started, except the first."""
    share: float = 1.0
    """Share of the time for the rounds beyond those that a verdict needs; the rest is for finding causes."""
    block: bool = False
    """Whether each side has all its runs of a batch before the next side: this separates what competes for a
    shared cache or a device that stays warm, but drift of the machine then looks like a difference."""

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
    def interim_rounds(self) -> tuple[int, ...]:
        """After how many rounds it is judged whether that is enough."""
        counts = [self.first]
        while counts[-1] < self.most:
            counts.append(min(self.most, 2 * counts[-1]))
        return tuple(counts)

    def affordable_rounds(self, cost: float) -> int:
        """Return how many rounds of `cost` seconds fit into the time."""
        if self.max_time is None or not cost:
            return self.most
        return max(int(self.share * self.max_time / cost), min(VERDICT_ROUNDS, int(self.max_time / cost)))

    def level(self, joint_level: float) -> float:
        """Return the confidence at each look that leaves that of all looks together at `joint_level`."""
        return 1 - (1 - joint_level) / len(self.interim_rounds)

    def rounds(self, begin: int, end: int) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Yield each round from `begin` up to `end`, and the order of its sides; in blocks, one at a time."""
        there = tuple(range(self.side_count))
        if self.block:
            yield from ((number, (side,)) for side in there for number in range(begin, end))
            return
        yield from ((number, there[::-1] if number % 2 else there) for number in range(begin, end))


FIRST_CALL = "first call"
"""Where a model fails that refuses its inputs by itself."""
OWN_INPUTS = "give each model its own with `baseline_inputs` and `candidate_inputs`"


def share_inputs(jobs: Sequence[Job]) -> bool:
    """Return whether several models were given the same inputs."""
    return len(jobs) > 1 and bool(jobs[0].inputs) and all(job.inputs == jobs[0].inputs for job in jobs)


def name_refusing_side(message: str, side: int, jobs: Sequence[Job]) -> str:
    """Name the model that refused an input, and say how each gets its own if all were given the same."""
    advice = f"; {OWN_INPUTS}" if share_inputs(jobs) else ""
    model = jobs[side].model
    return f"{model.registered or model.locator}: {message.rstrip('.')}{advice}."
