"""Baselines and regressions from Python."""

from __future__ import annotations

import pickle
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

import modeldyno
from modeldyno import gate
from modeldyno.base import codec, plugins
from modeldyno.base.errors import RequestError, RunFailed
from modeldyno.base.metrics.constraints import Verdict
from modeldyno.base.metrics.doubt import Doubt
from modeldyno.base.metrics.measurement import Distribution, Measurement, observed_number
from modeldyno.base.metrics.measurement_plan import Plan
from modeldyno.compat import Figures, detect_regressions, load_baseline
from modeldyno.errors import UndecidedWarning
from modeldyno.testing.sample_results import a_failed_result, a_small_result

if TYPE_CHECKING:
    from pathlib import Path

    from modeldyno.base.result.result import Result


STEADY = "call:modeldyno.testing.known_latency:steady"
BRIEF = Plan(max_time=0.1, min_time=0.02, min_runs=5, precision=0.5)


def taken(seconds: float) -> Result:
    """Make a Result of five processes."""
    runs = [
        [seconds * (1 + 1e-4 * (17 * n % 40) + 2e-3 * process) for n in range(40)] for process in range(5)
    ]
    return a_small_result(measurements=(Measurement(metric="latency", value=Distribution.of(*runs)),))


def test_regressions_are_a_list_that_is_true_when_there_are_any(tmp_path: Path) -> None:
    """Files and Results are taken alike; each change has its figures."""
    path = tmp_path / "baseline.json"
    codec.write(path, codec.encode(taken(0.01)))
    baseline = load_baseline(path)
    assert not detect_regressions(baseline, taken(0.01))
    with pytest.warns(UndecidedWarning, match=r"Whether .* is undecided: latency\.p50 .*modeldyno\.gate"):
        assert not detect_regressions(baseline, taken(0.0103))
    (regression,) = detect_regressions(path, taken(0.015), max_regression=0.05)
    assert str(regression.query) == "latency.p50"
    assert regression.difference == pytest.approx(0.5, abs=0.01)
    assert not detect_regressions(path, taken(0.015), max_regression={"latency": 0.6})
    with pytest.raises(RequestError, match="has throughput"):
        detect_regressions(path, taken(0.01), metrics=["throughput"])
    with pytest.raises(RequestError, match=r"max_regression= '5' is not between 0% and 100%; write 5%"):
        detect_regressions(path, taken(0.01), max_regression=5)


def alone(seconds: float, **changes: Any) -> Result:
    """Make a Result of one process."""
    samples = [seconds * (1 + 1e-4 * (17 * n % 40)) for n in range(200)]
    made = a_small_result(measurements=(Measurement(metric="latency", value=Distribution.of(samples)),))
    return replace(made, **changes)


def test_what_model_profiler_gives_is_taken_as_it_is() -> None:
    """Figures are accepted on both sides; a failed model raises."""
    regressions = detect_regressions(Figures(taken(0.0041)), Figures(taken(0.0101)))

    assert isinstance(regressions, modeldyno.compat.Regressions)
    assert (regressions.verdict, regressions.undecided, regressions.held) == (Verdict.BROKEN, (), ())
    assert re.fullmatch(
        r"latency\.p50 4\.1\d* ms -> 10\.\d+ ms, \+146% \(\+14\d to \+14\d%\): worse", str(regressions)
    )
    assert repr(regressions) == f"<Regressions (broken): {regressions}>"
    assert str(detect_regressions(taken(0.01), Figures(taken(0.01)))) == "no regression in latency.p50"
    with pytest.raises(RunFailed, match="There is no device"):
        detect_regressions(taken(0.01), Figures(None, failure="There is no device."))
    with pytest.raises(RunFailed, match="failed in load: The child took 2 GiB"):
        detect_regressions(taken(0.01), Figures(a_failed_result()))


def test_one_process_on_each_side_is_undecided_aloud() -> None:
    """The list is empty, and a warning says that it is undecided and what to do."""
    with pytest.warns(UndecidedWarning, match="measure both in five, with ModelProfiler") as warned:
        regressions = modeldyno.compat.detect_regressions(alone(0.0041), alone(0.006))

    assert warned[0].filename == __file__
    assert list(regressions) == []
    assert (regressions.verdict, [str(change.query) for change in regressions.undecided]) == (
        Verdict.UNDECIDED,
        ["latency.p50"],
    )
    assert str(regressions).startswith("undecided: latency.p50 4.1")


def test_what_neighbours_leave_open_is_said_to_be_theirs() -> None:
    """More processes would not decide it, a quiet machine would."""
    before = alone(0.0041)
    noisy = alone(
        0.02,
        measurements=(*alone(0.02).measurements, observed_number("foreign_cpu", 1.9)),
        doubts=(Doubt(code="interference", seen="1.9 cores were busy with others", advice="measure again"),),
    )
    with pytest.warns(
        UndecidedWarning, match="Other processes may have .*; measure both again while the machine"
    ):
        assert not detect_regressions(before, noisy)


def test_what_one_process_leaves_open_is_measured_again_in_five() -> None:
    """The five show a tenth against a baseline of one process; what one process decides costs nothing."""
    process_counts: list[int] = []

    def measure_again(processes: int) -> Result:
        process_counts.append(processes)
        return taken(0.0115)

    (regression,) = detect_regressions(alone(0.01), Figures(alone(0.0115), measure_again=measure_again))
    assert regression.difference == pytest.approx(0.15, abs=0.01)
    assert process_counts == [5]
    assert detect_regressions(taken(0.01), Figures(taken(0.015), measure_again=measure_again))
    with pytest.warns(UndecidedWarning, match="measure the baseline in five"):
        assert not detect_regressions(alone(0.011), Figures(alone(0.0115), measure_again=measure_again))
    assert process_counts == [5, 5]


def test_a_model_that_has_changed_since_is_not_measured_again() -> None:
    """The verdict is on what was measured, not on what lies at that path now."""
    before = alone(0.0115).model
    assert before is not None
    other = replace(taken(0.02), model=replace(before, digest="of another"))
    with pytest.warns(UndecidedWarning, match="measure both in five"):
        assert not detect_regressions(alone(0.01), Figures(alone(0.0115), measure_again=lambda _: other))


def test_figures_go_to_another_process_without_their_profiler() -> None:
    """They are pickled as before, although a profiler may hold what cannot be."""
    figures = pickle.loads(pickle.dumps(Figures(taken(0.01), measure_again=lambda _: None)))
    assert figures["latency"]["p50"] == pytest.approx(10, rel=0.01)
    assert figures.measure_again is None


def test_the_history_of_the_store_says_what_one_process_cannot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten results that differ by 0.2 % make +10 % a regression, of one process on each side."""
    monkeypatch.setenv("MODELDYNO_STORE", f"sqlite:///{tmp_path}/store.db")
    history = [
        alone(
            0.0041 * (1 + 0.002 * (n % 3 - 1)),
            id=f"{n:012x}",
            created=f"2026-01-{n + 1:02d}T00:00:00.000+00:00",
        )
        for n in range(10)
    ]
    with plugins.store() as store:
        for each in history:
            store.put(each, headline="")
    today = "2026-01-10T12:00:00.000+00:00"
    other = replace(history[0].environment, software={"python": "2.7"})

    (regression,) = detect_regressions(history[3], alone(0.00451, id="e" * 12, created=today))
    assert regression.difference == pytest.approx(0.1, abs=0.01)
    assert not detect_regressions(history[3], alone(0.0041, id="d" * 12, created=today))
    with pytest.warns(UndecidedWarning):  # the history is of another software
        assert not detect_regressions(replace(history[3], environment=other), alone(0.00451), force=True)


def test_other_versions_of_the_model_are_no_noise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Versions that differ by half do not hide that one of them became a tenth slower."""
    monkeypatch.setenv("MODELDYNO_STORE", f"sqlite:///{tmp_path}/store.db")
    with plugins.store() as store:
        for n in range(16):
            result = alone(
                0.0041 * (1 + 0.5 * (n * 5 % 4)) * (1 + 0.001 * (n // 4 % 2)),
                id=f"{n:012x}",
                created=f"2026-01-{n + 1:02d}T00:00:00.000+00:00",
            )
            assert result.model is not None
            model = replace(result.model, digest=f"version {n * 5 % 4}")
            store.put(replace(result, model=model), headline="")
    days = ("2026-01-01T12:00:00.000+00:00", "2026-01-10T12:00:00.000+00:00")

    before, after = (
        alone(seconds, id=str(day) * 12, created=created)
        for day, (seconds, created) in enumerate(zip((0.0041, 0.00451), days, strict=True), 1)
    )
    (regression,) = detect_regressions(before, after)
    assert regression.difference == pytest.approx(0.1, abs=0.01)


@pytest.mark.slow  # ten processes; tests/cli/test_check.py measures in three
def test_a_gate_measures_from_python() -> None:
    """A model that is far slower than its baseline is broken; its Result is in the report."""
    report = gate(
        STEADY, taken(1e-6), probes=["latency"], plan=BRIEF, force=True,
        require=["latency.min <= 1ns"], budget=1e6, metrics=["latency.p50"],
    )  # fmt: skip
    assert report.verdict is Verdict.BROKEN
    assert [check.kind for check in report.of(Verdict.BROKEN)] == ["bound", "change"]
    assert report.result.processes == 10


@pytest.mark.usefixtures("nothing_is_ended")
def test_a_gate_keeps_its_result_as_a_baseline_if_it_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The measured Result is in the store with its tags; one that fails a bound is no baseline."""
    monkeypatch.setenv("MODELDYNO_STORE", f"sqlite:///{tmp_path}/store.db")
    baseline = modeldyno.profile(STEADY, plan=BRIEF, probes="latency")
    report = gate(
        STEADY, baseline, plan=BRIEF, probes="latency", budget=1.0, tags="look", save_as_baseline="main",
        require="latency.min <= 1us",
    )  # fmt: skip

    assert report.verdict is Verdict.BROKEN
    assert modeldyno.read("look").id == report.result.id
    with pytest.raises(RequestError, match="no baseline @main"):
        load_baseline("@main")
    with pytest.raises(RequestError, match="kept in the store"):
        gate(STEADY, baseline, store=False, save_as_baseline="main")


def test_the_doctor_keeps_what_it_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its figures are those of the rehearsals, and the Result has the tag doctor."""
    monkeypatch.setenv("MODELDYNO_STORE", f"sqlite:///{tmp_path}/store.db")
    monkeypatch.setattr("modeldyno.comparison.api.gate.run_against_itself", lambda *_words, **_more: twelve())
    checkup = modeldyno.doctor(budget=1.0, max_regression="5%", tags="mine")

    assert checkup.rounds == 6
    assert checkup.calibration.comparisons == 1000
    assert "against itself, 12 processes" in checkup.sentence
    assert modeldyno.read("doctor").id == modeldyno.read("mine").id == checkup.result.id


def twelve() -> Result:
    """Make a Result of twelve processes that differ by chance."""
    runs = [
        [0.01 * (1 + 1e-4 * (17 * n % 40) + 1e-3 * (7 * process % 12)) for n in range(40)]
        for process in range(12)
    ]
    made = a_small_result(measurements=(Measurement(metric="latency", value=Distribution.of(*runs)),))
    return replace(made, job=replace(made.job, plan=replace(made.job.plan, processes=12)))
