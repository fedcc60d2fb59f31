"""Calibrate a gate on a machine: its false alarms and detectable effects, rehearsed on runs of one model.

Numbers of fresh processes of one model, in the order in which they ran, are laid out as interleaved baseline
and candidate, as in a live gate, and judged by the gate's own rule, confirmations and added rounds included.
Every alarm is false; with a slowdown injected into the candidate, every alarm is right.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from modeldyno.base.metrics.constraints import Verdict
from modeldyno.base.stats.statistics import load_numpy
from modeldyno.base.stats.units import SECONDS
from modeldyno.comparison.change.change_test import judge_numbers
from modeldyno.comparison.change.default_metrics import SMALLEST, metric_family, smallest_effect
from modeldyno.comparison.change.gate_rule import GateRule, decide_gate

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from modeldyno.base.metrics.metric import Query
    from modeldyno.comparison.change.comparison import Change
    from modeldyno.comparison.change.gate_rule import Compare, GateDecision

Numbers: TypeAlias = "Mapping[Query, Sequence[float]]"
"""By query, one number of each process, in the order in which they ran."""

POWER = 0.8
"""Share of slowdowns that must be found for an effect to count as detectable."""
_BLOCK = 2
"""Rounds that are resampled together, because neighbours in time are alike."""
_STEPS = 9
_LARGEST = 1.0
"""Slowdown beyond which a gate is called blind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """How a gate behaves on a machine, by rehearsal."""

    comparisons: int
    alarms: int
    """Of a model against itself; each is false."""
    undecided: int
    rounds: float
    """Median number of rounds, those of confirmations included."""
    through: float | None
    """The same for comparisons that passed; None if none did."""
    margin: int
    """Comparisons that passed, out of as many with a slowdown as large as what matters."""
    smallest: float | None
    """Slowdown that is found in `POWER` of the cases; None if not even a doubling is."""


def rehearse_gate(
    numbers: Numbers, *, slowdown: float = 0.0, smallest: Mapping[str, float] = SMALLEST
) -> Compare:
    """Lay out processes in turns (A B, B A), and return a function that judges ranges of rounds.

    Args:
        numbers: of processes of one model.
        slowdown: relative slowdown of every time of the candidate.
        smallest: smallest effects that matter.
    """
    halves = {query: _split_rounds(values) for query, values in numbers.items()}
    rounds = min(len(before) for before, _ in halves.values())
    families = len({metric_family(query) for query in numbers})

    def compare(first: int, end: int, level: float) -> tuple[Change, ...] | None:
        if end > rounds:
            return None
        level_each = 1 - (1 - level) / families
        return tuple(
            judge_numbers(
                query,
                before[first:end],
                [factor * value for value in after[first:end]],
                smallest=smallest_effect(query, smallest),
                level=level_each,
                paired=True,
            )
            for query, (before, after) in halves.items()
            for factor in [1 + slowdown if query.unit == SECONDS else 1.0]
        )

    return compare


def _split_rounds(values: Sequence[float]) -> tuple[list[float], list[float]]:
    """Split processes into baseline and candidate, two per round, in alternating order."""
    before, after = [], []
    for number in range(len(values) // 2):
        pair = values[2 * number], values[2 * number + 1]
        before.append(pair[number % 2])
        after.append(pair[1 - number % 2])
    return before, after


def calibrate(
    numbers: Numbers,
    rule: GateRule,
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
        rounds: how many a gate can run within its budget.
        comparisons: number of comparisons of the model with itself.
        smallest: smallest effects that matter.
        seed: of the resampling.
    """
    rule = rule.within(rounds)
    samples = list(resample_runs(numbers, rounds, comparisons, seed))
    rulings = [decide_gate(rehearse_gate(sample, smallest=smallest), rule) for sample in samples]
    passed = [ruling for ruling in rulings if ruling.verdict is Verdict.HELD]
    subset = samples[: max(1, comparisons // 5)]
    return Calibration(
        comparisons=comparisons,
        alarms=sum(ruling.verdict is Verdict.BROKEN for ruling in rulings),
        undecided=sum(ruling.verdict is Verdict.UNDECIDED for ruling in rulings),
        rounds=_median(rulings),
        through=_median(passed) if passed else None,
        margin=sum(_is_passed(sample, rule, smallest) for sample in samples),
        smallest=detectable_slowdown(subset, rule, smallest=smallest),
    )


def _median(rulings: Sequence[GateDecision]) -> float:
    return float(load_numpy().median([ruling.rounds for ruling in rulings]))


def _is_passed(numbers: Numbers, rule: GateRule, smallest: Mapping[str, float]) -> bool:
    """Return whether the largest allowed slowdown passes."""
    least = min((smallest_effect(query, smallest) for query in numbers if query.unit == SECONDS), default=0.0)
    ruling = decide_gate(rehearse_gate(numbers, slowdown=least, smallest=smallest), rule)
    return ruling.verdict is Verdict.HELD


def detection_rate(
    drawn: Sequence[Numbers], rule: GateRule, slowdown: float, smallest: Mapping[str, float]
) -> float:
    """Return the share of cases in which a slowdown fails the gate."""
    rulings = (
        decide_gate(rehearse_gate(sample, slowdown=slowdown, smallest=smallest), rule) for sample in drawn
    )
    return sum(ruling.verdict is Verdict.BROKEN for ruling in rulings) / len(drawn)


def detectable_slowdown(
    drawn: Sequence[Numbers], rule: GateRule, *, smallest: Mapping[str, float]
) -> float | None:
    """Find the slowdown that fails the gate in `POWER` of the cases, by bisection on its logarithm."""
    low, high = 0.001, _LARGEST
    if detection_rate(drawn, rule, high, smallest) < POWER:
        return None
    for _ in range(_STEPS):
        middle = (low * high) ** 0.5
        low, high = (
            (low, middle) if detection_rate(drawn, rule, middle, smallest) >= POWER else (middle, high)
        )
    return high


def resample_runs(numbers: Numbers, rounds: int, draws: int, seed: int) -> Iterator[Numbers]:
    """Draw sequences of two processes per round, in blocks of neighbouring rounds, in order or reversed.

    The same processes are drawn for all metrics, so that their correlation is kept.
    """
    source = load_numpy().random.default_rng(seed)
    processes = min(map(len, numbers.values()))
    length = min(2 * _BLOCK, processes)
    for _ in range(draws):
        indices: list[int] = []
        while len(indices) < 2 * rounds:
            start = 2 * int(source.integers((processes - length) // 2 + 1))  # keeps rounds together
            block = list(range(start, start + length))
            indices += block if source.integers(2) else block[::-1]
        yield {query: [values[index] for index in indices] for query, values in numbers.items()}
