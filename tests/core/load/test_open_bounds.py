"""For which bounds a load goes on, and how long."""

from __future__ import annotations

import numpy as np
import pytest
from tests.support.simulated_load import in_lock_step

from modeldyno.core.load.open_bounds import LONGEST, open_bounds, seconds_to_decide
from modeldyno.core.load.steady_window import SteadyWindow
from modeldyno.core.metrics.constraints import Constraint
from modeldyno.core.spec.load_spec import Load

P95 = Constraint.parse("latency.p95 <= 2s")


def is_open(bound: str, rounds: int, *, slots: int = 4) -> bool:
    """Whether a load goes on for a bound after so many rounds of answers of a second."""
    records = in_lock_step(slots, 1.0, rounds + 2.0, jitter=0.02)
    begin = int(records.due.min())
    end = begin + rounds * 1_000_000_000
    done = records.chosen(records.end <= end)
    window = SteadyWindow(records=done, begin=begin, end=end, load=Load(concurrency=slots))
    return bool(open_bounds(window, (Constraint.parse(bound),)))


@pytest.mark.parametrize(
    ("bound", "rounds", "expected"),
    [
        ("latency.p95 <= 2s", 40, True),  # no answer broke it, but 72 rounds have one beyond the p95
        ("latency.p95 <= 2s", 120, False),
        ("latency.p95 <= 500ms", 40, False),
        ("latency.p95 <= 1.03s", 80, True),  # too close to tell before the percentile is certified
        ("latency.p95 <= 1.03s", 600, False),
        ("time_to_first_token.p95 <= 1s", 20, False),  # not streamed
        ("latency.mean <= 1s", 20, False),
        ("latency.p95@other <= 2s", 20, False),
    ],
)
def test_a_load_goes_on_for_a_percentile_that_is_not_decided(
    bound: str, rounds: int, *, expected: bool
) -> None:
    """Not for what no answer tells, nor for what is clear already."""
    assert is_open(bound, rounds) is expected


def test_nothing_answered_leaves_nothing_to_decide() -> None:
    """Without times there is no bound on them to wait for."""
    records = in_lock_step(1, 1.0, 5.0)
    window = SteadyWindow(records=records, begin=0, end=1, load=Load())
    assert open_bounds(window, (P95,)) == ()


@pytest.mark.parametrize(("answer", "seconds"), [(0.1, 16.25), (4.2, LONGEST), (9.0, 0.0)])
def test_the_time_for_a_bound_suits_the_answers_within_ten_minutes(answer: float, seconds: float) -> None:
    """72 answers of nine seconds, one after the other, would take longer, so it is not tried."""
    assert seconds_to_decide((P95,), answer) == pytest.approx(seconds)
    mean = Constraint.parse("latency.mean <= 1s")
    assert seconds_to_decide((), answer) == seconds_to_decide((mean,), answer) == 0


@pytest.mark.slow
@pytest.mark.parametrize("shared", [0.3, 0.9])
@pytest.mark.parametrize("slots", [1, 4])
def test_a_bound_at_the_truth_is_hardly_ever_found_held(slots: int, shared: float) -> None:
    """Of 2,000 loads in lock-step that stop as soon as no bound is open, at most 2.5 % hold the true p95."""
    rng, held = np.random.default_rng(1), 0
    truth = float(np.exp(0.3 * 1.6448536))
    bound = Constraint.parse(f"service_time.p95 <= {truth}s")
    for _ in range(2000):
        rounds = 600
        noise = np.sqrt(shared) * np.repeat(rng.standard_normal(rounds), slots)
        noise += np.sqrt(1 - shared) * rng.standard_normal(rounds * slots)
        held += _ends_held(np.exp(0.3 * noise), slots, bound)
    assert held / 2000 <= 0.025


def _ends_held(times: np.ndarray, slots: int, bound: Constraint) -> bool:
    from modeldyno.core.metrics.measurement import Distribution, Measurement

    records = in_lock_step(slots, 1.0, times.size / slots - 6.0)
    records.sent[:] = records.end - np.rint(times * 1e9).astype(np.int64)
    begin, rounds = int(records.due.min()), 5
    while True:
        end = begin + rounds * 1_000_000_000
        window = SteadyWindow(records=records.chosen(records.end <= end), begin=begin, end=end, load=Load())
        if not open_bounds(window, (bound,)) or rounds * slots >= times.size:
            break
        rounds = int(np.ceil(1.2 * rounds))
    samples = Distribution.of(times[: rounds * slots])
    return bound.judge((Measurement(metric="service_time", value=samples),)).verdict == "held"
