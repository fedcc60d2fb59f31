"""Going on with a study: the words for where it stands, and what stops it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from modeldyno.base.errors import StaleStudy
from modeldyno.base.job.model_ref import ModelIdentity
from modeldyno.base.metrics.doubt import Doubt
from modeldyno.base.result.result import Environment, Event, Loaded, Progressed
from modeldyno.sweeps.study.resume_guard import (
    ConsistencyGuard,
    describe_progress,
    describe_trial,
    mean_trial_seconds,
    seconds_left,
)
from modeldyno.sweeps.study.study import Budget, Study, Trial, TrialPurpose, TrialRequest, TrialState
from modeldyno.testing.sample_results import a_result
from modeldyno.testing.sample_studies import a_study

MODEL = ModelIdentity(name="digits", digest="sha256:" + "ab" * 32, framework="onnx")
PLACE = Environment(hardware={"cores": 2, "memory": 8}, software={"python": "3.11", "torch": "2.9"})


def with_trials(*seconds: float, **changes: object) -> Study:
    """Give a study whose trials took so long, each of a point of its own."""
    study = replace(a_study("batch_size=1,2,4"), model=MODEL, environment=PLACE, **changes)  # type: ignore[arg-type]
    for number, each in enumerate(seconds, 1):
        trial = Trial.of(
            a_result(), study.goal, TrialRequest(point={"batch_size": number}), number=number, seconds=each
        )
        study = study.add(trial)
    return study


def guarded(study: Study, *, force: bool = False) -> tuple[ConsistencyGuard, list[Event]]:
    """Give a guard at the beginning of a trial, and what it tells."""
    passed_on: list[Event] = []
    guard = ConsistencyGuard(force=force, watch=passed_on.append)
    guard.begin(study, TrialRequest(point={"batch_size": 4}), left=12.0)
    return guard, passed_on


def test_progress_has_the_trial_before_it() -> None:
    """What a trial says of its progress is told with the trial's own words, and the time of the whole."""
    guard, passed_on = guarded(with_trials(1.0))
    guard(Progressed(stage="latency: steady", runs=5, left=1.0))

    where = "trial 2 (best so far 6,200/s): batch_size=4"
    assert passed_on == [
        Progressed(stage=where, left=12.0),
        Progressed(stage=f"{where}: latency: steady", runs=5, left=12.0),
    ]


def test_the_same_passes() -> None:
    """The same model on the same machine is passed on as it is."""
    guard, passed_on = guarded(with_trials(1.0))
    events: list[Event] = [Loaded(model=MODEL), PLACE]
    for event in events:
        guard(event)

    assert passed_on[1:] == events
    assert guard.doubts == []


def elsewhere(**hardware: int) -> Environment:
    """Give the event of a run on other hardware."""
    return Environment(hardware=dict(hardware), software=PLACE.software)


@pytest.mark.parametrize(
    ("event", "code", "message"),
    [
        (Loaded(model=replace(MODEL, digest="sha256:" + "cd" * 32)), "model-changed", "sha256:cdcdcdcdcdcd"),
        (elsewhere(cores=4, memory=8), "hardware-changed", "2 and is 4"),
        (elsewhere(cores=2), "hardware-changed", "8 and is unknown"),
    ],
)  # fmt: skip
def test_another_one_is_stopped(event: Event, code: str, message: str) -> None:
    """Another model or machine ends the study, or is a doubt where that is forced."""
    with pytest.raises(StaleStudy, match=message):
        guarded(with_trials(1.0))[0](event)

    guard, passed_on = guarded(with_trials(1.0), force=True)
    guard(event)
    guard(event)
    assert [doubt.code for doubt in guard.doubts] == [code]
    assert sum(isinstance(each, Doubt) for each in passed_on) == 1


def test_other_versions_are_doubted() -> None:
    """A version that changed is a doubt; a package that was not needed before is none."""
    guard, _ = guarded(with_trials(1.0))
    guard(replace(PLACE, software={"python": "3.12", "onnx": "1.18"}))

    assert [doubt.code for doubt in guard.doubts] == ["software-changed"]
    assert "python was 3.11 and is 3.12" in guard.doubts[0].seen


def test_the_first_trial_is_compared_with_nothing() -> None:
    """Before anything was measured, any model on any machine is right."""
    passed_on: list[Event] = []
    fresh = ConsistencyGuard(force=False, watch=passed_on.append)
    for study in (None, a_study()):
        fresh.before = study
        fresh(Loaded(model=MODEL))
        fresh(PLACE)

    assert len(passed_on) == 4


def test_words() -> None:
    """A label says which trial of what, and a headline how far it has come."""
    study = with_trials(1.0)

    assert describe_trial(a_study(), TrialRequest(point={}, stage=TrialPurpose.DEFAULT)) == "trial 1: default"
    request = TrialRequest(point={"batch_size": 2, "io_binding": True}, stage=TrialPurpose.VERIFY)
    assert describe_trial(study, request).startswith("trial 2 (best so far ")
    assert describe_trial(study, request).endswith("): again batch_size=2, io_binding=true")
    assert describe_progress(a_study()) == "0 trials"
    assert describe_progress(study) == "1 trial, best so far 6,200/s with batch_size=1"
    assert describe_progress(with_trials(1.0, 1.0)).startswith("2 trials, best so far")


def test_the_usual_time_of_a_trial() -> None:
    """It is that of trials alike, or of any where there are none yet."""
    study = with_trials(1.0, 3.0)
    verified = study.add(replace(study.trials[0], number=3, stage=TrialPurpose.VERIFY, seconds=9.0))
    skipped = study.add(Trial(number=3, point={}, state=TrialState.SKIPPED, seconds=99.0))

    assert mean_trial_seconds(a_study()) == 0.0
    assert (
        mean_trial_seconds(study)
        == mean_trial_seconds(study, verifying=True)
        == mean_trial_seconds(skipped)
        == 2.0
    )
    assert mean_trial_seconds(verified, verifying=True) == 9.0


@pytest.mark.parametrize(
    ("budget", "expected"),
    [
        (Budget(), None),
        (Budget(max_time=60.0), 50.0),
        (Budget(max_trials=5), 6.0),
        (Budget(max_time=15.0, max_trials=5), 5.0),
        (Budget(max_time=5.0), 0.0),
    ],
)
def test_the_time_left(budget: Budget, expected: float | None) -> None:
    """It is known where a budget ends the sweep, by time or by trials."""
    assert seconds_left(with_trials(1.0, 3.0, budget=budget), 10.0) == expected


def test_the_time_left_before_the_first_trial() -> None:
    """A budget of trials tells nothing before one was made."""
    assert seconds_left(a_study(budget=Budget(max_trials=5)), 0.0) is None
