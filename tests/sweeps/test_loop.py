"""The loop of a sweep: the order of measurements, what ends it, and how it is resumed."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace
from itertools import groupby, islice
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from modeldyno.base import plugins
from modeldyno.base.errors import OutOfTime, RequestError, RunFailed, StaleStudy, UnknownName, Unloadable
from modeldyno.base.job.model_ref import ModelRef
from modeldyno.base.metrics.doubt import Doubt
from modeldyno.base.metrics.measurement_plan import Plan
from modeldyno.base.result.result import FailureKind, Progressed
from modeldyno.stores import sql
from modeldyno.sweeps.loop import check_study, next_trial, run_trials, save_steps
from modeldyno.sweeps.study import verification
from modeldyno.sweeps.study.goal import Goal, Objective
from modeldyno.sweeps.study.ranking import ranking
from modeldyno.sweeps.study.study import Budget, TrialPurpose, TrialRequest, TrialState
from modeldyno.sweeps.study.trial_effort import LONGEST
from modeldyno.sweeps.study.verification import next_curve_trial
from modeldyno.testing.sample_studies import SimulatedTrials, a_served_study, a_study, make_goal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from modeldyno.base.job.job import Job
    from modeldyno.base.result.result import Event
    from modeldyno.engine.runtime.trial_executor import TrialExecutor
    from modeldyno.sweeps.study.search_space import Point
    from modeldyno.sweeps.study.study import Study


def by_batch(point: dict[str, Any]) -> float:
    """Larger batches are faster; graph optimization doubles the rate."""
    return 100.0 * float(point.get("batch_size", 1)) * (2 if point.get("graph_optimization") == "all" else 1)


def follow(points: list[Point]) -> Any:
    """Return a strategy that proposes these points in order."""

    def propose(study: Study) -> TrialRequest | None:
        searched = sum(trial.stage is TrialPurpose.SEARCH for trial in study.trials)
        return TrialRequest(point=points[searched]) if searched < len(points) else None

    return SimpleNamespace(requires=(), propose=propose)


@pytest.fixture
def strategy(monkeypatch: pytest.MonkeyPatch) -> Callable[[list[Point]], None]:
    """Make every study follow these points."""
    return lambda points: monkeypatch.setattr(plugins, "strategy", lambda _name: follow(points))


@pytest.fixture
def unverified(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disable verification."""
    monkeypatch.setattr(verification, "next_verification_trial", lambda _study: None)


def swept(study: Study, rooms: TrialExecutor, **options: Any) -> Study:
    """Run a study to its end."""
    for final, _, _ in run_trials(study, rooms=rooms, **options):
        study = final
    return study


def stages(study: Study) -> list[TrialPurpose]:
    return [trial.stage for trial in study.trials]


# --- the order -------------------------------------------------------------------------------------


def test_the_default_comes_first_and_verification_last() -> None:
    """The default is measured, then every proposed point, then the best again along with the default."""
    bench = SimulatedTrials(rate=by_batch)
    study = swept(a_study("batch_size=1,2,4"), bench)

    assert stages(study)[:4] == [TrialPurpose.DEFAULT, *[TrialPurpose.SEARCH] * 3]
    assert set(stages(study)[4:]) == {TrialPurpose.VERIFY}
    assert study.trials[0].point == {}
    assert {"batch_size": 4} in [trial.point for trial in study.trials[4:]]
    assert [fresh for fresh, _ in bench.jobs] == [stage is TrialPurpose.VERIFY for stage in stages(study)]


@pytest.mark.usefixtures("unverified")
def test_each_step_has_its_trial_and_its_result() -> None:
    """A step is the study with one more trial, which names the accompanying Result."""
    before = a_study("batch_size=1,2")
    for study, trial, result in run_trials(before, rooms=SimulatedTrials(rate=by_batch)):
        assert study == replace(before.add(trial), model=study.model, environment=study.environment)
        assert result is not None
        assert trial.result == result.id
        assert trial.number == len(study.trials)
        before = study

    assert before.model is not None
    assert before.environment is not None


@pytest.mark.usefixtures("unverified")
def test_the_default_of_a_server_is_measured_at_its_best_load(
    strategy: Callable[[list[Point]], None],
) -> None:
    """With a ladder of loads the default is measured at a few, and at the best of them."""
    strategy([])
    bench = SimulatedTrials(rate=lambda point: min(float(point["concurrency"]), 8.0))
    study = swept(a_served_study("concurrency=1..64*2", "instances=1,2"), bench)
    loads = [trial.point["concurrency"] for trial in study.trials if trial.stage is TrialPurpose.DEFAULT]

    assert len(loads) <= 4
    assert 8 in loads


@pytest.mark.usefixtures("unverified")
def test_looks_of_the_search_are_short() -> None:
    """A search trial measures for at most 2 s, whatever the Plan says for verification."""
    bench = SimulatedTrials(rate=by_batch)
    study = a_study("batch_size=1,2")
    plan = Plan(max_time=20.0, precision=0.01)
    swept(replace(study, job=replace(study.job, plan=plan)), bench)

    assert {job.plan.max_time for _, job in bench.jobs} == {LONGEST}
    assert {job.plan.precision for _, job in bench.jobs} == {0.15}
    assert {(job.plan.percentiles, job.plan.min_runs) for _, job in bench.jobs} == {((), 300)}


# --- what goes wrong -------------------------------------------------------------------------------


@pytest.mark.usefixtures("unverified")
def test_a_failed_trial_is_a_row() -> None:
    """A trial that runs out of memory has its cause, and the sweep goes on."""
    bench = SimulatedTrials(
        rate=by_batch, fails=lambda point: FailureKind.OOM if point.get("threads") == 2 else None
    )
    study = swept(a_study("threads=1,2,4"), bench)
    failed = [trial for trial in study.trials if trial.state is TrialState.FAILED]

    assert [trial.point for trial in failed] == [{"threads": 2}]
    assert (failed[0].kind, failed[0].failure) == ("oom", "load: it took too much")
    assert study.trials[-1].point == {"threads": 4}


@pytest.mark.usefixtures("unverified")
@pytest.mark.parametrize(("stage", "runs"), [("open", 1), ("load", 3)])
def test_a_server_that_does_not_start_is_started_once(stage: str, runs: int) -> None:
    """Its other loads are skipped with the reason; one that fails only under load is tried under each."""
    bench = SimulatedTrials(
        rate=lambda point: float(point["concurrency"]),
        fails=lambda point: FailureKind.SERVER if point.get("instances") == 2 else None,
        fails_at=stage,
    )
    study = swept(a_served_study("instances=1,2", "concurrency=1,2,4"), bench)
    lost = [trial for trial in study.trials if trial.state is not TrialState.DONE]

    assert [trial.point["instances"] for trial in lost] == [2, 2, 2]
    assert sum(job.config.get("instances") == 2 for _, job in bench.jobs) == runs
    assert all(f"{stage}: it took too much" in trial.failure for trial in lost)
    assert sum(trial.state is TrialState.FAILED for trial in lost) == runs


@pytest.mark.usefixtures("unverified")
def test_a_point_that_cannot_be_is_a_row(strategy: Callable[[list[Point]], None]) -> None:
    """A point that the backend refuses is skipped, with the reason, and nothing is run for it."""
    points: list[Point] = [{"max_batch": 0, "queue_delay": 5}, {"max_batch": 4, "queue_delay": 5}]
    strategy(points)
    bench = SimulatedTrials(rate=lambda _point: 1.0)
    study = swept(a_served_study("max_batch=0,4", "queue_delay=5"), bench)

    assert [trial.state for trial in study.trials] == [TrialState.DONE, TrialState.SKIPPED, TrialState.DONE]
    assert "turns batching off" in study.trials[1].failure
    assert len(bench.jobs) == 2


class Lost(SimulatedTrials):
    """Simulated trials whose model cannot be loaded, or whose requests are refused, from some Job on."""

    __slots__ = ("after", "error")

    def __init__(self, error: Exception, after: int, **options: Any) -> None:
        """Refuse with this error after the given number of Jobs."""
        super().__init__(**options)
        self.error, self.after = error, after

    def _events(self, job: Job, *, fresh: bool) -> list[Event]:
        if len(self.jobs) > self.after:
            raise self.error
        return super()._events(job, fresh=fresh)


def ended(study: Study, rooms: TrialExecutor) -> tuple[Study, str]:
    """Run a study until it is refused; return its last state, and the message."""
    message, left = "", study
    try:
        for final, _, _ in run_trials(study, rooms=rooms):
            left = final
    except RequestError as error:
        message = f"{type(error).__name__}: {error}"
    return left, message


@pytest.mark.parametrize("after", [1, 4])
def test_a_model_that_is_gone_ends_the_sweep(after: int) -> None:
    """It would fail at every point; no point is marked as invalid, so the study can be resumed later."""
    study = a_study("batch_size=1,2,4", default={"batch_size": 1})
    left, message = ended(study, Lost(Unloadable("There is no file."), after, rate=by_batch))
    finished = swept(left, SimulatedTrials(rate=by_batch))

    assert (message, len(left.trials)) == ("Unloadable: There is no file.", after)
    assert not finished.skipped
    assert {trial.point["batch_size"] for trial in finished.measured} == {1, 2, 4}


def test_what_was_measured_can_be() -> None:
    """A point that is refused during verification was valid before: something else is wrong."""
    study = a_study("batch_size=1,2,4", default={"batch_size": 1})
    left, message = ended(study, Lost(RequestError("out of ports"), 3, rate=by_batch))

    assert message == "RequestError: out of ports"
    assert [trial.state for trial in left.trials] == [TrialState.DONE] * 3


def test_a_sweep_that_cannot_succeed_ends() -> None:
    """If the first two trials fail, the error has the cause, the end of the log and where to find it."""
    bench = SimulatedTrials(rate=by_batch, fails=lambda _point: FailureKind.CRASH)
    with pytest.raises(RunFailed) as caught:
        swept(a_study("batch_size=1,2,4"), bench)

    assert len(bench.jobs) == 2
    for part in ("first 2 trials failed", "it took too much", "the last word", "modeldyno show"):
        assert part in str(caught.value)


def test_a_goal_that_is_not_measured_ends_the_sweep() -> None:
    """A metric that no probe measures cannot be improved, which is known after the first trial."""
    goal = Goal(objectives=(Objective.parse("energy"),))
    bench = SimulatedTrials(rate=by_batch)
    with pytest.raises(RequestError, match="goal asks for energy"):
        swept(a_study("batch_size=1,2", goal=goal), bench)

    assert len(bench.jobs) == 1


def test_a_first_trial_cut_off_by_the_time_limit_says_so() -> None:
    """What it had no time for is not called a metric that a trial does not measure."""

    class CutOff(SimulatedTrials):
        def _events(self, job: Job, *, fresh: bool) -> list[Event]:
            cut = Doubt(code="out-of-time", seen="no time was left for throughput", advice="")
            return [*super()._events(job, fresh=fresh), cut]

    bench = CutOff(rate=by_batch)
    goal = Goal(objectives=(Objective.parse("energy"),))
    with pytest.raises(OutOfTime, match="ended its first trial before energy was measured"):
        swept(a_study("batch_size=1,2", goal=goal), bench)


def test_a_strategy_that_does_not_listen_is_stopped(strategy: Callable[[list[Point]], None]) -> None:
    """A strategy that keeps proposing invalid points would never end."""
    strategy([{"max_batch": 0, "queue_delay": 5}] * 2)
    with pytest.raises(RunFailed, match="proposed again a point that cannot be run"):
        swept(a_served_study("max_batch=0,4", "queue_delay=5"), SimulatedTrials(rate=lambda _point: 1.0))


# --- before anything is measured -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("axis", "message"),
    [
        ("bath_size=1,2", "no axis 'bath_size'; did you mean 'batch_size'"),
        ("concurrencies=1,2", "did you mean 'concurrency'"),
        ("threads=0,1", "takes a whole number from 1"),
        ("graph_optimization=all,most", "graph_optimization"),
        ("concurrency=1,2", "calls the model within a process"),
        ("backend=onnxruntime,pytorch", "no backend 'pytorch'"),
    ],
)
def test_a_wrong_axis_is_refused_at_once(axis: str, message: str) -> None:
    """Names and values are checked before anything is measured, with suggestions for names."""
    bench = SimulatedTrials(rate=by_batch)
    with pytest.raises(RequestError, match=message):
        swept(a_study(axis), bench)

    assert [job.probes for _, job in bench.jobs] in ([], [("static",)])


@pytest.mark.usefixtures("unverified")
def test_a_dimension_of_the_inputs_is_an_axis() -> None:
    """A name that is no knob is looked up among the dimensions, and sizes them in each trial."""
    bench = SimulatedTrials(rate=lambda point: 1000.0 / float(point.get("seq", 128)))
    study = swept(a_study("seq=16,64"), bench)

    assert [job.sizes for _, job in bench.jobs] == [{}, {}, {"seq": 16}, {"seq": 64}]
    assert [trial.point for trial in study.trials] == [{}, {"seq": 16}, {"seq": 64}]


def test_fresh_processes_are_not_asked_for_twice() -> None:
    """A sweep verifies in fresh processes by itself."""
    study = a_study("batch_size=1,2")
    with pytest.raises(RequestError, match="leave out processes"):
        check_study(replace(study, job=replace(study.job, plan=Plan(processes=5))))


def test_a_space_that_a_strategy_cannot_search_is_refused() -> None:
    """Before the default is measured, and before a plan is printed."""
    with pytest.raises(RequestError, match="ladder"):
        check_study(a_study("batch_size=1,2", "threads=1,2", strategy="ladder"))


def test_an_unknown_strategy_is_refused() -> None:
    """Strategies are plugins, and an unknown one lists them."""
    with pytest.raises(UnknownName, match="no strategy 'griddy'; did you mean 'grid'"):
        check_study(a_study("batch_size=1,2", strategy="griddy"))


# --- budgets ---------------------------------------------------------------------------------------


def test_so_many_trials_and_no_more() -> None:
    """The budget of trials is kept, and a third of it reserved for verification."""
    study = swept(
        a_study("batch_size=1,2,4,8,16,32,64", budget=Budget(max_trials=6)), SimulatedTrials(rate=by_batch)
    )

    assert len(study.measured) == 6
    assert stages(study).count(TrialPurpose.VERIFY) == 2


@pytest.mark.parametrize(("most", "verified"), [(7, 0), (8, 0), (10, 2)])
def test_a_budget_of_all_points_covers_a_grid(most: int, verified: int) -> None:
    """If the budget covers all points, all are measured; then come the default and verification."""
    study = a_study("batch_size=1,2,4,8,16,32,64", budget=Budget(max_trials=most))
    final = swept(study, SimulatedTrials(rate=by_batch))

    assert {t.point["batch_size"] for t in final.measured if t.point} == {1, 2, 4, 8, 16, 32, 64}
    assert (len(final.measured), stages(final).count(TrialPurpose.VERIFY)) == (most, verified)
    assert stages(final).count(TrialPurpose.DEFAULT) == (most > 7)


@pytest.mark.parametrize("most", [3, 5, 6])
def test_what_is_kept_to_verify_is_searched_with_where_there_is_nothing_to_verify(most: int) -> None:
    """The loads of the default alone need no verification; the reserve is used for others."""
    axes = ("instances=1..4", "concurrency=1..64*2")
    study = a_served_study(*axes, default={"instances": 1}, budget=Budget(max_trials=most))
    final = swept(study, SimulatedTrials(rate=lambda point: 100.0 * float(point.get("concurrency", 1))))

    assert len(final.measured) == most


def test_a_grid_that_holds_the_default_begins_with_it() -> None:
    """If the default is a point of the space, it is not measured additionally."""
    study = a_study("batch_size=1,2,4", default={"batch_size": 2}, budget=Budget(max_trials=3))
    final = swept(study, SimulatedTrials(rate=by_batch))

    assert [t.point["batch_size"] for t in final.measured] == [2, 1, 4]


def test_the_time_of_earlier_calls_counts() -> None:
    """A study without time left measures nothing more; with more time, it goes on."""
    study = swept(a_study("batch_size=1,2,4", budget=Budget(max_trials=2)), SimulatedTrials(rate=by_batch))
    slow = replace(study, trials=tuple(replace(t, seconds=60.0) for t in study.trials))
    bench = SimulatedTrials(rate=by_batch)

    assert swept(replace(slow, budget=Budget(max_time=100.0)), bench) == replace(
        slow, budget=Budget(max_time=100.0)
    )
    assert bench.jobs == []
    assert len(swept(replace(slow, budget=Budget(max_time=1000.0)), bench).trials) > 2


def test_the_search_leaves_time_for_verification() -> None:
    """The search ends after two thirds of the time, and verification follows."""
    study = swept(a_study("batch_size=1,2,4,8", budget=Budget(max_trials=2)), SimulatedTrials(rate=by_batch))
    slow = replace(
        study, trials=tuple(replace(t, seconds=10.0) for t in study.trials), budget=Budget(max_time=42.0)
    )
    ask = next_trial(slow, 20.0)

    assert ask is not None
    assert ask.stage is TrialPurpose.VERIFY
    assert (late := next_trial(slow, 35.0)) is None, late


# --- going on --------------------------------------------------------------------------------------


@pytest.mark.parametrize("stop", range(1, 9))
def test_nothing_is_measured_twice(stop: int, tmp_path: Path) -> None:
    """A sweep that is stopped after any trial goes on as if it had never stopped."""
    study = a_study("batch_size=1,2,4", "io_binding=true,false", budget=Budget(max_trials=12))
    uninterrupted = swept(study, SimulatedTrials(rate=by_batch, noise=0.02))
    first, second = SimulatedTrials(rate=by_batch, noise=0.02), SimulatedTrials(rate=by_batch, noise=0.02)
    with sql.open(f"sqlite:///{tmp_path / 'store.db'}") as store:
        store.put_study(study, headline="")
        steps = save_steps(run_trials(study, rooms=first), store)
        list(islice(steps, stop))
        final = swept(store.study(study.id), second)

    assert [timeless(trial) for trial in final.trials] == [timeless(trial) for trial in uninterrupted.trials]
    assert len(first.jobs) == stop
    assert len(first.jobs) + len(second.jobs) == len(uninterrupted.measured)


def timeless(trial: Any) -> Any:
    """Remove what differs between runs."""
    return replace(trial, seconds=0.0, result="")


def test_other_models_and_machines_are_refused() -> None:
    """A study is not resumed with another model or hardware, before anything is timed."""
    study = swept(a_study("batch_size=1,2,4", budget=Budget(max_trials=2)), SimulatedTrials(rate=by_batch))
    more = replace(study, budget=Budget())
    for bench, what in (
        (SimulatedTrials(rate=by_batch, digest="sha256:" + "00" * 32), "the model is another one"),
        (
            SimulatedTrials(rate=by_batch, hardware={"processor": "a test processor", "cores": 64}),
            "cores was 2 and is 64",
        ),
    ):
        steps = run_trials(more, rooms=bench)
        with pytest.raises(StaleStudy, match=what):
            next(steps)


def test_other_models_are_a_doubt_where_that_is_forced() -> None:
    """With force it goes on, and every further trial has the doubt."""
    study = swept(a_study("batch_size=1,2,4", budget=Budget(max_trials=2)), SimulatedTrials(rate=by_batch))
    bench = SimulatedTrials(rate=by_batch, digest="sha256:" + "00" * 32, hardware={"cores": 1})
    final = swept(replace(study, budget=Budget(max_trials=4)), bench, force=True)

    assert [{"model-changed", "hardware-changed"} <= set(t.doubts) for t in final.trials] == [
        False,
        False,
        True,
        True,
    ]


def test_other_versions_are_a_doubt_that_is_told_once() -> None:
    """Software that has changed since the first trial is reported once, and noted in the trials."""
    study = swept(a_study("batch_size=1,2,4", budget=Budget(max_trials=2)), SimulatedTrials(rate=by_batch))
    events: list[Event] = []
    software = {"python": "3.11.7", "onnxruntime": "1.19.0", "torch": "2.9"}
    more = replace(study, budget=Budget(max_trials=4))
    final = swept(more, SimulatedTrials(rate=by_batch, software=software), watch=events.append)
    doubts = [event for event in events if isinstance(event, Doubt)]

    assert [doubt.code for doubt in doubts] == ["software-changed"]
    assert "onnxruntime was 1.18.0 and is 1.19.0" in doubts[0].seen
    assert "torch" not in doubts[0].seen
    assert ["software-changed" in trial.doubts for trial in final.trials] == [False, False, True, True]


# --- interruptions, and what is told ---------------------------------------------------------------


def test_an_interruption_ends_after_the_trial() -> None:
    """The current trial is finished after an interruption, and is the last."""
    bench = SimulatedTrials(rate=by_batch)
    study = swept(a_study("batch_size=1,2,4"), bench, interrupted=lambda: int(len(bench.jobs) >= 3))

    assert len(study.trials) == 3
    assert {trial.state for trial in study.trials} == {TrialState.DONE}


def test_progress_says_where_the_sweep_stands() -> None:
    """Number and point of the trial, the best so far, and the estimated remaining time."""
    events: list[Event] = []
    swept(
        a_study("batch_size=1,2", budget=Budget(max_time=600.0)),
        SimulatedTrials(rate=by_batch),
        watch=events.append,
    )
    progress = [event for event in events if isinstance(event, Progressed)]
    lines = [event.stage for event in progress]

    assert lines[0] == "trial 1: default"
    assert "trial 2 (best so far 200/s): batch_size=1: latency: steady" in lines
    assert any(stage.startswith("trial 4 (best so far 400/s): again batch_size=2") for stage in lines)
    assert all(event.left is not None and 0 < event.left <= 600 for event in progress)


# --- large spaces ----------------------------------------------------------------------------------


def a_million(**changes: Any) -> Study:
    """Return a study of 10^6 points."""
    threads = [f"{name}=1..10" for name in ("batch_size", "threads", "inter_threads")]
    others = ["seq=1..10", "len=1..10", "time=1..10"]
    return a_study(*threads, *others, **changes)


def test_a_million_points_are_not_walked_through(
    monkeypatch: pytest.MonkeyPatch, strategy: Callable[[list[Point]], None]
) -> None:
    """A large space is checked by its axes: no point is created until one is proposed."""
    study = a_million()
    strategy([])
    made: list[Any] = []

    def counted(*_: object) -> Iterator[Point]:
        made.append(1)
        yield from ()

    monkeypatch.setattr(type(study.space), "points", counted)
    monkeypatch.setattr("modeldyno.sweeps.loop.check_dimensions", lambda *_: None)
    final, _, _ = next(run_trials(study, rooms=SimulatedTrials(rate=by_batch)))

    assert study.space.size == 10**6
    assert len(final.trials) == 1
    assert made == []


@pytest.mark.slow
def test_a_million_points_start_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sweep of 10^6 points has its first trial within a second, if that takes no time."""
    monkeypatch.setattr("modeldyno.sweeps.loop.check_dimensions", lambda *_: None)
    begun = time.monotonic()
    next(run_trials(a_million(strategy="quick"), rooms=SimulatedTrials(rate=by_batch)))

    assert time.monotonic() - begun < 1.0


# --- what a function takes --------------------------------------------------------------------------


def a_study_of(tmp_path: Path, source: str, *axes: str) -> Study:
    """Return a study of the function `f` of a file."""
    (tmp_path / "f.py").write_text(source)
    study = a_study(*axes, name="f")
    model = ModelRef(scheme="call", locator=f"{tmp_path / 'f.py'}:f")
    return replace(study, job=replace(study.job, model=model, backend="python", config={"batch_size": 1}))


@pytest.mark.parametrize(
    ("source", "what"),
    [
        ("def f():\n    return 1\n", "it takes no inputs"),
        ("def f(x):\n    return x\n\nf_inputs = (3.0,)\n", "no input has a dimension"),
    ],
)
def test_batches_of_a_function_that_takes_none_are_refused(tmp_path: Path, source: str, what: str) -> None:
    """Before anything is measured: only a batch of one could be, which is none."""
    refusal = f"The axis batch_size=1,2 has no effect on f, as {what}; leave it out"
    with pytest.raises(RequestError, match=refusal):
        check_study(a_study_of(tmp_path, source, "batch_size=1,2"))
    check_study(a_study_of(tmp_path, source, "batch_size=1"))


@pytest.mark.parametrize("companion", ["", "import numpy\nf_inputs = (numpy.zeros((4, 3)),)\n"])
def test_batches_of_other_functions_are_tried(tmp_path: Path, companion: str) -> None:
    """An input of an unknown shape may have one, and what an example has is known."""
    check_study(a_study_of(tmp_path, f"def f(x):\n    return x\n\n{companion}", "batch_size=1,2"))


def test_a_function_that_cannot_be_loaded_is_refused_at_once(tmp_path: Path) -> None:
    """Each trial would be, for the same reason."""
    with pytest.raises(UnknownName, match="'f'"):
        check_study(a_study_of(tmp_path, "g = 1\n", "batch_size=1,2"))
    with pytest.raises(Unloadable, match="cannot be called"):
        check_study(a_study_of(tmp_path, "f = 1\n", "batch_size=1,2"))


# --- loads between two -----------------------------------------------------------------------------


def test_loads_between_two_are_measured_before_the_best_is_verified() -> None:
    """The strategy does not see them, and goes on to propose points of the space alone."""
    goal = make_goal(maximize="throughput", require=["throughput <= 45/s"])
    study = a_served_study(
        "concurrency=1..64*2", "instances=1,2", goal=goal, default={"instances": 1}, budget=Budget(bisect=9)
    )
    study = swept(study, SimulatedTrials(rate=lambda p: float(p["instances"]) * float(p["concurrency"])))
    order = [stage for stage, _ in groupby(stages(study))]
    best = ranking(study).best

    assert order == [TrialPurpose.DEFAULT, TrialPurpose.SEARCH, TrialPurpose.BISECT, TrialPurpose.VERIFY]
    assert best is not None
    assert best.point["concurrency"] not in study.space.axes[0].values


def test_loads_between_two_are_within_the_budget() -> None:
    """Of the trials that are for the search, the last quarter is theirs."""
    goal = make_goal(maximize="throughput", require=["throughput <= 45/s"])
    axes = ("concurrency=1..64*2", "instances=1,2,3,4")
    study = a_served_study(*axes, goal=goal, default={"instances": 1}, budget=Budget(bisect=9, max_trials=18))
    study = swept(study, SimulatedTrials(rate=lambda p: float(p["instances"]) * float(p["concurrency"])))
    count = Counter(stages(study))

    assert count[TrialPurpose.DEFAULT] + count[TrialPurpose.SEARCH] == 9
    assert count[TrialPurpose.BISECT] == 3
    assert len(study.measured) <= 18


def test_loads_between_two_need_a_bound_and_a_load_that_is_varied() -> None:
    """Before anything is measured, in a sentence that says what to give."""
    for axes, goal in ((("concurrency=1,2",), make_goal(maximize="throughput")), (("instances=1,2",), SMALL)):
        with pytest.raises(
            RequestError, match="bisect looks for the largest load within bounds: require one"
        ):
            check_study(a_served_study(*axes, goal=goal, budget=Budget(bisect=3)))


SMALL = make_goal(maximize="throughput", require=["throughput <= 45/s"])


# --- curves ----------------------------------------------------------------------------------------


@pytest.mark.usefixtures("unverified")
def test_after_the_search_the_best_are_measured_at_all_loads(strategy: Callable[[list[Point]], None]) -> None:
    """Each load of the best two that is missing, once; the rest of the space stays as it is."""
    points: list[Point] = [{"instances": i, "concurrency": 4} for i in (1, 2, 3)]
    strategy(points)
    study = a_served_study("concurrency=1,4,8", "instances=1,2,3", budget=Budget(curves=2))
    bench = SimulatedTrials(rate=lambda p: float(p.get("instances", 1)) * min(float(p["concurrency"]), 4.0))
    study = swept(study, bench)
    curves = [trial.point for trial in study.trials if trial.stage is TrialPurpose.CURVE]

    assert [trial.stage for trial in study.trials][-len(curves) :] == [TrialPurpose.CURVE] * len(curves)
    assert curves == [
        {"instances": 3, "concurrency": 1}, {"instances": 3, "concurrency": 8},
        {"instances": 2, "concurrency": 1}, {"instances": 2, "concurrency": 8},
    ]  # fmt: skip


@pytest.mark.usefixtures("unverified")
def test_curves_do_not_change_the_ranking(strategy: Callable[[list[Point]], None]) -> None:
    """Another load that looks better by chance is no candidate: it was not verified."""
    strategy([{"instances": 2, "concurrency": 4}])
    study = a_served_study("concurrency=4,8", "instances=1,2", budget=Budget(curves=1))
    study = swept(
        study, SimulatedTrials(rate=lambda p: float(p.get("instances", 1)) ** 2 * float(p["concurrency"]))
    )
    best = ranking(study).best

    assert study.trials[-1].stage is TrialPurpose.CURVE
    assert best is not None
    assert best.point == ranking(study.searched).best.point  # type: ignore[union-attr]
    assert ranking(study).measurements == len(study.measured)


def test_no_curves_where_none_are_wanted_or_there_is_one_load() -> None:
    """They are asked for, and need a load that is varied."""
    served = a_served_study("concurrency=1,2", "instances=1,2")

    assert next_curve_trial(served) is None
    assert next_curve_trial(a_study("batch_size=1,2", budget=Budget(curves=3))) is None


def test_curves_are_within_the_budget() -> None:
    """A quarter of the time is left to them, and there are no more trials than allowed."""
    study = a_served_study("concurrency=1,2", "instances=1,2", budget=Budget(curves=2, max_trials=4))
    study = swept(study, SimulatedTrials(rate=lambda point: float(point.get("instances", 1))))

    assert len(study.measured) <= 4
