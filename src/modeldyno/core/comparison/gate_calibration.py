"""How often a gate is wrong on a machine, and what it can see there: rehearsed on runs of one model.

The numbers of fresh processes of one model, in the order in which they ran, are laid out as baseline and
candidate in turns, as a live gate has them, and the gate's own rule judges them, its confirmations and added
rounds included. Every alarm is false; with a slowdown put into the candidate, every one is right.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from modeldyno.core.comparison.change_test import between
from modeldyno.core.comparison.default_metrics import SMALLEST, kin, smallest_named
from modeldyno.core.comparison.gate_rule import Rule, rule_on
from modeldyno.core.metrics.constraints import Verdict
from modeldyno.core.stats.statistics import load_numpy
from modeldyno.core.stats.units import SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from modeldyno.core.comparison.comparison import Change
    from modeldyno.core.comparison.gate_rule import Compare, Ruling
    from modeldyno.core.metrics.metric import Query

Numbers: TypeAlias = "Mapping[Query, Sequence[float]]"
"""By query, one number of each process, in the order in which they ran."""

POWER = 0.8
"""Share of the slowdowns that are found, from which on an effect counts as one that can be."""
_BLOCK = 2
"""Rounds that are drawn together: neighbours in time are alike."""
_STEPS = 9
_LARGEST = 1.0
"""Slowdown beyond which a gate is called blind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """What a gate does on a machine, by rehearsal."""

    comparisons: int
    alarms: int
    """Of a model against itself; each is false."""
    undecided: int
    rounds: float
    """Median number that was bought, those of confirmations included."""
    through: float | None
    """The same of those that were let through; None where none was."""
    margin: int
    """Of as many candidates whose slowdown is as large as what matters: those that were let through."""
    smallest: float | None
    """Slowdown that is found in `POWER` of the cases; None where not even a doubling is."""


def rehearsed(
    numbers: Numbers, *, slowdown: float = 0.0, smallest: Mapping[str, float] = SMALLEST, begin: int = 0
) -> Compare:
    """Lay processes out in turns (A B, B A), and judge stretches of rounds as a live gate would.

    Args:
        numbers: of processes of one model.
        slowdown: put into every time of the candidate, relative.
        smallest: effects that matter.
        begin: the process that comes first.
    """
    sides = {query: _sides(values[begin:]) for query, values in numbers.items()}
    rounds = min(len(before) for before, _ in sides.values())
    families = len({kin(query) for query in numbers})

    def compare(first: int, end: int, level: float) -> tuple[Change, ...] | None:
        if end > rounds:
            return None
        each = 1 - (1 - level) / families
        return tuple(
            between(
                query,
                before[first:end],
                [factor * value for value in after[first:end]],
                smallest=smallest_named(query, smallest),
                level=each,
                paired=True,
            )
            for query, (before, after) in sides.items()
            for factor in [1 + slowdown if query.unit == SECONDS else 1.0]
        )

    return compare


def _sides(values: Sequence[float]) -> tuple[list[float], list[float]]:
    """Split processes, the two of a round next to each other, into baseline and candidate: to and fro."""
    before, after = [], []
    for number in range(len(values) // 2):
        pair = values[2 * number], values[2 * number + 1]
        before.append(pair[number % 2])
        after.append(pair[1 - number % 2])
    return before, after


def calibrate(
    numbers: Numbers,
    rule: Rule,
    *,
    rounds: int,
    comparisons: int = 1000,
    smallest: Mapping[str, float] = SMALLEST,
    seed: int = 0,
) -> Calibration:
    """Rehearse the gate on resampled runs: blocks of neighbours, drawn with replacement.

    Args:
        numbers: of at least eight processes of one model.
        rule: of the gate.
        rounds: how many a gate can buy within its budget.
        comparisons: of the model with itself.
        smallest: effects that matter.
        seed: of the draws.
    """
    rule = replace(rule, most=rounds)
    drawn = list(resamples(numbers, rounds, comparisons, seed))
    rulings = [rule_on(rehearsed(each, smallest=smallest), rule) for each in drawn]
    held = [ruling for ruling in rulings if ruling.verdict is Verdict.HELD]
    few = drawn[: max(1, comparisons // 5)]
    return Calibration(
        comparisons=comparisons,
        alarms=sum(ruling.verdict is Verdict.BROKEN for ruling in rulings),
        undecided=sum(ruling.verdict is Verdict.UNDECIDED for ruling in rulings),
        rounds=_median(rulings),
        through=_median(held) if held else None,
        margin=sum(_let_through(each, rule, smallest) for each in drawn),
        smallest=detectable(few, rule, smallest=smallest),
    )


def _median(rulings: Sequence[Ruling]) -> float:
    return float(load_numpy().median([ruling.rounds for ruling in rulings]))


def _let_through(numbers: Numbers, rule: Rule, smallest: Mapping[str, float]) -> bool:
    """Say whether a slowdown as large as is allowed is let through."""
    least = min((smallest_named(query, smallest) for query in numbers if query.unit == SECONDS), default=0.0)
    found = rule_on(rehearsed(numbers, slowdown=least, smallest=smallest), rule)
    return found.verdict is Verdict.HELD


def power(drawn: Sequence[Numbers], rule: Rule, slowdown: float, smallest: Mapping[str, float]) -> float:
    """Give the share of the cases in which a slowdown fails the gate."""
    found = (rule_on(rehearsed(each, slowdown=slowdown, smallest=smallest), rule) for each in drawn)
    return sum(ruling.verdict is Verdict.BROKEN for ruling in found) / len(drawn)


def detectable(drawn: Sequence[Numbers], rule: Rule, *, smallest: Mapping[str, float]) -> float | None:
    """Find the slowdown that fails the gate in `POWER` of the cases, by bisection on its logarithm."""
    low, high = 0.001, _LARGEST
    if power(drawn, rule, high, smallest) < POWER:
        return None
    for _ in range(_STEPS):
        middle = (low * high) ** 0.5
        low, high = (low, middle) if power(drawn, rule, middle, smallest) >= POWER else (middle, high)
    return high


def resamples(numbers: Numbers, rounds: int, draws: int, seed: int) -> Iterator[Numbers]:
    """Draw sequences of two processes a round, in blocks of neighbouring rounds, each as it was or reversed.

    The same processes are drawn for all metrics, so that what goes together stays together.
    """
    source = load_numpy().random.default_rng(seed)
    processes = min(map(len, numbers.values()))
    length = min(2 * _BLOCK, processes)
    for _ in range(draws):
        places: list[int] = []
        while len(places) < 2 * rounds:
            start = 2 * int(source.integers((processes - length) // 2 + 1))  # what ran together stays so
            block = list(range(start, start + length))
            places += block if source.integers(2) else block[::-1]
        yield {query: [values[place] for place in places] for query, values in numbers.items()}
