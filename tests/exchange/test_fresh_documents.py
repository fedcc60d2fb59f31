"""What was just measured holds: a document and its doubts have one reading of everything."""

from __future__ import annotations

from itertools import cycle

import numpy as np
import pytest

import modeldyno
from modeldyno.base.metrics.measurement_plan import Plan
from modeldyno.engine.probes import timing_loop


@pytest.fixture
def restless_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each reading of the clock's cost differ from the one before: nothing, or far too much."""
    costs = cycle((0.0, 1.0))
    monkeypatch.setattr(
        timing_loop, "clock_facts", lambda: {"clock_resolution": 1e-9, "timer_cost": next(costs)}
    )


def short_call(x: int) -> int:
    return x + 1


@pytest.mark.parametrize("count", [2, pytest.param(500, marks=pytest.mark.slow)])
@pytest.mark.usefixtures("restless_clock", "brief_measurements")
def test_fresh_results_hold(count: int) -> None:
    """A profile is verified, whatever the clock costs when it is asked."""
    for _ in range(count):
        result = modeldyno.profile(
            short_call, 1, probes=("latency", "throughput"), max_time=0.2, precision=0.5, store=False,
            progress=False,
        )  # fmt: skip

        assert modeldyno.verify(result).wrong == ()


@pytest.mark.parametrize("count", [1, pytest.param(50, marks=pytest.mark.slow)])
@pytest.mark.usefixtures("restless_clock", "brief_measurements")
def test_fresh_studies_and_their_trials_hold(count: int) -> None:
    """Each trial of a sweep of a fast function, and the study itself."""
    for _ in range(count):
        study = modeldyno.sweep(
            lambda x: x, example=np.ones((4, 8), np.float32), space="batch_size=1,2", max_trials=2,
            plan=Plan(max_time=0.3, precision=0.5), progress=False,
        )  # fmt: skip
        names = [trial.result for trial in study.trials if trial.result]

        assert modeldyno.verify(study).wrong == ()
        assert [modeldyno.verify(name).wrong for name in names] == [()] * len(names)
