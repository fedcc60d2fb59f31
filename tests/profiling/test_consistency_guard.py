"""What stops a study that is resumed with another model or machine."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from modeldyno.base.errors import StaleStudy
from modeldyno.base.job.model_ref import ModelIdentity
from modeldyno.base.metrics.doubt import Doubt
from modeldyno.base.result.result import Environment, Event, Loaded, Progressed
from modeldyno.profiling.consistency_guard import ConsistencyGuard

MODEL = ModelIdentity(name="digits", digest="sha256:" + "ab" * 32, framework="onnx")
PLACE = Environment(hardware={"cores": 2, "memory": 8}, software={"python": "3.11", "torch": "2.9"})
LABEL = "trial 2 (best so far 6,200/s): batch_size=4"


@dataclass(frozen=True)
class Before:
    """What was measured before."""

    model: ModelIdentity | None = MODEL
    environment: Environment | None = PLACE


def guarded(*, force: bool = False) -> tuple[ConsistencyGuard, list[Event]]:
    """Give a guard at the beginning of a trial, and what it tells."""
    passed_on: list[Event] = []
    guard = ConsistencyGuard(force=force, watch=passed_on.append)
    guard.begin(Before(), LABEL, left=12.0)
    return guard, passed_on


def test_progress_has_the_trial_before_it() -> None:
    """What a trial says of its progress is told with the trial's own words, and the time of the whole."""
    guard, passed_on = guarded()
    guard(Progressed(stage="latency: steady", runs=5, left=1.0))

    assert passed_on == [
        Progressed(stage=LABEL, left=12.0),
        Progressed(stage=f"{LABEL}: latency: steady", runs=5, left=12.0),
    ]


def test_the_same_passes() -> None:
    """The same model on the same machine is passed on as it is."""
    guard, passed_on = guarded()
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
        guarded()[0](event)

    guard, passed_on = guarded(force=True)
    guard(event)
    guard(event)
    assert [doubt.code for doubt in guard.doubts] == [code]
    assert sum(isinstance(each, Doubt) for each in passed_on) == 1


def test_other_versions_are_doubted() -> None:
    """A version that changed is a doubt; a package that was not needed before is none."""
    guard, _ = guarded()
    guard(replace(PLACE, software={"python": "3.12", "onnx": "1.18"}))

    assert [doubt.code for doubt in guard.doubts] == ["software-changed"]
    assert "python was 3.11 and is 3.12" in guard.doubts[0].seen


def test_the_first_trial_is_compared_with_nothing() -> None:
    """Before anything was measured, any model on any machine is right."""
    passed_on: list[Event] = []
    fresh = ConsistencyGuard(force=False, watch=passed_on.append)
    for before in (None, Before(model=None, environment=None)):
        fresh.before = before
        fresh(Loaded(model=MODEL))
        fresh(PLACE)

    assert len(passed_on) == 4
