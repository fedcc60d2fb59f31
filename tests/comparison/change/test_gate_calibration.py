"""Rehearsals of the gate on simulated processes: false alarms, power, the smallest effect."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from modeldyno.base.metrics.constraints import Verdict
from modeldyno.base.metrics.metric import Query
from modeldyno.comparison.change.gate_calibration import (
    calibrate,
    detectable_slowdown,
    detection_rate,
    rehearse_gate,
    resample_runs,
)
from modeldyno.comparison.change.gate_rule import GateRule, decide_gate

if TYPE_CHECKING:
    from modeldyno.comparison.change.gate_calibration import Numbers

SPEED, MEMORY = Query.parse("latency.p50"), Query.parse("process_memory.max")
ROUNDS = 27
RULE = GateRule(most=ROUNDS)


def processes(count: int, seed: int = 0, *, spread: float = 0.015, tails: float = 0.05) -> Numbers:
    """Simulate processes on a shared machine: spread, slow drift, dependence, modes, neighbours."""
    source = np.random.default_rng(seed)
    slow = np.zeros(count)
    for place in range(1, count):
        slow[place] = 0.9 * slow[place - 1] + 0.4 * spread * source.standard_normal()
    drift = 0.04 * np.sin(np.arange(count) / count * 6)
    modes = (source.random(count) < 0.3) * spread
    neighbours = (source.random(count) < tails) * np.abs(source.standard_t(2, count)) * 0.1
    own = spread * source.standard_normal(count)
    memory = 5e8 * np.exp(0.005 * source.standard_normal(count))
    return {
        SPEED: np.exp(own + slow + drift + modes + neighbours).tolist(),
        MEMORY: memory.tolist(),
    }


def test_rounds_go_to_and_fro_and_a_slowdown_is_put_into_times() -> None:
    """The first of a round is the baseline, and in the next round the candidate; memory is left alone."""
    compare = rehearse_gate({SPEED: [1.0, 2.0, 2.0, 1.0, 1.0, 2.0], MEMORY: [7.0] * 6}, slowdown=0.5)
    changes = compare(0, 3, 0.95)
    assert changes is not None
    speed, memory = changes
    assert (speed.baseline, speed.candidate) == pytest.approx((1.0, 3.0))
    assert (memory.baseline, memory.candidate) == pytest.approx((7.0, 7.0))
    assert compare(0, 4, 0.95) is None


def test_draws_keep_neighbours_and_metrics_together() -> None:
    """A drawn sequence has processes of the pool, in pairs that were neighbours, the same for all metrics."""
    numbers = {SPEED: [float(n) for n in range(1, 11)], MEMORY: [10.0 * n for n in range(1, 11)]}
    for drawn in resample_runs(numbers, 6, 5, seed=1):
        assert list(drawn[MEMORY]) == [10 * n for n in drawn[SPEED]]
        assert len(drawn[SPEED]) >= 12
        assert all(abs(b - a) == 1 for a, b in zip(drawn[SPEED][::2], drawn[SPEED][1::2], strict=True))


def test_a_calibration_counts_alarms_and_finds_the_smallest_effect() -> None:
    """On a calm machine nothing is alarmed, few rounds are bought, and some percent are seen."""
    calibration = calibrate(processes(40, spread=0.005, tails=0.0), RULE, rounds=ROUNDS, comparisons=60)
    assert (calibration.comparisons, calibration.alarms) == (60, 0)
    assert 5 <= calibration.rounds <= ROUNDS
    assert calibration.smallest is not None
    assert 0.02 < calibration.smallest < 0.06


def test_a_machine_on_which_nothing_can_be_seen_is_called_so() -> None:
    """Where processes differ by a factor of ten, not even a doubling is found."""
    source = np.random.default_rng(3)
    wild = {SPEED: np.exp(1.2 * source.standard_normal(30)).tolist()}
    assert (
        detectable_slowdown(list(resample_runs(wild, 8, 20, seed=0)), GateRule(most=8), smallest={}) is None
    )


@pytest.mark.parametrize("disturbed", [0.0, 0.05])
def test_enough_rounds_find_a_slowdown_of_five_percent(disturbed: float) -> None:
    """Of a function that is steady to 0.5 %, in 90 of 100 gates, and none passes; unchanged, none fails."""
    source, rounds = np.random.default_rng(2), GateRule().enough
    size = 2 * rounds
    gates: list[Numbers] = [
        {
            SPEED: np.exp(
                0.005 * source.standard_normal(size)
                + (source.random(size) < disturbed) * np.abs(source.standard_t(2, size)) * 0.1
            ).tolist(),
            MEMORY: (1e7 + 4096 * source.integers(-20, 20, size)).tolist(),
        }
        for _ in range(100)
    ]
    rule = GateRule().within(rounds)
    unchanged = [decide_gate(rehearse_gate(each), rule).verdict for each in gates]
    slower = [decide_gate(rehearse_gate(each, slowdown=0.05), rule).verdict for each in gates]
    assert Verdict.BROKEN not in unchanged
    assert Verdict.HELD not in slower
    assert slower.count(Verdict.BROKEN) >= 90


@pytest.mark.slow
@pytest.mark.parametrize(("spread", "tails"), [(0.005, 0.0), (0.015, 0.05), (0.03, 0.1)])
def test_a_thousand_comparisons_of_a_model_with_itself_raise_at_most_four_alarms(
    spread: float, tails: float
) -> None:
    """With drift, dependence and neighbours; and twice the smallest effect is found in 95 of 100 cases."""
    stretches = [processes(2 * ROUNDS, seed, spread=spread, tails=tails) for seed in range(1000)]
    pool = processes(600, 1, spread=spread, tails=tails)
    alarms = sum(decide_gate(rehearse_gate(each), RULE).verdict is Verdict.BROKEN for each in stretches)
    smallest = calibrate({q: v[:60] for q, v in pool.items()}, RULE, rounds=ROUNDS, comparisons=200).smallest
    assert alarms <= 4
    assert smallest is not None
    assert detection_rate(stretches[:200], RULE, 2 * smallest, {}) >= 0.95
