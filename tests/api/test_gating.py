"""Baselines and regressions from Python."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from modeldyno import wire
from modeldyno.api import detect_regressions, gate, load_baseline
from modeldyno.core.goal import Verdict
from modeldyno.core.measurement import Distribution, Measurement
from modeldyno.core.plan import Plan
from modeldyno.errors import RequestError
from modeldyno.testing.results import a_small_result

if TYPE_CHECKING:
    from pathlib import Path

    from modeldyno.core.result import Result


def taken(seconds: float) -> Result:
    """Make a Result of five processes."""
    runs = [
        [seconds * (1 + 1e-4 * (17 * n % 40) + 2e-3 * process) for n in range(40)] for process in range(5)
    ]
    return a_small_result(measurements=(Measurement(metric="latency", value=Distribution.of(*runs)),))


def test_regressions_are_a_list_that_is_true_when_there_are_any(tmp_path: Path) -> None:
    """Files and Results are taken alike; each change has its figures."""
    path = tmp_path / "baseline.json"
    wire.write(path, wire.encode(taken(0.01)))
    baseline = load_baseline(path)
    assert not detect_regressions(baseline, taken(0.01))
    assert not detect_regressions(baseline, taken(0.0103))
    (found,) = detect_regressions(path, taken(0.015), max_regression=0.05)
    assert str(found.query) == "latency.p50"
    assert found.difference == pytest.approx(0.5, abs=0.01)
    assert not detect_regressions(path, taken(0.015), max_regression={"latency": 0.6})
    with pytest.raises(RequestError, match="has throughput"):
        detect_regressions(path, taken(0.01), metrics=["throughput"])


def test_a_gate_measures_from_python() -> None:
    """A model that takes far longer than its baseline is broken; what was measured is there."""
    plan = Plan(max_time=0.4, min_time=0.05)
    found = gate(
        "call:modeldyno.testing.truth:steady", taken(1e-6), probes=["latency"], plan=plan, force=True,
        require=["latency.min <= 1ns"], budget=1e6, metrics=["latency.min"],
    )  # fmt: skip
    assert found.verdict is Verdict.BROKEN
    assert [check.kind for check in found.of(Verdict.BROKEN)] == ["bound", "change"]
    assert found.result.processes == 10
