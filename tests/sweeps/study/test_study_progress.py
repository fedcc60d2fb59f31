"""Where a study stands: in words, and in seconds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from modeldyno.base.job.model_ref import ModelIdentity
from modeldyno.base.result.result import Environment
from modeldyno.sweeps.study.study import Budget, Study, Trial, TrialPurpose, TrialRequest, TrialState
from modeldyno.sweeps.study.study_progress import (
    describe_progress,
    describe_trial,
    mean_trial_seconds,
    seconds_left,
)
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
