"""The doctor: a model against itself, what a gate would detect, and what to change."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from modeldyno.base import plugins
from modeldyno.base.errors import OutOfTime, RequestError, RunFailed
from modeldyno.base.metrics.doubt import Doubt
from modeldyno.base.metrics.measurement import Distribution, Measurement
from modeldyno.base.result.result import Environment, Result
from modeldyno.comparison.calibrate import (
    FEWEST_PROCESSES,
    TAG,
    describe_calibration,
    describe_stored_calibration,
    find_calibration_run,
    rehearse_gate,
    run_against_itself,
    suggest_improvements,
)
from modeldyno.comparison.change.gate_rule import GateRule
from modeldyno.engine.runtime.events import INTERRUPTED
from modeldyno.engine.runtime.session import RunSession
from modeldyno.testing.sample_results import a_failed_result, a_job, a_small_result

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from modeldyno.base.job.job import Job
    from modeldyno.base.result.result import Event

SOURCE = np.random.default_rng(5)
STEPS = SOURCE.permutation(np.linspace(-0.01, 0.01, 41))


def a_run(job: Job, *, watch: Callable[[Event], None]) -> Result:
    """Return the Result of a process that takes about a second, with a percent of noise."""
    del watch
    median = float(np.exp(0.01 * SOURCE.standard_normal()))
    latency = Measurement(metric="latency", value=Distribution.of(median * (1 + STEPS)))
    return a_small_result(job=job, measurements=(latency,), environment=Environment(hardware={"cpu": "x"}))


def test_a_model_runs_against_itself_until_the_time_is_over() -> None:
    """Without time, the minimum number of processes is run."""
    result = run_against_itself(a_job(), RunSession(execute=a_run), budget=0.0)
    assert result.processes == FEWEST_PROCESSES
    assert result.job.plan.processes == FEWEST_PROCESSES
    rehearsed = rehearse_gate(result, GateRule(), rounds=10, comparisons=40)
    assert rehearsed.alarms == 0
    assert "0 false alarms in 40 rehearsals (at most 8.8%), and a slowdown of" in describe_calibration(
        rehearsed, 10
    )


def test_too_little_is_said() -> None:
    """A failing model, an interruption, and a Result of few processes."""
    failing = lambda job, watch: a_failed_result(job=job)
    with pytest.raises(RunFailed, match="failed in load"):
        run_against_itself(a_job(), RunSession(execute=failing), budget=1.0)
    interrupted = lambda job, watch: replace(a_run(job, watch=watch), doubts=(INTERRUPTED,))
    with pytest.raises(RunFailed, match="and only 0 were run"):
        run_against_itself(a_job(), RunSession(execute=interrupted), budget=1.0)
    with pytest.raises(RequestError, match="1 processes"):
        rehearse_gate(a_run(a_job(), watch=lambda _: None), GateRule(), rounds=5, comparisons=5)


def test_a_budget_is_for_the_fewest_processes() -> None:
    """They measure for half of it; if not all are run before it ends, nothing can be judged."""
    ran: list[Job] = []

    def cut_off(job: Job, *, watch: Callable[[Event], None]) -> Result:
        if len(ran) > 4:
            raise OutOfTime("Nothing could be measured.")
        ran.append(job)
        return a_run(job, watch=watch)

    with pytest.raises(RunFailed, match="only 4 were run; give it more time with `budget`"):
        run_against_itself(a_job(), RunSession(execute=cut_off), budget=12.0)
    assert {job.plan.max_time for job in ran} == {0.5}


def test_the_gate_finds_what_the_doctor_kept_for_this_hardware(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newest one of the same hardware is described."""
    monkeypatch.setenv("MODELDYNO_STORE", f"sqlite:///{tmp_path}/store.db")
    result = run_against_itself(a_job(), RunSession(execute=a_run), budget=0.0)
    with plugins.store() as store:
        store.put(result, headline="")
        assert find_calibration_run(store, result) is None
        store.tag(result.id, add=[TAG])
        stored = find_calibration_run(store, result)
        assert stored is not None
        assert stored.id == result.id
        assert (
            find_calibration_run(store, replace(result, environment=Environment(hardware={"cpu": "y"})))
            is None
        )
    assert describe_stored_calibration(stored).startswith(
        "on this machine (doctor of 2026-01-02, digits): 0 false alarms"
    )


def test_what_to_change_is_seen_from_the_conditions() -> None:
    """A power-saving governor, a busy machine, and the doubts of the runs."""
    steal = Doubt(code="steal", seen="the hypervisor took a core", advice="use another machine")
    conditions: dict[str, str | int | float] = {"governor": "powersave", "load_average": 9.0}
    busy = Environment(hardware={"cores_allowed": 2}, conditions=conditions)
    suggestions = list(
        suggest_improvements(
            a_small_result(environment=busy, doubts=(steal, Doubt(code="x", seen="", advice="")))
        )
    )
    assert [doubt.code for doubt in suggestions] == ["governor", "busy-machine", "steal"]
    assert list(suggest_improvements(a_small_result())) == []


def test_advice_to_take_longer_names_the_budget() -> None:
    """A doubt of a run names its `max_time`, which the doctor does not have."""
    doubt = Doubt(code="unsettled", seen="it had not settled", advice="give it more time with `max_time`")
    (improvement,) = suggest_improvements(a_small_result(doubts=(doubt,)))
    assert improvement.advice == "give it more time with `budget`"
